//! Sends bulk data.

use std::time::Instant;

use linkspan_proto::Buf;
use linkspan_transport::MemSlice;

use super::{Budget, Check, Slots};
use crate::link::{Link, LinkError};
use crate::pattern::Pattern;
use crate::spec::Stop;
use crate::wire::TAG_BULK;

/// Keeps up to a window of messages in flight. Its end is as many empty messages as the receiver has receives
/// posted, so that none is left behind.
#[derive(Debug)]
pub(crate) struct BulkSend {
    slots: Slots,
    budget: Budget,
    seed: u64,
    check: Check,
    made: u64,
    ends: u64,
}

impl BulkSend {
    pub(crate) fn new<L: Link + ?Sized>(
        link: &L,
        size: usize,
        window: u32,
        stop: Option<Stop>,
        seed: u64,
        check: Check,
    ) -> Result<BulkSend, LinkError> {
        let slots = Slots::new(link, size, window)?;
        let ends = slots.count();
        Ok(BulkSend { slots, budget: Budget::new(stop), seed, check, made: 0, ends })
    }

    pub(crate) fn start(&mut self, now: Instant) {
        self.budget.start(now);
    }

    /// Sends no more data.
    pub(crate) fn end(&mut self) {
        self.budget.end();
    }

    pub(crate) fn finished(&self) -> bool {
        self.ends == 0 && self.slots.in_flight() == 0
    }

    pub(crate) fn poll<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, LinkError> {
        let mut moved = false;
        while let Some((_, _, ticket)) = self.slots.oldest() {
            if link.test(ticket)?.is_none() {
                break;
            }
            self.slots.done();
            moved = true;
        }
        while let Some((number, mem)) = self.slots.free() {
            let more = self.budget.more(number, mem.len());
            let mem = if more { mem } else { MemSlice::EMPTY };
            if !more && self.ends == 0 {
                break;
            }
            if more && self.made <= number {
                match self.check {
                    Check::No => {}
                    Check::Stamp => Pattern::new(self.seed, number).stamp(mem),
                    Check::Full => Pattern::new(self.seed, number).fill(mem),
                }
                self.made = number + 1;
            }
            let Some(ticket) = link.post_send(TAG_BULK, mem)? else { break };
            self.slots.posted(ticket);
            moved = true;
            if !more {
                self.ends -= 1;
            }
        }
        Ok(moved)
    }
}
