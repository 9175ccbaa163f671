//! The clock, the random numbers and the links.

use std::cell::RefCell;
use std::rc::Rc;

use linkspan_proto::Head;
use linkspan_proto::head::HEAD_LEN;

use crate::link::{Segment, SimLink, Stall};
use crate::{End, Fault, LinkConfig, LinkId, Rng, SimRail};

/// A world. Clones are handles on the same one.
#[derive(Clone, Debug)]
pub struct World {
    inner: Rc<RefCell<Inner>>,
}

#[derive(Debug)]
struct Inner {
    now: u64,
    rng: Rng,
    links: Vec<SimLink>,
    trace: bool,
    /// Frames damaged so far.
    corrupted: u64,
}

/// Time that passes when nothing is due, ns.
const TICK: u64 = 10_000;

impl World {
    /// A world in which everything random comes from `seed`.
    pub fn new(seed: u64) -> World {
        World {
            inner: Rc::new(RefCell::new(Inner {
                now: 0,
                rng: Rng::new(seed),
                links: Vec::new(),
                trace: false,
                corrupted: 0,
            })),
        }
    }

    /// Prints what happens to stderr.
    pub fn trace(&self, on: bool) {
        self.inner.borrow_mut().trace = on;
    }

    /// Prints a line with the time when tracing.
    pub fn note(&self, text: impl FnOnce() -> String) {
        let inner = self.inner.borrow();
        if inner.trace {
            eprintln!("{:>12} ns  {}", inner.now, text());
        }
    }

    /// Virtual time, ns.
    pub fn now(&self) -> u64 {
        self.inner.borrow().now
    }

    /// Frames damaged by [`Fault::Corrupt`] so far.
    pub fn corrupted(&self) -> u64 {
        self.inner.borrow().corrupted
    }

    /// A number below `n` from the world's own sequence.
    pub fn below(&self, n: u64) -> u64 {
        self.inner.borrow_mut().rng.below(n)
    }

    /// Makes a link and gives its two ends.
    pub fn link(&self, config: LinkConfig) -> (SimRail, SimRail) {
        let mut inner = self.inner.borrow_mut();
        let id = LinkId(inner.links.len());
        inner.links.push(SimLink::new(config));
        drop(inner);
        (SimRail::new(self.clone(), id, End::A, config), SimRail::new(self.clone(), id, End::B, config))
    }

    /// Lets this much time pass.
    pub fn advance(&self, ns: u64) {
        self.inner.borrow_mut().now += ns;
    }

    /// Lets time pass until the next thing happens by itself, or for a moment when nothing will. Returns whether
    /// something was due.
    pub fn pass(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let now = inner.now;
        let next = inner.links.iter().filter_map(|l| l.next_event(now)).min();
        inner.now = next.unwrap_or(now + TICK);
        next.is_some()
    }

    /// Lets a fault happen to a link now.
    pub fn plant(&self, id: LinkId, fault: Fault) {
        self.note(|| format!("link {}: {fault:?}", id.0));
        let inner = &mut *self.inner.borrow_mut();
        let now = inner.now;
        let link = &mut inner.links[id.0];
        match fault {
            Fault::Cut { a, b } => {
                link.cut_at = Some(link.cut_at.map_or(now, |at| at.min(now)));
                link.down_at = [a.map(|t| now + t), b.map(|t| now + t)];
                link.why = "the link was cut";
            }
            Fault::Stall { to, after, time } => {
                link.to[to as usize].stall = Some(Stall { left: after, until: time.map(|t| now + t) });
            }
            Fault::Corrupt { to, after } => link.to[to as usize].corrupt = Some(after),
            Fault::Storm { at, time } => link.storm_until[at as usize] = now + time,
            Fault::Crash { at, seen } => {
                // What was to arrive later than the news of the crash is lost with it.
                link.cut_at = Some(now + seen);
                link.down_at[at.other() as usize] = Some(now + seen);
                link.down_at[at as usize] = Some(now);
                link.why = "the process ended";
            }
            Fault::Delay { time } => {
                for pipe in &mut link.to {
                    pipe.busy_until = pipe.busy_until.max(now) + time;
                    for lane in &mut pipe.lanes {
                        lane.last_at = lane.last_at.max(now) + time;
                        for segment in &mut lane.segments {
                            segment.at = segment.at.max(now) + time;
                        }
                    }
                }
            }
        }
    }

    /// Ends every stall of a link.
    pub fn release(&self, id: LinkId) {
        let mut inner = self.inner.borrow_mut();
        for pipe in &mut inner.links[id.0].to {
            pipe.stall = None;
        }
    }

    /// The n-th link in the order in which they were made, from 0.
    ///
    /// # Panics
    /// There are not so many.
    pub fn link_id(&self, n: usize) -> LinkId {
        assert!(n < self.links(), "link {n} was never made");
        LinkId(n)
    }

    /// Links made so far.
    pub fn links(&self) -> usize {
        self.inner.borrow().links.len()
    }

    /// Whether the rail at this end has seen, or will by itself see, the link go down.
    pub(crate) fn down(&self, id: LinkId, end: End) -> Option<&'static str> {
        let inner = self.inner.borrow();
        let link = &inner.links[id.0];
        link.down_at[end as usize].is_some_and(|at| at <= inner.now).then_some(link.why)
    }

    /// Whether everything the other end has sent has been read and it has closed.
    pub(crate) fn ended(&self, id: LinkId, end: End) -> bool {
        let inner = self.inner.borrow();
        let pipe = &inner.links[id.0].to[end as usize];
        let all_read = pipe.lanes.iter().all(|l| l.segments.is_empty());
        pipe.fin_at.is_some_and(|at| at <= inner.now) && all_read
    }

    /// Whether the other end has closed, which a sender learns before it has read everything.
    pub(crate) fn reset(&self, id: LinkId, end: End) -> bool {
        let inner = self.inner.borrow();
        inner.links[id.0].to[end as usize].fin_at.is_some_and(|at| at <= inner.now)
    }

    pub(crate) fn storming(&self, id: LinkId, end: End) -> bool {
        let inner = self.inner.borrow();
        inner.links[id.0].storm_until[end as usize] > inner.now
    }

    /// Bytes that may leave `from` now.
    pub(crate) fn space(&self, id: LinkId, from: End, lane: usize) -> usize {
        let inner = self.inner.borrow();
        let link = &inner.links[id.0];
        let used = link.to[from.other() as usize].lanes[lane].bytes;
        link.config.buffer.saturating_sub(used)
    }

    /// Puts bytes on the way from `from` to the other end.
    pub(crate) fn put(&self, id: LinkId, from: End, lane: usize, bytes: Vec<u8>) {
        let inner = &mut *self.inner.borrow_mut();
        let link = &mut inner.links[id.0];
        let config = link.config;
        if !link.open[from.other() as usize] {
            return; // there is no reader
        }
        let pipe = &mut link.to[from.other() as usize];
        let time = (bytes.len() as u64).saturating_mul(1_000_000_000) / config.speed.max(1);
        pipe.busy_until = pipe.busy_until.max(inner.now) + time;
        let jitter = inner.rng.below(config.jitter + 1);
        let lane = &mut pipe.lanes[lane];
        let at = (pipe.busy_until + config.latency + jitter).max(lane.last_at);
        lane.last_at = at;
        lane.bytes += bytes.len();
        lane.segments.push_back(Segment { at, bytes, taken: 0 });
    }

    /// Damages a head on its way from `from` when its turn has come.
    pub(crate) fn damage(&self, id: LinkId, from: End, head: &mut [u8; HEAD_LEN]) {
        let inner = &mut *self.inner.borrow_mut();
        let corrupt = &mut inner.links[id.0].to[from.other() as usize].corrupt;
        match corrupt {
            None => return,
            Some(n) if *n > 0 => {
                *n -= 1;
                return;
            }
            Some(_) => *corrupt = None,
        }
        let good = *head;
        // Most bits make another sound head, which is no fault of a link with a checksum: those that make none are wanted.
        while Head::decode(head).is_ok() {
            *head = good;
            let bit = inner.rng.below(8 * HEAD_LEN as u64) as usize;
            head[bit / 8] ^= 1 << (bit % 8);
        }
        inner.corrupted += 1;
    }

    /// Takes up to `most` bytes that have arrived at `end`.
    pub(crate) fn take(&self, id: LinkId, end: End, lane: usize, most: usize) -> Vec<u8> {
        let inner = &mut *self.inner.borrow_mut();
        let (now, cut) = (inner.now, inner.links[id.0].cut_at);
        let pipe = &mut inner.links[id.0].to[end as usize];
        let mut most = most;
        if let Some(stall) = &mut pipe.stall {
            if stall.until.is_some_and(|until| until <= now) {
                pipe.stall = None;
            } else {
                most = most.min(stall.left as usize);
            }
        }
        let lane = &mut pipe.lanes[lane];
        let Some(first) = lane.segments.front_mut() else {
            return Vec::new();
        };
        if first.at > now || cut.is_some_and(|cut| first.at > cut) {
            return Vec::new();
        }
        let n = most.min(first.bytes.len() - first.taken);
        let bytes = first.bytes[first.taken..first.taken + n].to_vec();
        first.taken += n;
        if first.taken == first.bytes.len() {
            lane.segments.pop_front();
        }
        lane.bytes -= n;
        if let Some(stall) = &mut pipe.stall {
            stall.left -= n as u64;
        }
        bytes
    }

    /// The rail at `end` was dropped: nothing is delivered to it any more, and the other end sees the stream end
    /// after what was sent before.
    pub(crate) fn close(&self, id: LinkId, end: End) {
        self.note(|| format!("link {}: end {end:?} closed", id.0));
        let inner = &mut *self.inner.borrow_mut();
        let now = inner.now;
        let link = &mut inner.links[id.0];
        link.open[end as usize] = false;
        for lane in &mut link.to[end as usize].lanes {
            lane.segments.clear();
            lane.bytes = 0;
        }
        let latency = link.config.latency;
        let cut = link.cut_at.is_some();
        let pipe = &mut link.to[end.other() as usize];
        let last = pipe.lanes.iter().map(|l| l.last_at).max().unwrap_or(0);
        if !cut {
            pipe.fin_at = Some(last.max(now + latency));
        }
    }
}
