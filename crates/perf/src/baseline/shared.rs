//! Two processes and a map that both have: a cache line thrown to and fro, and memory copied by both at once, without any protocol
//! around it.

mod wait;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use linkspan_shmring::cma::Remote;
use linkspan_shmring::map::SlotWords;
use linkspan_shmring::slot::Words;
use linkspan_shmring::{Map, SLOTS, Side, Slots};
use linkspan_transport::{Buf, MemSlice};

use crate::spec::WaitMode;
use wait::Waiter;
pub use wait::Watch;

/// One side of two processes with a fresh map of their own. Every call has its counterpart on the other side.
#[derive(Debug)]
pub struct Shared {
    slots: Slots,
    remote: Remote,
    waiter: Waiter,
    turn: u64,
}

impl Shared {
    /// The side `me`, with the peer's memory. It asks `watch` now and then while it waits, and ends with what that says. Both sides
    /// wait in the same way ([`Shared::set_wait`]), at first spinning.
    pub fn new(map: &Arc<Map>, me: Side, remote: Remote, watch: Watch) -> Shared {
        Shared { slots: Slots::new(map, Side::A), remote, waiter: Waiter::new(map, me, watch), turn: 0 }
    }

    /// Chooses how this side waits from now on; the other side must choose the same.
    pub fn set_wait(&mut self, wait: WaitMode) {
        self.waiter.wait = wait;
    }

    fn word(&self, slot: usize) -> SlotWords<'_> {
        self.slots.get(slot).expect("one of the first two slots")
    }

    /// One round trip of a word; the other side calls [`Shared::catch`].
    ///
    /// # Errors
    /// The error of the watch on the peer, or `ECONNRESET`: the other side has ended.
    pub fn throw(&mut self) -> io::Result<()> {
        self.turn += 1;
        let (there, back, turn) = (self.word(0), self.word(SLOTS - 1), self.turn);
        there.cursor().store(turn, Ordering::Release);
        self.waiter.wake();
        self.waiter.until(|| back.cursor().load(Ordering::Acquire) == turn)
    }

    /// See [`Shared::throw`].
    ///
    /// # Errors
    /// As [`Shared::throw`].
    pub fn catch(&mut self) -> io::Result<()> {
        self.turn += 1;
        let (there, back, turn) = (self.word(0), self.word(SLOTS - 1), self.turn);
        self.waiter.until(|| there.cursor().load(Ordering::Acquire) == turn)?;
        back.cursor().store(turn, Ordering::Release);
        self.waiter.wake();
        Ok(())
    }

    /// Copies `src` here to `address` there, `slice` bytes at a time from a cursor shared with [`Shared::receive`].
    ///
    /// # Errors
    /// The error of the copy (`process_vm_readv(2)`), as `EFAULT` or `EPERM`; those of [`Shared::throw`].
    pub fn send(&mut self, src: MemSlice, slice: usize, address: u64) -> io::Result<()> {
        self.turn += 1;
        let (w, remote, turn) = (self.word(1), self.remote, self.turn);
        w.sent().store(turn, Ordering::Release);
        self.waiter.wake();
        self.waiter.until(|| w.dest().load(Ordering::Acquire) == turn)?;
        share(&w, src.len(), slice, |at, len| {
            let part = src.sub(at as u64, len as u64).unwrap_or(MemSlice::EMPTY);
            remote.push(part, address + at as u64)
        })?;
        w.unsent().store(turn, Ordering::Release);
        self.waiter.wake();
        self.waiter.until(|| w.unread().load(Ordering::Acquire) == turn)
    }

    /// See [`Shared::send`]; `address` is where the source lies there.
    ///
    /// # Errors
    /// As [`Shared::send`].
    pub fn receive(&mut self, dst: MemSlice, slice: usize, address: u64) -> io::Result<()> {
        self.turn += 1;
        let (w, remote, turn) = (self.word(1), self.remote, self.turn);
        self.waiter.until(|| w.sent().load(Ordering::Acquire) == turn)?;
        w.cursor().store(0, Ordering::Relaxed);
        w.dest().store(turn, Ordering::Release);
        self.waiter.wake();
        share(&w, dst.len(), slice, |at, len| {
            let part = dst.sub(at as u64, len as u64).unwrap_or(MemSlice::EMPTY);
            remote.pull(address + at as u64, part)
        })?;
        self.waiter.until(|| w.unsent().load(Ordering::Acquire) == turn)?;
        w.unread().store(turn, Ordering::Release);
        self.waiter.wake();
        Ok(())
    }
}

/// Claims slices until none is left. A cursor that the peer turns back has no effect: no side copies more slices
/// than there are.
fn share(
    w: &impl Words,
    total: usize,
    slice: usize,
    mut copy: impl FnMut(usize, usize) -> io::Result<()>,
) -> io::Result<()> {
    for _ in 0..total.div_ceil(slice.max(1)) {
        let at = w.cursor().fetch_add(slice as u64, Ordering::AcqRel);
        if at >= total as u64 {
            break;
        }
        copy(at as usize, slice.min(total - at as usize))?;
    }
    Ok(())
}
