//! The queues in memory that is shared with the driver.
//!
//! Indices count modulo 2^32. The driver's are read once and checked; entries are moved by raw copies.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::abi::{self, Cqe, Sqe};
use crate::error::{Error, Result};

#[cfg(test)]
mod tests;

/// Both queues over a map that its owner keeps.
#[derive(Debug)]
pub(crate) struct Queues {
    base: NonNull<u8>,
    sq: NonNull<Sqe>,
    cq: NonNull<Cqe>,
    sq_entries: u32,
    cq_entries: u32,
    sq_tail: u32,
    cq_head: u32,
}

// SAFETY: addresses of a map that its owner keeps, used through atomics and raw copies by one owner at a time.
unsafe impl Send for Queues {}

impl Queues {
    /// # Safety
    /// `bytes` bytes at `base` stay mapped, readable and writable for as long as this is used, and `base` is aligned to a
    /// page. Offsets and entries are checked against `bytes`.
    pub(crate) unsafe fn new(base: NonNull<u8>, bytes: u64, hello: &abi::Hello) -> Result<Queues> {
        let fits = |offset: u64, entries: u32, size: usize| {
            entries.is_power_of_two()
                && offset.is_multiple_of(64)
                && offset >= abi::queue::BYTES as u64
                && offset.checked_add(u64::from(entries) * size as u64).is_some_and(|end| end <= bytes)
        };
        if !fits(hello.sq_offset, hello.sq_entries, size_of::<Sqe>())
            || !fits(hello.cq_offset, hello.cq_entries, size_of::<Cqe>())
        {
            return Err(Error::Queues { what: "offsets outside of the map" });
        }
        Ok(Queues {
            base,
            // SAFETY: inside of the map, as just checked, and aligned to 64 bytes.
            sq: unsafe { base.add(hello.sq_offset as usize) }.cast(),
            // SAFETY: as above.
            cq: unsafe { base.add(hello.cq_offset as usize) }.cast(),
            sq_entries: hello.sq_entries,
            cq_entries: hello.cq_entries,
            sq_tail: 0,
            cq_head: 0,
        })
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: one of the offsets of `abi::queue`, all within its first bytes and aligned; atomics may be shared.
        unsafe { self.base.add(offset).cast::<AtomicU32>().as_ref() }
    }

    /// Puts an entry; false where the queue is full.
    #[inline]
    pub(crate) fn push(&mut self, sqe: Sqe) -> Result<bool> {
        let used = self.sq_tail.wrapping_sub(self.word(abi::queue::SQ_HEAD).load(Ordering::Acquire));
        if used > self.sq_entries {
            return Err(Error::Queues { what: "more entries taken than were put" });
        }
        if used == self.sq_entries {
            return Ok(false);
        }
        let at = (self.sq_tail & (self.sq_entries - 1)) as usize;
        // SAFETY: masked, so inside of the entries; the driver does not read this one before the tail says so.
        unsafe { self.sq.add(at).write_volatile(sqe) };
        self.sq_tail = self.sq_tail.wrapping_add(1);
        self.word(abi::queue::SQ_TAIL).store(self.sq_tail, Ordering::Release);
        Ok(true)
    }

    /// Takes a completion.
    #[inline]
    pub(crate) fn pop(&mut self) -> Result<Option<Cqe>> {
        let ready = self.word(abi::queue::CQ_TAIL).load(Ordering::Acquire).wrapping_sub(self.cq_head);
        if ready == 0 {
            return Ok(None);
        }
        if ready > self.cq_entries {
            return Err(Error::Queues { what: "more completions than the queue holds" });
        }
        let at = (self.cq_head & (self.cq_entries - 1)) as usize;
        // SAFETY: masked, so inside of the entries; the driver does not write this one before the head says so.
        let cqe = unsafe { self.cq.add(at).read_volatile() };
        self.cq_head = self.cq_head.wrapping_add(1);
        self.word(abi::queue::CQ_HEAD).store(self.cq_head, Ordering::Release);
        Ok(Some(cqe))
    }

    /// Entries that the driver has not taken.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        self.sq_tail.wrapping_sub(self.word(abi::queue::SQ_HEAD).load(Ordering::Acquire))
    }

    /// Whether entries wait that the driver does not take by itself: always, while it sets `LS_QUEUE_WAKE`.
    #[inline]
    pub(crate) fn asleep(&self) -> bool {
        // The entry before the look: the driver sets the flag and then looks for entries.
        fence(Ordering::SeqCst);
        self.word(abi::queue::FLAGS).load(Ordering::Relaxed) & abi::queue::WAKE != 0 && self.waiting() > 0
    }

    /// Whether the driver has said that the link is lost.
    #[inline]
    pub(crate) fn dead(&self) -> bool {
        self.word(abi::queue::DEAD).load(Ordering::Acquire) != 0
    }
}
