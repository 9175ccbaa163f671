//! A ring of message buffers, each with the operation that uses it.

use linkspan_proto::Buf;
use linkspan_transport::MemSlice;

use crate::link::{Link, LinkError, OpMemory, Ticket};
use crate::pattern::Pattern;

/// `count` buffers of `size` bytes; operations are posted at the head and reported at the tail, in order.
#[derive(Debug)]
pub(crate) struct Slots {
    size: usize,
    bufs: OpMemory,
    tickets: Box<[Ticket]>,
    head: u64,
    tail: u64,
}

impl Slots {
    /// Buffers that are backed by memory already: a first touch costs more than a message.
    pub(crate) fn new<L: Link + ?Sized>(link: &L, size: usize, count: u32) -> Result<Slots, LinkError> {
        let count = count.max(1) as usize;
        let bufs = OpMemory::new(link, link.memory(size * count)?);
        let slots = Slots { size, bufs, tickets: vec![Ticket(0); count].into(), head: 0, tail: 0 };
        for slot in 0..count as u64 {
            Pattern::new(!0, slot).fill(slots.at(slot));
        }
        Ok(slots)
    }

    fn at(&self, number: u64) -> MemSlice {
        let slot = number % self.tickets.len() as u64;
        self.bufs.slice().sub(slot * self.size as u64, self.size as u64).unwrap_or(MemSlice::EMPTY)
    }

    pub(crate) fn count(&self) -> u64 {
        self.tickets.len() as u64
    }

    /// Number and buffer of the next operation; `None` when all are in use.
    pub(crate) fn free(&self) -> Option<(u64, MemSlice)> {
        (self.head - self.tail < self.count()).then(|| (self.head, self.at(self.head)))
    }

    /// The operation on the free buffer was posted.
    pub(crate) fn posted(&mut self, ticket: Ticket) {
        let slot = (self.head % self.count()) as usize;
        self.tickets[slot] = ticket;
        self.bufs.posted();
        self.head += 1;
    }

    /// Number, buffer and ticket of the oldest operation in flight.
    pub(crate) fn oldest(&self) -> Option<(u64, MemSlice, Ticket)> {
        (self.tail < self.head)
            .then(|| (self.tail, self.at(self.tail), self.tickets[(self.tail % self.count()) as usize]))
    }

    /// The oldest operation has been reported.
    pub(crate) fn done(&mut self) {
        debug_assert!(self.tail < self.head);
        self.tail += 1;
        self.bufs.reported();
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.head - self.tail
    }
}
