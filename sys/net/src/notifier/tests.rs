use std::sync::atomic::AtomicU32;
use std::time::Duration;

use super::*;
use crate::WaitSet;

fn readable(notifier: &Notifier, wait: Duration) -> bool {
    let mut set = WaitSet::new();
    set.add(notifier.wait_fd());
    set.wait(Some(wait)).unwrap() > 0
}

#[test]
fn a_notifier_signaled_while_it_is_drained_is_drained_and_then_silent() {
    const ROUNDS: u32 = 20_000;
    let (notifier, round, done) = (Notifier::new().unwrap(), AtomicU32::new(0), AtomicU32::new(0));
    let wrong = std::thread::scope(|s| {
        s.spawn(|| {
            for n in 1..=ROUNDS {
                while round.load(Ordering::Acquire) < n {
                    std::thread::yield_now();
                }
                notifier.signal();
                done.store(n, Ordering::Release);
            }
        });
        let mut wrong = None;
        for n in 1..=ROUNDS {
            round.store(n, Ordering::Release);
            let mut heard = false;
            while done.load(Ordering::Acquire) < n {
                for _ in 0..64 {
                    notifier.drain();
                }
                heard = true;
                std::thread::yield_now();
            }
            if !heard && !readable(&notifier, Duration::from_millis(500)) {
                wrong = wrong.or(Some(format!("round {n}: a signal was lost")));
            }
            notifier.drain();
            if readable(&notifier, Duration::ZERO) {
                wrong = wrong.or(Some(format!("round {n}: it is still readable after it was drained")));
            }
        }
        wrong
    });
    assert_eq!(wrong, None);
}
