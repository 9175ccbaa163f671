//! Memory that a serving process gives to all of its clients together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes for the buffers of tests, over all sessions. Clones share them.
#[derive(Clone, Debug)]
pub struct Quota(Arc<AtomicU64>);

impl Quota {
    /// So many bytes.
    pub fn new(bytes: u64) -> Quota {
        Quota(Arc::new(AtomicU64::new(bytes)))
    }

    /// Takes `bytes` before they are allocated. `None`: less is left.
    pub fn take(&self, bytes: u64) -> Option<Share> {
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes));
        taken.ok().map(|_| Share { left: self.0.clone(), bytes })
    }

    /// What is left.
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A part of a [`Quota`]. Dropping it gives it back: after the memory was freed.
#[derive(Debug)]
#[must_use]
pub struct Share {
    left: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.left.fetch_add(self.bytes, Ordering::AcqRel);
    }
}
