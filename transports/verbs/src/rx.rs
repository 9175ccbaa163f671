//! The receiving half: frames out of the ring, chunks in the order in which they were placed.

use std::collections::VecDeque;
use std::sync::Arc;

use linkspan_proto::Head;
use linkspan_transport::{Buf, End, MemSlice, Sink};
use linkspan_verbs_sys::{Error, Mr, RecvWr};

use crate::cache::{CachedRegion, is_short};
use crate::frame::SLOT;
use crate::tx::{CHUNKS, GRANTS};

/// Bit in the number of a receive request; below it are how often its slot was taken before, and the slot.
pub(crate) const RECV: u64 = 1 << 63;

const SLOT_BITS: u32 = 16;

/// A chunk that is arriving.
struct IncomingChunk<M> {
    /// The number it asked with, if it asked.
    ask: Option<u32>,
    head: Head,
    landed: bool,
    /// Keeps the memory registered.
    _region: Option<Arc<CachedRegion<M>>>,
}

/// The answer to a chunk: its number and where it goes.
pub(crate) type Reply = (u32, Option<(u64, u32, u64)>);

/// A receive whose place the peer was told: its number, and what keeps its memory registered.
type Told<M> = (u32, Arc<CachedRegion<M>>);

pub(crate) struct Rx<M> {
    /// How often each slot has been taken; a completion of an earlier time was told twice.
    taken: Vec<u32>,
    repost: Vec<RecvWr>,
    pub(crate) scratch: Box<[u8]>,
    arriving: VecDeque<IncomingChunk<M>>,
    /// Chunks that the sink has not placed yet, oldest first: those that ask, and those that were written behind one that does.
    waiting: VecDeque<(Option<u32>, Head)>,
    /// The place of the first of them, where that could not be registered yet.
    unregistered: Option<MemSlice>,
    pub(crate) replies: VecDeque<Reply>,
    next_ask: u32,
    /// By the low bits of the receive's number, as the peer keeps them.
    told: Box<[Option<Told<M>>]>,
}

impl<M: Mr> Rx<M> {
    pub(crate) fn new(slots: u16) -> Rx<M> {
        Rx {
            taken: vec![0; slots.into()],
            repost: Vec::with_capacity(slots.into()),
            scratch: vec![0; SLOT].into(),
            arriving: VecDeque::with_capacity(CHUNKS),
            waiting: VecDeque::with_capacity(CHUNKS),
            unregistered: None,
            replies: VecDeque::with_capacity(CHUNKS),
            next_ask: 0,
            told: (0..GRANTS).map(|_| None).collect(),
        }
    }

    /// Whether the peer was not told the place of this receive. One that had its place in the table has ended, and lets go of its memory.
    pub(crate) fn is_untold(&mut self, id: u32) -> bool {
        self.told[id as usize % GRANTS].take_if(|told| told.0 != id);
        self.told[id as usize % GRANTS].is_none()
    }

    /// The peer is told.
    pub(crate) fn told(&mut self, id: u32, region: Arc<CachedRegion<M>>) {
        self.told[id as usize % GRANTS] = Some((id, region));
    }

    /// This receive has ended, whichever rails brought it.
    pub(crate) fn forget(&mut self, id: u32) {
        self.told[id as usize % GRANTS].take_if(|told| told.0 == id);
    }

    /// The request for a slot that was taken so often.
    pub(crate) fn request(mr: &M, slot: u16, taken: u32) -> RecvWr {
        let at = mr.keys().addr() + u64::from(slot) * SLOT as u64;
        let id = RECV | u64::from(taken) << SLOT_BITS | u64::from(slot);
        RecvWr { id, range: mr.keys().sge(at, SLOT as u32) }
    }

    /// A receive has completed with so many bytes: copies them out. `None`: it was told before.
    pub(crate) fn take(&mut self, ring: MemSlice, mr: &M, id: u64, bytes: usize) -> Option<usize> {
        let (slot, time) = ((id as u16) as usize, ((id & !RECV) >> SLOT_BITS) as u32);
        let taken = self.taken.get_mut(slot)?;
        if *taken != time {
            return None;
        }
        *taken = taken.wrapping_add(1);
        let taken = *taken;
        let len = bytes.min(SLOT);
        if !ring.read((slot * SLOT) as u64, &mut self.scratch[..len]) {
            return None;
        }
        self.repost.push(Self::request(mr, slot as u16, taken));
        Some(len)
    }

    /// Receives to post again.
    pub(crate) fn repost(&mut self) -> &[RecvWr] {
        &self.repost
    }

    /// So many of them, from the front, were posted.
    pub(crate) fn reposted(&mut self, n: usize) {
        self.repost.drain(..n);
    }

    /// A chunk has come: it asks for its place, or was written to that of its grant. `find` gives the region of a place.
    pub(crate) fn came<I: Sink + ?Sized>(
        &mut self,
        sink: &mut I,
        ask: Option<u32>,
        head: &Head,
        leaving: impl Fn() -> bool,
        find: impl FnMut(MemSlice) -> Result<Arc<CachedRegion<M>>, Error>,
    ) -> Result<(), End> {
        if self.arriving.len() + self.waiting.len() >= CHUNKS {
            return Err(End::Protocol(format!("a chunk comes while {CHUNKS} arrive")));
        }
        if let Some(ask) = ask {
            if ask != self.next_ask {
                return Err(End::Protocol(format!("chunk {ask} asks, {} was due", self.next_ask)));
            }
            self.next_ask = ask.wrapping_add(1);
        }
        self.waiting.push_back((ask, *head));
        self.assign(sink, leaving, find)
    }

    /// Whether chunks arrive at places that they have.
    pub(crate) fn is_arriving(&self) -> bool {
        !self.arriving.is_empty()
    }

    /// Whether chunks wait for their turn.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Places the chunks that wait, in their order, as far as there are places. One that was written has its own. `leaving`:
    /// whether chunks of ours are on their way.
    pub(crate) fn assign<I: Sink + ?Sized>(
        &mut self,
        sink: &mut I,
        leaving: impl Fn() -> bool,
        mut find: impl FnMut(MemSlice) -> Result<Arc<CachedRegion<M>>, Error>,
    ) -> Result<(), End> {
        while let Some(&(ask, head)) = self.waiting.front() {
            let place = match self.unregistered.take() {
                None if ask.is_some() && !sink.ready(&head) => return Ok(()),
                None => sink.place(&head).map_err(|v| End::Protocol(v.0))?,
                placed => placed,
            };
            if let Some(mem) = place.filter(|mem| mem.len() != head.len.get() as usize) {
                return Err(End::Protocol(other_length(&head, mem)));
            }
            let region = match (ask, place) {
                (Some(ask), Some(mem)) => {
                    let region = match find(mem) {
                        // Chunks that have their places, either way, need nothing more: their memory is free again soon.
                        Err(error) if is_short(&error) && (self.is_arriving() || leaving()) => {
                            self.unregistered = Some(mem);
                            return Ok(());
                        }
                        found => found.map_err(|error| unregistered(&error))?,
                    };
                    let place = (mem.as_ptr() as u64, region.keys().rkey(), mem.len() as u64);
                    self.replies.push_back((ask, Some(place)));
                    Some(region)
                }
                (Some(ask), None) => {
                    self.replies.push_back((ask, None));
                    None
                }
                (None, Some(_)) => None,
                (None, None) => {
                    let why = format!("a write into receive {:#x}, which has ended", head.id.get());
                    return Err(End::Protocol(why));
                }
            };
            let landed = region.is_none();
            self.arriving.push_back(IncomingChunk { ask: ask.filter(|_| !landed), head, landed, _region: region });
            self.land(sink).map_err(End::Protocol)?;
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// The chunk that asked so has been written.
    pub(crate) fn landed<I: Sink + ?Sized>(&mut self, sink: &mut I, ask: u32) -> Result<(), String> {
        let Some(chunk) = self.arriving.iter_mut().find(|a| a.ask == Some(ask) && !a.landed) else {
            return Err(format!("the end of chunk {ask}, which has no place"));
        };
        if self.replies.iter().any(|r| r.0 == ask) {
            return Err(format!("the end of chunk {ask}, which was not told its place"));
        }
        chunk.landed = true;
        self.land(sink)
    }

    fn land<I: Sink + ?Sized>(&mut self, sink: &mut I) -> Result<(), String> {
        while self.arriving.front().is_some_and(|a| a.landed) {
            if let Some(chunk) = self.arriving.pop_front() {
                sink.landed(&chunk.head).map_err(|v| v.0)?;
            }
        }
        Ok(())
    }
}

/// Memory of ours could not be registered.
pub(crate) fn unregistered(error: &Error) -> End {
    End::Refused("ibv_reg_mr", error.to_string())
}

fn other_length(head: &Head, mem: MemSlice) -> String {
    format!("a chunk of {} bytes met a place of {}", head.len.get(), mem.len())
}
