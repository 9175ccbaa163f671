//! Exclusive access to the data path of one comm.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::Misuse;

const FREE: u8 = 0;
const HELD: u8 = 1;
const POISONED: u8 = 2;
const EMPTY: u8 = 3;

/// A value that one thread uses at a time. NCCL drives a data path from one thread, so the lock is there to make
/// misuse and the abort path harmless: it is never contended in a healthy job, costs one atomic exchange, and nobody
/// who holds it waits for anything.
pub(crate) struct SpinCell<T> {
    state: AtomicU8,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is reached only by the thread that moved `state` from FREE to HELD.
unsafe impl<T: Send> Sync for SpinCell<T> {}

/// Sets the state when it goes out of scope: POISONED if a panic unwinds through, what was asked for otherwise.
struct Release<'a> {
    state: &'a AtomicU8,
    to: u8,
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.state.store(self.to, Ordering::Release);
    }
}

impl<T> SpinCell<T> {
    pub(crate) const fn new(value: T) -> SpinCell<T> {
        SpinCell { state: AtomicU8::new(FREE), value: UnsafeCell::new(Some(value)) }
    }

    fn acquire(&self) -> u8 {
        let mut spins = 0u32;
        loop {
            match self.state.compare_exchange_weak(FREE, HELD, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return FREE,
                Err(HELD) => {
                    spins += 1;
                    // The holder may have lost its core; it cannot go on while we keep ours.
                    if spins.is_multiple_of(64) { std::thread::yield_now() } else { spin_loop() }
                }
                Err(FREE) => {}
                Err(state) => return state,
            }
        }
    }

    /// Runs `f` on the value. A panic in `f` makes the lane unusable from then on.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R, Misuse> {
        if self.acquire() != FREE {
            return Err(Misuse::Poisoned);
        }
        let mut release = Release { state: &self.state, to: POISONED };
        // SAFETY: this thread holds the lane until `release` drops, and `f` cannot keep the reference.
        let value = unsafe { &mut *self.value.get() };
        let Some(value) = value else {
            return Err(Misuse::Poisoned);
        };
        let result = f(value);
        release.to = FREE;
        Ok(result)
    }

    /// Takes the value out for good, also after a panic; later uses are refused.
    pub(crate) fn close(&self) -> Option<T> {
        loop {
            match self.acquire() {
                FREE => break,
                EMPTY => return None,
                poisoned => {
                    if self.state.compare_exchange(poisoned, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                        break;
                    }
                }
            }
        }
        let _release = Release { state: &self.state, to: EMPTY };
        // SAFETY: as in `with`.
        unsafe { (*self.value.get()).take() }
    }
}

#[cfg(test)]
mod tests;
