use std::sync::atomic::AtomicU32;
use std::time::Duration;

use super::*;
use crate::WaitSet;

fn readable(bell: &Bell, wait: Duration) -> bool {
    let mut set = WaitSet::new();
    set.add(bell.wait_fd());
    set.wait(Some(wait)).unwrap() > 0
}

#[test]
fn a_bell_rung_while_it_is_heard_is_heard_and_then_silent() {
    const ROUNDS: u32 = 20_000;
    let (bell, round, done) = (Bell::new().unwrap(), AtomicU32::new(0), AtomicU32::new(0));
    let wrong = std::thread::scope(|s| {
        s.spawn(|| {
            for n in 1..=ROUNDS {
                while round.load(Ordering::Acquire) < n {
                    std::thread::yield_now();
                }
                bell.ring();
                done.store(n, Ordering::Release);
            }
        });
        let mut wrong = None;
        for n in 1..=ROUNDS {
            round.store(n, Ordering::Release);
            let mut heard = false;
            while done.load(Ordering::Acquire) < n {
                for _ in 0..64 {
                    bell.hear();
                }
                heard = true;
                std::thread::yield_now();
            }
            if !heard && !readable(&bell, Duration::from_millis(500)) {
                wrong = wrong.or(Some(format!("round {n}: a ring was lost")));
            }
            bell.hear();
            if readable(&bell, Duration::ZERO) {
                wrong = wrong.or(Some(format!("round {n}: it rings on after it was heard")));
            }
        }
        wrong
    });
    assert_eq!(wrong, None);
}
