//! The receiving half: posted receives, their grants, and what arrives for them.

use std::collections::VecDeque;

use super::action::{GRANTS, Offered};
use super::credit::{cost, first_at, take_at};
use super::ops::{CompletionRule, Ops};
use super::planted::{self, Bug};
use super::{Broken, EAGER_CREDIT, Engine, MAX_GROUP, MAX_RECVS, OpError, Refused, Ticket};
use crate::head::EAGER_MAX;
use crate::{Buf, Head, Kind};

/// Grants of small receives are held back until this many can leave together, or something else leaves anyway. The sender
/// needs none of them before its credit ends, and a packet costs both sides as much as 20 messages; the credit of 128
/// messages of 8 bytes is [`GRANT_BYTES`].
const GRANT_BATCH: usize = 128;

/// ... or until the eager bytes they give back are this part of the credit.
const GRANT_BYTES: usize = EAGER_CREDIT / 4;

const INDEX_BITS: u32 = 10;
const _: () = assert!(MAX_RECVS <= 1 << INDEX_BITS);

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<B> {
    pub(super) generation: u32,
    live: bool,
    /// A message has been found for it.
    matched: bool,
    tag: u32,
    buf: B,
    ticket: Ticket,
    part: u8,
    total: u64,
    placed: u64,
    landed: u64,
    /// Number of the control message that carried the grant, once sent.
    granted: Option<u64>,
    /// It has failed, and waits for chunks that are half landed; no more are let in.
    doomed: Option<OpError>,
}

#[derive(Clone, Copy, Debug)]
struct PendingGrant {
    tag: u32,
    /// 0 when a message has been found already.
    id: u32,
    capacity: u64,
}

impl PendingGrant {
    fn head(&self) -> Head {
        let mut head = Head::new(Kind::Grant);
        head.tag.set(self.tag);
        head.total.set(self.capacity);
        head
    }
}

#[derive(Debug)]
pub(super) struct Receives<B> {
    pub(super) slots: Box<[Slot<B>]>,
    free: Vec<u16>,
    /// Unmatched slots in posting order.
    order: VecDeque<u16>,
    grants: VecDeque<PendingGrant>,
    large_grants: usize,
    bytes_to_return: usize,
    /// Large receives that have ended, for [`Engine::ended_grant`].
    ended: Vec<u32>,
}

impl<B: Buf> Receives<B> {
    pub(super) fn new() -> Receives<B> {
        let slot = Slot {
            generation: 1,
            live: false,
            matched: false,
            tag: 0,
            buf: B::EMPTY,
            ticket: Ticket::from_u64(0),
            part: 0,
            total: 0,
            placed: 0,
            landed: 0,
            granted: None,
            doomed: None,
        };
        Receives {
            slots: vec![slot; MAX_RECVS].into_boxed_slice(),
            free: (0..MAX_RECVS as u16).rev().collect(),
            order: VecDeque::with_capacity(MAX_RECVS),
            grants: VecDeque::with_capacity(MAX_RECVS),
            large_grants: 0,
            bytes_to_return: 0,
            ended: Vec::with_capacity(MAX_RECVS),
        }
    }

    pub(super) fn holds_grants(&self) -> bool {
        !self.grants.is_empty()
    }

    pub(super) fn has_free(&self, n: usize) -> bool {
        self.free.len() >= n
    }

    /// Whether held grants are to leave now: one is large (its sender can do nothing before it has it), or enough have gathered.
    #[inline]
    pub(super) fn must_grant(&self) -> bool {
        self.large_grants > 0 || self.grants.len() >= GRANT_BATCH || self.bytes_to_return >= GRANT_BYTES
    }

    /// The id that [`Receives::take_slot`] gives out next.
    pub(super) fn next_id(&self) -> u32 {
        let index = self.free.last().copied().unwrap_or_default();
        self.slots[usize::from(index)].generation << INDEX_BITS | u32::from(index)
    }

    /// A slot with its id (generation and index, never 0). The caller has checked that one is free.
    pub(super) fn take_slot(&mut self, tag: u32, buf: B, ticket: Ticket, part: usize) -> u32 {
        let index = self.free.pop().unwrap_or(0);
        let slot = &mut self.slots[usize::from(index)];
        let generation = slot.generation;
        *slot = Slot {
            generation,
            live: true,
            matched: false,
            tag,
            buf,
            ticket,
            part: part as u8,
            total: 0,
            placed: 0,
            landed: 0,
            granted: None,
            doomed: None,
        };
        generation << INDEX_BITS | u32::from(index)
    }

    /// Makes a slot wait for exactly `total` bytes without a message having to be found: the target of a read.
    pub(super) fn expect(&mut self, id: u32, total: u64) {
        if let Some(index) = self.find(id) {
            self.slots[index].matched = true;
            self.slots[index].total = total;
        }
    }

    fn find(&self, id: u32) -> Option<usize> {
        let index = (id & ((1 << INDEX_BITS) - 1)) as usize;
        let slot = self.slots.get(index)?;
        (slot.live && slot.generation == id >> INDEX_BITS).then_some(index)
    }

    /// Whether a message has been found for a receive, which may have ended since.
    fn is_met(&self, id: u32) -> bool {
        self.find(id).is_none_or(|index| self.slots[index].matched)
    }

    fn release(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.live = false;
        slot.generation = if slot.generation >= (1 << (32 - INDEX_BITS)) - 1 { 1 } else { slot.generation + 1 };
        self.free.push(index as u16);
    }

    fn unlist(&mut self, index: usize) {
        if let Some(at) = first_at(&self.order, |&i| usize::from(i) == index) {
            take_at(&mut self.order, at);
        }
    }

    fn finish(&mut self, index: usize, ops: &mut Ops, result: Result<u64, OpError>) {
        let Slot { ticket, part, buf, generation, .. } = self.slots[index];
        if buf.len() > EAGER_MAX && self.ended.len() < MAX_RECVS {
            self.ended.push(generation << INDEX_BITS | index as u32);
        }
        self.release(index);
        if let Ok(bytes) = result {
            ops.traffic.received(buf, bytes);
        }
        ops.part(ticket, usize::from(part), result);
    }

    /// Ends a slot whose operation failed; what still comes for it is drained. It reports when no byte of a chunk that
    /// was let in is still to land.
    pub(super) fn fail(&mut self, id: u32, ops: &mut Ops, error: OpError) {
        if let Some(index) = self.find(id) {
            self.unlist(index);
            let slot = &mut self.slots[index];
            slot.matched = true;
            slot.doomed = Some(error);
            self.end_if_doomed(index, ops);
        }
    }

    fn end_if_doomed(&mut self, index: usize, ops: &mut Ops) {
        let slot = &self.slots[index];
        if let Some(error) = slot.doomed.filter(|_| slot.placed == slot.landed) {
            self.finish(index, ops, Err(error));
        }
    }

    pub(super) fn place(&mut self, head: &Head) -> Result<Option<B>, Broken> {
        let id = head.id.get();
        let Some(index) = self.find(id).filter(|&i| self.slots[i].doomed.is_none()) else {
            return Ok(None);
        };
        let (total, offset, len) = (head.total.get(), head.offset.get(), u64::from(head.len.get()));
        if !self.slots[index].matched {
            self.unlist(index);
            self.slots[index].matched = true;
            self.slots[index].total = total;
        }
        let slot = &mut self.slots[index];
        if total != slot.total || total > slot.buf.len() as u64 {
            return Err(Broken(format!(
                "a message of {total} bytes into a receive of {} expecting {}",
                slot.buf.len(),
                slot.total
            )));
        }
        let inside = offset.checked_add(len).is_some_and(|end| end <= total) && len <= total - slot.placed;
        let Some(to) = slot.buf.sub(offset, len).filter(|_| inside && len > 0) else {
            return Err(Broken(format!("a chunk of {len} bytes at {offset} of a message of {total}")));
        };
        slot.placed += len;
        Ok(Some(to))
    }

    /// Whether everything of a receive has a place; a planted bug reports then.
    pub(super) fn end_if_placed(&mut self, head: &Head, ops: &mut Ops) {
        if let Some(index) = self.find(head.id.get()) {
            let Slot { placed, total, .. } = self.slots[index];
            if placed == total {
                self.finish(index, ops, Ok(total));
            }
        }
    }

    /// A chunk that was given a place is complete.
    pub(super) fn landed(&mut self, head: &Head, ops: &mut Ops) {
        let Some(index) = self.find(head.id.get()) else {
            return;
        };
        let slot = &mut self.slots[index];
        slot.landed += u64::from(head.len.get());
        if slot.doomed.is_some() {
            self.end_if_doomed(index, ops);
        } else if slot.landed == slot.total {
            let mut total = slot.total;
            if planted::is(Bug::WrongSize) {
                total = slot.buf.len() as u64;
            }
            self.finish(index, ops, Ok(total));
        }
    }

    /// The rail that carried `head` was lost with the chunk half landed in its place: it will come again.
    pub(super) fn unplace(&mut self, head: &Head, ops: &mut Ops) {
        if let Some(index) = self.find(head.id.get()).filter(|_| head.kind == Kind::Chunk as u8) {
            self.slots[index].placed -= u64::from(head.len.get());
            self.end_if_doomed(index, ops);
        }
    }
}

impl<B: Buf> Engine<B> {
    /// Posts a receive, or a group of them that reports as one. All memory is in use until the ticket has reported, which
    /// [`Engine::posted`] has.
    ///
    /// # Errors
    /// [`Refused::Busy`]: too many are posted. [`Refused::Failed`] with [`OpError::GroupSize`]: no parts, or more than
    /// [`MAX_GROUP`].
    pub fn post_recv(&mut self, parts: &[(u32, B)]) -> Result<(), Refused> {
        let n = parts.len();
        if n == 0 || n > MAX_GROUP {
            return Err(Refused::Failed(OpError::GroupSize(n)));
        }
        if !self.recvs.has_free(n) || self.recvs.grants.len() + n > MAX_RECVS {
            return Err(Refused::Busy);
        }
        let ticket = self.ops.start(0, n, CompletionRule::Reported).ok_or(Refused::Busy)?;
        for (part, &(tag, buf)) in parts.iter().enumerate() {
            let mut grant = PendingGrant { tag, id: 0, capacity: buf.len() as u64 };
            if let Some(payload) = self.unexpected.take(tag) {
                self.recvs.bytes_to_return += cost(payload.len());
                let result = deliver(buf, payload, tag);
                if let Ok(bytes) = result {
                    self.ops.traffic.received(buf, bytes);
                }
                self.ops.part(ticket, part, result);
            } else {
                grant.id = self.recvs.take_slot(tag, buf, ticket, part);
                self.recvs.order.push_back((grant.id & ((1 << INDEX_BITS) - 1)) as u16);
                self.recvs.large_grants += usize::from(buf.len() > EAGER_MAX);
            }
            self.recvs.grants.push_back(grant);
        }
        if self.recvs.must_grant() {
            self.out.is_due(GRANTS);
        }
        self.out.posted(ticket);
        Ok(())
    }

    /// The next message that grants receives: of one whose message was found while its grant waited, and of all that follow it
    /// and are like it, it tells so, so that nothing is sent into them.
    pub(super) fn look_at_grants(&mut self) -> Option<(Offered, Head, B)> {
        let recvs = &mut self.recvs;
        let Some(&grant) = recvs.grants.front() else {
            recvs.bytes_to_return = 0;
            return None;
        };
        let (mut head, mut into, mut run) = (grant.head(), B::EMPTY, 1);
        if recvs.is_met(grant.id) {
            let like = |next: &&PendingGrant| {
                (next.tag, next.capacity) == (grant.tag, grant.capacity) && recvs.is_met(next.id)
            };
            run += recvs.grants.iter().skip(1).take_while(like).count();
            head.offset.set(run as u64 - 1);
        } else {
            head.id.set(grant.id);
            if let Some(index) = recvs.find(grant.id).filter(|_| grant.capacity > EAGER_MAX as u64) {
                into = recvs.slots[index].buf;
            }
        }
        Some((Offered::Grants(run), head, into))
    }

    /// The grants of the first `run` receives have left, as the message with number `seq`.
    pub(super) fn grants_left(&mut self, run: usize, seq: u64) {
        let recvs = &mut self.recvs;
        let Some(&first) = recvs.grants.front() else { return };
        for grant in recvs.grants.drain(..run) {
            recvs.large_grants -= usize::from(grant.id != 0 && grant.capacity > EAGER_MAX as u64);
        }
        if recvs.grants.is_empty() {
            recvs.bytes_to_return = 0;
        }
        if let Some(index) = recvs.find(first.id) {
            recvs.slots[index].granted = Some(seq);
            if planted::is(Bug::DoubleGrant) && !recvs.slots[index].matched {
                let mut again = first.head();
                again.id.set(first.id);
                self.control.queue(again);
            }
        }
    }

    /// The id of a receive that has ended and may have been said by [`Action::Grant`](super::Action::Grant). Each is said once, those of up to
    /// [`MAX_RECVS`] that nobody has asked after.
    #[inline]
    pub fn ended_grant(&mut self) -> Option<u32> {
        self.recvs.ended.pop()
    }

    pub(super) fn on_eager(&mut self, head: &Head, payload: &[u8]) -> Result<(), Broken> {
        let (tag, id) = (head.tag.get(), head.id.get());
        let ack = self.control.ack_of(head);
        let recvs = &mut self.recvs;
        let index = if id != 0 {
            let Some(index) = recvs.find(id) else {
                return Err(Broken(format!("message for receive {id:#x}, which is not posted")));
            };
            if recvs.slots[index].matched && (recvs.slots[index].total != 0 || !payload.is_empty()) {
                return Err(Broken(format!("second message for receive {id:#x}")));
            }
            recvs.unlist(index);
            index
        } else {
            let unseen = |slot: &Slot<B>| slot.granted.is_none_or(|seq| seq >= ack);
            let at = first_at(&recvs.order, |&i| {
                let slot = &recvs.slots[usize::from(i)];
                (slot.tag == tag || planted::is(Bug::SwappedTags)) && unseen(slot)
            });
            let Some(index) = at.and_then(|at| take_at(&mut recvs.order, at)) else {
                return if self.unexpected.store(self.control.rx_next, tag, payload) {
                    Ok(())
                } else {
                    Err(Broken(format!("more than {EAGER_CREDIT} bytes sent ahead of their receives")))
                };
            };
            recvs.bytes_to_return += cost(payload.len());
            usize::from(index)
        };
        let result = deliver(recvs.slots[index].buf, payload, tag);
        recvs.finish(index, &mut self.ops, result);
        Ok(())
    }

    /// Takes the oldest message that came before its receive, where the connection ends here: which of the peer's control messages it
    /// was, counted from 1, its tag and its bytes.
    pub fn take_unexpected(&mut self) -> Option<(u64, u32, &[u8])> {
        self.unexpected.take_oldest()
    }

    pub(super) fn on_truncated(&mut self, head: &Head) -> Result<(), Broken> {
        let (id, tag, sent) = (head.id.get(), head.tag.get(), head.total.get());
        if let Some(index) = self.recvs.find(id) {
            let posted = self.recvs.slots[index].buf.len() as u64;
            self.recvs.fail(id, &mut self.ops, OpError::Truncated { sent, posted, tag });
        }
        Ok(())
    }
}

/// Puts a message into the memory of its receive.
///
/// # Errors
/// [`OpError::Truncated`]: the receive is shorter. [`OpError::Memory`]: its memory cannot be written.
pub fn deliver<B: Buf>(buf: B, mut payload: &[u8], tag: u32) -> Result<u64, OpError> {
    if planted::is(Bug::SilentTruncation) {
        payload = &payload[..payload.len().min(buf.len())];
    }
    if buf.fill(0, payload) {
        Ok(payload.len() as u64)
    } else if payload.len() <= buf.len() {
        Err(OpError::Memory)
    } else {
        Err(OpError::Truncated { sent: payload.len() as u64, posted: buf.len() as u64, tag })
    }
}
