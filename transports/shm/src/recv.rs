//! The incoming half: records out of the ring, slices of large chunks out of the peer's memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use linkspan_proto::head::EAGER_MAX;
use linkspan_proto::{Head, Kind};
use linkspan_shmring::cma::Ranges;
use linkspan_shmring::map::SlotWords;
use linkspan_shmring::ring::{Consumer, LINE};
use linkspan_shmring::slot::{self, MAX_SLICES, Words};
use linkspan_shmring::{Map, RingView, SLOTS, Side, Slots};
use linkspan_transport::{Buf, MemSlice, Sink, Violation};

use crate::batch::{self, BATCH, LONGEST, Places};
use crate::caps::{PAGE, SLICE_MAX};
use crate::memory::{Copied, PeerMemory};
use crate::record::{CTRL_AT, Direct, ENTRY, LINE_LEN, Record, Tag, parse_entry, size};
use crate::send::{CHUNKS, Fault, all, corrupt};

/// Records and payload bytes that one poll takes from the ring, so that it returns soon.
const RECORDS: usize = 64;
const BYTES: usize = 256 << 10;

/// Payload bytes that came through the ring without a pause, after which it counts as a stream that no second-level cache holds, and
/// its bytes are written past the caches.
const STREAM: usize = 4 << 20;

/// Polls in a row that found nothing, after which there was a pause: about 20 us.
const PAUSE: u32 = 256;

/// A chunk whose head has come and which has not been reported.
#[derive(Debug)]
struct In {
    head: Head,
    /// `None`: its bytes go nowhere.
    dest: Option<MemSlice>,
    /// Through the ring: bytes so far.
    got: usize,
    direct: Option<Transfer>,
    /// Of a batch: its chunks, of which `head` is the first.
    batch: Option<Box<Places>>,
    done: bool,
}

/// The receiver's view of a transfer.
#[derive(Debug)]
struct Transfer {
    slot: u8,
    generation: u32,
    address: u64,
    slice: usize,
    count: u32,
    /// Slices claimed by us and not yet read.
    claimed: u64,
    /// Slices that we have read, and slices that came through the ring.
    read: u64,
    ringed: u64,
    /// Where the slice that is coming through the ring goes on; 0: none is half here.
    ringed_to: u64,
    /// We could not read the sender's memory once and do not try again.
    quit: bool,
}

/// The incoming half of a rail.
#[derive(Debug)]
pub(crate) struct Receiver {
    rx: Consumer<RingView>,
    slots: Slots,
    queue: VecDeque<In>,
    used: u32,
    /// What finished batches leave for the next.
    spare: Vec<Box<Places>>,
    scratch: Box<[u8; EAGER_MAX]>,
    quarter: u64,
    freed: u64,
    dirty: bool,
    /// Payload bytes since the last pause, and polls in a row that found nothing.
    streamed: usize,
    quiet: u32,
}

fn lie(why: impl Into<String>) -> Fault {
    Fault::CorruptIndex(why.into())
}

fn violation(v: Violation) -> Fault {
    Fault::CorruptIndex(v.0)
}

impl Receiver {
    pub(crate) fn new(map: &Arc<Map>, side: Side) -> Receiver {
        Receiver {
            rx: Consumer::new(RingView::new(map, side.other())),
            slots: Slots::new(map, side.other()),
            queue: VecDeque::with_capacity(CHUNKS),
            used: 0,
            spare: Vec::with_capacity(SLOTS),
            scratch: Box::new([0; EAGER_MAX]),
            quarter: map.ring() as u64 / 4,
            freed: 0,
            dirty: false,
            streamed: 0,
            quiet: 0,
        }
    }

    /// Whether a sleeping peer must be told of what was freed or finished. Space alone is announced by quarters of the
    /// ring, or when nothing else is to be done (`idle`).
    #[inline]
    pub(crate) fn unannounced(&self, idle: bool) -> bool {
        self.dirty || self.freed >= self.quarter || (idle && self.freed > 0)
    }

    #[inline]
    pub(crate) fn announced(&mut self) {
        self.dirty = false;
        self.freed = 0;
    }

    /// Takes what is in the ring, then does one slice of a transfer. True where anything happened.
    #[inline]
    pub(crate) fn poll(&mut self, sink: &mut dyn Sink, reach: &PeerMemory) -> Result<bool, Fault> {
        let mut active = self.records(sink, reach)?;
        self.quiet = if active { 0 } else { self.quiet.saturating_add(1) };
        if !self.queue.is_empty() {
            active |= self.work(sink, reach)?;
        }
        Ok(active)
    }

    #[inline]
    fn records(&mut self, sink: &mut dyn Sink, reach: &PeerMemory) -> Result<bool, Fault> {
        let (mut records, mut bytes) = (0, 0);
        while records < RECORDS && bytes < BYTES {
            let ready = match self.rx.ready() {
                Ok(0) => break,
                Ok(n) => n,
                Err(l) => {
                    return Err(lie(format!("its ring position is {}, ours {}", l.theirs, l.ours)));
                }
            };
            let mut line = [0; LINE];
            if !self.rx.get(0, &mut line) {
                return Err(lie("half a record was published"));
            }
            let r = Record::parse(line, ready).map_err(lie)?;
            if r.tag == Tag::Ctrl {
                self.ctrl(&r, sink)?
            } else {
                self.payload(&r, sink, reach)?
            }
            let size = size(r.tag, r.len);
            self.rx.consume(size);
            records += 1;
            bytes += if r.tag == Tag::Skip { 0 } else { size };
            if size >= LINE * 16 {
                // The sender of a large chunk may be waiting for space.
                self.freed += self.rx.release();
            }
        }
        self.freed += self.rx.release();
        Ok(records > 0)
    }

    #[inline]
    fn ctrl(&mut self, r: &Record, sink: &mut dyn Sink) -> Result<(), Fault> {
        let (head, kind) = Head::decode(&r.head()).map_err(|e| lie(e.to_string()))?;
        if kind.is_payload() || head.len.get() as usize != r.len {
            return Err(lie(format!("a control record of {} bytes carries a {kind:?} of {}", r.len, head.len)));
        }
        // The peer can still change the ring while the sink reads: the sink gets a copy.
        let body = if r.len <= LINE - CTRL_AT {
            r.inline()
        } else {
            let Some(body) = self.scratch.get_mut(..r.len) else {
                return Err(lie("a long control record"));
            };
            if !self.rx.get(CTRL_AT, body) {
                return Err(lie("half a record was published"));
            }
            &*body
        };
        sink.ctrl(&head, body).map_err(violation)
    }

    fn payload(&mut self, r: &Record, sink: &mut dyn Sink, reach: &PeerMemory) -> Result<(), Fault> {
        match r.tag {
            Tag::Ctrl | Tag::Skip => Ok(()),
            Tag::Chunk => {
                self.begin(r, sink, None)?;
                self.fill(r, sink)
            }
            Tag::More => self.fill(r, sink),
            Tag::ShmOffer => {
                let direct = r.direct();
                self.begin(r, sink, Some((direct, reach)))
            }
            Tag::Batch => self.batch(r, sink, reach),
            Tag::Piece => self.piece(r),
        }
    }

    /// A head: asks where its chunk goes and makes an entry for it.
    fn begin(&mut self, r: &Record, sink: &mut dyn Sink, direct: Option<(Direct, &PeerMemory)>) -> Result<(), Fault> {
        let (head, kind) = Head::decode(&r.head()).map_err(|e| lie(e.to_string()))?;
        if !kind.is_payload() {
            return Err(lie(format!("a chunk record carries a {:?}", Kind::from_u8(head.kind))));
        }
        let coming = self.queue.iter().any(|e| e.direct.is_none() && !e.done);
        if self.queue.len() == CHUNKS || (direct.is_none() && coming) {
            return Err(lie("more chunks at once than agreed"));
        }
        let len = head.len.get();
        let dest = match sink.place(&head).map_err(violation)? {
            Some(mem) => Some(mem.sub(0, len.into()).ok_or_else(|| lie("a chunk longer than its place"))?),
            None => None,
        };
        let mut entry = In { head, dest, got: 0, direct: None, batch: None, done: false };
        if let Some((direct, reach)) = direct {
            let t = self.open(&direct, len as usize, dest, reach)?;
            entry.done = t.is_none();
            entry.direct = t;
        }
        self.queue.push_back(entry);
        Ok(())
    }

    /// A batch: asks where each of its chunks goes and opens its transfer.
    fn batch(&mut self, r: &Record, sink: &mut dyn Sink, reach: &PeerMemory) -> Result<(), Fault> {
        let (generation, slot, _) = r.piece();
        let count = r.len / ENTRY;
        let (Some(w), Some(text), true) = (self.slots.get(slot.into()), self.scratch.get_mut(..r.len), reach.direct())
        else {
            return Err(lie(format!("a batch of {count} chunks, slot {slot}")));
        };
        if self.used & (1 << slot) != 0 || self.queue.len() == CHUNKS {
            return Err(lie(format!("more chunks at once than agreed, or slot {slot} twice")));
        }
        if !r.len.is_multiple_of(ENTRY) || !(1..=BATCH).contains(&count) || !self.rx.get(LINE_LEN, text) {
            return Err(lie(format!("a batch of {} bytes", r.len)));
        }
        let mut batch = self.spare.pop();
        for (n, entry) in text.as_chunks().0.iter().enumerate() {
            let (head, address) = parse_entry(entry);
            let (head, kind) = Head::decode(&head).map_err(|e| lie(e.to_string()))?;
            let len = head.len.get() as usize;
            if !kind.is_payload() || !(1..=LONGEST).contains(&len) {
                return Err(lie(format!("a {kind:?} of {len} bytes in a batch")));
            }
            let place = match sink.place(&head).map_err(violation)? {
                Some(mem) => Some(mem.sub(0, len as u64).ok_or_else(|| lie("a chunk longer than its place"))?),
                None => None,
            };
            w.place(n as u32).store(place.map_or(0, |p| p.as_ptr() as u64), Ordering::Relaxed);
            let _ = batch.get_or_insert_with(|| Places::new(head)).add(head, place, address);
        }
        let Some(batch) = batch else {
            return Err(lie("an empty batch"));
        };
        let taken = if reach.pull_only() { count as u32 } else { 0 };
        slot::open(&w, generation, 0, taken).map_err(|_| corrupt())?;
        self.used |= 1 << slot;
        self.dirty = true;
        let transfer = Transfer {
            slot,
            generation,
            address: 0,
            slice: LONGEST,
            count: count as u32,
            claimed: all(taken),
            read: 0,
            ringed: 0,
            ringed_to: 0,
            quit: false,
        };
        let (head, dest) = (batch.chunks[0].0, Some(MemSlice::EMPTY));
        self.queue.push_back(In { head, dest, got: 0, direct: Some(transfer), batch: Some(batch), done: false });
        Ok(())
    }

    /// Opens an offered transfer. `None` where its bytes go nowhere: then it is finished already.
    fn open(
        &mut self,
        d: &Direct,
        len: usize,
        dest: Option<MemSlice>,
        reach: &PeerMemory,
    ) -> Result<Option<Transfer>, Fault> {
        let slice = usize::from(d.pages) * PAGE;
        let count = len.checked_div(slice).map(|n| n + usize::from(!len.is_multiple_of(slice)));
        let count = count.filter(|n| (1..=MAX_SLICES as usize).contains(n) && slice <= SLICE_MAX);
        let (Some(w), Some(count), true) = (self.slots.get(d.slot.into()), count, reach.direct()) else {
            return Err(lie(format!("an offer of {len} bytes in slices of {slice}, slot {}", d.slot)));
        };
        if self.used & (1 << d.slot) != 0 {
            return Err(lie(format!("slot {} offered twice", d.slot)));
        }
        self.dirty = true;
        let Some(dest) = dest else {
            slot::finish(&w, d.generation).map_err(|_| corrupt())?;
            return Ok(None);
        };
        let count = count as u32;
        let taken = if reach.pull_only() { count } else { 0 };
        // Where the sender has stopped it, its end of the rail is closing, and the entry just never finishes.
        slot::open(&w, d.generation, dest.as_ptr() as u64, taken).map_err(|_| corrupt())?;
        self.used |= 1 << d.slot;
        Ok(Some(Transfer {
            slot: d.slot,
            generation: d.generation,
            address: d.address,
            slice,
            count,
            claimed: if reach.pull_only() { all(count) } else { 0 },
            read: 0,
            ringed: 0,
            ringed_to: 0,
            quit: false,
        }))
    }

    /// A piece of the chunk under way in the ring.
    fn fill(&mut self, r: &Record, sink: &mut dyn Sink) -> Result<(), Fault> {
        let Some(entry) = self.queue.iter_mut().rev().find(|e| e.direct.is_none() && !e.done) else {
            return Err(lie("a piece of no chunk"));
        };
        let len = entry.head.len.get() as usize;
        if r.len > len - entry.got || (r.len == 0 && len != 0) {
            return Err(lie(format!("a piece of {} bytes for a chunk of {len} with {} here", r.len, entry.got)));
        }
        if let Some(dest) = entry.dest {
            if self.quiet >= PAUSE {
                self.streamed = 0;
            }
            self.streamed = self.streamed.saturating_add(r.len);
            let past = self.streamed > STREAM;
            let get = |part| if past { self.rx.get_mem_past(LINE_LEN, part) } else { self.rx.get_mem(LINE_LEN, part) };
            if !dest.sub(entry.got as u64, r.len as u64).is_some_and(get) {
                return Err(lie("half a record was published"));
            }
        }
        entry.got += r.len;
        entry.done = entry.got == len;
        if entry.done { self.report(sink) } else { Ok(()) }
    }

    /// A piece of a slice that could not be copied directly. Written by the kernel: the place may be what made the
    /// direct copy fail.
    fn piece(&mut self, r: &Record) -> Result<(), Fault> {
        let (generation, slot, offset) = r.piece();
        let of = |t: &Transfer| t.slot == slot && t.generation == generation;
        let entry = self.queue.iter_mut().find(|e| !e.done && e.direct.as_ref().is_some_and(of));
        let parts = entry.and_then(|e| Some((e.dest?, e.batch.as_deref(), e.direct.as_mut()?)));
        let Some((dest, batch, t)) = parts else {
            return Err(lie("a piece of no transfer"));
        };
        let index = offset / t.slice as u64;
        if index >= u64::from(t.count) {
            return Err(lie(format!("a piece at {offset} of {} slices of {}", t.count, t.slice)));
        }
        let start = index * t.slice as u64;
        let (len, place) = t.part(index as u32, dest, batch);
        let end = start + len as u64;
        let expected = (t.claimed | t.read | t.ringed) & (1 << index) == 0
            && offset == if t.ringed_to == 0 { start } else { t.ringed_to }
            && r.len > 0
            && r.len as u64 <= end.saturating_sub(offset);
        if !expected {
            return Err(lie(format!("a piece of {} bytes at {offset} that was not requested", r.len)));
        }
        if let Some(part) = place.and_then(|(place, _)| place.sub(offset - start, r.len as u64)) {
            self.rx.get_checked(LINE_LEN, part).map_err(|e| Fault::System("pread(2) to a destination", e))?;
        }
        t.ringed_to = offset + r.len as u64;
        if t.ringed_to == end {
            t.ringed |= 1 << index;
            t.ringed_to = 0;
        }
        Ok(())
    }

    /// One slice, and the end of what is finished.
    fn work(&mut self, sink: &mut dyn Sink, reach: &PeerMemory) -> Result<bool, Fault> {
        let mut active = false;
        let mut copied = false;
        for i in 0..self.queue.len() {
            let Some(entry) = self.queue.get_mut(i).filter(|e| !e.done) else {
                continue;
            };
            let (Some(t), Some(dest)) = (entry.direct.as_mut(), entry.dest) else {
                continue;
            };
            let Some(w) = self.slots.get(t.slot.into()) else {
                continue;
            };
            if !copied {
                copied = t.read_some(&w, dest, entry.batch.as_deref(), reach)?;
                active |= copied;
                self.dirty |= copied && t.quit;
            }
            if t.read | t.ringed | w.sent().load(Ordering::Acquire) & all(t.count) == all(t.count) && t.claimed == 0 {
                if !slot::finish(&w, t.generation).map_err(|_| corrupt())? {
                    return Err(Fault::Gone("it ended the transfer"));
                }
                self.used &= !(1 << t.slot);
                entry.done = true;
                self.dirty = true;
                active = true;
            }
        }
        self.report(sink)?;
        Ok(active)
    }

    /// Reports finished chunks from the front, so that they are reported in order.
    fn report(&mut self, sink: &mut dyn Sink) -> Result<(), Fault> {
        while self.queue.front().is_some_and(|e| e.done) {
            let Some(entry) = self.queue.pop_front() else {
                break;
            };
            let Some(mut batch) = entry.batch else {
                sink.landed(&entry.head).map_err(violation)?;
                continue;
            };
            for (head, ..) in batch.chunks.iter().take(batch.used) {
                sink.landed(head).map_err(violation)?;
            }
            batch.clear();
            self.spare.push(batch);
        }
        Ok(())
    }

    /// Whether anything lies in the ring.
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.rx.pending()
    }

    /// Whether a sleeper would miss something it could do now.
    pub(crate) fn could_work(&self) -> bool {
        self.pending()
            || self.queue.iter().filter(|e| !e.done).filter_map(|e| e.direct.as_ref()).any(|t| {
                let Some(w) = self.slots.get(t.slot.into()) else {
                    return true;
                };
                let Ok(s) = slot::state(&w, t.generation) else {
                    return true;
                };
                let here = t.read | t.ringed | w.sent().load(Ordering::Acquire) & all(t.count);
                !s.stopped && (t.claimed != 0 || (!t.quit && s.next < t.count) || here == all(t.count))
            })
    }

    /// Ends all transfers.
    pub(crate) fn stop(&self) {
        for t in self.queue.iter().filter(|e| !e.done).filter_map(|e| e.direct.as_ref()) {
            if let Some(w) = self.slots.get(t.slot.into()) {
                slot::stop(&w);
            }
        }
    }
}

impl Transfer {
    /// How long slice `i` is, where it goes, if anywhere, and where it lies in the sender.
    fn part(&self, i: u32, dest: MemSlice, batch: Option<&Places>) -> (usize, Option<(MemSlice, u64)>) {
        if let Some(batch) = batch {
            return match batch.chunks.get(i as usize) {
                Some((head, place, address)) => (head.len.get() as usize, place.map(|place| (place, *address))),
                None => (0, None),
            };
        }
        let at = u64::from(i) * self.slice as u64;
        let len = (self.slice as u64).min((dest.len() as u64).saturating_sub(at));
        (len as usize, dest.sub(at, len).map(|part| (part, self.address.wrapping_add(at))))
    }

    /// Reads a slice, or some of a batch, if any are left for us. True where something changed.
    fn read_some(
        &mut self,
        w: &SlotWords<'_>,
        dest: MemSlice,
        batch: Option<&Places>,
        reach: &PeerMemory,
    ) -> Result<bool, Fault> {
        if self.quit {
            return Ok(false);
        }
        let most = batch.map_or(1, |batch| batch::call(batch.longest, batch.used));
        if self.claimed == 0 {
            match slot::claim_some(w, self.generation, self.count, most).map_err(|_| corrupt())? {
                // A hostile cursor may give a slice twice; it is ours already then, and reading it again does no harm.
                Some(slices) => self.claimed |= all(slices.end) & !all(slices.start),
                None => return Ok(false),
            }
        }
        let (mut ranges, mut bits, mut left) = (Ranges::new(), 0, self.claimed);
        for _ in 0..most {
            if left == 0 {
                break;
            }
            let i = left.trailing_zeros();
            left &= left - 1;
            bits |= 1 << i;
            if let (_, Some((part, from))) = self.part(i, dest, batch)
                && !ranges.add(part, from)
            {
                return Ok(false);
            }
        }
        match reach.pull(w, self.generation, &mut ranges) {
            Copied::Whole => {
                self.claimed &= !bits;
                self.read |= bits;
                Ok(true)
            }
            Copied::Stopped => Ok(false),
            Copied::Refused => {
                self.quit = true;
                w.unread().fetch_or(self.claimed, Ordering::Release);
                self.claimed = 0;
                Ok(true)
            }
        }
    }
}
