//! Registered memory: the caller's bytes, and the moment at which they are the caller's alone again.
#![forbid(unsafe_code)]

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use linkspan::Memory;

/// Counts who may still use the bytes.
#[derive(Default)]
pub(crate) struct Lease {
    guards: Mutex<usize>,
    cond: Condvar,
}

/// One of them: goes with a [`Memory`] and is dropped when no operation and no region uses it any more.
pub(crate) struct Guard(Arc<Lease>);

impl Lease {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn guard(self: &Arc<Lease>) -> Guard {
        *self.lock() += 1;
        Guard(self.clone())
    }

    /// Waits until the bytes are not in use. True: they are not.
    pub(crate) fn ended(&self, until: Option<Instant>) -> bool {
        let mut guards = self.lock();
        while *guards > 0 {
            guards = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => return false,
                Some(left) => self.cond.wait_timeout(guards, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.cond.wait(guards).unwrap_or_else(PoisonError::into_inner),
            };
        }
        true
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.cond.notify_all();
    }
}

/// A memory as C holds it.
pub(crate) struct Registered {
    pub(crate) memory: Memory,
    /// `None`: allocated by us, and kept mapped by us for as long as anything uses it.
    pub(crate) lease: Option<Arc<Lease>>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use linkspan::{MemSlice, Memory};

    use super::Lease;

    #[test]
    fn a_lease_ends_with_the_last_handle_on_the_memory() {
        let lease = Arc::new(Lease::default());
        let memory = Memory::lend(MemSlice::NONE, true, lease.guard());
        let (other, soon) = (memory.clone(), Instant::now() + Duration::from_millis(10));
        drop(memory);
        assert!(!lease.ended(Some(soon)));
        assert!(Instant::now() >= soon);
        let waiter = std::thread::spawn({
            let lease = lease.clone();
            move || lease.ended(None)
        });
        drop(other);
        assert!(waiter.join().unwrap());
        assert!(lease.ended(Some(Instant::now())));
    }
}
