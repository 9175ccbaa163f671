//! The receiving half: frames out of the ring, chunks in the order in which they were placed.

use std::collections::VecDeque;
use std::sync::Arc;

use linkspan_proto::Head;
use linkspan_transport::{Buf, MemSlice, Sink};
use linkspan_verbs_sys::{Mr, RecvWr};

use crate::cache::Region;
use crate::frame::SLOT;
use crate::tx::CHUNKS;

/// Bit in the number of a receive request; below it are how often its slot was taken before, and the slot.
pub(crate) const RECV: u64 = 1 << 63;

const SLOT_BITS: u32 = 16;

/// A chunk that is arriving.
struct Arriving<M> {
    /// The number it asked with, if it asked.
    ask: Option<u32>,
    head: Head,
    landed: bool,
    /// Keeps the memory registered.
    _region: Option<Arc<Region<M>>>,
}

/// The answer to a chunk: its number and where it goes.
pub(crate) type Reply = (u32, Option<(u64, u32, u64)>);

pub(crate) struct Rx<M> {
    /// How often each slot has been taken; a completion of an earlier time was told twice.
    taken: Vec<u32>,
    repost: Vec<RecvWr>,
    pub(crate) scratch: Box<[u8]>,
    arriving: VecDeque<Arriving<M>>,
    pub(crate) replies: VecDeque<Reply>,
    next_ask: u32,
    /// Frames taken so far.
    pub(crate) frames: u64,
}

impl<M: Mr> Rx<M> {
    pub(crate) fn new(slots: u16) -> Rx<M> {
        Rx {
            taken: vec![0; slots.into()],
            repost: Vec::with_capacity(slots.into()),
            scratch: vec![0; SLOT].into(),
            arriving: VecDeque::with_capacity(CHUNKS),
            replies: VecDeque::with_capacity(CHUNKS),
            next_ask: 0,
            frames: 0,
        }
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
        self.frames += 1;
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

    /// A chunk asks for its place; `find` gives the region of one.
    pub(crate) fn asked<S: Sink>(
        &mut self,
        sink: &mut S,
        ask: u32,
        head: &Head,
        find: impl FnOnce(MemSlice) -> Result<Arc<Region<M>>, String>,
    ) -> Result<(), String> {
        if ask != self.next_ask || self.arriving.len() >= CHUNKS {
            return Err(format!("chunk {ask} asks, {} was due and {} arrive", self.next_ask, self.arriving.len()));
        }
        self.next_ask = ask.wrapping_add(1);
        match sink.place(head).map_err(|v| v.0)? {
            Some(mem) if mem.len() == head.len.get() as usize => {
                let region = find(mem)?;
                let place = (mem.as_ptr() as u64, region.keys().rkey(), mem.len() as u64);
                self.replies.push_back((ask, Some(place)));
                self.arriving.push_back(Arriving { ask: Some(ask), head: *head, landed: false, _region: Some(region) });
                Ok(())
            }
            Some(mem) => Err(format!("a chunk of {} bytes met a place of {}", head.len.get(), mem.len())),
            None => {
                self.replies.push_back((ask, None));
                self.arriving.push_back(Arriving { ask: None, head: *head, landed: true, _region: None });
                self.land(sink)
            }
        }
    }

    /// The chunk that asked so has been written.
    pub(crate) fn landed<S: Sink>(&mut self, sink: &mut S, ask: u32) -> Result<(), String> {
        let Some(chunk) = self.arriving.iter_mut().find(|a| a.ask == Some(ask) && !a.landed) else {
            return Err(format!("the end of chunk {ask}, which has no place"));
        };
        if self.replies.iter().any(|r| r.0 == ask) {
            return Err(format!("the end of chunk {ask}, which was not told its place"));
        }
        chunk.landed = true;
        self.land(sink)
    }

    /// A chunk has been written to the place of its grant.
    pub(crate) fn written<S: Sink>(&mut self, sink: &mut S, head: &Head) -> Result<(), String> {
        if self.arriving.len() >= CHUNKS {
            return Err(format!("{CHUNKS} chunks arrive and one more"));
        }
        match sink.place(head).map_err(|v| v.0)? {
            Some(mem) if mem.len() == head.len.get() as usize => {}
            Some(mem) => return Err(format!("a chunk of {} bytes met a place of {}", head.len.get(), mem.len())),
            None => return Err(format!("a write into receive {:#x}, which has ended", head.id.get())),
        }
        self.arriving.push_back(Arriving { ask: None, head: *head, landed: true, _region: None });
        self.land(sink)
    }

    fn land<S: Sink>(&mut self, sink: &mut S) -> Result<(), String> {
        while self.arriving.front().is_some_and(|a| a.landed) {
            if let Some(chunk) = self.arriving.pop_front() {
                sink.landed(&chunk.head).map_err(|v| v.0)?;
            }
        }
        Ok(())
    }
}
