//! Rails as the connection sees them: which are up, what is in flight on each, what has landed.

use std::collections::VecDeque;

use super::{Broken, Ticket};
use crate::{Buf, Head};

/// Most rails of a connection at a time.
pub const MAX_RAILS: usize = 8;

/// Chunks in flight per rail while several carry chunks. Each rail takes its next chunk when one has been
/// acknowledged, so load follows the speed each rail really has. One on its way, one behind it and one for the time the
/// acknowledgement takes; each more would make the end of a transfer wait longer for the slowest rail.
const WINDOW: usize = 3;

/// Chunks in flight on a rail that carries alone; only memory is saved by a bound here. Seven batches of 64 pages that are copied together: one
/// under way on either side, three whose copies or acknowledgements the other side has yet to notice, two to go on with.
pub(super) const WINDOW_ALONE: usize = 448;

/// A chunk that was sent and not acknowledged; `head` and `src` suffice to send it again.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkTx<B> {
    pub(super) head: Head,
    pub(super) src: B,
    /// The operation it belongs to; answers to reads have none on this side.
    pub(super) ticket: Option<Ticket>,
    /// The region an answer to a read is taken from, 0 for everything else.
    pub(super) key: u32,
}

#[derive(Debug)]
pub(super) struct Gone {
    pub(super) id: u32,
    pub(super) landed: u32,
    /// Chunks that had a place and were on their way in when the rail was lost.
    pub(super) arriving: Vec<Head>,
}

/// A chunk on its way in.
#[derive(Clone, Copy, Debug)]
pub(super) struct IncomingChunk {
    pub(super) head: Head,
    /// It was given a place; otherwise it is drained.
    pub(super) placed: bool,
    /// The region of that place, for a one-sided chunk.
    key: Option<u32>,
}

/// Chunks of a rail on their way in at a time. Streams bring one after the other; transports that copy directly begin on the
/// next ones early, on seven batches of 64 pages where pages are copied together.
const MAX_ARRIVING: usize = 512;

/// Rails remembered that the peer declared down before they came up on this side; far more than can be in the making
/// at a time.
const MAX_GIVEN_UP: usize = 64;

#[derive(Debug)]
pub(super) struct Rail<B> {
    id: u32,
    live: bool,
    /// Holds chunks that the peer has yet to account for, so the slot cannot be used again.
    unsettled: bool,
    peer_closed: bool,
    /// Is given no chunk.
    rests: bool,
    /// Chunk size it likes best, bytes.
    chunk: usize,
    sent: u32,
    /// Chunks that the peer says have landed, and how many of them have been handed back.
    heard: u32,
    acked: u32,
    /// With the number under which the rail will have taken them.
    flight: VecDeque<(u64, ChunkTx<B>)>,
    arriving: VecDeque<IncomingChunk>,
    pub(super) landed: u32,
    owes_ack: bool,
}

#[derive(Debug)]
pub(super) struct Rails<B> {
    pub(super) rails: [Rail<B>; MAX_RAILS],
    control: Option<usize>,
    live: usize,
    /// Of these, those that do not rest.
    carrying: usize,
    /// Slots that were ever used; looking no further keeps one rail as cheap as one.
    used: usize,
    given_up: VecDeque<u32>,
}

impl<B: Buf> Rails<B> {
    pub(super) fn new() -> Rails<B> {
        Rails {
            rails: std::array::from_fn(|_| Rail {
                id: 0,
                live: false,
                unsettled: false,
                peer_closed: false,
                rests: false,
                chunk: 1,
                sent: 0,
                heard: 0,
                acked: 0,
                flight: VecDeque::new(),
                arriving: VecDeque::new(),
                landed: 0,
                owes_ack: false,
            }),
            control: None,
            live: 0,
            carrying: 0,
            used: 0,
            given_up: VecDeque::new(),
        }
    }

    /// False: the peer has given the rail up already, or the number is in use.
    pub(super) fn up(&mut self, slot: usize, id: u32, chunk: usize) -> bool {
        let mut known = self.rails.iter().filter(|r| r.live || r.unsettled);
        if self.given_up.contains(&id) || known.any(|r| r.id == id) {
            return false;
        }
        let rail = &mut self.rails[slot];
        assert!(!rail.live && !rail.unsettled, "rail slot {slot} is in use");
        rail.id = id;
        rail.live = true;
        rail.peer_closed = false;
        rail.rests = false;
        rail.chunk = chunk.max(1);
        rail.sent = 0;
        rail.heard = 0;
        rail.acked = 0;
        rail.flight.clear();
        rail.arriving.clear();
        // Most connections have one rail, so that the space of the others is not taken before they come up.
        rail.flight.reserve(WINDOW_ALONE);
        rail.arriving.reserve(MAX_ARRIVING);
        rail.landed = 0;
        rail.owes_ack = false;
        self.live += 1;
        self.carrying += 1;
        self.used = self.used.max(slot + 1);
        true
    }

    /// A rail that never came up here never will.
    pub(super) fn note_given_up(&mut self, id: u32) {
        if self.given_up.len() == MAX_GIVEN_UP {
            self.given_up.pop_front();
        }
        self.given_up.push_back(id);
    }

    /// A slot for one more rail.
    pub(super) fn free_slot(&self) -> Option<usize> {
        self.rails.iter().position(|r| !r.live && !r.unsettled)
    }

    pub(super) fn down(&mut self, slot: usize) -> Option<Gone> {
        let rail = &mut self.rails[slot];
        if !rail.live {
            return None;
        }
        rail.live = false;
        // A rail that the peer closed has been accounted for by the peer already.
        rail.unsettled = !rail.peer_closed;
        rail.peer_closed = false;
        self.live -= 1;
        self.carrying -= usize::from(!rail.rests);
        if self.control == Some(slot) {
            self.control = None;
        }
        Some(Gone {
            id: rail.id,
            landed: rail.landed,
            arriving: rail.arriving.drain(..).filter(|a| a.placed).map(|a| a.head).collect(),
        })
    }

    /// Slots beyond which none was ever used.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// How many may be given chunks.
    pub(super) fn carrying(&self) -> usize {
        self.carrying
    }

    /// From now on the rail is given no chunk, or is again.
    pub(super) fn rest(&mut self, slot: usize, rests: bool) {
        let rail = &mut self.rails[slot];
        if rail.live && rail.rests != rests {
            rail.rests = rests;
            self.carrying = if rests { self.carrying - 1 } else { self.carrying + 1 };
        }
    }

    pub(super) fn is_live(&self, slot: usize) -> bool {
        self.rails[slot].live
    }

    pub(super) fn first_live(&self) -> Option<usize> {
        self.rails[..self.used].iter().position(|r| r.live && !r.peer_closed)
    }

    pub(super) fn control(&self) -> Option<usize> {
        self.control
    }

    pub(super) fn set_control(&mut self, slot: usize) {
        self.control = Some(slot);
    }

    pub(super) fn peer_closed(&self) -> Option<usize> {
        self.rails[..self.used].iter().position(|r| r.live && r.peer_closed)
    }

    /// Whether the rail may take one more chunk now.
    pub(super) fn has_window(&self, slot: usize) -> bool {
        let rail = &self.rails[slot];
        let window = if self.carrying > 1 { WINDOW } else { WINDOW_ALONE };
        rail.live && !rail.peer_closed && !rail.rests && rail.flight.len() < window
    }

    pub(super) fn chunk(&self, slot: usize) -> usize {
        self.rails[slot].chunk
    }

    pub(super) fn in_flight(&self, slot: usize) -> usize {
        self.rails[slot].flight.len()
    }

    pub(super) fn next_seq(&self, slot: usize) -> u32 {
        self.rails[slot].sent
    }

    /// A chunk has been accepted by the rail as number `pos`; `track` keeps it until it is acknowledged.
    pub(super) fn sent(&mut self, slot: usize, pos: u64, piece: ChunkTx<B>, track: bool) {
        let rail = &mut self.rails[slot];
        rail.sent = rail.sent.wrapping_add(1);
        if track {
            rail.flight.push_back((pos, piece));
        }
    }

    /// The peer says that `landed` chunks have landed on rail `id`. They are acknowledged by [`Rails::hand_back`].
    pub(super) fn hear(&mut self, id: u32, landed: u32) -> Result<Option<usize>, Broken> {
        let Some(slot) = self.rails.iter().position(|r| r.id == id && (r.live || r.unsettled)) else {
            return Ok(None); // a rail settled long ago
        };
        let rail = &mut self.rails[slot];
        if (landed.wrapping_sub(rail.heard) as i32) < 0 {
            return Ok(Some(slot)); // overtaken by a newer word
        }
        if landed.wrapping_sub(rail.acked) as usize > rail.flight.len() {
            return Err(Broken(format!(
                "{landed} chunks acknowledged on rail {id}, only {} were sent",
                rail.acked as usize + rail.flight.len()
            )));
        }
        rail.heard = landed;
        Ok(Some(slot))
    }

    /// Whether the peer has spoken of chunks that were not handed back.
    #[inline]
    pub(super) fn has_heard(&self, slot: usize) -> bool {
        self.rails[slot].heard != self.rails[slot].acked
    }

    /// Hands out chunks that the peer says have landed and that the rail has `taken`: until then it may read their
    /// memory, whatever a malicious peer sends. A rail that is down reads nothing more.
    pub(super) fn hand_back(&mut self, slot: usize, taken: u64, mut back: impl FnMut(ChunkTx<B>)) {
        let rail = &mut self.rails[slot];
        while rail.acked != rail.heard {
            match rail.flight.front() {
                Some(&(pos, piece)) if pos <= taken || !rail.live => back(piece),
                _ => return,
            }
            rail.flight.pop_front();
            rail.acked = rail.acked.wrapping_add(1);
        }
    }

    /// The peer reads this rail no longer: hands out what had not landed.
    pub(super) fn settle(&mut self, slot: usize, mut again: impl FnMut(ChunkTx<B>)) {
        let rail = &mut self.rails[slot];
        for (_, piece) in rail.flight.drain(..) {
            again(piece);
        }
        rail.unsettled = false;
        if rail.live {
            rail.peer_closed = true;
        }
    }

    /// A planted bug: sends everything in flight again without having asked.
    pub(super) fn resend(&mut self, slot: usize, mut again: impl FnMut(ChunkTx<B>)) {
        let rail = &mut self.rails[slot];
        rail.flight.drain(..).for_each(|(_, piece)| again(piece));
        rail.peer_closed = true;
    }

    pub(super) fn expect_chunk(&mut self, slot: usize, head: &Head) -> Result<(), Broken> {
        let rail = &mut self.rails[slot];
        let due = rail.landed.wrapping_add(rail.arriving.len() as u32);
        if rail.arriving.len() >= MAX_ARRIVING || head.seq.get() != due {
            return Err(Broken(format!("chunk {} on rail {} where {due} was due", head.seq.get(), rail.id)));
        }
        rail.arriving.push_back(IncomingChunk { head: *head, placed: false, key: None });
        Ok(())
    }

    /// The chunk whose head came last was given a place, in region `key` if it is a one-sided one.
    pub(super) fn placed(&mut self, slot: usize, key: Option<u32>) {
        if let Some(arriving) = self.rails[slot].arriving.back_mut() {
            arriving.placed = true;
            arriving.key = key;
        }
    }

    /// Whether a chunk that was sent and not acknowledged was read from region `key`.
    pub(super) fn is_leaving_from(&self, key: u32) -> bool {
        self.rails.iter().any(|r| r.flight.iter().any(|(_, piece)| piece.key == key))
    }

    /// Whether a chunk is on its way into region `key` right now.
    pub(super) fn is_arriving_into(&self, key: u32) -> bool {
        self.rails.iter().any(|r| r.live && r.arriving.iter().any(|a| a.key == Some(key)))
    }

    /// The first of the chunks that are arriving is complete. `None`: there was none.
    pub(super) fn landed(&mut self, slot: usize, acked: bool) -> Option<IncomingChunk> {
        let rail = &mut self.rails[slot];
        let arriving = rail.arriving.pop_front()?;
        rail.landed = rail.landed.wrapping_add(1);
        rail.owes_ack |= acked;
        Some(arriving)
    }

    /// A rail whose arrivals the peer does not know of yet, with its id and their number.
    #[inline]
    pub(super) fn owed_ack(&self) -> Option<(usize, u32, u32)> {
        let slot = self.rails[..self.used].iter().position(|r| r.live && r.owes_ack)?;
        Some((slot, self.rails[slot].id, self.rails[slot].landed))
    }

    /// The peer has been told of all that has arrived on it.
    pub(super) fn told(&mut self, slot: usize) {
        self.rails[slot].owes_ack = false;
    }

    pub(super) fn owes_acks(&self) -> bool {
        self.rails[..self.used].iter().any(|r| r.live && r.owes_ack)
    }
}
