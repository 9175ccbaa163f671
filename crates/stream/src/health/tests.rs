//! When a stream without acknowledgements counts as dead.

use super::*;

/// After how many timeouts in a row, and how long after the first send, with waits that begin so long and double.
fn dies(first: Duration) -> (u8, Duration) {
    let (mut wait, mut waited) = (first, Duration::ZERO);
    for timeouts in 0..=u8::MAX {
        if is_dead(&TcpInfo { wait, timeouts, ..TcpInfo::default() }) {
            return (timeouts, waited);
        }
        waited += wait;
        wait *= 2;
    }
    panic!("never");
}

#[test]
fn long_round_trips_do_not_put_the_end_off() {
    assert_eq!(dies(Duration::from_millis(200)), (6, Duration::from_millis(12_600)));
    for ms in [300, 500, 800, 1000, 1600, 3000] {
        let (timeouts, waited) = dies(Duration::from_millis(ms));
        assert!(timeouts >= 3 && (11..=22).contains(&waited.as_secs()), "{ms} ms: {timeouts}, {waited:?}");
    }
}

#[test]
fn what_is_answered_lives_however_long_its_round_trips_are() {
    let wait = Duration::from_secs(60);
    for timeouts in 0..3 {
        assert!(!is_dead(&TcpInfo { wait, timeouts, ..TcpInfo::default() }));
    }
    // Probes of a full window: a peer that takes nothing answers, and the wait between them is long.
    assert!(!is_dead(&TcpInfo { wait, probes: 5, ..TcpInfo::default() }));
}
