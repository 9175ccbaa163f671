//! One link: two directions, each one or two lanes of byte segments with times of arrival.

use std::collections::VecDeque;

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first one.
    A = 0,
    /// The second one.
    B = 1,
}

impl End {
    /// The opposite one.
    #[must_use]
    pub fn other(self) -> End {
        match self {
            End::A => End::B,
            End::B => End::A,
        }
    }
}

/// Names a link of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub(crate) usize);

impl LinkId {
    /// Position in the order in which links were made, from 0.
    pub fn index(self) -> usize {
        self.0
    }
}

/// What a link is like.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// Chunks and control messages keep their order; otherwise chunks travel a lane of their own and overtake.
    pub ordered: bool,
    /// Chunk size the rail asks for, bytes.
    pub chunk: usize,
    /// Items a rail accepts before they have left.
    pub queue: usize,
    /// Bytes on the way in one direction and lane; a sender's bytes have left once they are among them.
    pub buffer: usize,
    /// Largest segment, bytes.
    pub segment: usize,
    /// Most bytes one poll delivers per lane.
    pub budget: usize,
    /// Nanoseconds from end to end.
    pub latency: u64,
    /// Up to so many nanoseconds more, at random per segment; segments of a lane keep their order.
    pub jitter: u64,
    /// Bytes per second.
    pub speed: u64,
}

impl Default for LinkConfig {
    /// A 10 Gb/s link with 20 us from end to end.
    fn default() -> LinkConfig {
        LinkConfig {
            ordered: true,
            chunk: 64 << 10,
            queue: 32,
            buffer: 256 << 10,
            segment: 32 << 10,
            budget: 128 << 10,
            latency: 20_000,
            jitter: 0,
            speed: 1_250_000_000,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) taken: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Buffered {
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) bytes: usize,
    pub(crate) last_at: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    pub(crate) left: u64,
    pub(crate) until: Option<u64>,
}

/// One direction, named by the end that receives.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pub(crate) lanes: [Buffered; 2],
    pub(crate) busy_until: u64,
    pub(crate) stall: Option<Stall>,
    /// Frames until one is damaged.
    pub(crate) corrupt: Option<u64>,
    /// When the receiver sees the end of the stream; the sender has closed.
    pub(crate) fin_at: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct SimLink {
    pub(crate) config: LinkConfig,
    /// Indexed by the end that receives.
    pub(crate) to: [Pipe; 2],
    pub(crate) open: [bool; 2],
    /// When each end sees the link down.
    pub(crate) down_at: [Option<u64>; 2],
    pub(crate) storm_until: [u64; 2],
    /// Nothing that arrives later than this arrives at all.
    pub(crate) cut_at: Option<u64>,
    pub(crate) why: &'static str,
}

impl SimLink {
    pub(crate) fn new(config: LinkConfig) -> SimLink {
        SimLink {
            config,
            to: [Pipe::default(), Pipe::default()],
            open: [true; 2],
            down_at: [None; 2],
            storm_until: [0; 2],
            cut_at: None,
            why: "cut",
        }
    }

    /// The next moment after `now` at which something changes by itself.
    pub(crate) fn next_event(&self, now: u64) -> Option<u64> {
        let mut next: Option<u64> = None;
        let mut note = |at: u64| {
            if at > now {
                next = Some(next.map_or(at, |n| n.min(at)));
            }
        };
        for end in [0, 1] {
            if !self.open[end] {
                continue;
            }
            note(self.storm_until[end]);
            self.down_at[end].into_iter().for_each(&mut note);
            let pipe = &self.to[end];
            pipe.fin_at.into_iter().for_each(&mut note);
            pipe.stall.and_then(|s| s.until).into_iter().for_each(&mut note);
            for segment in pipe.lanes.iter().filter_map(|l| l.segments.front()) {
                if self.cut_at.is_none_or(|cut| segment.at <= cut) {
                    note(segment.at);
                }
            }
        }
        next
    }
}
