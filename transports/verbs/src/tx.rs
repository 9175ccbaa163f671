//! The sending half: frames in slots, writes, one list and one doorbell per flush.

use std::collections::VecDeque;
use std::sync::Arc;

use linkspan_proto::head::HEAD_LEN;
use linkspan_proto::{Head, Kind};
use linkspan_transport::{Buf, MemSlice};
use linkspan_verbs_sys::{Mr, Qp, SendOp, SendWr};

use crate::cache::CachedRegion;
use crate::endpoint::Counts;
use crate::frame::{FRAME_LEN, Frame, SLOT, Say};
use crate::rx::Reply;

/// One request in so many reports: what is before it on the queue is done with it. The end of a message makes the last request of
/// its list report where no report is under way; else what is left asks when that has come.
const SIGNAL_EVERY: u32 = 16;

/// Chunks accepted and not gone: what a [`linkspan_transport::Sink`] lets be placed at a time.
pub(crate) const CHUNKS: usize = 64;

/// Places that the peer has told, by the low bits of the receive's number (the engine has 512 receives in 1,024).
pub(crate) const GRANTS: usize = 1024;

/// Places of ours not told yet; more are not told, and are asked for.
const UNTOLD: usize = 512;

/// Credits that only a frame of credits may use, so that both sides cannot wait for each other.
const RESERVE: u32 = 1;

/// Where an accepted item is.
enum Stage {
    /// A frame, gone when this request is posted: its bytes are in our slot.
    Frame(u64),
    /// A chunk that asked for its place.
    Asked(u32),
    /// A chunk with a place that could not be written yet: address and key, and the number it asked with.
    Placed(u64, u32, Option<u32>),
    /// A chunk, gone when this request has completed.
    Leaving(u64),
    /// Gone.
    Done,
}

struct Item<M> {
    stage: Stage,
    head: Head,
    src: MemSlice,
    /// Keeps the memory registered.
    region: Option<Arc<CachedRegion<M>>>,
}

#[derive(Clone, Copy, Default)]
struct Grant {
    id: u32,
    addr: u64,
    rkey: u32,
    len: u64,
}

pub(crate) struct Tx<M> {
    batch: Vec<SendWr>,
    /// Requests made, posted and known to have completed, counted from 1.
    made: u64,
    posted: u64,
    completed: u64,
    /// The last write of nothing.
    probed: u64,
    /// The last request that reports.
    reports: u64,
    depth: u64,
    unsignalled: u32,
    /// A message ends in the list that is being made.
    ends: bool,
    inline: usize,
    max_write: u64,
    /// Our half of the ring: slots, and the requests that hold one, oldest first.
    slots: u16,
    held: VecDeque<u64>,
    next_slot: u16,
    /// Frames the peer has receives for, and how many it has at most.
    credits: u32,
    most: u32,
    /// Receives we posted again and have not told.
    owed: u16,
    owed_at: u16,
    accepted: u64,
    taken: u64,
    items: VecDeque<Item<M>>,
    chunks: usize,
    placed: usize,
    next_ask: u32,
    grants: Box<[Grant]>,
    untold: VecDeque<(u32, u64, u32, u64)>,
    scratch: Box<[u8; SLOT]>,
    pub(crate) counts: Counts,
}

/// No space at the moment.
pub(crate) struct Full;

/// The ring's memory.
pub(crate) struct Ring<'a, M> {
    pub(crate) mem: MemSlice,
    pub(crate) mr: &'a M,
    /// Where our half begins, bytes.
    pub(crate) base: usize,
}

impl<M: Mr> Tx<M> {
    pub(crate) fn new(depth: u32, inline: u32, max_write: u32, own: u16, peer: u16) -> Tx<M> {
        Tx {
            batch: Vec::with_capacity(depth as usize),
            made: 0,
            posted: 0,
            completed: 0,
            probed: 0,
            reports: 0,
            depth: depth.into(),
            unsignalled: 0,
            ends: false,
            inline: inline as usize,
            max_write: max_write.max(1).into(),
            slots: own,
            held: VecDeque::with_capacity(own.into()),
            next_slot: 0,
            credits: peer.into(),
            most: peer.into(),
            owed: 0,
            owed_at: own / 2,
            accepted: 0,
            taken: 0,
            items: VecDeque::with_capacity(2 * CHUNKS + usize::from(own)),
            chunks: 0,
            placed: 0,
            next_ask: 0,
            grants: vec![Grant::default(); GRANTS].into(),
            untold: VecDeque::with_capacity(UNTOLD),
            scratch: Box::new([0; SLOT]),
            counts: Counts::default(),
        }
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether there are requests to post or things that wait for space.
    pub(crate) fn pending(&self) -> bool {
        !self.batch.is_empty() || (!self.untold.is_empty() && self.transport(1, RESERVE)) || self.owed >= self.owed_at
    }

    /// Whether a write of nothing has not reported yet.
    pub(crate) fn probing(&self) -> bool {
        self.probed > self.completed
    }

    /// Whether a chunk waits for a request that will not report by itself, and no report is under way.
    pub(crate) fn unreported(&self) -> bool {
        self.reports <= self.completed
            && matches!(self.items.front(), Some(Item { stage: Stage::Leaving(id), .. }) if *id > self.reports)
    }

    /// Whether the device has requests that have not reported.
    pub(crate) fn outstanding(&self) -> bool {
        self.completed < self.posted
    }

    fn transport(&self, requests: u64, reserve: u32) -> bool {
        self.credits > reserve
            && self.held.len() < usize::from(self.slots)
            && self.made - self.completed + requests <= self.depth
    }

    fn request(&mut self, mut wr: SendWr, last: bool) -> u64 {
        self.made += 1;
        self.unsignalled += 1;
        wr.id = self.made;
        wr.signalled = last || self.unsignalled >= SIGNAL_EVERY;
        if wr.signalled {
            (self.unsignalled, self.reports) = (0, self.made);
        }
        self.batch.push(wr);
        self.made
    }

    /// Makes a frame. The caller has checked that there is space.
    fn frame(&mut self, ring: &Ring<'_, M>, frame: Frame, head: Option<&Head>, body: MemSlice, last: bool) -> u64 {
        let mut frame = frame;
        frame.credits.set(std::mem::take(&mut self.owed));
        self.scratch[..FRAME_LEN].copy_from_slice(frame.as_wire());
        let mut len = FRAME_LEN;
        if let Some(head) = head {
            self.scratch[len..len + HEAD_LEN].copy_from_slice(head.as_wire());
            len += HEAD_LEN;
        }
        let end = len + body.len();
        let inside = body.read(0, &mut self.scratch[len..end]);
        debug_assert!(inside);
        let at = ring.base + usize::from(self.next_slot) * SLOT;
        let inside = ring.mem.fill(at as u64, &self.scratch[..end]);
        debug_assert!(inside);
        self.next_slot = (self.next_slot + 1) % self.slots;
        self.credits -= 1;
        let range = ring.mr.keys().sge(ring.mr.keys().addr() + at as u64, end as u32);
        let wr = SendWr { inline: end <= self.inline, ..SendWr::new(0, SendOp::Send, range) };
        let id = self.request(wr, last);
        self.held.push_back(id);
        id
    }

    fn accept(&mut self, item: Item<M>) -> u64 {
        self.items.push_back(item);
        self.accepted += 1;
        self.accepted
    }

    pub(crate) fn ctrl(&mut self, ring: &Ring<'_, M>, head: &Head, body: MemSlice) -> Result<u64, Full> {
        if !self.transport(1, RESERVE) {
            return Err(Full);
        }
        let mut frame = Frame::new(Say::Ctrl, 0);
        if head.kind == Kind::Grant as u8
            && let Some(at) = self.untold.iter().position(|u| u.0 == head.id.get())
            && let Some((id, addr, rkey, len)) = self.untold.remove(at)
        {
            frame = Frame::new(Say::Ctrl, id).at(addr, rkey, len);
        }
        let id = self.frame(ring, frame, Some(head), body, false);
        self.counts.frames += 1;
        Ok(self.accept(Item { stage: Stage::Frame(id), head: *head, src: MemSlice::NONE, region: None }))
    }

    /// Whether there is space for a chunk.
    pub(crate) fn takes(&self, src: MemSlice) -> bool {
        self.chunks < CHUNKS && self.transport(self.writes(src) + 1, RESERVE)
    }

    /// Chunks under way, whose memory is free again when they are gone.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks
    }

    /// Whether one of them has its place, so that it goes without anything more of the peer's.
    pub(crate) fn has_placed(&self) -> bool {
        self.items.iter().any(|i| i.region.is_some() && matches!(i.stage, Stage::Placed(..) | Stage::Leaving(_)))
    }

    /// A chunk for which there is space.
    pub(crate) fn data(&mut self, ring: &Ring<'_, M>, head: &Head, src: MemSlice, region: Arc<CachedRegion<M>>) -> u64 {
        let grant = self.grants[head.id.get() as usize % GRANTS];
        let offset = head.offset.get();
        let known = head.kind == Kind::Chunk as u8
            && grant.len > 0
            && grant.id == head.id.get()
            && offset.checked_add(src.len() as u64).is_some_and(|end| end <= grant.len);
        let item = Item { stage: Stage::Done, head: *head, src, region: Some(region) };
        self.chunks += 1;
        let n = self.accept(item);
        let stage = if known {
            self.counts.direct += 1;
            self.write(ring, self.items.len() - 1, grant.addr.wrapping_add(offset), grant.rkey, None)
        } else {
            let ask = self.next_ask;
            self.next_ask = ask.wrapping_add(1);
            self.frame(ring, Frame::new(Say::Ask, ask), Some(head), MemSlice::NONE, false);
            self.counts.asked += 1;
            Stage::Asked(ask)
        };
        if let Some(item) = self.items.back_mut() {
            item.stage = stage;
        }
        n
    }

    fn writes(&self, src: MemSlice) -> u64 {
        (src.len() as u64).div_ceil(self.max_write).max(1)
    }

    /// Writes a chunk and the frame behind it that says so.
    fn write(&mut self, ring: &Ring<'_, M>, at: usize, addr: u64, rkey: u32, ask: Option<u32>) -> Stage {
        let item = &self.items[at];
        let (head, src) = (item.head, item.src);
        let Some(keys) = item.region.as_ref().map(|r| *r.keys()) else { return Stage::Done };
        let mut done = 0;
        while done < src.len() as u64 {
            let len = (src.len() as u64 - done).min(self.max_write);
            let range = keys.sge(src.as_ptr() as u64 + done, len as u32);
            self.request(SendWr::new(0, SendOp::Write { addr: addr.wrapping_add(done), rkey }, range), false);
            done += len;
        }
        // The sender of a message wants to know of its end soon.
        self.ends |= head.offset.get() + u64::from(head.len.get()) == head.total.get();
        let id = match ask {
            Some(ask) => self.frame(ring, Frame::new(Say::Landed, ask), None, MemSlice::NONE, false),
            None => self.frame(ring, Frame::new(Say::Written, 0), Some(&head), MemSlice::NONE, false),
        };
        self.counts.chunks += 1;
        Stage::Leaving(id)
    }

    /// The peer's answer to a chunk that asked.
    pub(crate) fn answered(&mut self, ask: u32, place: Option<(u64, u32, u64)>) -> Result<(), String> {
        let asked = |i: &&mut Item<M>| matches!(i.stage, Stage::Asked(n) if n == ask);
        let Some(item) = self.items.iter_mut().find(asked) else {
            return Err(format!("a place for chunk {ask}, which did not ask"));
        };
        item.stage = match place {
            Some((addr, rkey, len)) if len == item.src.len() as u64 => {
                self.placed += 1;
                Stage::Placed(addr, rkey, Some(ask))
            }
            Some((.., len)) => return Err(format!("a place of {len} bytes for a chunk of {}", item.src.len())),
            None => Stage::Done,
        };
        self.settle();
        Ok(())
    }

    /// The peer has told a place ahead.
    pub(crate) fn granted(&mut self, id: u32, addr: u64, rkey: u32, len: u64) {
        self.grants[id as usize % GRANTS] = Grant { id, addr, rkey, len };
    }

    /// A place of ours that the peer may know ahead; whether it will be told.
    pub(crate) fn tell(&mut self, id: u32, addr: u64, rkey: u32, len: u64) -> bool {
        let space = self.untold.len() < UNTOLD;
        if space {
            self.untold.push_back((id, addr, rkey, len));
        }
        space
    }

    /// Makes requests of what waits for space: answers first, they set the peer free.
    pub(crate) fn gather(&mut self, ring: &Ring<'_, M>, replies: &mut VecDeque<Reply>) {
        while let Some(&(ask, place)) = replies.front().filter(|_| self.transport(1, RESERVE)) {
            let frame = match place {
                Some((addr, rkey, len)) => Frame::new(Say::Place, ask).at(addr, rkey, len),
                None => Frame::new(Say::Nowhere, ask),
            };
            self.frame(ring, frame, None, MemSlice::NONE, false);
            replies.pop_front();
        }
        let mut at = 0;
        while self.placed > 0 && at < self.items.len() {
            if let Stage::Placed(addr, rkey, ask) = self.items[at].stage {
                if !self.transport(self.writes(self.items[at].src) + 1, RESERVE) {
                    break;
                }
                self.items[at].stage = self.write(ring, at, addr, rkey, ask);
                self.placed -= 1;
            }
            at += 1;
        }
        while let Some(&(id, addr, rkey, len)) = self.untold.front().filter(|_| self.transport(1, RESERVE)) {
            self.frame(ring, Frame::new(Say::Granted, id).at(addr, rkey, len), None, MemSlice::NONE, false);
            self.untold.pop_front();
        }
        if self.owed >= self.owed_at && self.transport(1, 0) {
            self.frame(ring, Frame::new(Say::Credit, 0), None, MemSlice::NONE, false);
        }
    }

    /// The last word, if there is space for it.
    pub(crate) fn close(&mut self, ring: &Ring<'_, M>) {
        if self.transport(1, 0) {
            self.frame(ring, Frame::new(Say::Close, 0), None, MemSlice::NONE, true);
        } else {
            self.probe();
        }
    }

    /// A write of nothing: the peer's card acknowledges it, whatever its process does. One at a time.
    pub(crate) fn probe(&mut self) {
        if self.probed <= self.completed && self.made - self.completed < self.depth {
            self.counts.probes += 1;
            self.probed = self.request(SendWr::new(0, SendOp::Write { addr: 0, rkey: 0 }, None), true);
        }
    }

    /// Hands what was made to the device as one list.
    pub(crate) fn post(&mut self, qp: &mut impl Qp) -> Result<bool, i32> {
        if self.batch.is_empty() {
            return Ok(false);
        }
        if std::mem::take(&mut self.ends)
            && self.reports <= self.completed
            && let Some(last) = self.batch.last_mut()
        {
            self.counts.alone += u64::from(!last.signalled);
            last.signalled = true;
            (self.unsignalled, self.reports) = (0, self.made);
        }
        self.counts.doorbells += 1;
        let (taken, fault) = match qp.post_send(&self.batch) {
            Ok(()) => (self.batch.len(), None),
            // A full queue empties; what was not taken is posted again.
            Err(e) if e.errno == ENOMEM || e.errno == EAGAIN => (e.taken, None),
            Err(e) => (e.taken, Some(e.errno)),
        };
        self.posted += taken as u64;
        self.counts.requests += taken as u64;
        self.counts.signalled += self.batch[..taken].iter().filter(|wr| wr.signalled).count() as u64;
        self.batch.drain(..taken);
        self.settle();
        fault.map_or(Ok(taken > 0), Err)
    }

    /// Request `id` has completed, and with it all before.
    pub(crate) fn completed(&mut self, id: u64) {
        if id <= self.completed || id > self.posted {
            return; // told twice
        }
        self.completed = id;
        while self.held.front().is_some_and(|&h| h <= id) {
            self.held.pop_front();
        }
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(item) = self.items.front() {
            let gone = match item.stage {
                Stage::Done => true,
                Stage::Frame(id) => id <= self.posted,
                Stage::Leaving(id) => id <= self.completed,
                Stage::Asked(_) | Stage::Placed(..) => false,
            };
            if !gone {
                return;
            }
            if item.region.is_some() {
                self.chunks -= 1;
            }
            self.items.pop_front();
            self.taken += 1;
        }
    }

    /// The peer has posted receives again.
    pub(crate) fn credited(&mut self, n: u16) -> Result<(), String> {
        self.credits += u32::from(n);
        if self.credits > self.most {
            return Err(format!("{} credits, it has {} receives", self.credits, self.most));
        }
        Ok(())
    }

    /// Our receives were posted again, for so many frames of the peer, which has credits for no more than all of them before it hears of these.
    pub(crate) fn owe(&mut self, n: u16) -> Result<(), String> {
        self.owed = self.owed.saturating_add(n);
        if self.owed > self.slots {
            return Err(format!("{} frames without credits, there are {} receives", self.owed, self.slots));
        }
        Ok(())
    }
}

/// Linux, `asm-generic/errno-base.h`: the queue is full.
const ENOMEM: i32 = 12;
const EAGAIN: i32 = 11;

#[cfg(test)]
mod tests {
    use linkspan_verbs_sys::soft::SoftNic;

    use super::*;

    #[test]
    fn a_peer_that_sends_more_frames_than_it_has_credits_is_given_up() {
        let mut tx = Tx::<<SoftNic as linkspan_verbs_sys::Nic>::Mr>::new(64, 0, 1 << 20, 8, 8);
        for n in [3, 5] {
            tx.owe(n).unwrap();
        }
        assert!(tx.owe(1).is_err());
    }
}
