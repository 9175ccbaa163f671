//! Deadlines that count the time in which we could run.
//!
//! A machine that was suspended, or a container that was frozen, lets the clock run on while neither we nor the guests do
//! anything. Of such a gap only [`LOOK`] is counted; a waiting loop looks at least that often.

use std::time::{Duration, Instant};

/// Longest time between two looks that counts in full.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

/// What is left of a time to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    left: Duration,
    last: Instant,
}

impl Patience {
    /// So much from now on.
    pub(crate) fn new(limit: Duration) -> Patience {
        Patience { left: limit, last: Instant::now() }
    }

    /// How long to wait until the next look; `None` when it is over.
    pub(crate) fn look(&mut self) -> Option<Duration> {
        self.look_at(Instant::now())
    }

    fn look_at(&mut self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.last);
        self.last = now;
        self.left = self.left.saturating_sub(passed.min(LOOK));
        (!self.left.is_zero()).then(|| self.left.min(LOOK))
    }

    /// Waits for a short time; false when it is over.
    pub(crate) fn sleep(&mut self, time: Duration) -> bool {
        match self.look() {
            None => false,
            Some(most) => {
                std::thread::sleep(time.min(most));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests;
