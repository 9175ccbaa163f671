//! The control stream: numbered, acknowledged, replayed over another rail when its rail is lost.

use std::collections::VecDeque;

use super::log::Log;
use super::planted::{self, Bug};
use super::{Broken, Engine, OpError, onesided};
use crate::{Buf, Head, Kind};

/// Messages the state machine itself may have waiting to be sent. Peers cause some of them (refusals), so it is
/// bounded; one that causes more without reading breaks the protocol.
const MAX_QUEUE: usize = 1024;

/// Acknowledgements received after which they are acknowledged themselves. Below [`super::log`]'s bound, so that the
/// log of a side that only receives payload, and so only acknowledges, never fills.
const ACKS_UNTOLD: u64 = 256;

/// `id` of an acknowledgement that names no rail. It has no number of its own and is not kept, so it can leave when the
/// log is full, and two sides whose logs are full cannot wait for each other.
const NO_RAIL: u32 = u32::MAX;

/// Most messages whose acknowledgement is held for an answer to carry: a few, so that a peer that sends many at once is told
/// of them before it has to stop.
const HELD: u64 = 8;

/// Numbers count from 0 in 64 bits; the wire carries the low 32, which are extended on arrival. So nothing that is
/// kept for long (a receive without a send, a ticket that is never tested) is ever mistaken when they wrap.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) next_seq: u64,
    pub(super) peer_has: u64,
    pub(super) rx_next: u64,
    /// What the peer was last told of `rx_next`.
    pub(super) reported: u64,
    /// Messages received that the peer has not been told of.
    owes_ack: bool,
    /// What the state machine itself has to say, each with what may be acknowledged before it has left: a refusal
    /// leaves before the acknowledgement of what it refuses.
    pub(super) queue: VecDeque<(Head, u64)>,
    log: Option<Log>,
    /// Refusals that the peer is not known to have, in order: the number of each, and what may be acknowledged before it has come.
    refusals: VecDeque<(u64, u64)>,
    /// Next message to send again, while a replay is under way.
    replay: Option<u64>,
    /// What the message acknowledges that was offered last.
    offered_ack: u64,
}

/// The number near `base` whose low half is `low`.
fn extend(base: u64, low: u32) -> Option<u64> {
    base.checked_add_signed(i64::from(low.wrapping_sub(base as u32) as i32))
}

impl Control {
    pub(super) fn new(acked: bool) -> Control {
        Control {
            next_seq: 0,
            peer_has: 0,
            rx_next: 0,
            reported: 0,
            owes_ack: false,
            queue: VecDeque::with_capacity(64),
            log: acked.then(Log::new),
            refusals: VecDeque::new(),
            replay: None,
            offered_ack: 0,
        }
    }

    /// Control messages that the peer has processed.
    pub(super) fn acked(&self) -> u64 {
        self.peer_has
    }

    /// How many of ours the sender of this head had processed.
    pub(super) fn ack_of(&self, head: &Head) -> u64 {
        extend(self.peer_has, head.ack.get()).unwrap_or(0)
    }

    pub(super) fn queue(&mut self, head: Head) {
        self.queue.push_back((head, self.rx_next.saturating_sub(1)));
    }

    pub(super) fn queue_is_full(&self) -> bool {
        self.queue.len() >= MAX_QUEUE
    }

    pub(super) fn owes_ack(&self) -> bool {
        self.owes_ack
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && !self.owes_ack && self.replay.is_none()
    }

    /// Messages received that the peer has not been told of in any way: few, where an answer that carries the
    /// acknowledgement may be awaited.
    pub(super) fn may_hold_ack(&self) -> bool {
        self.rx_next - self.reported <= HELD
    }

    /// Begins to send everything unacknowledged again, over the rail that carries control now.
    pub(super) fn rewind(&mut self) {
        // An acknowledgement without a number may be among what was lost.
        self.reported = 0;
        self.owes_ack |= self.log.is_some() && self.rx_next > 0;
        if planted::is(Bug::NoReplay) {
            return;
        }
        if self.log.as_ref().is_some_and(|log| log.len() > 0) {
            self.replay = Some(self.peer_has);
        }
    }

    pub(super) fn replaying(&self) -> bool {
        self.replay.is_some()
    }

    /// Whether there is more to send again.
    pub(super) fn look_at_replay(&mut self) -> bool {
        self.replay = self.replay.map(|at| at.max(self.peer_has));
        if self.replay().is_none() {
            self.replay = None;
        }
        self.replay.is_some()
    }

    /// The next message to send again.
    pub(super) fn replay(&self) -> Option<(&Head, &[u8])> {
        self.log.as_ref()?.get((self.replay? - self.peer_has) as usize)
    }

    pub(super) fn replayed(&mut self) {
        self.replay = self.replay.map(|at| at + 1);
    }

    /// The oldest of what the state machine itself has to say, with what it may acknowledge.
    #[inline]
    pub(super) fn next_queued(&self) -> Option<(Head, u64)> {
        let &(head, _) = self.queue.front()?;
        Some((head, self.queue.get(1).map_or(self.rx_next, |next| next.1)))
    }

    /// Gives a message its number and what it acknowledges, and its body a place in the log. `None`: not before the log has
    /// space, or what was lost with a rail has been sent again.
    ///
    /// # Errors
    /// [`OpError::Memory`]: the body cannot be read.
    #[inline]
    pub(super) fn number<B: Buf>(&mut self, mut head: Head, body: B, ack: u64) -> Result<Option<Head>, OpError> {
        if self.replay.is_some() {
            return Ok(None);
        }
        head.len.set(body.len() as u32);
        head.seq.set(self.next_seq as u32);
        head.ack.set(ack as u32);
        let mut whole = true;
        if let Some(log) = &mut self.log
            && !log.offer(body.len(), |to| whole = body.read(0, to))
        {
            return Ok(None);
        }
        if !whole {
            return Err(OpError::Memory);
        }
        self.offered_ack = ack;
        Ok(Some(head))
    }

    /// The body of the message that [`Control::number`] was given last, where it is kept.
    #[inline]
    pub(super) fn kept_body(&self) -> Option<&[u8]> {
        self.log.as_ref().map(Log::offered)
    }

    /// A rail has taken the message that was numbered last. Returns its number.
    #[inline]
    pub(super) fn left(&mut self, head: &Head) -> u64 {
        if let Some(log) = &mut self.log {
            log.keep(head);
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        self.reported = self.offered_ack;
        self.owes_ack = self.offered_ack < self.rx_next && self.log.is_some();
        seq
    }

    /// The oldest of what the state machine itself had to say has left, as the message with number `seq`.
    pub(super) fn queued_left(&mut self, seq: u64) {
        if let Some((head, before)) = self.queue.pop_front()
            && head.kind == Kind::Refused as u8
            && self.log.is_some()
        {
            self.refusals.push_back((seq, before));
        }
    }

    /// What tells the peer what has been processed, outside the numbered order. Not while refusals may be among what is to be sent again: each is
    /// to come before the acknowledgement of what it refuses.
    pub(super) fn next_report(&mut self) -> Option<Head> {
        let ack = self.processed();
        if !self.owes_ack || self.replay.is_some() || ack <= self.reported || planted::is(Bug::LostAcknowledgement) {
            return None;
        }
        self.offered_ack = ack;
        Some(self.report(ack))
    }

    /// How many of the peer's control messages have been processed.
    fn processed(&self) -> u64 {
        self.queue.front().map_or(self.rx_next, |q| q.1)
    }

    fn report(&self, ack: u64) -> Head {
        let mut head = Head::new(Kind::Ack);
        head.id.set(NO_RAIL);
        head.seq.set(self.next_seq as u32);
        head.ack.set(ack as u32);
        head
    }

    pub(super) fn has_reported(&mut self) {
        self.reported = self.offered_ack;
        self.owes_ack = self.offered_ack < self.rx_next;
    }

    /// Checks numbers. `Ok(false)`: a repetition, to be ignored.
    pub(super) fn admit(&mut self, rail: usize, head: &Head, kind: Kind) -> Result<bool, Broken> {
        let ack = extend(self.peer_has, head.ack.get()).filter(|&ack| ack <= self.next_seq);
        let Some(ack) = ack else {
            return Err(Broken(format!(
                "{} control messages acknowledged, {} were sent",
                head.ack.get(),
                self.next_seq
            )));
        };
        if ack > self.peer_has {
            self.peer_has = ack;
            if let Some(log) = &mut self.log {
                log.trim(ack as u32);
            }
            while self.refusals.front().is_some_and(|refusal| refusal.0 < ack) {
                self.refusals.pop_front();
            }
        }
        if kind == Kind::Ack && head.id.get() == NO_RAIL {
            return Ok(false); // that was all it had to say
        }
        let ahead = head.seq.get().wrapping_sub(self.rx_next as u32) as i32;
        if ahead == 0 {
            self.rx_next += 1;
            self.owes_ack |= self.log.is_some() && (kind != Kind::Ack || self.rx_next - self.reported >= ACKS_UNTOLD);
            return Ok(true);
        }
        if ahead < 0 && self.log.is_some() {
            // Told again, in case the acknowledgement was what got lost.
            self.reported = 0;
            self.owes_ack = true;
            return Ok(false);
        }
        Err(Broken(format!("control message {} on rail slot {rail} where {} was due", head.seq.get(), self.rx_next)))
    }
}

impl<B: Buf> Engine<B> {
    /// What the peer's control messages have come to, outside their order: said twice it changes nothing, so any rail may carry it
    /// at any time. Of what is refused it says nothing before the refusal is known to have come.
    pub fn report(&self) -> Head {
        let refused = self.control.refusals.front().map_or(u64::MAX, |refusal| refusal.1);
        self.control.report(self.control.processed().min(refused))
    }

    /// Control messages that have come so far: the peer's here, and ours there as far as it has said.
    pub fn control_counts(&self) -> (u64, u64) {
        (self.control.rx_next, self.control.acked())
    }

    pub(super) fn on_ack(&mut self, head: &Head) -> Result<(), Broken> {
        if let Some(slot) = self.hear(head.id.get(), head.total.get())?
            && !self.rails.is_live(slot)
        {
            // It reads nothing any more, and this may be the peer's last word: no round need come after it.
            self.hand_back(slot, u64::MAX);
        }
        Ok(())
    }

    fn hear(&mut self, rail_id: u32, landed: u64) -> Result<Option<usize>, Broken> {
        let landed = u32::try_from(landed).map_err(|_| Broken(format!("{landed} chunks landed on rail {rail_id}")))?;
        self.rails.hear(rail_id, landed)
    }

    /// Counts what the peer has acknowledged and our rails have taken.
    #[inline]
    pub(super) fn count_acks(&mut self, taken: impl Fn(usize) -> u64) {
        for slot in 0..self.rails.used() {
            if self.rails.has_heard(slot) {
                self.hand_back(slot, taken(slot));
            }
        }
    }

    pub(super) fn hand_back(&mut self, slot: usize, taken: u64) {
        let ops = &mut self.ops;
        self.rails.hand_back(slot, taken, |piece| {
            if let Some(ticket) = piece.ticket {
                ops.chunk_back(ticket);
            }
        });
    }

    pub(super) fn on_rail_down(&mut self, head: &Head) -> Result<(), Broken> {
        let id = head.id.get();
        let Some(slot) = self.hear(id, head.total.get())? else {
            return self.on_unknown_rail_down(id);
        };
        // The caller drops this rail before it asks after any operation, so nothing of it is read any more.
        self.hand_back(slot, u64::MAX);
        let (again, onesided, control) = (&mut self.sends.again, &self.onesided, &mut self.control);
        self.rails.settle(slot, |piece| {
            if planted::is(Bug::LostChunks) {
                return;
            }
            if piece.key == 0 || onesided.is_live(piece.key) {
                again.push_back(piece);
            } else {
                control.queue(onesided::read_refused(piece.key, piece.head.id.get()));
            }
        });
        Ok(())
    }

    /// The peer had brought up a rail of ours that never came up on this side. It waits for our word that nothing of
    /// what it sent there can land any more, so that it may send it elsewhere.
    fn on_unknown_rail_down(&mut self, id: u32) -> Result<(), Broken> {
        if !self.cfg.acked || self.control.queue_is_full() {
            return Err(Broken(format!("message about rail {id}, which never existed")));
        }
        self.rails.note_given_up(id);
        let mut head = Head::new(Kind::RailDown);
        head.id.set(id);
        self.control.queue(head);
        Ok(())
    }
}
