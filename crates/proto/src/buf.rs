//! What the state machines need to know of memory: its length, sub-ranges and how to copy into and out of it.

/// A cheap handle on a range of memory. The handle does not keep the memory alive; its owner does, until every
/// operation posted on it has reported.
pub trait Buf: Copy {
    /// The range of no bytes.
    const EMPTY: Self;

    /// Bytes in the range.
    fn len(&self) -> usize;

    /// Whether the range holds no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the processor reaches the bytes; a device's memory is counted apart.
    fn is_host(&self) -> bool {
        true
    }

    /// The `len` bytes that begin `offset` bytes into this range, or `None` where they do not lie inside it.
    fn sub(&self, offset: u64, len: u64) -> Option<Self>;

    /// Copies `bytes` to `offset`. Returns false, and writes nothing, where they do not fit.
    #[must_use]
    fn fill(&self, offset: u64, bytes: &[u8]) -> bool;

    /// Copies bytes from `offset` into `out`. Returns false, and writes nothing, where they are not inside.
    #[must_use]
    fn read(&self, offset: u64, out: &mut [u8]) -> bool;
}
