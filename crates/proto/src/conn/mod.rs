//! The connection: one protocol above all transports, as a state machine without I/O.
//!
//! Two-sided messages are matched per tag in posting order: the k-th send with tag T meets the k-th posted receive
//! with tag T, whatever is posted in between. Small messages ([`crate::head::EAGER_MAX`]) travel at once, inside a credit; large
//! ones wait for the grant that a posted receive gives. Who matches is always decided the same way on both sides:
//!
//! * A send without a grant, or credit for a small message, waits at its sender, and those with its tag wait behind it; a grant
//!   goes to the oldest.
//! * A sender that knows a grant for the tag names it in the message (`id`), large or small.
//! * An eager message sent without a known grant has `id` 0 and belongs to the first receive with its tag whose grant
//!   the sender had not seen yet. The receiver knows which those are from `ack`, which counts the control messages
//!   the sender had processed when it decided. When that grant reaches the sender, it is struck off there.
//!
//! With one rail and `acked` off, an operation is done when the rail has taken it. With `acked` on (several rails, or
//! one-sided operations), it is done when the peer has acknowledged it; control messages stay in a replay log and
//! chunks in a per-rail list until then, and a lost rail costs nothing but time: the side that receives closes the
//! rail, says what had landed ([`Kind::RailDown`]), and only then is the rest sent again elsewhere. No chunk can land
//! twice, and none can land late.

mod action;
#[cfg(any(test, fuzzing))]
mod bounds;
mod control;
mod credit;
mod log;
mod onesided;
mod ops;
mod planted;
mod rails;
mod recv;
mod send;
mod waiting;

pub use action::{Action, Body};
pub use onesided::{Access, RemoteSlice};
pub use ops::{OpError, Outcome, Ticket, Traffic};
#[cfg(feature = "planted")]
pub use planted::{Bug as PlantedBug, plant};
pub use rails::MAX_RAILS;
pub use recv::deliver;
pub use waiting::Cancel;

use std::collections::VecDeque;

use crate::{Buf, Head, Kind};
use action::Departure;
use control::Control;
use credit::{Credit, Unexpected};
use ops::Ops;
use planted::Bug;
use rails::Rails;
use recv::Receives;
use send::Sends;

/// Most receives in one group: what NCCL's shared communicators need (`maxRecvs`).
pub const MAX_GROUP: usize = 8;

/// Operations that may be in flight on a connection: NCCL's 32 requests of 8 parts, both ways, with space to spare.
pub const MAX_OPS: usize = 512;

/// Sends that may wait at a time for receives that are not posted yet: NCCL's 32 x 8, and half of the operations, so that the
/// receives that others wait for find space.
pub const MAX_WAITING: usize = 256;
const _: () = assert!(MAX_WAITING <= MAX_OPS / 2);

/// Posted receives (parts of groups) at a time: 32 x 8 for NCCL, twice over.
pub const MAX_RECVS: usize = 512;

/// Bytes of eager messages a receiver stores for receives not posted yet. Both sides allocate for it up front.
pub const EAGER_CREDIT: usize = 64 << 10;

/// Late errors kept for a caller that does not ask: one for every message that can be under way without a receive.
const MAX_LATE: usize = EAGER_CREDIT / 64;

/// How a connection behaves; agreed at login, equal on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Operations are done when the peer has acknowledged them; needed for more than one rail and for one-sided
    /// operations.
    pub acked: bool,
}

/// Why a call was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not now: progress, then ask again. Not an error.
    Busy,
    /// Never.
    Failed(OpError),
}

/// The peer broke the protocol; the text says how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

/// A connection's state. Driven by one thread at a time. After creation it allocates only to report that the peer
/// broke the protocol.
#[derive(Debug)]
pub struct Engine<B> {
    cfg: Config,
    ops: Ops,
    control: Control,
    rails: Rails<B>,
    credit: Credit,
    unexpected: Unexpected,
    sends: Sends<B>,
    recvs: Receives<B>,
    onesided: onesided::OneSided<B>,
    /// Errors found after their operations had reported; later calls report them, once each.
    late: VecDeque<OpError>,
    out: Departure<B>,
    hold_acks: bool,
    sent_goaway: bool,
    peer_goaway: bool,
    broken: bool,
}

impl<B: Buf> Engine<B> {
    /// A connection with no rail yet.
    pub fn new(cfg: Config) -> Engine<B> {
        Engine {
            cfg,
            ops: Ops::new(),
            control: Control::new(cfg.acked),
            rails: Rails::new(),
            credit: Credit::new(),
            unexpected: Unexpected::new(),
            sends: Sends::new(),
            recvs: Receives::new(),
            onesided: onesided::OneSided::new(),
            late: VecDeque::new(),
            out: Departure::new(),
            hold_acks: false,
            sent_goaway: false,
            peer_goaway: false,
            broken: false,
        }
    }

    /// Whether operations report when the peer has acknowledged them.
    pub fn is_acked(&self) -> bool {
        self.cfg.acked
    }

    /// Whether the peer broke the protocol. The state is then not to be trusted: nothing more may be moved.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Brings a rail up in slot `rail`, below [`MAX_RAILS`], that likes chunks of `chunk` bytes best. `id` numbers rails over the life of the connection, is the
    /// same on both sides, used again only long after its rail is gone, and never `u32::MAX`. False: the peer has given this rail up already, or
    /// the number is in use; drop it.
    ///
    /// # Panics
    /// The slot holds a live rail.
    #[must_use]
    pub fn rail_up(&mut self, rail: usize, id: u32, chunk: usize) -> bool {
        if id == u32::MAX || !self.rails.up(rail, id, chunk) {
            return false;
        }
        if self.rails.control().is_none() {
            self.rails.set_control(rail);
            self.control.rewind();
        }
        true
    }

    /// A rail that is up is given no chunk from now on, as one that stands by for others, or is again. What it has goes on.
    pub fn rail_rests(&mut self, rail: usize, rests: bool) {
        self.rails.rest(rail, rests);
    }

    /// The rail in this slot is gone and nothing lands on it any more (it was dropped). Returns whether any is left.
    pub fn rail_down(&mut self, rail: usize) -> bool {
        if planted::is(Bug::NoRevocation) && self.rails.live() > 1 {
            let again = &mut self.sends.again;
            self.rails.resend(rail, |piece| again.push_back(piece));
        }
        if let Some(gone) = self.rails.down(rail) {
            // Nothing is read from it any more either, so what the peer has acknowledged is done.
            self.hand_back(rail, u64::MAX);
            let mut head = Head::new(Kind::RailDown);
            head.id.set(gone.id);
            head.total.set(u64::from(gone.landed));
            if planted::is(Bug::TornChunk)
                && let Some(half) = gone.arriving.first()
            {
                head.total.set(u64::from(gone.landed) + 1);
                self.control.queue(head);
                self.recvs.landed(half, &mut self.ops);
                self.move_control();
                return self.rails.first_live().is_some();
            }
            self.control.queue(head);
            for half in &gone.arriving {
                self.recvs.unplace(half, &mut self.ops);
            }
            if self.rails.control().is_none() {
                self.move_control();
            }
        }
        self.rails.first_live().is_some() && !self.broken
    }

    fn move_control(&mut self) {
        if let Some(next) = self.rails.first_live() {
            self.rails.set_control(next);
            self.control.rewind();
        }
    }

    /// A live rail that the peer has declared down, if any: drop it, then call [`Engine::rail_down`]. To be asked after
    /// each round of arrivals, before [`Engine::test`].
    pub fn peer_closed(&mut self) -> Option<usize> {
        self.rails.peer_closed()
    }

    /// Rails up at the moment.
    pub fn live_rails(&self) -> usize {
        self.rails.live()
    }

    /// A free slot for one more rail, if there is one.
    pub fn free_rail(&self) -> Option<usize> {
        self.rails.free_slot()
    }

    /// Closes the connection: nothing more will be posted. The peer sees a regular close instead of a lost peer.
    pub fn goaway(&mut self) {
        if !self.sent_goaway {
            self.sent_goaway = true;
            self.control.queue(Head::new(Kind::GoAway));
        }
    }

    /// Whether the peer closed the connection regularly.
    pub fn peer_sent_goaway(&self) -> bool {
        self.peer_goaway
    }

    /// Whether a round that brought something leaves its acknowledgement to what will be sent next, or to the next round that
    /// brings nothing: for callers that are about to answer. Few messages are left so at a time.
    pub fn hold_acks(&mut self, hold: bool) {
        self.hold_acks = hold;
    }

    /// Whether messages of the peer have been taken in that it has not been told of.
    pub fn owes_ack(&self) -> bool {
        self.control.owes_ack()
    }

    /// Whether the state machine holds nothing back that a sleeping caller would leave unsent.
    pub fn settled(&self) -> bool {
        let sent = !self.sends.has_work() && !self.some_may_leave();
        !self.recvs.holds_grants() && self.control.is_quiet() && sent && !self.rails.owes_acks()
    }

    /// Asks after an operation; `taken` is what the rail in a slot has taken for good. A ticket is dead once this answered anything
    /// but [`Outcome::Pending`].
    #[inline]
    pub fn test(&mut self, taken: impl Fn(usize) -> u64, ticket: Ticket) -> Outcome {
        self.ops.test(ticket, |rail, pos| taken(rail) >= pos, self.control.acked())
    }

    /// Sizes of the parts of a group, in posting order, once [`Engine::test`] has said that it is done and until the next
    /// operation is posted.
    pub fn sizes(&self, ticket: Ticket) -> &[u64; MAX_GROUP] {
        self.ops.sizes(ticket)
    }

    /// Takes the oldest error of an operation that had already reported, if there was one.
    pub fn late_error(&mut self) -> Option<OpError> {
        self.late.pop_front()
    }

    fn note_late(&mut self, error: OpError) {
        if self.late.len() < MAX_LATE {
            self.late.push_back(error);
        }
    }

    /// Operations posted and not yet retired by [`Engine::test`], without the sends that wait.
    pub fn moving(&self) -> usize {
        self.ops.live() - self.sends.waiting.len()
    }

    /// What has moved so far that the peer sent or asked for.
    pub fn traffic(&self) -> Traffic {
        self.ops.traffic
    }

    /// To be called with each control message that arrives.
    ///
    /// # Errors
    /// [`Broken`]: the peer broke the protocol; the rail is to be closed.
    pub fn on_ctrl(&mut self, rail: usize, head: &Head, payload: &[u8]) -> Result<(), Broken> {
        let result = self.ctrl(rail, head, payload);
        self.broken |= result.is_err();
        result
    }

    fn ctrl(&mut self, rail: usize, head: &Head, payload: &[u8]) -> Result<(), Broken> {
        let Some(kind) = Kind::from_u8(head.kind).filter(|k| !k.is_payload() && *k != Kind::BatchHeads) else {
            return Err(Broken(format!("control message of kind {}", head.kind)));
        };
        if payload.len() != head.len.get() as usize || payload.len() > kind.max_len() {
            return Err(Broken(format!("{kind:?} with {} bytes, head says {}", payload.len(), head.len.get())));
        }
        if !self.control.admit(rail, head, kind)? {
            return Ok(()); // seen before, on a rail that was lost since
        }
        let one_sided =
            matches!(kind, Kind::InlinePut | Kind::InlinePutNotify | Kind::Notify | Kind::Read | Kind::Refused);
        if one_sided && !self.cfg.acked {
            return Err(Broken(format!("{kind:?} on a connection without acknowledgements")));
        }
        match kind {
            Kind::Eager => self.on_eager(head, payload),
            Kind::Grant => self.on_grant(head),
            Kind::Ack => self.on_ack(head),
            Kind::Truncated => self.on_truncated(head),
            Kind::RailDown => self.on_rail_down(head),
            Kind::InlinePut => self.on_inline_put(head, payload, false),
            Kind::InlinePutNotify => self.on_inline_put(head, payload, true),
            Kind::Notify => self.on_notify(head),
            Kind::Read => self.on_read(head),
            Kind::Refused => self.on_refused(head),
            Kind::GoAway => {
                self.peer_goaway = true;
                Ok(())
            }
            Kind::Chunk | Kind::Put | Kind::BatchHeads => Err(Broken("payload kind as control".into())),
            Kind::Beside => Err(Broken("payload announced beside a rail that has one stream".into())),
        }
    }

    /// The head of a chunk has arrived: its place, or `None` to drain it.
    ///
    /// # Errors
    /// [`Broken`]: the peer broke the protocol; the rail is to be closed.
    pub fn place(&mut self, rail: usize, head: &Head) -> Result<Option<B>, Broken> {
        let result = self.find_place(rail, head);
        self.broken |= result.is_err();
        result
    }

    fn find_place(&mut self, rail: usize, head: &Head) -> Result<Option<B>, Broken> {
        let (place, key) = match Kind::from_u8(head.kind) {
            Some(Kind::Chunk) => {
                self.rails.expect_chunk(rail, head)?;
                (self.recvs.place(head)?, None)
            }
            Some(Kind::Put) if self.cfg.acked => {
                self.rails.expect_chunk(rail, head)?;
                (self.onesided.place(head)?, Some(head.id.get()))
            }
            _ => return Err(Broken(format!("chunk of kind {}", head.kind))),
        };
        if place.is_some() {
            self.rails.placed(rail, key);
        }
        if planted::is(Bug::EarlyCompletion) && key.is_none() {
            self.recvs.end_if_placed(head, &mut self.ops);
        }
        Ok(place)
    }

    /// To be called when all bytes of a chunk are in place.
    ///
    /// # Errors
    /// [`Broken`]: the peer broke the protocol; the rail is to be closed.
    pub fn landed(&mut self, rail: usize, head: &Head) -> Result<(), Broken> {
        let result = self.chunk_landed(rail, head);
        self.broken |= result.is_err();
        result
    }

    fn chunk_landed(&mut self, rail: usize, head: &Head) -> Result<(), Broken> {
        let arriving = self
            .rails
            .landed(rail, self.cfg.acked)
            .filter(|a| a.head == *head)
            .ok_or_else(|| Broken("the end of a chunk that never began".into()))?;
        match Kind::from_u8(head.kind) {
            Some(Kind::Chunk) if arriving.placed => {
                self.recvs.landed(head, &mut self.ops);
                Ok(())
            }
            Some(Kind::Chunk) => Ok(()),
            _ => self.put_landed(head, arriving.placed),
        }
    }
}

#[cfg(test)]
mod tests;
