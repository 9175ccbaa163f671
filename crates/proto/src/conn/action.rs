//! What leaves, and when: [`Engine::next_action`] says what a rail is to be given now and changes nothing; [`Engine::accepted`] and
//! [`Engine::busy`] say what came of it. So nothing has to be undone for a rail that takes no more, and nothing is queued that a
//! lost rail could make stale.

use super::ops::CompletionRule;
use super::rails::ChunkTx;
use super::{Engine, OpError, RemoteSlice, Ticket};
use crate::{Buf, Head, Kind};

/// What a rail is to be given now.
#[derive(Debug)]
pub enum Action<'e, B> {
    /// A control message. Its body is copied before the rail's call returns.
    Ctrl {
        /// The rail's slot.
        rail: usize,
        /// Its head.
        head: &'e Head,
        /// Its body, `head.len` bytes.
        body: Body<'e, B>,
    },
    /// A control message without a body that grants the receive `head.id`, whose messages do not fit a control message.
    Grant {
        /// The rail's slot.
        rail: usize,
        /// Its head.
        head: &'e Head,
        /// Where they land: a hint for rails whose peer can write by itself.
        into: B,
    },
    /// A chunk. Its memory is read until the rail has taken it.
    Data {
        /// The rail's slot.
        rail: usize,
        /// Its head.
        head: &'e Head,
        /// Its payload, `head.len` bytes.
        src: B,
        /// With the first chunk of a message all of it: a hint for rails that register memory.
        whole: Option<B>,
    },
}

/// Where the body of a control message lies.
#[derive(Debug)]
pub enum Body<'e, B> {
    /// In the caller's memory.
    Mem(B),
    /// In the state machine's own.
    Bytes(&'e [u8]),
}

// Where something may be ready to leave: bits, asked from the lowest.
/// What was lost with a rail.
const REPLAY: u16 = 1;
/// Sends that wait.
const WAITING: u16 = 2;
/// What the state machine itself has to say. Leaves before every other message with a number.
const QUEUE: u16 = 4;
/// The message of the post under way.
const POST: u16 = 8;
/// Held grants.
pub(super) const GRANTS: u16 = 16;
/// Notifications whose writes have landed.
const NOTIFIES: u16 = 32;
/// How many chunks have landed on a rail.
const LANDED: u16 = 64;
/// The acknowledgement outside the numbered order.
const REPORT: u16 = 128;
/// Chunks.
pub(super) const CHUNKS: u16 = 256;

const NUMBERED: u16 = QUEUE | WAITING | POST | GRANTS | NOTIFIES | LANDED;
const CONTROL: u16 = REPLAY | NUMBERED | REPORT;

/// A post whose message leaves in the same call, or not at all. A send then waits; the others were refused.
#[derive(Clone, Copy, Debug)]
pub(super) enum Post<B> {
    Send { tag: u32, src: B, grant: Option<usize> },
    Write { src: B, to: RemoteSlice, notify: Option<u64> },
    Read { dst: B, from: RemoteSlice },
}

/// What was offered to a rail last, and what of it is to be remembered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Offered {
    Nothing,
    Replay,
    Queued,
    /// A send that waited: its place among them, and that of its grant.
    Waiting(usize, Option<usize>),
    Post,
    /// This many receives at once.
    Grants(usize),
    Notify,
    /// Those of the rail in this slot.
    Landed(usize),
    Report,
    Chunk,
}

/// What leaves in the call under way, as far as it has come.
#[derive(Debug)]
pub(super) struct Departure<B> {
    /// Sources that were not found empty or stuck yet.
    due: u16,
    post: Post<B>,
    /// What became of it.
    posted: Option<Ticket>,
    offer: Offered,
    /// Where it was offered, and as what.
    rail: usize,
    head: Head,
    mem: B,
    chunk: ChunkTx<B>,
    whole: Option<B>,
    /// Rails that took no chunk in this call, a bit each.
    refused: u32,
    /// The acknowledgement is left to what the caller sends next.
    hold: bool,
    idle_rounds: u32,
}

/// Rounds without traffic after which lazily held grants are sent anyway. An idle one takes from 60 ns (rings) to 200 ns
/// (TCP), so a spinning ping-pong never gets there within a round trip, and a peer that waits for a grant of a small
/// receive (to learn that its message was too long for it) waits less than a millisecond.
const IDLE_FLUSH: u32 = 1024;

impl<B: Buf> Departure<B> {
    pub(super) fn new() -> Departure<B> {
        Departure {
            due: 0,
            post: Post::Send { tag: 0, src: B::EMPTY, grant: None },
            posted: None,
            offer: Offered::Nothing,
            rail: 0,
            head: Head::new(Kind::Ack),
            mem: B::EMPTY,
            chunk: ChunkTx { head: Head::new(Kind::Chunk), src: B::EMPTY, ticket: None, key: 0 },
            whole: None,
            refused: 0,
            hold: false,
            idle_rounds: 0,
        }
    }

    /// Something of these sources may leave.
    #[inline]
    pub(super) fn is_due(&mut self, sources: u16) {
        self.due |= sources;
        self.refused = 0;
    }

    /// A post has its ticket.
    #[inline]
    pub(super) fn posted(&mut self, ticket: Ticket) {
        self.posted = Some(ticket);
    }
}

impl<B: Buf> Engine<B> {
    /// Looks what may leave, for [`Engine::next_action`] to say; false: nothing may. Called after each round of arrivals; `busy` says that
    /// something arrived, `taken` what the rail in a slot has taken for good.
    pub fn round(&mut self, taken: impl Fn(usize) -> u64, busy: bool) -> bool {
        let mut due = 0;
        if self.cfg.acked {
            self.count_acks(taken);
            if self.rails.owes_acks() {
                due |= LANDED;
            }
            if self.onesided.has_notifies() {
                due |= NOTIFIES;
            }
        }
        if self.control.replaying() {
            due |= REPLAY;
        }
        if !self.control.queue.is_empty() {
            due |= QUEUE;
        }
        if self.some_may_leave() {
            self.sends.waiting.look();
            due |= WAITING | CHUNKS;
        }
        let out = &mut self.out;
        out.idle_rounds = if busy { 0 } else { out.idle_rounds.saturating_add(1) };
        if self.recvs.must_grant() || out.idle_rounds >= IDLE_FLUSH && self.recvs.holds_grants() {
            due |= GRANTS;
        }
        if self.control.owes_ack() {
            due |= REPORT;
        }
        if self.sends.has_work() {
            due |= CHUNKS;
        }
        out.hold = busy && self.hold_acks;
        out.due = due;
        out.refused = 0;
        due != 0
    }

    /// Lazily held messages leave in the next round; called before sleeping.
    pub fn flush_lazy(&mut self) {
        self.out.idle_rounds = IDLE_FLUSH - 1;
    }

    /// What a rail is to be given now; `None` once nothing more leaves. To be followed by [`Engine::accepted`] or
    /// [`Engine::busy`]: asked again without, it says the same.
    #[inline]
    pub fn next_action(&mut self) -> Option<Action<'_, B>> {
        if self.out.due == 0 || !self.look() {
            return None;
        }
        let out = &self.out;
        let (rail, head) = (out.rail, &out.head);
        Some(match out.offer {
            Offered::Chunk => Action::Data { rail, head: &out.chunk.head, src: out.chunk.src, whole: out.whole },
            Offered::Grants(_) if !out.mem.is_empty() => Action::Grant { rail, head, into: out.mem },
            Offered::Replay => {
                let (head, bytes) = self.control.replay()?;
                Action::Ctrl { rail, head, body: Body::Bytes(bytes) }
            }
            Offered::Report => Action::Ctrl { rail, head, body: Body::Bytes(&[]) },
            _ => Action::Ctrl { rail, head, body: self.control.kept_body().map_or(Body::Mem(out.mem), Body::Bytes) },
        })
    }

    /// Finds what comes next among the sources that are due. False: nothing does.
    fn look(&mut self) -> bool {
        while self.out.due != 0 {
            let source = self.out.due & self.out.due.wrapping_neg();
            if source == CHUNKS {
                let Some((rail, chunk, whole)) = self.look_at_chunks(self.out.refused) else {
                    self.out.due = 0;
                    return false;
                };
                let out = &mut self.out;
                (out.offer, out.rail, out.chunk, out.whole) = (Offered::Chunk, rail, chunk, whole);
                return true;
            }
            let Some(rail) = self.rails.control() else {
                self.is_stuck(CONTROL);
                continue;
            };
            self.out.rail = rail;
            let found = match source {
                POST => Some(self.look_at_post()),
                WAITING => self.look_at_waiting(),
                GRANTS => self.look_at_grants(),
                NOTIFIES => self.look_at_notifies(),
                LANDED => self.rails.owed_ack().map(|(slot, id, landed)| {
                    let mut head = Head::new(Kind::Ack);
                    head.id.set(id);
                    head.total.set(u64::from(landed));
                    (Offered::Landed(slot), head, B::EMPTY)
                }),
                REPLAY if self.control.look_at_replay() => {
                    self.out.offer = Offered::Replay;
                    return true;
                }
                REPORT if !(self.out.hold && self.control.may_hold_ack()) => match self.control.next_report() {
                    Some(head) => {
                        (self.out.offer, self.out.head) = (Offered::Report, head);
                        return true;
                    }
                    None => None,
                },
                _ => None,
            };
            let mut ack = self.control.rx_next;
            let is_numbered = found.is_some() || source & (WAITING | QUEUE) != 0;
            let found = match self.control.next_queued().filter(|_| is_numbered) {
                Some((head, before)) => {
                    self.out.due |= QUEUE;
                    ack = before;
                    Some((Offered::Queued, head, B::EMPTY))
                }
                None => found,
            };
            if found.is_none() {
                self.out.due &= !source;
            }
            let Some((offer, head, mem)) = found else { continue };
            let body = if matches!(offer, Offered::Grants(_)) { B::EMPTY } else { mem };
            self.out.offer = offer;
            match self.control.number(head, body, ack) {
                Ok(Some(head)) => {
                    (self.out.head, self.out.mem) = (head, mem);
                    return true;
                }
                Ok(None) => self.busy(),
                Err(error) => self.unreadable(error),
            }
        }
        false
    }

    /// The rail has taken what [`Engine::next_action`] said, as its item with this number.
    #[inline]
    pub fn accepted(&mut self, item: u64) {
        match std::mem::replace(&mut self.out.offer, Offered::Nothing) {
            Offered::Nothing => {}
            Offered::Replay => self.control.replayed(),
            Offered::Report => self.control.has_reported(),
            Offered::Chunk => self.chunk_left(self.out.rail, self.out.chunk, item),
            offer => {
                let seq = self.control.left(&self.out.head);
                match offer {
                    Offered::Post => self.post_left(item, seq),
                    Offered::Waiting(at, grant) => self.waiting_left(at, grant, (self.out.rail, item), seq),
                    Offered::Grants(run) => self.grants_left(run, seq),
                    Offered::Notify => self.notify_left(seq),
                    Offered::Landed(slot) => self.rails.told(slot),
                    _ => self.control.queued_left(seq),
                }
            }
        }
    }

    /// The rail takes nothing more of what [`Engine::next_action`] said. Another one may, or it is said again in the next round.
    pub fn busy(&mut self) {
        match std::mem::replace(&mut self.out.offer, Offered::Nothing) {
            Offered::Nothing => {}
            Offered::Replay => self.is_stuck(REPLAY),
            Offered::Queued => self.is_stuck(NUMBERED),
            Offered::Waiting(..) => self.is_stuck(WAITING),
            Offered::Post => self.is_stuck(POST),
            Offered::Grants(_) => self.is_stuck(GRANTS),
            Offered::Notify => self.is_stuck(NOTIFIES),
            Offered::Landed(_) => self.is_stuck(LANDED),
            Offered::Report => self.is_stuck(REPORT),
            Offered::Chunk => self.out.refused |= 1 << self.out.rail,
        }
    }

    /// The memory of what was to be said cannot be read: nothing of it leaves, and its operation has failed.
    #[cold]
    fn unreadable(&mut self, error: OpError) {
        match self.out.offer {
            Offered::Post => {
                self.out.due &= !POST;
                self.out.posted = self.ops.start(0, 1, CompletionRule::Reported);
                if let Some(ticket) = self.out.posted {
                    self.ops.fail(ticket, error);
                }
            }
            Offered::Waiting(at, _) => self.waiting_failed(at, error),
            // The others have no memory.
            _ => self.busy(),
        }
        self.out.offer = Offered::Nothing;
    }

    /// Nothing of these sources leaves before the next round.
    fn is_stuck(&mut self, sources: u16) {
        let stuck = self.out.due & sources;
        self.out.due &= !sources;
        if stuck & WAITING != 0 {
            self.sends.waiting.interrupt();
        }
        if stuck & POST != 0 {
            self.post_is_stuck();
        }
    }

    /// A post whose message is to leave now.
    #[inline]
    pub(super) fn post(&mut self, post: Post<B>) {
        self.out.post = post;
        self.out.posted = None;
        self.out.is_due(POST);
    }

    /// The ticket of the post before, once [`Engine::next_action`] had nothing more. `None`: no rail took its message.
    #[inline]
    pub fn posted(&mut self) -> Option<Ticket> {
        // Not `take`: it reads in one what was just written in two, which waits for the processor's store buffer.
        let ticket = self.out.posted?;
        self.out.posted = None;
        Some(ticket)
    }

    #[inline]
    fn look_at_post(&mut self) -> (Offered, Head, B) {
        let (head, mem) = match self.out.post {
            Post::Send { tag, src, grant } => (self.eager_head(tag, src, grant), src),
            Post::Write { src, to, notify } => (self.inline_put_head(to, notify), src),
            Post::Read { dst, from } => (self.read_head(dst, from), B::EMPTY),
        };
        (Offered::Post, head, mem)
    }

    #[inline]
    fn post_left(&mut self, item: u64, seq: u64) {
        self.out.due &= !POST;
        self.out.posted = match self.out.post {
            Post::Send { tag, src, grant } => {
                let rule = self.eager_left(tag, src.len(), grant, (self.out.rail, item), seq);
                if self.recvs.holds_grants() || self.recvs.must_grant() {
                    // Whatever else is to be said leaves in the same system call.
                    self.out.due |= GRANTS;
                }
                self.ops.start(src.len() as u64, 1, rule)
            }
            Post::Write { src, notify, .. } => {
                let ticket = self.inline_put_left(src, notify, seq);
                if notify.is_some() && self.onesided.has_notifies() {
                    self.out.due |= NOTIFIES;
                }
                ticket
            }
            Post::Read { dst, from: _ } => self.read_left(dst),
        };
    }

    #[cold]
    fn post_is_stuck(&mut self) {
        self.out.posted = match self.out.post {
            Post::Send { tag, src, .. } => self.wait(tag, src, super::waiting::Held::Rail).ok(),
            Post::Write { .. } | Post::Read { .. } => None,
        };
    }
}
