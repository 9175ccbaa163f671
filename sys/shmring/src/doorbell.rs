//! Sleep without lost wake-ups and without a system call while no thread sleeps.
//!
//! The sleeper says that it sleeps and then looks once more; the other side changes something and then asks
//! whether a thread sleeps. The two fences make sure that at least one of them sees the other.

use crate::sync::{AtomicU64, Ordering, fence};

/// Sleeper: announces sleep. Afterwards everything that could be a reason not to sleep must be looked at afresh.
pub fn arm(sleeping: &AtomicU64) {
    sleeping.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// For the sleeper: it is awake again and needs no wake-up.
pub fn disarm(sleeping: &AtomicU64) {
    sleeping.store(0, Ordering::Relaxed);
}

/// Other side, after it has published something: whether the sleeper must be woken, by us.
#[must_use]
pub fn should_notify(sleeping: &AtomicU64) -> bool {
    fence(Ordering::SeqCst);
    // The swap only where a thread sleeps: an unconditional one would take the line from its reader each time.
    sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::AcqRel) != 0
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::{arm, should_notify};
    use crate::sync::{AtomicU64, Ordering};

    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let words = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
            let waker = {
                let words = words.clone();
                thread::spawn(move || {
                    words.1.store(1, Ordering::Release);
                    should_notify(&words.0)
                })
            };
            arm(&words.0);
            let saw = words.1.load(Ordering::Acquire) != 0;
            let rang = waker.join().unwrap();
            assert!(saw || rang, "it sleeps on, with something to do");
        });
    }
}
