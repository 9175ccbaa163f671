//! What to measure.

use std::time::Duration;

use crate::units;

/// A kind of test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Bandwidth and message rate.
    Bw,
    /// Latency: ping-pong, each message waits for the one before.
    Lat,
    /// Variation of latency: a ping-pong at a fixed pace.
    Jitter,
    /// Latency while bulk data moves on the same link, beside latency while it does not.
    Load,
}

impl Test {
    /// Name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Test::Bw => "bw",
            Test::Lat => "lat",
            Test::Jitter => "jitter",
            Test::Load => "load",
        }
    }
}

/// Which way data moves, as the asking side sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Send,
    /// From the peer.
    Recv,
    /// Both ways at once.
    Both,
}

impl Direction {
    /// Name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Send => "send",
            Direction::Recv => "recv",
            Direction::Both => "both",
        }
    }

    pub(crate) fn up(self) -> bool {
        self != Direction::Recv
    }

    pub(crate) fn down(self) -> bool {
        self != Direction::Send
    }
}

/// How a side waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Looks again without pause: lowest latency, one processor per side.
    Spin,
    /// Spins for [`SPIN`], then sleeps.
    Adaptive,
    /// Sleeps at once.
    Sleep,
}

impl WaitMode {
    /// Name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            WaitMode::Spin => "spin",
            WaitMode::Adaptive => "adaptive",
            WaitMode::Sleep => "sleep",
        }
    }
}

/// How long an adaptive wait spins: a waker costs about 25 us, and peers that think for up to 50 us are then still
/// answered without one (measured, bench/records).
pub const SPIN: Duration = Duration::from_micros(50);

/// When a test ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After so many messages (round trips in a latency test).
    Messages(u64),
    /// After so long.
    After(Duration),
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Kind.
    pub test: Test,
    /// Direction of bulk data.
    pub direction: Direction,
    /// How both sides wait.
    pub wait: WaitMode,
    /// Message size, bytes, 1 to 1 GiB.
    pub size: u64,
    /// Messages in flight, each in a buffer of its own.
    pub window: u32,
    /// Messages before the timed part.
    pub warmup: u32,
    /// End of the timed part.
    pub stop: Stop,
    /// Pace of [`Test::Jitter`]: one round trip per interval.
    pub interval: Duration,
    /// Message size of the bulk data of [`Test::Load`].
    pub load_size: u64,
    /// Messages of bulk data in flight in [`Test::Load`].
    pub load_window: u32,
    /// Whether data is checked.
    pub verify: bool,
    /// Seed of the data.
    pub seed: u64,
}

/// Receives that a latency test keeps posted ahead.
pub const DEPTH: u32 = 4;

/// Memory that one direction of one test uses for its buffers at most, as long as one message fits (256 MiB).
pub const BUFFERS: u64 = 256 << 20;

/// Bytes checked in full after the timed part, as long as eight messages fit (64 MiB), and messages at most; a second of them.
const VERIFY_BYTES: u64 = 64 << 20;
const VERIFY_MESSAGES: u64 = 256;

impl Spec {
    /// A test with the usual settings: a window of 8 (32 up to 4 KiB), a second of time, checked.
    pub fn new(test: Test, size: u64) -> Spec {
        Spec {
            test,
            direction: Direction::Send,
            wait: WaitMode::Adaptive,
            size,
            window: if size <= 4096 { 32 } else { 8 },
            warmup: Spec::usual_warmup(size),
            stop: Stop::After(Duration::from_secs(1)),
            interval: Duration::from_millis(1),
            load_size: 1 << 20,
            load_window: 8,
            verify: true,
            seed: 0x6c69_6e6b_7370_616e,
        }
    }

    /// Messages that warm caches, windows and page tables: 32 MiB, but 2 to 1000 messages. A warm-up of this number ends after a second.
    pub fn usual_warmup(size: u64) -> u32 {
        ((32 << 20) / size.max(1)).clamp(2, 1000) as u32
    }

    /// The window that is used: smaller where that many buffers of that size would take too much memory.
    pub fn window_used(&self) -> u32 {
        used(self.window, self.size)
    }

    /// As [`Spec::window_used`], for the bulk data of [`Test::Load`].
    pub fn load_window_used(&self) -> u32 {
        used(self.load_window, self.load_size)
    }

    /// Messages that are checked byte for byte after the timed part.
    pub(crate) fn verify_messages(&self) -> u32 {
        if self.verify {
            (VERIFY_BYTES / self.size.clamp(1, units::SIZE_MAX)).clamp(2, VERIFY_MESSAGES) as u32
        } else {
            0
        }
    }
}

fn used(window: u32, size: u64) -> u32 {
    u64::from(window).min((BUFFERS / size.max(1)).max(1)) as u32
}
