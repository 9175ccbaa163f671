use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

#[test]
fn one_thread_at_a_time() {
    let spin = SpinCell::new(0u64);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..20_000 {
                    spin.with(|n| *n += 1).unwrap();
                }
            });
        }
    });
    assert_eq!(spin.close(), Some(80_000));
}

#[test]
fn closed_lane_refuses() {
    let spin = SpinCell::new(5);
    assert_eq!(spin.close(), Some(5));
    assert_eq!(spin.close(), None);
    assert_eq!(spin.with(|_| ()), Err(Misuse::Poisoned));
}

#[test]
fn panic_poisons_but_close_still_frees() {
    let spin = SpinCell::new(7);
    let hit = catch_unwind(AssertUnwindSafe(|| spin.with(|_| panic!("planted"))));
    assert!(hit.is_err());
    assert_eq!(spin.with(|n| *n), Err(Misuse::Poisoned));
    assert_eq!(spin.close(), Some(7));
}
