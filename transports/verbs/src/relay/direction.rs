//! One direction of a relay: what has come and not left.

use std::collections::VecDeque;

use linkspan_proto::Head;
use linkspan_proto::head::EAGER_MAX;
use linkspan_transport::{Buf, HostBuf, MemSlice, Rail, Sink, Violation};
use linkspan_verbs_sys::Nic;

use super::{BOUNCE, bounce};
use crate::VerbsRail;
use crate::tx::CHUNKS;

/// Bytes of a control message, kept.
const SLOT: usize = EAGER_MAX;

/// Largest chunk.
const PIECE_MOST: usize = BOUNCE / 2;

/// Chunks at a time, however small: what both rails have under way.
const CHUNKS_MOST: usize = 2 * CHUNKS;

pub(super) struct RelayDirection {
    memory: MemSlice,
    _chunks: HostBuf,
    /// Pieces of the memory in use, oldest first, and where the next one would begin.
    pieces: VecDeque<(usize, usize)>,
    next: usize,
    /// Pieces being written, and pieces that wait for space on the way out, in their order.
    arriving: VecDeque<MemSlice>,
    leaving: VecDeque<(Head, MemSlice)>,
    /// Numbers of the chunks on the way out.
    sent: VecDeque<u64>,
    /// Control messages that wait for space, their bytes in slots from `first` on; one slot more than can wait.
    slots: MemSlice,
    _bodies: HostBuf,
    space: usize,
    first: usize,
    parked: VecDeque<Head>,
    pub(super) frames: u64,
    pub(super) chunks: u64,
    pub(super) bytes: u64,
}

impl RelayDirection {
    /// For a rail that has so many receives: no more can wait.
    pub(super) fn new(receives: usize) -> RelayDirection {
        let space = receives + 1;
        let (chunks, bodies) = (bounce(), HostBuf::new(space * SLOT));
        #[allow(unsafe_code)]
        // SAFETY: `Relay` drops its rails before this, and takes the memory from the devices then; bodies are read within a call.
        let (memory, slots) = unsafe { (chunks.slice(), bodies.slice()) };
        RelayDirection {
            memory,
            _chunks: chunks,
            pieces: VecDeque::with_capacity(CHUNKS_MOST),
            next: 0,
            arriving: VecDeque::with_capacity(CHUNKS),
            leaving: VecDeque::with_capacity(CHUNKS_MOST),
            sent: VecDeque::with_capacity(CHUNKS),
            slots,
            _bodies: bodies,
            space,
            first: 0,
            parked: VecDeque::with_capacity(space),
            frames: 0,
            chunks: 0,
            bytes: 0,
        }
    }

    pub(super) fn memory(&self) -> MemSlice {
        self.memory
    }

    /// Control messages that wait.
    pub(super) fn held(&self) -> usize {
        self.parked.len()
    }

    /// Whether all that has come has left.
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.leaving.is_empty() && self.sent.is_empty()
    }

    /// Where in the memory there is space for a piece, if anywhere: they are given and given back in order, so it is used like a ring.
    fn gap(&self, len: usize) -> Option<usize> {
        if self.pieces.len() >= CHUNKS_MOST {
            return None;
        }
        match self.pieces.front() {
            None => Some(0),
            Some(&(oldest, _)) if self.next >= oldest => match () {
                () if len <= BOUNCE - self.next => Some(self.next),
                () if len < oldest => Some(0),
                () => None,
            },
            Some(&(oldest, _)) => (len < oldest - self.next).then_some(self.next),
        }
    }

    fn piece(&mut self, len: usize) -> Option<MemSlice> {
        let at = self.gap(len)?;
        let piece = self.memory.sub(at as u64, len as u64)?;
        self.pieces.push_back((at, len));
        self.next = at + len;
        Some(piece)
    }

    fn slot(&self, n: usize) -> u64 {
        ((self.first + n) % self.space * SLOT) as u64
    }

    /// Hands on what waits, as far as `to` takes it. Whether that was anything.
    pub(super) fn pump<N: Nic>(&mut self, to: &mut VerbsRail<N>) -> bool {
        let mut moved = false;
        while let Some(head) = self.parked.front() {
            let len = u64::from(head.len.get());
            let Some(body) = self.slots.sub(self.slot(0), len) else { break };
            if to.ctrl(head, body).is_err() {
                break;
            }
            (self.frames, self.bytes, moved) = (self.frames + 1, self.bytes + len, true);
            self.parked.pop_front();
            self.first = (self.first + 1) % self.space;
        }
        while let Some((head, piece)) = self.leaving.front() {
            let Ok(number) = to.data(head, *piece) else { break };
            (self.chunks, self.bytes, moved) = (self.chunks + 1, self.bytes + piece.len() as u64, true);
            self.sent.push_back(number);
            self.leaving.pop_front();
        }
        while self.sent.front().is_some_and(|&number| number <= to.taken()) {
            self.sent.pop_front();
            self.pieces.pop_front();
            moved = true;
        }
        moved
    }
}

/// The way out of a lane, as the rail that it comes from sees it.
pub(super) struct Through<'a, N: Nic> {
    pub(super) direction: &'a mut RelayDirection,
    pub(super) to: &'a mut VerbsRail<N>,
}

impl<N: Nic> Sink for Through<'_, N> {
    fn ready(&mut self, head: &Head) -> bool {
        let len = head.len.get() as usize;
        len > PIECE_MOST || self.direction.gap(len).is_some()
    }

    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        let direction = &mut *self.direction;
        if direction.parked.len() + 1 >= direction.space || payload.len() > SLOT {
            return Err(Violation("more control messages than there are receives".into()));
        }
        let inside = direction.slots.fill(direction.slot(direction.parked.len()), payload);
        debug_assert!(inside);
        direction.parked.push_back(*head);
        direction.pump(self.to);
        Ok(())
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        let len = head.len.get() as usize;
        if len > PIECE_MOST {
            return Err(Violation(format!("a chunk of {len} bytes, a relay takes {PIECE_MOST} at most")));
        }
        let piece = self.direction.piece(len);
        self.direction.arriving.extend(piece);
        Ok(piece)
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        let piece = self.direction.arriving.pop_front().ok_or_else(|| Violation("a chunk without a place".into()))?;
        self.direction.leaving.push_back((*head, piece));
        self.direction.pump(self.to);
        Ok(())
    }
}

/// Takes what comes for a side that has gone.
pub(super) struct Nobody;

impl Sink for Nobody {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(None)
    }

    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        Ok(())
    }
}
