//! Pinned memory that is given out and taken back in the same order.

use std::collections::VecDeque;

use linkspan_transport::{Buf, MemSlice};

use crate::memory::AnyGpu;
use crate::{GpuError, Pinned};

/// Alignment of what is given out: a page, so that copy engines and direct copies work on whole ones.
const ALIGN: usize = 4096;

/// A ring of pinned memory.
#[derive(Debug)]
pub(super) struct Arena {
    memory: Pinned,
    /// Where the next range begins, and how many bytes before it are in use (those left out at the end included).
    head: usize,
    used: usize,
    /// What each range given out costs, oldest first.
    costs: VecDeque<usize>,
}

impl Arena {
    pub(super) fn new(gpu: &AnyGpu, len: usize, ranges: usize) -> Result<Arena, GpuError> {
        let memory = Pinned::new(gpu, len.next_multiple_of(ALIGN))?;
        Ok(Arena { memory, head: 0, used: 0, costs: VecDeque::with_capacity(ranges) })
    }

    fn size(&self) -> usize {
        self.memory.mem().len()
    }

    /// Whether a range of this length can be had when nothing else is given out.
    pub(super) fn fits(&self, len: usize) -> bool {
        len.next_multiple_of(ALIGN) <= self.size()
    }

    /// Where a range of `len` bytes begins, and how many bytes before it are left out. `None`: not now.
    fn place(&self, len: usize) -> Option<(usize, usize)> {
        let head = if self.used == 0 { 0 } else { self.head };
        let space = len.next_multiple_of(ALIGN);
        let (at, skip) = if head + space > self.size() { (0, self.size() - head) } else { (head, 0) };
        let is_free = self.costs.len() < self.costs.capacity() && self.used + skip + space <= self.size();
        is_free.then_some((at, skip))
    }

    /// Whether a range of `len` bytes can be had now.
    pub(super) fn has(&self, len: usize) -> bool {
        self.place(len).is_some()
    }

    /// A range of `len` bytes. `None`: not now.
    pub(super) fn take(&mut self, len: usize) -> Option<MemSlice> {
        let (at, skip) = self.place(len)?;
        let space = len.next_multiple_of(ALIGN);
        self.head = at + space;
        self.used += skip + space;
        self.costs.push_back(skip + space);
        self.memory.mem().sub(at as u64, len as u64)
    }

    /// Takes the oldest range back.
    pub(super) fn give(&mut self) {
        self.used -= self.costs.pop_front().unwrap_or(0);
    }

    /// Bytes given out.
    #[cfg(test)]
    fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests;
