//! The simulated device's memory, streams and clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use linkspan_transport::{Buf, MemSlice};

use super::SimConfig;
use crate::UnpackJob;
use crate::unpack::{PIECE_LEN, Piece};

/// Most streams, and most events, in use at a time.
pub(super) const MOST: usize = 16 << 10;

/// What fresh and freed device memory holds, and host memory that a copy has yet to fill.
const POISON: u8 = 0xDB;

/// Addresses are never used again in the life of the process, so that a stale one is always found. Beyond the 47 bits
/// of user space: never a host address.
static NEXT: AtomicU64 = AtomicU64::new(0x00DE_0000_0000_0000);

/// Space between allocations.
const PAGE: u64 = 2 << 20;

/// Work in a stream.
#[derive(Debug)]
pub(super) enum Op {
    /// A copy, of which `at` bytes are done.
    Copy { dst: MemSlice, src: MemSlice, at: usize },
    /// A launch of the unpack kernel.
    Unpack(UnpackJob),
    /// An event's mark; the number says which of its recordings.
    Record(usize, u64),
    /// Waits for a recording of an event.
    After(usize, u64),
}

#[derive(Debug, Default)]
struct SimQueue {
    queue: VecDeque<Op>,
    due: u64,
    free: bool,
}

#[derive(Debug, Default)]
struct Mark {
    asked: u64,
    done: u64,
    free: bool,
}

struct Posted {
    due: u64,
    addr: u64,
    bytes: Vec<u8>,
}

pub(super) struct SimState {
    pub(super) config: SimConfig,
    rng: u64,
    now: u64,
    used: u64,
    /// By first address; `None` once freed.
    allocs: BTreeMap<u64, (usize, Option<Vec<u8>>)>,
    pub(super) pinned: BTreeMap<u64, usize>,
    lanes: Vec<SimQueue>,
    marks: Vec<Mark>,
    posted: Vec<Posted>,
    pub(super) fault: Option<String>,
}

impl SimState {
    pub(super) fn new(config: SimConfig) -> SimState {
        SimState {
            config,
            rng: config.seed,
            now: 0,
            used: 0,
            allocs: BTreeMap::new(),
            pinned: BTreeMap::new(),
            lanes: Vec::new(),
            marks: Vec::new(),
            posted: Vec::new(),
            fault: None,
        }
    }

    /// splitmix64 (Steele, Lea, Flood 2014).
    fn below(&mut self, n: u64) -> u64 {
        self.rng = self.rng.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n.max(1)
    }

    fn fail(&mut self, what: String) {
        self.fault.get_or_insert(what);
    }

    pub(super) fn alloc(&mut self, len: usize) -> Option<u64> {
        let used = self.used.checked_add(len as u64).filter(|&n| n <= self.config.memory)?;
        self.used = used;
        let space = (len as u64).next_multiple_of(PAGE) + PAGE;
        let addr = NEXT.fetch_add(space, Ordering::Relaxed);
        self.allocs.insert(addr, (len, Some(vec![POISON; len])));
        Some(addr)
    }

    pub(super) fn free(&mut self, addr: u64) {
        match self.allocs.get_mut(&addr) {
            Some((len, bytes @ Some(_))) => {
                *bytes = None;
                self.used -= *len as u64;
            }
            Some((_, None)) => self.fail(format!("memory at {addr:#x} freed twice")),
            None => self.fail(format!("memory at {addr:#x} freed, which is no allocation")),
        }
    }

    /// The live allocation around an address.
    pub(super) fn holds(&self, addr: u64) -> Option<(u64, usize)> {
        let (&base, (len, bytes)) = self.allocs.range(..=addr).next_back()?;
        (bytes.is_some() && addr - base < *len as u64).then_some((base, *len))
    }

    fn bytes(&mut self, addr: u64, len: usize, who: &str) -> Option<&mut [u8]> {
        let found = match self.allocs.range_mut(..=addr).next_back() {
            Some((_, (_, None))) => Err("freed memory"),
            Some((base, (_, Some(bytes)))) => {
                let at = (addr - base) as usize;
                at.checked_add(len).and_then(|end| bytes.get_mut(at..end)).ok_or("memory outside of its allocation")
            }
            None => Err("memory that was never allocated"),
        };
        match found {
            Ok(bytes) => Some(bytes),
            Err(why) => {
                self.fault.get_or_insert(format!("{who} of {len} bytes at {addr:#x} touches {why}"));
                None
            }
        }
    }

    pub(super) fn write(&mut self, addr: u64, from: &[u8]) -> bool {
        self.bytes(addr, from.len(), "a write").is_some_and(|to| {
            to.copy_from_slice(from);
            true
        })
    }

    pub(super) fn read(&mut self, addr: u64, out: &mut [u8]) -> bool {
        self.bytes(addr, out.len(), "a read").is_some_and(|from| {
            out.copy_from_slice(from);
            true
        })
    }

    pub(super) fn is_pinned(&self, addr: u64, len: usize) -> bool {
        let end = addr.saturating_add(len as u64);
        self.pinned.range(..=addr).next_back().is_some_and(|(&base, &n)| end <= base + n as u64)
    }

    pub(super) fn stream(&mut self) -> Option<u32> {
        let index = self.lanes.iter().position(|l| l.free && l.queue.is_empty());
        let index = index.or_else(|| {
            self.lanes.push(SimQueue::default());
            (self.lanes.len() <= MOST).then(|| self.lanes.len() - 1)
        })?;
        self.lanes[index].free = false;
        Some(index as u32)
    }

    pub(super) fn retire_stream(&mut self, index: usize) {
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.free = true;
        }
    }

    pub(super) fn event(&mut self) -> Option<u32> {
        let index = self.marks.iter().position(|m| m.free && m.done == m.asked);
        let index = index.or_else(|| {
            self.marks.push(Mark::default());
            (self.marks.len() <= MOST).then(|| self.marks.len() - 1)
        })?;
        self.marks[index].free = false;
        Some(index as u32)
    }

    pub(super) fn retire_event(&mut self, index: usize) {
        if let Some(mark) = self.marks.get_mut(index) {
            mark.free = true;
        }
    }

    pub(super) fn is_done(&self, event: usize) -> bool {
        self.marks.get(event).is_none_or(|m| m.done >= m.asked)
    }

    pub(super) fn queue(&mut self, lane: usize, op: Op) {
        if let Op::Copy { dst, src, .. } = &op {
            for (mem, who) in [(src, "the source"), (dst, "the target")] {
                let addr = mem.as_ptr() as u64;
                if mem.is_host() && !mem.is_empty() && !self.is_pinned(addr, mem.len()) {
                    self.fail(format!(
                        "{who} of a copy, {} bytes at {addr:#x}, is host memory and not pinned",
                        mem.len()
                    ));
                    return;
                }
            }
            if dst.is_host() && !self.reads_host(*dst) {
                let all = vec![POISON; dst.len()];
                let inside = dst.fill(0, &all);
                debug_assert!(inside);
            }
        }
        let (now, delay) = (self.now, self.config.delay);
        let late = self.below(delay + 1);
        match self.lanes.get_mut(lane) {
            Some(l) => {
                if l.queue.is_empty() {
                    l.due = now + late;
                }
                l.queue.push_back(op);
            }
            None => self.fail(format!("work for stream {lane}, which does not exist")),
        }
    }

    /// Whether queued work has yet to read this host range.
    fn reads_host(&self, mem: MemSlice) -> bool {
        let (from, to) = (mem.as_ptr() as u64, mem.as_ptr() as u64 + mem.len() as u64);
        self.lanes.iter().flat_map(|l| &l.queue).any(|op| match op {
            Op::Copy { src, .. } if src.is_host() => {
                let at = src.as_ptr() as u64;
                at < to && from < at + src.len() as u64
            }
            _ => false,
        })
    }

    pub(super) fn record(&mut self, event: usize, lane: usize) {
        let Some(mark) = self.marks.get_mut(event) else {
            return self.fail(format!("event {event} recorded, which does not exist"));
        };
        mark.asked += 1;
        let stamp = mark.asked;
        self.queue(lane, Op::Record(event, stamp));
    }

    pub(super) fn after(&mut self, lane: usize, event: usize) {
        match self.marks.get(event).map(|m| m.asked) {
            Some(stamp) => self.queue(lane, Op::After(event, stamp)),
            None => self.fail(format!("a wait for event {event}, which does not exist")),
        }
    }

    pub(super) fn post(&mut self, addr: u64, bytes: &[u8]) {
        let due = self.now + 1 + self.below(self.config.delay * 8 + 1);
        self.posted.push(Posted { due, addr, bytes: bytes.to_vec() });
    }

    pub(super) fn land_posted(&mut self, all: bool) {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.posted).into_iter().partition(|p| all || p.due <= now);
        self.posted = later;
        let due: Vec<Posted> = due;
        for p in due {
            if let Some(to) = self.bytes(p.addr, p.bytes.len(), "a network write") {
                to.copy_from_slice(&p.bytes);
            }
        }
    }

    pub(super) fn busy(&self) -> bool {
        !self.posted.is_empty() || self.lanes.iter().any(|l| !l.queue.is_empty())
    }

    /// Time passes: each stream in turn, beginning with any, does a piece of work if its delay is over.
    pub(super) fn step(&mut self) {
        if self.fault.is_some() {
            return;
        }
        self.now += 1;
        self.land_posted(false);
        let n = self.lanes.len();
        let first = self.below(n as u64) as usize;
        for i in 0..n {
            let lane = (first + i) % n;
            if self.lanes[lane].due <= self.now {
                self.run(lane);
            }
        }
    }

    fn run(&mut self, lane: usize) {
        while let Some(op) = self.lanes[lane].queue.pop_front() {
            match op {
                Op::Record(event, stamp) => self.marks[event].done = self.marks[event].done.max(stamp),
                Op::After(event, stamp) if self.marks[event].done >= stamp => {}
                Op::After(..) => {
                    self.lanes[lane].queue.push_front(op);
                    return;
                }
                Op::Unpack(job) => {
                    self.unpack(&job);
                    self.lanes[lane].due = self.now + self.below(self.config.delay + 1);
                    return;
                }
                Op::Copy { dst, src, at } => {
                    let left = src.len() - at;
                    // Long copies tear; short ones tear too, but less often.
                    let whole = left <= 4096 && self.below(4) != 0;
                    let n = if whole { left } else { left.min(1 + left / 3 + self.below(left as u64) as usize) };
                    self.copy(dst, src, at, n);
                    if n < left {
                        self.lanes[lane].queue.push_front(Op::Copy { dst, src, at: at + n });
                    }
                    self.lanes[lane].due = self.now + self.below(self.config.delay + 1);
                    return;
                }
            }
        }
    }

    /// The kernel: descriptors are read as late as everything else, pieces go in any order.
    fn unpack(&mut self, job: &UnpackJob) {
        let table = job.pieces.as_ptr() as u64;
        let first = self.below(u64::from(job.count));
        for i in 0..u64::from(job.count) {
            let nth = (first + i) % u64::from(job.count);
            let Some(bytes) = self.bytes(table + nth * PIECE_LEN as u64, PIECE_LEN, "a kernel") else { return };
            let piece = Piece::from_bytes(bytes);
            let src = job.pool.as_ptr() as u64 + u64::from(piece.src);
            let Some(from) = self.bytes(src, piece.len as usize, "a kernel") else { return };
            let from = from.to_vec();
            let Some(to) = self.bytes(job.dst.as_ptr() as u64 + piece.dst, from.len(), "a kernel") else { return };
            to.copy_from_slice(&from);
        }
    }

    fn copy(&mut self, dst: MemSlice, src: MemSlice, at: usize, n: usize) {
        let mut bytes = vec![0; n];
        for mem in [src, dst] {
            let addr = mem.as_ptr() as u64;
            if mem.is_host() && n > 0 && !self.is_pinned(addr, mem.len()) {
                return self.fail(format!("host memory at {addr:#x} was unpinned before its copy had run"));
            }
        }
        if src.is_host() {
            let inside = src.read(at as u64, &mut bytes);
            debug_assert!(inside);
        } else {
            match self.bytes(src.as_ptr() as u64 + at as u64, n, "a copy") {
                Some(from) => bytes.copy_from_slice(from),
                None => return,
            }
        }
        if dst.is_host() {
            let inside = dst.fill(at as u64, &bytes);
            debug_assert!(inside);
        } else if let Some(to) = self.bytes(dst.as_ptr() as u64 + at as u64, n, "a copy") {
            to.copy_from_slice(&bytes);
        }
    }
}
