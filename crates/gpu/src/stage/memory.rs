//! Pinned memory of all staged rails together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::GpuError;

/// How much pinned memory staged rails may have in all. Clones share the limit.
#[derive(Clone, Debug)]
pub struct StageMemory(Arc<Limit>);

#[derive(Debug)]
struct Limit {
    most: usize,
    used: AtomicUsize,
}

impl Default for StageMemory {
    /// No limit.
    fn default() -> StageMemory {
        StageMemory::new(usize::MAX)
    }
}

impl StageMemory {
    /// An account of at most `most` bytes.
    pub fn new(most: usize) -> StageMemory {
        StageMemory(Arc::new(Limit { most, used: AtomicUsize::new(0) }))
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes` from the account; dropping the share gives them back.
    ///
    /// # Errors
    /// [`GpuError::StageMemory`]: fewer bytes are left.
    pub fn take(&self, bytes: usize) -> Result<Share, GpuError> {
        let fits = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.0.most);
        match self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Share { of: self.clone(), bytes }),
            Err(used) => Err(GpuError::StageMemory { wanted: bytes, used, most: self.0.most }),
        }
    }
}

/// A part of the memory.
#[derive(Debug)]
pub struct Share {
    of: StageMemory,
    bytes: usize,
}

impl Share {
    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
