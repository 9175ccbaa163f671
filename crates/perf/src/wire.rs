//! The control protocol of a test: two fixed structures of 128 bytes, little-endian, on a tag of their own.
//!
//! The client sends [`Params`]; the server answers with a [`Reply`] (`Ready` or `Refused`). Both then run the same
//! list of phases. Before a timed phase the client sends a reply `Go` and gets one back; after it the server sends
//! its `Report`. Then the next [`Params`] may follow. A server believes nothing: every field is checked before use.

use std::time::Duration;

use linkspan_gpu::MemoryName;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::spec::{DEPTH, Direction, Spec, Stop, Test, WaitMode};
use crate::units::{INTERVAL_MAX, SIZE_MAX, TIME_MAX};

/// `LSPF` as little-endian bytes.
pub const MAGIC: u32 = u32::from_le_bytes(*b"LSPF");

/// Version of this protocol. Another version is refused, with both numbers named.
pub const VERSION: u16 = 1;

/// Bytes in every control message.
pub const CTRL_LEN: usize = 128;

/// Tag of control messages.
pub const TAG_CTRL: u32 = 0x4c53_0000;
/// Tag of bulk data.
pub const TAG_BULK: u32 = 0x4c53_0001;
/// Tag of ping-pong data.
pub const TAG_PING: u32 = 0x4c53_0002;

/// Tag of the offer of memory for one-sided tests.
pub const TAG_OFFER: u32 = 0x4c53_0003;

/// Longest offer, bytes: a URL and a remote buffer in text.
pub const OFFER_MAX: usize = 1024;

/// Most messages in flight.
pub const WINDOW_MAX: u32 = 4096;

/// What a control message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// [`Params`] of the next test.
    Params = 1,
    /// A request for a bare TCP listener for the baseline; also [`Params`].
    Bare = 2,
    /// The test may begin.
    Ready = 3,
    /// The test is refused; `status` says why.
    Refused = 4,
    /// Start of a timed phase.
    Go = 5,
    /// Result of the server's side of a timed phase.
    Report = 6,
    /// No further test will come.
    GoAway = 7,
    /// The client wants no more data in this phase: the server's sending side ends it now.
    Stop = 8,
    /// A request for memory for one-sided tests, `size` bytes of it; also [`Params`]. Behind its `Ready` comes the offer.
    Offer = 9,
}

/// What the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Params {
    /// [`MAGIC`].
    pub magic: U32,
    /// [`VERSION`].
    pub version: U16,
    /// [`Kind::Params`], [`Kind::Bare`] or [`Kind::Offer`].
    pub kind: u8,
    /// [`Test`]: 1 bw, 2 lat, 3 jitter, 4 load.
    pub test: u8,
    /// [`Direction`]: 1 send, 2 recv, 3 both.
    pub direction: u8,
    /// [`WaitMode`]: 1 spin, 2 adaptive, 3 sleep.
    pub wait: u8,
    /// Where the client's messages are: see [`pack_memory`].
    pub memory: U16,
    /// Messages in flight.
    pub window: U32,
    /// Messages in flight of the bulk data under a latency test.
    pub load_window: U32,
    /// Messages before the timed part.
    pub warmup: U32,
    /// Messages checked in full after it.
    pub verify: U32,
    /// Receives posted ahead in a ping-pong.
    pub depth: U32,
    /// Message size, bytes.
    pub size: U64,
    /// Size of bulk messages under a latency test, bytes.
    pub load_size: U64,
    /// Messages of the timed part; 0 when time decides.
    pub messages: U64,
    /// Length of the timed part, ns; 0 when the count decides.
    pub duration_ns: U64,
    /// Pace of a jitter test, ns per round trip.
    pub interval_ns: U64,
    /// Seed of the data.
    pub seed: U64,
    /// [`Kind::Bare`]: what the client will send first on the bare connection.
    pub token: [u8; 16],
    /// Zero.
    pub reserved: [u8; 32],
}

const _: () = assert!(size_of::<Params>() == CTRL_LEN);

/// Every other control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Reply {
    /// [`MAGIC`].
    pub magic: U32,
    /// [`VERSION`] of the sender.
    pub version: U16,
    /// A [`Kind`] other than those of [`Params`].
    pub kind: u8,
    /// Of [`Kind::Refused`]: a [`Status`].
    pub status: u8,
    /// Of `Ready` to a [`Kind::Bare`]: TCP port, else 0.
    pub port: U16,
    /// Of `Ready`: where the server's messages are; see [`pack_memory`].
    pub memory: U16,
    /// Of `Report`: messages that the server received.
    pub messages: U64,
    /// Of `Report`: bytes of them.
    pub bytes: U64,
    /// Of `Report`: from the server's `Go` to the last byte received, ns; 0 when it received nothing.
    pub elapsed_ns: U64,
    /// Of `Report`: processor time of the server's thread in the phase, ns.
    pub cpu_ns: U64,
    /// Of `Report`: wrong bytes that the server found.
    pub wrong: U64,
    /// Of `Refused`: the limit that was passed.
    pub limit: U64,
    /// Zero.
    pub reserved: [u8; 68],
}

const _: () = assert!(size_of::<Reply>() == CTRL_LEN);

/// Why a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It uses another version.
    Version = 1,
    /// A field is out of its range.
    Invalid = 2,
    /// More memory than the server has left for tests.
    Memory = 3,
    /// It cannot offer a bare listener.
    NoBare = 4,
    /// It offers no memory for one-sided tests.
    NoOffer = 5,
}

/// A control message that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadMessage {
    /// Not of this protocol.
    #[error("LS0721 the peer does not use the test protocol (magic {0:#010x}); is it `lspan perf serve`?")]
    Magic(u32),
    /// Of another version.
    #[error(
        "LS0722 this side uses version {VERSION} of the test protocol, the peer version {0}; use the same lspan on both"
    )]
    Version(u16),
    /// Of a kind that does not belong here.
    #[error("LS0723 control message of kind {0} is not expected here")]
    Kind(u8),
    /// A field is out of range.
    #[error("LS0724 the peer asks for a test with {field} {value}, allowed is {allowed}")]
    Field {
        /// Its name.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A message of the wrong length.
    #[error("LS0725 control message of {0} bytes, they have {CTRL_LEN}")]
    Length(usize),
    /// An offer that is not text.
    #[error("LS0726 the peer's offer of memory cannot be read; use the same lspan on both sides")]
    Offer,
}

/// Memory as it travels: 0 on the host, 0x1000 and the number of a CUDA device, 0x2000 and that of a HIP device.
pub fn pack_memory(name: MemoryName) -> U16 {
    let number = |n: usize| n.min(0xfff) as u16;
    U16::new(match name {
        MemoryName::Host => 0,
        MemoryName::Device(linkspan_gpu::Kind::Hip, n) => 0x2000 | number(n),
        MemoryName::Device(_, n) => 0x1000 | number(n),
    })
}

/// What the peer says of its memory; of kinds that are unknown here, that it is on a device.
pub fn unpack_memory(word: U16) -> MemoryName {
    let number = usize::from(word.get() & 0xfff);
    match word.get() >> 12 {
        0 => MemoryName::Host,
        2 => MemoryName::Device(linkspan_gpu::Kind::Hip, number),
        _ => MemoryName::Device(linkspan_gpu::Kind::Cuda, number),
    }
}

impl Params {
    /// The wire form of a test.
    pub fn new(spec: &Spec) -> Params {
        let (messages, duration_ns) = match spec.stop {
            Stop::Messages(n) => (n, 0),
            Stop::After(time) => (0, time.as_nanos() as u64),
        };
        Params {
            magic: U32::new(MAGIC),
            version: U16::new(VERSION),
            kind: Kind::Params as u8,
            test: match spec.test {
                Test::Bw => 1,
                Test::Lat => 2,
                Test::Jitter => 3,
                Test::Load => 4,
            },
            direction: match spec.direction {
                Direction::Send => 1,
                Direction::Recv => 2,
                Direction::Both => 3,
            },
            wait: match spec.wait {
                WaitMode::Spin => 1,
                WaitMode::Adaptive => 2,
                WaitMode::Sleep => 3,
            },
            memory: U16::ZERO,
            window: U32::new(spec.window_used()),
            load_window: U32::new(spec.load_window_used()),
            warmup: U32::new(spec.warmup),
            verify: U32::new(spec.verify_messages()),
            depth: U32::new(if spec.size > 64 << 20 { 1 } else { DEPTH }),
            size: U64::new(spec.size),
            load_size: U64::new(spec.load_size),
            messages: U64::new(messages),
            duration_ns: U64::new(duration_ns),
            interval_ns: U64::new(spec.interval.as_nanos() as u64),
            seed: U64::new(spec.seed),
            token: [0; 16],
            reserved: [0; 32],
        }
    }

    /// A request for a bare listener, whose visitor will say `token`.
    pub fn bare(token: [u8; 16]) -> Params {
        Params { kind: Kind::Bare as u8, token, ..Params::new(&Spec::new(Test::Bw, 1)) }
    }

    /// A request for `bytes` bytes of memory.
    pub fn offer(bytes: u64) -> Params {
        Params { kind: Kind::Offer as u8, ..Params::new(&Spec::new(Test::Bw, bytes)) }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`BadMessage::Field`], naming the first field at fault.
    pub fn plan(&self) -> Result<Plan, BadMessage> {
        let within = |field, value: u64, low: u64, high: u64, allowed| {
            if (low..=high).contains(&value) { Ok(value) } else { Err(BadMessage::Field { field, value, allowed }) }
        };
        let time_max = TIME_MAX.as_nanos() as u64;
        let window = |field, value: U32| within(field, value.get().into(), 1, WINDOW_MAX.into(), "1 to 4096");
        let test = match self.test {
            1 => Test::Bw,
            2 => Test::Lat,
            3 => Test::Jitter,
            4 => Test::Load,
            n => return Err(BadMessage::Field { field: "test", value: n.into(), allowed: "1 to 4" }),
        };
        let direction = match self.direction {
            1 => Direction::Send,
            2 => Direction::Recv,
            3 => Direction::Both,
            n => return Err(BadMessage::Field { field: "direction", value: n.into(), allowed: "1 to 3" }),
        };
        let wait = match self.wait {
            1 => WaitMode::Spin,
            2 => WaitMode::Adaptive,
            3 => WaitMode::Sleep,
            n => return Err(BadMessage::Field { field: "wait", value: n.into(), allowed: "1 to 3" }),
        };
        let (messages, duration) = (self.messages.get(), self.duration_ns.get());
        let stop = match (messages, duration) {
            (n, 0) if n > 0 => Stop::Messages(n),
            (0, ns) => Stop::After(Duration::from_nanos(within("duration_ns", ns, 1, time_max, "1 ns to 24 h")?)),
            (n, _) => return Err(BadMessage::Field { field: "messages", value: n, allowed: "0 beside a duration" }),
        };
        Ok(Plan {
            test,
            direction,
            wait,
            stop,
            window: window("window", self.window)? as u32,
            load_window: window("load_window", self.load_window)? as u32,
            warmup: within("warmup", self.warmup.get().into(), 0, 1_000_000, "0 to 1000000")? as u32,
            verify: within("verify", self.verify.get().into(), 0, 65_536, "0 to 65536")? as u32,
            depth: within("depth", self.depth.get().into(), 1, 64, "1 to 64")? as u32,
            size: within("size", self.size.get(), 1, SIZE_MAX, "1 byte to 1 GiB")? as usize,
            load_size: within("load_size", self.load_size.get(), 1, SIZE_MAX, "1 byte to 1 GiB")? as usize,
            interval: Duration::from_nanos(within(
                "interval_ns",
                self.interval_ns.get(),
                1,
                INTERVAL_MAX.as_nanos() as u64,
                "1 ns to 30 s",
            )?),
            seed: self.seed.get(),
        })
    }
}

/// A checked test, the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(crate) test: Test,
    pub(crate) direction: Direction,
    pub(crate) wait: WaitMode,
    pub(crate) stop: Stop,
    pub(crate) window: u32,
    pub(crate) load_window: u32,
    pub(crate) warmup: u32,
    pub(crate) verify: u32,
    pub(crate) depth: u32,
    pub(crate) size: usize,
    pub(crate) load_size: usize,
    pub(crate) interval: Duration,
    pub(crate) seed: u64,
}

impl Plan {
    /// Bytes of buffers that one side needs at most at a time.
    pub fn memory(&self) -> u64 {
        let one = |size: usize, window: u32| size as u64 * u64::from(window);
        let bulk = |size, window| one(size, window) * 2;
        let ping = self.size as u64 * (u64::from(self.depth) + 2);
        match self.test {
            Test::Bw if self.direction != Direction::Both => one(self.size, self.window),
            Test::Bw => bulk(self.size, self.window),
            Test::Lat | Test::Jitter => ping.max(bulk(self.size, self.window)),
            Test::Load => (ping + bulk(self.load_size, self.load_window)).max(bulk(self.size, self.window)),
        }
    }
}

impl Reply {
    /// An empty reply of this kind.
    pub fn new(kind: Kind) -> Reply {
        let mut reply = Reply::new_zeroed();
        reply.magic = U32::new(MAGIC);
        reply.version = U16::new(VERSION);
        reply.kind = kind as u8;
        reply
    }

    /// A refusal.
    pub fn refuse(status: Status, limit: u64) -> Reply {
        Reply { status: status as u8, limit: U64::new(limit), ..Reply::new(Kind::Refused) }
    }

    /// Why the peer refused, for people.
    pub fn refusal(&self) -> String {
        match self.status {
            1 => format!("it uses version {} of the test protocol, this side version {VERSION}", self.version),
            2 => "a parameter is out of its range there; use the same lspan on both sides".into(),
            3 => format!(
                "the test needs more memory than the {} MiB that it has left for tests; lower --size or --window, or \
                 give it more (lspan perf serve --memory)",
                self.limit.get() >> 20
            ),
            5 => "it offers no memory for one-sided tests here".into(),
            4 => "it cannot open a bare TCP listener for the baseline on this path".into(),
            n => format!("reason {n}, unknown to this version"),
        }
    }
}

/// What a received control message is.
#[derive(Clone, Copy, Debug)]
pub enum Message {
    /// A request of this kind.
    Params(Kind, Params),
    /// Anything else.
    Reply(Kind, Reply),
}

/// Reads the envelope of a control message. The fields of [`Params`] are checked by [`Params::plan`].
///
/// # Errors
/// [`BadMessage::Length`], [`BadMessage::Magic`], [`BadMessage::Version`], [`BadMessage::Kind`], [`BadMessage::Offer`].
pub fn decode(bytes: &[u8]) -> Result<Message, BadMessage> {
    let bytes: &[u8; CTRL_LEN] = bytes.try_into().map_err(|_| BadMessage::Length(bytes.len()))?;
    let params: Params = zerocopy::transmute!(*bytes);
    let reply: Reply = zerocopy::transmute!(*bytes);
    if params.magic.get() != MAGIC {
        return Err(BadMessage::Magic(params.magic.get()));
    }
    if params.version.get() != VERSION {
        return Err(BadMessage::Version(params.version.get()));
    }
    Ok(match params.kind {
        1 => Message::Params(Kind::Params, params),
        2 => Message::Params(Kind::Bare, params),
        3 => Message::Reply(Kind::Ready, reply),
        4 => Message::Reply(Kind::Refused, reply),
        5 => Message::Reply(Kind::Go, reply),
        6 => Message::Reply(Kind::Report, reply),
        7 => Message::Reply(Kind::GoAway, reply),
        8 => Message::Reply(Kind::Stop, reply),
        9 => Message::Params(Kind::Offer, params),
        n => return Err(BadMessage::Kind(n)),
    })
}

#[cfg(test)]
mod tests;
