use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

#[test]
fn one_thread_at_a_time() {
    let lane = Lane::new(0u64);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..20_000 {
                    lane.with(|n| *n += 1).unwrap();
                }
            });
        }
    });
    assert_eq!(lane.close(), Some(80_000));
}

#[test]
fn closed_lane_refuses() {
    let lane = Lane::new(5);
    assert_eq!(lane.close(), Some(5));
    assert_eq!(lane.close(), None);
    assert_eq!(lane.with(|_| ()), Err(Misuse::Poisoned));
}

#[test]
fn panic_poisons_but_close_still_frees() {
    let lane = Lane::new(7);
    let hit = catch_unwind(AssertUnwindSafe(|| lane.with(|_| panic!("planted"))));
    assert!(hit.is_err());
    assert_eq!(lane.with(|n| *n), Err(Misuse::Poisoned));
    assert_eq!(lane.close(), Some(7));
}
