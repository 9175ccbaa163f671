//! The answering side of a ping-pong.

use linkspan_proto::Buf;
use linkspan_transport::MemSlice;

use super::{Check, Slots, Tally};
use crate::error::PerfError;
use crate::link::Link;
use crate::pattern::Pattern;
use crate::wire::TAG_PING;

/// Answers every message with one of the same length, and every empty one with an empty one.
#[derive(Debug)]
pub(crate) struct Pong {
    send: Slots,
    recv: Slots,
    size: usize,
    seed: u64,
    check: Check,
    owed: u64,
    ends_in: u64,
    ends_owed: u64,
    tally: Tally,
}

impl Pong {
    pub(crate) fn new<L: Link + ?Sized>(
        link: &L,
        size: usize,
        depth: u32,
        seed: u64,
        check: Check,
    ) -> Result<Pong, PerfError> {
        Ok(Pong {
            send: Slots::new(link, size, 2)?,
            recv: Slots::new(link, size, depth)?,
            size,
            seed,
            check,
            owed: 0,
            ends_in: 0,
            ends_owed: 0,
            tally: Tally::default(),
        })
    }

    /// Whether the asking side has begun no further round.
    pub(crate) fn ending(&self) -> bool {
        self.ends_in > 0
    }

    pub(crate) fn finished(&self) -> bool {
        self.ends_in == self.recv.count() && self.ends_owed == 0 && self.send.in_flight() == 0
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Posts what is missing. True when all receives are posted.
    pub(crate) fn prime<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, PerfError> {
        while self.recv.in_flight() + self.ends_in < self.recv.count()
            && let Some((_, mem)) = self.recv.free()
        {
            let Some(ticket) = link.post_recv(TAG_PING, mem)? else { return Ok(false) };
            self.recv.posted(ticket);
        }
        Ok(true)
    }

    pub(crate) fn poll<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, PerfError> {
        let mut moved = false;
        if let Some((number, mem, ticket)) = self.recv.oldest()
            && let Some(len) = link.test(ticket)?
        {
            moved = true;
            self.recv.done();
            if len == 0 {
                self.ends_in += 1;
                self.ends_owed += 1;
            } else if len != self.size || self.ends_in > 0 {
                return Err(PerfError::Length { got: len, want: self.size });
            } else {
                self.owed += 1;
                self.tally.messages += 1;
                self.tally.bytes += len as u64;
                if self.check != Check::No {
                    self.tally.wrong += Pattern::new(!self.seed, number).stamp_wrong(mem);
                }
            }
        }
        moved |= self.answer(link)?;
        while let Some((_, _, ticket)) = self.send.oldest() {
            if link.test(ticket)?.is_none() {
                break;
            }
            self.send.done();
            moved = true;
        }
        self.prime(link)?; // after the answer has left: the next message is not there yet
        Ok(moved)
    }

    fn answer<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, PerfError> {
        let mut moved = false;
        while self.owed + self.ends_owed > 0
            && let Some((number, mem)) = self.send.free()
        {
            let data = self.owed > 0;
            if data && self.check != Check::No {
                Pattern::new(self.seed, number).stamp(mem);
            }
            let mem = if data { mem } else { MemSlice::EMPTY };
            debug_assert_eq!(mem.is_empty(), !data);
            let Some(ticket) = link.post_send(TAG_PING, mem)? else { break };
            self.send.posted(ticket);
            *(if data { &mut self.owed } else { &mut self.ends_owed }) -= 1;
            moved = true;
        }
        Ok(moved)
    }
}
