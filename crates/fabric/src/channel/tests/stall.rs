//! What counts as silence where `LINKSPAN_STALL_MS` sets an end.

use linkspan_net::WaitSet;

use super::*;

/// Longer than the time that is set.
const PAUSE: Duration = Duration::from_secs(3);

/// Two ends over loopback.
fn ends() -> [Channel; 2] {
    tcp(("LINKSPAN_STALL_MS", "1000"))
}

/// As if the caller had not called for a while.
fn pause(channel: &mut Channel) {
    channel.last_active = Instant::now().checked_sub(PAUSE).unwrap();
    channel.last_tick = channel.last_active;
}

fn receive(channel: &mut Channel) -> StaticBuf {
    let dst = StaticBuf::new(8);
    channel.post_recv(&[(9, dst.slice())]).unwrap().unwrap();
    dst
}

/// Calls until the next periodic check has been made.
fn check(channel: &mut Channel) -> Result<(), String> {
    for _ in 0..=TICK_CALLS {
        channel.progress().map_err(|_| channel.lost().unwrap())?;
    }
    Ok(())
}

/// Something arrives at the second end, by a message that nothing there was posted for.
fn send(from: &mut Channel, to: &mut Channel) {
    let src = StaticBuf::new(8);
    from.post_send(1, src.slice()).unwrap().unwrap();
    from.flush();
    let (mut fds, mut set) = (Vec::new(), WaitSet::new());
    while !to.arm(&mut fds) {
        fds.clear();
    }
    for fd in &fds {
        set.add(*fd);
    }
    set.wait(Some(LONG)).unwrap();
}

#[test]
fn an_operation_in_flight_without_an_answer_ends_the_connection() {
    let [_a, mut b] = ends();
    let _dst = receive(&mut b);
    check(&mut b).unwrap();
    pause(&mut b);
    let why = check(&mut b).unwrap_err();
    assert!(why.contains("silent for") && why.contains("LINKSPAN_STALL_MS"), "{why}");
}

#[test]
fn what_was_before_the_first_operation_is_no_silence() {
    let [_a, mut b] = ends();
    pause(&mut b);
    let _dst = receive(&mut b);
    check(&mut b).unwrap();
    assert!(b.last_active.elapsed() < PAUSE);
}

#[test]
fn an_arrival_ends_a_silence_whichever_call_finds_it() {
    let [mut a, mut b] = ends();
    let _dst = receive(&mut b);
    check(&mut b).unwrap();
    send(&mut a, &mut b);
    pause(&mut b);
    // Not one of those that look at the clock.
    b.calls = 0;
    while !matches!(b.progress(), Ok(Poll::Active)) {
        b.calls = 0;
    }
    check(&mut b).unwrap();
    // Nor where the caller has slept, and what woke it was not read yet.
    send(&mut a, &mut b);
    pause(&mut b);
    b.after_sleep();
    assert_eq!(b.lost(), None);
    // It counts for the next check too, and the caller is told.
    assert!(!b.arm(&mut Vec::new()));
    b.calls = 0;
    assert_eq!(b.progress().unwrap(), Poll::Active);
    b.last_tick = b.last_tick.checked_sub(TICK).unwrap();
    check(&mut b).unwrap();
}

#[test]
fn what_a_check_has_read_is_told_to_whoever_drives() {
    let [mut a, mut b] = ends();
    let _dst = receive(&mut b);
    send(&mut a, &mut b);
    // The keepalive connection has ended, the rails have not: they are read before that is judged.
    assert!(b.read_first());
    assert!(!b.arm(&mut Vec::new()), "nobody would look again");
    b.calls = 0;
    assert_eq!(b.progress().unwrap(), Poll::Active);
    assert_eq!(b.progress().unwrap(), Poll::Idle);
}
