//! The machine's own limits, to hold ours against in the same run: a cache line thrown to and fro, and memory
//! copied by two processes at once without any protocol around it.

use std::hint::spin_loop;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use linkspan_transport::{Buf, MemSlice};

use crate::cma::Remote;
use crate::layout::{SLOTS, Side};
use crate::map::{Map, Slots};
use crate::slot::Words;

/// Two processes with a fresh map of their own, spinning. Every call has its counterpart on the other side.
#[derive(Debug)]
pub struct Bare {
    slots: Slots,
    remote: Remote,
    turn: u64,
}

impl Bare {
    /// One side, with the peer's memory.
    pub fn new(map: &Arc<Map>, remote: Remote) -> Bare {
        Bare { slots: Slots::new(map, Side::A), remote, turn: 0 }
    }

    fn word(&self, slot: usize) -> crate::map::SlotWords<'_> {
        self.slots.get(slot).expect("one of the first two slots")
    }

    /// Throws a word to the peer and catches it `rounds` times; the other side calls [`Bare::pong`].
    pub fn ping(&mut self, rounds: u64) {
        let (there, back) = (self.word(0), self.word(SLOTS - 1));
        for i in self.turn + 1..=self.turn + rounds {
            there.cursor().store(i, Ordering::Release);
            while back.cursor().load(Ordering::Acquire) != i {
                spin_loop();
            }
        }
        self.turn += rounds;
    }

    /// See [`Bare::ping`].
    pub fn pong(&mut self, rounds: u64) {
        let (there, back) = (self.word(0), self.word(SLOTS - 1));
        for i in self.turn + 1..=self.turn + rounds {
            while there.cursor().load(Ordering::Acquire) != i {
                spin_loop();
            }
            back.cursor().store(i, Ordering::Release);
        }
        self.turn += rounds;
    }

    /// Copies `src` here to `address` there, `slice` bytes at a time from a cursor shared with [`Bare::receive`].
    ///
    /// # Errors
    /// The system refuses a copy.
    pub fn send(&mut self, src: MemSlice, slice: usize, address: u64) -> io::Result<()> {
        self.turn += 1;
        let (w, remote) = (self.word(1), self.remote);
        w.sent().store(self.turn, Ordering::Release);
        while w.dest().load(Ordering::Acquire) != self.turn {
            spin_loop();
        }
        share(&w, src.len(), slice, |at, len| {
            let part = src.sub(at as u64, len as u64).unwrap_or(MemSlice::EMPTY);
            remote.push(part, address + at as u64)
        })?;
        w.unsent().store(self.turn, Ordering::Release);
        while w.unread().load(Ordering::Acquire) != self.turn {
            spin_loop();
        }
        Ok(())
    }

    /// See [`Bare::send`]; `address` is where the source lies there.
    ///
    /// # Errors
    /// The system refuses a copy.
    pub fn receive(&mut self, dst: MemSlice, slice: usize, address: u64) -> io::Result<()> {
        self.turn += 1;
        let (w, remote) = (self.word(1), self.remote);
        while w.sent().load(Ordering::Acquire) != self.turn {
            spin_loop();
        }
        w.cursor().store(0, Ordering::Relaxed);
        w.dest().store(self.turn, Ordering::Release);
        share(&w, dst.len(), slice, |at, len| {
            let part = dst.sub(at as u64, len as u64).unwrap_or(MemSlice::EMPTY);
            remote.pull(address + at as u64, part)
        })?;
        while w.unsent().load(Ordering::Acquire) != self.turn {
            spin_loop();
        }
        w.unread().store(self.turn, Ordering::Release);
        Ok(())
    }
}

fn share(
    w: &impl Words,
    total: usize,
    slice: usize,
    mut copy: impl FnMut(usize, usize) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        let at = w.cursor().fetch_add(slice as u64, Ordering::AcqRel) as usize;
        if at >= total {
            return Ok(());
        }
        copy(at, slice.min(total - at))?;
    }
}
