//! The outgoing half: control messages and chunks into the ring, large chunks from hand to hand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use linkspan_proto::Head;
use linkspan_shmring::cma::Ranges;
use linkspan_shmring::layout::LIGHT;
use linkspan_shmring::map::SlotWords;
use linkspan_shmring::ring::Producer;
use linkspan_shmring::slot::{self, MAX_SLICES, Words};
use linkspan_shmring::{Map, RingView, SLOTS, Side, Slots};
use linkspan_transport::{Buf, Busy, MemSlice};

use crate::batch::{self, BATCH, BATCHES, LONGEST, Sources};
use crate::caps::{Config, PAGE, SLICE_MAX};
use crate::memory::{Copied, PeerMemory};
use crate::record::{self, CTRL_AT, Direct, ENTRY, Tag};

/// Chunks that a sender may have under way, counted from the oldest unfinished one; a receiver keeps as many.
pub(crate) const CHUNKS: usize = 2 * SLOTS;

/// Largest chunk that is copied directly; larger ones would need larger slices.
const DIRECT_MAX: usize = MAX_SLICES as usize * SLICE_MAX;

/// Chunk from which on the ways are compared: a page of that size is most of what a call that copies it directly costs.
const COMPARED: usize = 16 << 10;

/// Chunks between two whose way into the ring is timed: two looks at the clock are 50 ns.
const TIMED: u32 = 4;

/// KiB that reach the ring in a microsecond where both processors share a cache: 9 to 16 (pages of 16 KiB in 1 to 1.75 us).
/// Where they do not, every line is fetched from afar: 4 to 7 (in 2.25 to 4.5 us), and copying pages together is faster.
const NEAR: usize = 8;

/// Slow ones beyond the fast ones after which chunks are copied directly: more than the first way through the largest default
/// ring, whose pages are made then. How many chunks then are, until the ring is tried again (1 GiB of pages of 16 KiB, a
/// tenth of a second; trying costs some thirty slow pages), and how many slow ones suffice after that.
const SLOW: u32 = 80;
const DIRECTLY: u32 = 65536;
const STILL: u32 = 8;

/// Whether chunks of a size that usually goes through the ring go there, or in batches, by what it was seen to cost. Either way alone
/// would lose more than a tenth: where the processors share no cache, pages of 16 KiB go at 7.7 GB/s in batches and a bare ring brings
/// 5.0, and where they do, scattered ones come to 0.83 of one contiguous write through the ring and to 0.70 in batches
/// (bench/records/2026-11-22-one-sided-rows-of-pages.md).
#[derive(Debug, Default)]
struct DirectCopyHeuristic {
    chunks: u32,
    slow: u32,
    direct: u32,
    /// They never go through the ring.
    never: bool,
}

impl DirectCopyHeuristic {
    /// The clock, where the next chunk is to be timed.
    fn clock(&mut self) -> Option<Instant> {
        self.chunks = self.chunks.wrapping_add(1);
        self.chunks.is_multiple_of(TIMED).then(Instant::now)
    }

    /// So many bytes took so long.
    fn took(&mut self, bytes: usize, time: Duration) {
        let slow = time.as_nanos() as usize * NEAR > (bytes >> 10) * 1000;
        self.slow = if slow { self.slow + 1 } else { self.slow.saturating_sub(1) };
        if self.slow >= SLOW {
            (self.slow, self.direct) = (SLOW - STILL, DIRECTLY);
        }
    }

    /// Whether the next chunk is to be copied directly.
    fn goes_directly(&self) -> bool {
        self.direct > 0 || self.never
    }
}

/// Why the rail cannot go on.
#[derive(Debug)]
pub(crate) enum Fault {
    /// What the peer did, which no honest peer does.
    CorruptIndex(String),
    /// The system refused a call.
    System(&'static str, std::io::Error),
    /// The peer is gone.
    Gone(&'static str),
}

/// A chunk accepted and not yet reported as taken.
#[derive(Debug)]
struct Out {
    item: u64,
    direct: Option<Transfer>,
    done: bool,
}

/// The sender's view of a transfer.
#[derive(Debug)]
struct Transfer {
    slot: u8,
    generation: u32,
    src: MemSlice,
    slice: usize,
    count: u32,
    /// Of a batch: its chunks, a slice each, in place of `src`.
    batch: Option<Box<Sources>>,
    /// Slices that go through the ring, and how far the lowest of them has gone.
    ringed: u64,
    ringed_at: usize,
    /// Slices that the receiver handed back, which we have taken note of.
    unread: u64,
    /// We could not write the receiver's memory once and do not try again.
    quit: bool,
}

/// A batch that chunks are added to. The receiver is told of it when it is closed.
#[derive(Debug)]
struct Open {
    sources: Box<Sources>,
    slot: u8,
    /// Its place in `out`, counted since the beginning.
    place: u64,
}

/// A chunk on its way through the ring.
#[derive(Debug)]
struct Partial {
    src: MemSlice,
    sent: usize,
    /// Its place in `out`, counted since the beginning.
    place: u64,
}

/// The outgoing half of a rail.
#[derive(Debug)]
pub(crate) struct Sender {
    tx: Producer<RingView>,
    slots: Slots,
    items: u64,
    announced_items: u64,
    dirty: bool,
    out: VecDeque<Out>,
    /// Chunks that have left `out` since the beginning.
    left: u64,
    partial: Option<Partial>,
    batch: Option<Open>,
    /// Batches under way, and what finished ones leave for the next.
    batches: usize,
    #[expect(clippy::vec_box, reason = "the boxes go to transfers and back")]
    spare: Vec<Box<Sources>>,
    free: u32,
    generation: u32,
    piece: usize,
    reserve: usize,
    /// Bytes of the ring that light traffic stays in, and the position from which on it is asked whether the ring is empty.
    light: usize,
    look: u64,
    /// A chunk has gone through the ring since the last look.
    streams: bool,
    ring: usize,
    from: usize,
    /// Shortest chunk that goes in a batch.
    batch_from: usize,
    direct_copy: DirectCopyHeuristic,
    slice: usize,
    /// Bytes that the ring had no space for, since the last poll.
    refused: usize,
    fault: Option<Fault>,
}

impl Sender {
    pub(crate) fn new(map: &Arc<Map>, side: Side, config: &Config, direct: bool) -> Sender {
        Sender {
            tx: Producer::new(RingView::new(map, side)),
            slots: Slots::new(map, side),
            items: 0,
            announced_items: 0,
            dirty: false,
            out: VecDeque::with_capacity(CHUNKS),
            left: 0,
            partial: None,
            batch: None,
            batches: 0,
            spare: Vec::with_capacity(BATCHES),
            free: (1 << SLOTS) - 1,
            generation: 0,
            // A quarter of 64 KiB, so that both sides copy at once; less where the ring is small.
            piece: (16 << 10).min(map.ring() / 8),
            light: LIGHT.min(map.ring() / 2),
            look: LIGHT.min(map.ring() / 2) as u64,
            streams: false,
            ring: map.ring(),
            // What chunks leave to control messages: one of the largest, and an eighth of a ring of 512 KiB.
            reserve: (map.ring() / 8).min(64 << 10).max(record::size(Tag::Ctrl, linkspan_proto::head::EAGER_MAX)),
            from: if direct { config.cma_from.max(1) } else { usize::MAX },
            batch_from: if config.batches { 1 } else { COMPARED },
            direct_copy: DirectCopyHeuristic { never: config.batches && direct, ..DirectCopyHeuristic::default() },
            slice: config.slice,
            refused: 0,
            fault: None,
        }
    }

    /// See [`linkspan_transport::Rail::taken`].
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.out.front().map_or(self.announced_items, |o| self.announced_items.min(o.item - 1))
    }

    /// Whether something was published that a sleeping peer has not been told of.
    #[inline]
    pub(crate) fn unannounced(&self) -> bool {
        self.dirty
    }

    /// Everything published so far has been announced.
    #[inline]
    pub(crate) fn announced(&mut self) {
        self.dirty = false;
        self.announced_items = self.items;
    }

    #[inline]
    fn publish(&mut self, size: usize) {
        self.tx.publish(size);
        self.dirty = true;
    }

    /// Whether nothing is under way.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.out.is_empty() && self.fault.is_none()
    }

    /// Whether the peer has found everything, and has nothing left to do with it.
    pub(crate) fn all_found(&self) -> bool {
        self.is_idle() && self.tx.is_empty()
    }

    /// Goes back to the beginning of the ring where it is empty and no chunk has come this way lately, and asks again a little
    /// later.
    #[cold]
    fn turn_back(&mut self) {
        let rest = self.tx.until_end();
        let light = !std::mem::take(&mut self.streams) && self.ring - rest >= self.light;
        // A position that is a lie is found by the next look for space.
        if light
            && self.tx.is_empty()
            && self.tx.free(rest).is_ok_and(|free| free >= rest)
            && self.tx.put(0, &record::skip(rest))
        {
            self.publish(rest);
        }
        self.look = self.tx.position() + self.light as u64;
    }

    fn space(&mut self, want: usize) -> bool {
        if self.tx.position() >= self.look {
            self.turn_back();
        }
        match self.tx.free(want) {
            Ok(free) if free >= want => true,
            Ok(_) => {
                self.refused = if self.refused == 0 { want } else { self.refused.min(want) };
                false
            }
            Err(lie) => {
                self.fault =
                    Some(Fault::CorruptIndex(format!("its ring position is {}, ours {}", lie.theirs, lie.ours)));
                false
            }
        }
    }

    #[inline]
    pub(crate) fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        self.close_batch();
        let (len, size) = (body.len(), record::size(Tag::Ctrl, body.len()));
        if !self.space(size) {
            return Err(Busy);
        }
        let mut line = record::with_head(Tag::Ctrl, len, head);
        let whole = if len <= line.len() - CTRL_AT {
            body.read(0, &mut line[CTRL_AT..CTRL_AT + len]) && self.tx.put(0, &line)
        } else {
            self.tx.put(0, &line[..CTRL_AT]) && self.tx.put_mem(CTRL_AT, body)
        };
        if !whole {
            return Err(Busy);
        }
        self.publish(size);
        self.items += 1;
        Ok(self.items)
    }

    pub(crate) fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        let short = (self.batch_from..=LONGEST).contains(&src.len()) && src.len() < self.from;
        if short && self.direct_copy.goes_directly() {
            let added = self.by_batch(head, src);
            self.direct_copy.direct = self.direct_copy.direct.saturating_sub(u32::from(added.is_ok()));
            return added;
        }
        self.close_batch();
        if self.out.len() == CHUNKS {
            return Err(Busy);
        }
        if (self.from..=DIRECT_MAX).contains(&src.len()) {
            return self.offer(head, src);
        }
        if self.direct_copy.goes_directly() && (self.batch_from..=DIRECT_MAX).contains(&src.len()) {
            let offered = self.offer(head, src);
            self.direct_copy.direct = self.direct_copy.direct.saturating_sub(u32::from(offered.is_ok()));
            return offered;
        }
        self.by_ring(head, src)
    }

    fn accept(&mut self, direct: Option<Transfer>, done: bool) -> u64 {
        self.items += 1;
        // A chunk that has left already needs no place, unless older ones keep it from being reported.
        if !(done && self.out.is_empty()) {
            self.out.push_back(Out { item: self.items, direct, done });
        }
        self.items
    }

    fn offer(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        let index = self.free.trailing_zeros() as usize;
        if !self.space(record::size(Tag::ShmOffer, 0)) {
            return Err(Busy);
        }
        let Some(w) = self.slots.get(index) else {
            return Err(Busy);
        };
        let least = src.len().div_ceil(MAX_SLICES as usize).next_multiple_of(PAGE);
        // A chunk of few slices is cut finer, so that both sides have two each.
        let fine = (src.len() / 4).next_multiple_of(PAGE).max(32 << 10);
        let slice = self.slice.min(fine).max(least);
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        slot::offer(&w, generation);
        let direct =
            Direct { address: src.as_ptr() as u64, slot: index as u8, pages: (slice / PAGE) as u16, generation };
        if !self.tx.put(0, &record::offer(head, direct)) {
            return Err(Busy);
        }
        self.publish(record::size(Tag::ShmOffer, 0));
        self.free &= !(1 << index);
        let count = src.len().div_ceil(slice) as u32;
        let transfer = Transfer {
            slot: index as u8,
            generation,
            src,
            slice,
            count,
            batch: None,
            ringed: 0,
            ringed_at: 0,
            unread: 0,
            quit: false,
        };
        Ok(self.accept(Some(transfer), false))
    }

    /// Adds a chunk to the batch, which is begun where there is none.
    fn by_batch(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        if self.batch.as_ref().is_some_and(|open| open.sources.used == BATCH) {
            self.close_batch();
        }
        if self.batch.is_none() {
            self.begin_batch()?;
        }
        let Some(open) = self.batch.as_mut() else {
            return Err(Busy);
        };
        let at = record::LINE_LEN + open.sources.used * ENTRY;
        // There is space for it since the batch was begun.
        if !(self.tx.put(at, &record::entry(head, src.as_ptr() as u64)) && open.sources.add(src)) {
            return Err(Busy);
        }
        self.items += 1;
        Ok(self.items)
    }

    fn begin_batch(&mut self) -> Result<(), Busy> {
        let slot = self.free.trailing_zeros() as u8;
        let full = self.out.len() == CHUNKS || self.batches == BATCHES || usize::from(slot) >= SLOTS;
        if full || !self.space(record::size(Tag::Batch, BATCH * ENTRY)) {
            return Err(Busy);
        }
        self.free &= !(1 << slot);
        self.batches += 1;
        let sources = self.spare.pop().unwrap_or_else(Sources::new);
        let place = self.left + self.out.len() as u64;
        // The first of its chunks is the next item.
        self.out.push_back(Out { item: self.items + 1, direct: None, done: false });
        self.batch = Some(Open { sources, slot, place });
        Ok(())
    }

    /// Tells the receiver of the batch that was begun.
    #[inline]
    fn close_batch(&mut self) {
        if let Some(open) = self.batch.take() {
            self.publish_batch(open);
        }
    }

    fn publish_batch(&mut self, open: Open) {
        let Open { sources, slot, place } = open;
        let Some(w) = self.slots.get(slot.into()) else {
            return;
        };
        self.generation = self.generation.wrapping_add(1);
        let (generation, count) = (self.generation, sources.used);
        slot::offer(&w, generation);
        if !self.tx.put(0, &record::batch(count, slot, generation)) {
            return;
        }
        self.publish(record::size(Tag::Batch, count * ENTRY));
        let transfer = Transfer {
            slot,
            generation,
            src: MemSlice::EMPTY,
            slice: LONGEST,
            count: count as u32,
            batch: Some(sources),
            ringed: 0,
            ringed_at: 0,
            unread: 0,
            quit: false,
        };
        if let Some(out) = self.out.get_mut((place - self.left) as usize) {
            out.direct = Some(transfer);
        }
    }

    fn by_ring(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        self.streams = true;
        let first = src.len().min(self.piece);
        let size = record::size(Tag::Chunk, first);
        if self.partial.is_some() || !self.space(size + self.reserve) {
            return Err(Busy);
        }
        let part = src.sub(0, first as u64).unwrap_or(MemSlice::EMPTY);
        let clock = if self.from != usize::MAX && first >= COMPARED { self.direct_copy.clock() } else { None };
        if !(self.tx.put(0, &record::with_head(Tag::Chunk, first, head)) && self.tx.put_mem(record::LINE_LEN, part)) {
            return Err(Busy);
        }
        if let Some(clock) = clock {
            self.direct_copy.took(first, clock.elapsed());
        }
        self.publish(size);
        let place = self.left + self.out.len() as u64;
        self.partial = Some(Partial { src, sent: first, place });
        self.more();
        let done = self.partial.is_none();
        Ok(self.accept(None, done))
    }

    /// Goes on with the chunk under way in the ring. True where something was sent.
    fn more(&mut self) -> bool {
        let mut sent = false;
        while let Some(p) = &self.partial {
            let (src, at) = (p.src, p.sent);
            let len = (src.len() - at).min(self.piece);
            if len == 0 {
                let place = (p.place - self.left) as usize;
                if let Some(out) = self.out.get_mut(place) {
                    out.done = true;
                }
                self.partial = None;
                return true;
            }
            let size = record::size(Tag::More, len);
            let Some(part) = src.sub(at as u64, len as u64) else {
                break;
            };
            let whole = self.space(size + self.reserve)
                && self.tx.put(0, &record::more(len))
                && self.tx.put_mem(record::LINE_LEN, part);
            if !whole {
                break;
            }
            self.publish(size);
            sent = true;
            if let Some(p) = &mut self.partial {
                p.sent += len;
            }
        }
        sent
    }

    /// The caller polls, and then asks again for what there was no space for.
    #[inline]
    pub(crate) fn polled(&mut self) {
        self.refused = 0;
    }

    /// A bounded step: pieces while the ring takes them, at most one slice, and the end of finished transfers.
    pub(crate) fn advance(&mut self, reach: &PeerMemory) -> Result<bool, Fault> {
        self.close_batch();
        let mut active = self.more();
        let mut worked = false;
        for i in 0..self.out.len() {
            let Some(out) = self.out.get_mut(i) else {
                break;
            };
            let Some(mut t) = out.direct.take() else {
                continue;
            };
            let step = if out.done { Ok(Step::Nothing) } else { self.step(&mut t, reach, worked) };
            let Some(out) = self.out.get_mut(i) else {
                break;
            };
            match step {
                Ok(Step::Done) => {
                    self.free |= 1 << t.slot;
                    if let Some(mut batch) = t.batch.take() {
                        batch.clear();
                        self.spare.push(batch);
                        self.batches -= 1;
                    }
                    out.done = true;
                    active = true;
                }
                Ok(Step::Copied) => {
                    self.dirty = true;
                    out.direct = Some(t);
                    active = true;
                    worked = true;
                }
                Ok(Step::Nothing) => out.direct = Some(t),
                Err(fault) => {
                    // The end of the rail stops it.
                    out.direct = Some(t);
                    return Err(fault);
                }
            }
        }
        while self.out.front().is_some_and(|o| o.done) {
            self.out.pop_front();
            self.left += 1;
        }
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(active),
        }
    }

    fn step(&mut self, t: &mut Transfer, reach: &PeerMemory, worked: bool) -> Result<Step, Fault> {
        let Some(w) = self.slots.get(t.slot.into()) else {
            return Ok(Step::Nothing);
        };
        let state = slot::state(&w, t.generation).map_err(|_| corrupt())?;
        if state.done {
            return Ok(Step::Done);
        }
        if !state.open || state.stopped || worked {
            return Ok(Step::Nothing);
        }
        // What the receiver could not read goes through the ring, once; not while another slice is half sent.
        let unread = if t.ringed_at == 0 { w.unread().load(Ordering::Acquire) & all(t.count) & !t.unread } else { 0 };
        t.unread |= unread;
        t.ringed |= unread;
        // Cannot write and the receiver can: leave the rest to it. Neither can: the ring takes the rest.
        if t.ringed == 0 && (!t.quit || t.unread != 0) {
            let most = t.batch.as_ref().map_or(1, |batch| batch::call(batch.longest, batch.used));
            let claimed = slot::claim_some(&w, t.generation, t.count, most).map_err(|_| corrupt())?;
            let Some(claimed) = claimed else {
                return Ok(Step::Nothing);
            };
            let bits = all(claimed.end) & !all(claimed.start);
            if t.quit {
                w.unsent().fetch_or(bits, Ordering::Release);
                t.ringed = bits;
            } else {
                let mut ranges = Ranges::new();
                for i in claimed {
                    if let Some(to) = t.place(&w, i)
                        && !ranges.add(t.part(i), to)
                    {
                        return Ok(Step::Nothing);
                    }
                }
                match reach.push(&w, t.generation, &mut ranges) {
                    Copied::Whole => _ = w.sent().fetch_or(bits, Ordering::Release),
                    Copied::Stopped => return Ok(Step::Nothing),
                    Copied::Refused => {
                        t.quit = true;
                        w.unsent().fetch_or(bits, Ordering::Release);
                        t.ringed = bits;
                    }
                }
                return Ok(Step::Copied);
            }
        }
        if t.ringed == 0 { Ok(Step::Nothing) } else { self.pieces(t) }
    }

    /// Sends slices that could not be copied directly as pieces, read by the kernel: their memory is what made the
    /// direct copy fail, so it may not be readable at all.
    fn pieces(&mut self, t: &mut Transfer) -> Result<Step, Fault> {
        let mut step = Step::Nothing;
        while t.ringed != 0 {
            let slice = t.part(t.ringed.trailing_zeros());
            let at = t.ringed.trailing_zeros() as usize * t.slice + t.ringed_at;
            let len = (slice.len() - t.ringed_at).min(self.piece);
            let size = record::size(Tag::Piece, len);
            let Some(part) = slice.sub(t.ringed_at as u64, len as u64) else {
                break;
            };
            if !self.space(size + self.reserve) || !self.tx.put(0, &record::piece(len, t.slot, t.generation, at as u64))
            {
                break;
            }
            self.tx.put_checked(record::LINE_LEN, part).map_err(|e| Fault::System("pwrite(2) from a source", e))?;
            self.publish(size);
            step = Step::Copied;
            t.ringed_at += len;
            if t.ringed_at == slice.len() {
                t.ringed &= t.ringed - 1;
                t.ringed_at = 0;
            }
        }
        Ok(step)
    }

    /// Whether a sleeper would miss something it could do now.
    pub(crate) fn could_work(&self) -> bool {
        if self.fault.is_some()
            || self.batch.is_some()
            || (self.refused != 0 && self.tx.has_space(self.refused))
            || (self.partial.is_some() && self.tx.has_space(self.piece + self.reserve + 128))
        {
            return true;
        }
        self.out.iter().filter(|o| !o.done).filter_map(|o| o.direct.as_ref()).any(|t| {
            let Some(w) = self.slots.get(t.slot.into()) else {
                return true;
            };
            let Ok(s) = slot::state(&w, t.generation) else {
                return true;
            };
            let unread = w.unread().load(Ordering::Acquire) & all(t.count) & !t.unread;
            let claimable = s.open && !s.stopped && s.next < t.count && (!t.quit || t.unread != 0);
            let left = t.ringed != 0 || unread != 0;
            let ringable = s.open && !s.stopped && left && self.tx.has_space(self.piece + self.reserve + 128);
            s.done || claimable || ringable
        })
    }

    /// Ends all transfers.
    pub(crate) fn stop(&self) {
        for t in self.out.iter().filter(|o| !o.done).filter_map(|o| o.direct.as_ref()) {
            if let Some(w) = self.slots.get(t.slot.into()) {
                slot::stop(&w);
            }
        }
    }
}

impl Transfer {
    /// The bytes of slice `i`.
    fn part(&self, i: u32) -> MemSlice {
        let part = match &self.batch {
            Some(batch) => batch.parts.get(i as usize).copied(),
            None => {
                let at = u64::from(i) * self.slice as u64;
                self.src.sub(at, (self.slice as u64).min((self.src.len() as u64).saturating_sub(at)))
            }
        };
        part.unwrap_or(MemSlice::EMPTY)
    }

    /// Where slice `i` goes in the receiver, if anywhere.
    fn place(&self, w: &SlotWords<'_>, i: u32) -> Option<u64> {
        match self.batch {
            Some(_) => Some(w.place(i).load(Ordering::Relaxed)).filter(|&to| to != 0),
            None => Some(w.dest().load(Ordering::Relaxed).wrapping_add(u64::from(i) * self.slice as u64)),
        }
    }
}

enum Step {
    Nothing,
    Copied,
    Done,
}

pub(crate) fn corrupt() -> Fault {
    Fault::CorruptIndex("a transfer carries another generation than agreed".into())
}

/// A bit for each of `count` slices.
pub(crate) fn all(count: u32) -> u64 {
    if count >= MAX_SLICES { u64::MAX } else { (1 << count) - 1 }
}

#[cfg(test)]
mod tests;
