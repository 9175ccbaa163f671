use std::time::{Duration, Instant};

use super::{LOOK, Patience};

#[test]
fn a_gap_counts_as_one_look() {
    let mut patience = Patience::new(LOOK * 3);
    let begun = patience.last;
    let hour = Duration::from_secs(3600);
    assert_eq!(patience.look_at(begun + hour), Some(LOOK));
    assert_eq!(patience.left, LOOK * 2);
    assert_eq!(patience.look_at(begun + hour + LOOK / 2), Some(LOOK));
    assert_eq!(patience.look_at(begun + hour + LOOK), Some(LOOK));
    assert_eq!(patience.left, LOOK);
    assert_eq!(patience.look_at(begun + hour + LOOK * 2), None);
}

#[test]
fn it_ends() {
    let mut patience = Patience::new(Duration::from_millis(30));
    let begun = Instant::now();
    while patience.sleep(Duration::from_millis(10)) {}
    assert!(begun.elapsed() >= Duration::from_millis(30));
}
