//! Tasks that wait for the same thing: each wait has a number, and its waker under that until it is told or dropped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

/// Wakers by the numbers of their waits. What is taken out is woken or dropped when no lock is held: either may run anything.
pub(crate) type Wakers = BTreeMap<u64, Waker>;

/// One wait; `leave` takes its waker out when it is dropped.
pub(crate) struct Wait<F: Fn(u64)> {
    number: u64,
    leave: F,
}

impl<F: Fn(u64)> Wait<F> {
    pub(crate) fn new(leave: F) -> Wait<F> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Wait { number: NEXT.fetch_add(1, Ordering::Relaxed), leave }
    }

    /// A method, so that a closure that asks holds the wait and not a copy of its number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl<F: Fn(u64)> Drop for Wait<F> {
    fn drop(&mut self) {
        (self.leave)(self.number);
    }
}
