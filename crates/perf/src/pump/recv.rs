//! Receives bulk data.

use std::time::Instant;

use super::{Check, Slots, Tally};
use crate::error::PerfError;
use crate::link::{Link, LinkError};
use crate::pattern::Pattern;
use crate::wire::TAG_BULK;

/// Keeps a window of receives posted until the sender's first empty message, then takes one per receive left.
#[derive(Debug)]
pub(crate) struct BulkRecv {
    slots: Slots,
    size: usize,
    seed: u64,
    check: Check,
    ends_in: u64,
    tally: Tally,
}

impl BulkRecv {
    pub(crate) fn new<L: Link + ?Sized>(
        link: &L,
        size: usize,
        window: u32,
        seed: u64,
        check: Check,
    ) -> Result<BulkRecv, LinkError> {
        let slots = Slots::new(link, size, window)?;
        Ok(BulkRecv { slots, size, seed, check, ends_in: 0, tally: Tally::default() })
    }

    pub(crate) fn finished(&self) -> bool {
        self.ends_in == self.slots.count()
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Posts what is missing. True when all receives are posted.
    pub(crate) fn prime<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, PerfError> {
        while self.slots.in_flight() + self.ends_in < self.slots.count()
            && let Some((_, mem)) = self.slots.free()
        {
            let Some(ticket) = link.post_recv(TAG_BULK, mem)? else { return Ok(false) };
            self.slots.posted(ticket);
        }
        Ok(true)
    }

    pub(crate) fn poll<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, PerfError> {
        let (mut moved, mut data) = (false, false);
        while let Some((number, mem, ticket)) = self.slots.oldest() {
            let Some(len) = link.test(ticket)? else { break };
            moved = true;
            self.slots.done();
            if len == 0 {
                self.ends_in += 1;
                continue;
            }
            if len != self.size || self.ends_in > 0 {
                return Err(PerfError::Length { got: len, want: if self.ends_in > 0 { 0 } else { self.size } });
            }
            data = true;
            self.tally.messages += 1;
            self.tally.bytes += len as u64;
            self.tally.wrong += match self.check {
                Check::No => 0,
                Check::Stamp => Pattern::new(self.seed, number).stamp_wrong(mem),
                Check::Full => Pattern::new(self.seed, number).wrong(mem),
            };
            self.prime(link)?;
        }
        if data {
            self.tally.last = Some(Instant::now());
        }
        self.prime(link)?;
        Ok(moved)
    }
}
