//! Memory that a simulated card sends from: read late, in pieces, noticed later still.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linkspan_net::Sent;
use linkspan_transport::{Buf, MemSlice};

use crate::Lent;
use crate::kernel::Owner;

/// Calls that may wait to be read.
const CALLS: usize = 8;

/// Most bytes that one look hands to the wire.
const PIECE: usize = 48 << 10;

/// linux: asm-generic/errno.h; memory that is gone.
const EFAULT: i32 = 14;

/// linux: asm-generic/errno.h; no memory for the socket's notices.
const ENOBUFS: i32 = 105;

/// Where every binding begins, so that a forgotten offset shows.
const OFFSET: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct SimZeroCopy {
    bindings: BTreeMap<u32, MemSlice>,
    /// What the wire has not taken.
    queue: VecDeque<MemSlice>,
    /// Calls that took bytes, were handed to the wire, and were told of.
    made: u32,
    sent: u32,
    told: u32,
}

impl SimZeroCopy {
    pub(super) fn lend(&mut self, mem: MemSlice) -> Lent {
        let id = self.bindings.len() as u32 + 1000;
        self.bindings.insert(id, mem);
        Lent { mem, id, offset: OFFSET, alive: Arc::new(AtomicBool::new(true)) }
    }

    /// `short`: what is too much finds no memory.
    pub(super) fn take(&mut self, binding: u32, offset: u64, len: usize, short: bool) -> io::Result<Option<usize>> {
        let mem = self.bindings.get(&binding);
        let part = mem.and_then(|m| m.sub(offset.checked_sub(OFFSET)?, len as u64));
        let part = part.ok_or_else(|| io::Error::from_raw_os_error(super::EINVAL))?;
        if self.queue.len() == CALLS {
            return if short { Err(io::Error::from_raw_os_error(ENOBUFS)) } else { Ok(None) };
        }
        self.queue.push_back(part);
        self.made = self.made.wrapping_add(1);
        Ok(Some(len))
    }

    /// Hands the wire a piece, if it takes any. Whether something is left.
    pub(super) fn push(&mut self, owner: &dyn Owner) -> io::Result<bool> {
        let Some(mem) = self.queue.front_mut() else { return Ok(false) };
        let mut bytes = vec![0; mem.len().min(PIECE)];
        if !mem.read(0, &mut bytes) {
            return Err(io::Error::from_raw_os_error(EFAULT));
        }
        let Some(took) = linkspan_net::send(owner.as_fd(), &bytes)? else { return Ok(true) };
        *mem = mem.sub(took as u64, (mem.len() - took) as u64).unwrap_or(MemSlice::NONE);
        if mem.is_empty() {
            self.queue.pop_front();
            self.sent = self.sent.wrapping_add(1);
        }
        Ok(!self.queue.is_empty())
    }

    /// What the wire has not taken is dropped.
    pub(super) fn cut(&mut self) {
        self.queue.clear();
        self.sent = self.made;
    }

    /// Whether all calls were told of.
    pub(super) fn is_settled(&self) -> bool {
        self.told == self.made
    }

    /// A notice of up to `range` calls.
    pub(super) fn notice(&mut self, range: u32) -> Option<Sent> {
        let n = self.sent.wrapping_sub(self.told).min(range);
        if n == 0 {
            return None;
        }
        let first = self.told;
        self.told = self.told.wrapping_add(n);
        Some(Sent { first, last: first.wrapping_add(n - 1), copied: false })
    }
}
