//! A request to end early, from a signal handler or another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a test that was interrupted may take to come to its end in good order.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// Ends what is being measured: the timed part stops where it is and what it found is reported. Clones share one request.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Not requested yet.
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Wishes it, for good.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was requested.
    pub fn raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether it was requested, or is within a tenth of a second.
    pub(crate) fn soon(&self) -> bool {
        for _ in 0..100 {
            if self.raised() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.raised()
    }

    /// The flag itself, for a signal handler to set.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
