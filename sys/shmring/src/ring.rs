//! A byte ring with one producer and one consumer, each in its own process.
//!
//! Positions count bytes since the start and never wrap (2^64 bytes are 20 years at 25 GB/s). Each side keeps its own
//! position privately and only publishes it; the other side's is read once per use and checked, so that a misbehaving
//! index ends the connection and damages no byte.

use crate::sync::{AtomicU64, Ordering};

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

/// Bytes of a cache line; records begin on one. 64 on x86-64 and on every ARM core this runs on but one family
/// (128), where it costs speed only.
pub const LINE: usize = 64;

/// The other side published a position that a correct peer never publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptIndex {
    /// Our own position, bytes.
    pub ours: u64,
    /// What the other side claims, bytes.
    pub theirs: u64,
}

/// Where a ring is stored.
///
/// # Safety
/// `put` and `get` must be sound for any position and any length up to `size`, whatever the other side does.
pub unsafe trait Area {
    /// Position up to which the producer has published.
    fn tail(&self) -> &AtomicU64;
    /// Position up to which the consumer has freed.
    fn head(&self) -> &AtomicU64;
    /// Bytes in the ring, a power of two.
    fn size(&self) -> u64;
    /// Copies into the ring at a position, around its end where need be.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes and `len` is at most `size`.
    unsafe fn put(&self, pos: u64, src: *const u8, len: usize);
    /// Copies out of the ring from a position.
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes and `len` is at most `size`.
    unsafe fn get(&self, pos: u64, dst: *mut u8, len: usize);
}

/// The writing end.
#[derive(Debug)]
pub struct Producer<A> {
    pub(crate) area: A,
    pub(crate) tail: u64,
    head: u64,
}

impl<A: Area> Producer<A> {
    /// The writing end of a fresh ring. There must be only one.
    pub fn new(area: A) -> Producer<A> {
        Producer { area, tail: 0, head: 0 }
    }

    /// Bytes that can be written now; looks at the consumer's position only where the last look does not give
    /// `want`.
    ///
    /// # Errors
    /// [`CorruptIndex`]: the consumer's position is beyond what was written, or went backwards.
    pub fn free(&mut self, want: usize) -> Result<usize, CorruptIndex> {
        let size = self.area.size();
        let free = size - (self.tail - self.head);
        if free >= want as u64 {
            return Ok(free as usize);
        }
        // Acquire: the consumer's copies out of the space it frees come before our copies into it.
        let head = self.area.head().load(Ordering::Acquire);
        if head < self.head || head > self.tail {
            return Err(CorruptIndex { ours: self.tail, theirs: head });
        }
        self.head = head;
        Ok((size - (self.tail - head)) as usize)
    }

    /// Whether `len` bytes at `at` lie in space that the consumer has freed.
    #[inline]
    pub(crate) fn fits(&self, at: usize, len: usize) -> bool {
        let free = self.area.size() - (self.tail - self.head);
        at.checked_add(len).is_some_and(|end| end as u64 <= free)
    }

    /// Writes `bytes` at `at` bytes after the published position. False, and nothing written, where that is not
    /// free space as of the last [`Producer::free`].
    #[inline]
    #[must_use]
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> bool {
        // SAFETY: the slice is readable; `fits` bounds the length by the size.
        self.fits(at, bytes.len())
            && unsafe {
                self.area.put(self.tail.wrapping_add(at as u64), bytes.as_ptr(), bytes.len());
                true
            }
    }

    /// Publishes the next `len` bytes; they must have been written. Limited to the free space.
    #[inline]
    pub fn publish(&mut self, len: usize) {
        debug_assert!(self.fits(0, len));
        self.tail += len as u64;
        // Release: the bytes come before the position.
        self.area.tail().store(self.tail, Ordering::Release);
    }

    /// Position behind everything published, counted from the beginning and never reduced to the ring's size.
    #[inline]
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Bytes from the next free one to the end of the ring.
    #[inline]
    pub fn until_end(&self) -> usize {
        let size = self.area.size();
        (size - (self.tail & (size - 1))) as usize
    }

    /// Whether the consumer has freed everything; reads its position again.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.area.head().load(Ordering::Acquire) == self.tail
    }

    /// Whether the consumer has space for `want` bytes, looked up afresh; inconsistent positions count as space, the next
    /// [`Producer::free`] reports them.
    pub fn has_space(&self, want: usize) -> bool {
        let head = self.area.head().load(Ordering::Acquire);
        self.area.size().wrapping_sub(self.tail.wrapping_sub(head)) >= want as u64
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer<A> {
    pub(crate) area: A,
    tail: u64,
    pub(crate) head: u64,
    freed: u64,
}

impl<A: Area> Consumer<A> {
    /// The reading end of a fresh ring. There must be only one.
    pub fn new(area: A) -> Consumer<A> {
        Consumer { area, tail: 0, head: 0, freed: 0 }
    }

    /// Bytes that can be read now; looks at the producer's position only when everything seen before is consumed.
    ///
    /// # Errors
    /// [`CorruptIndex`]: the producer's position went backwards, or is further ahead than the ring holds.
    #[inline]
    pub fn ready(&mut self) -> Result<usize, CorruptIndex> {
        if self.tail == self.head {
            // Acquire: pairs with `publish`.
            let tail = self.area.tail().load(Ordering::Acquire);
            if tail == self.tail {
                return Ok(0);
            }
            if tail < self.head || tail - self.head > self.area.size() {
                return Err(CorruptIndex { ours: self.head, theirs: tail });
            }
            self.tail = tail;
        }
        Ok((self.tail - self.head) as usize)
    }

    /// Whether `len` bytes at `at` have been published, as of the last [`Consumer::ready`].
    #[inline]
    pub(crate) fn holds(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end as u64 <= self.tail - self.head)
    }

    /// Copies out from `at` bytes after the consumed position. False, and nothing written, beyond what is ready.
    #[inline]
    #[must_use]
    pub fn get(&self, at: usize, out: &mut [u8]) -> bool {
        // SAFETY: the slice is ours and writable; `holds` bounds the length by the size.
        self.holds(at, out.len())
            && unsafe {
                self.area.get(self.head.wrapping_add(at as u64), out.as_mut_ptr(), out.len());
                true
            }
    }

    /// Moves past `len` bytes, limited to what is ready. The space is given back by [`Consumer::release`].
    #[inline]
    pub fn consume(&mut self, len: usize) {
        self.head += (len as u64).min(self.tail - self.head);
    }

    /// Gives consumed space back to the producer. Returns the bytes given back.
    #[inline]
    pub fn release(&mut self) -> u64 {
        let bytes = self.head - self.freed;
        if bytes > 0 {
            self.freed = self.head;
            // Release: our copies out come before the producer's next copies in.
            self.area.head().store(self.head, Ordering::Release);
        }
        bytes
    }

    /// Whether the producer has published anything that is not consumed; looked up afresh. Lies count.
    pub fn pending(&self) -> bool {
        self.tail != self.head || self.area.tail().load(Ordering::Acquire) != self.head
    }
}
