//! What the tests of rails share.

pub(crate) mod ciphers;
pub(crate) mod helpers;
pub(crate) mod loopback;
pub(crate) mod sealed;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use linkspan_proto::Kind;
use linkspan_proto::head::{BATCH_MAX, HEAD_LEN, padding};
use linkspan_stream::{Dial, Listen, Options, Stream};
use linkspan_tcp::{RailConfig, TcpRail, ZeroCopyPolicy};
use linkspan_transport::{Buf, Down, Head, MemSlice, Poll, Rail, Sink, StaticBuf, Violation};

pub(crate) const V4: &str = "127.0.0.1:0";
pub(crate) const V6: &str = "[::1]:0";

/// Longest time anything may take on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats `f` until it answers.
pub(crate) fn until<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(t) = f() {
            return t;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// Both ends of a connection: the one that dialled first.
pub(crate) fn streams(at: &str, options: &Options) -> (Stream, Stream) {
    let (a, b) = streams_by(at, options, |listener| listener);
    assert_eq!(b.peer_addr(), a.local_addr());
    (a, b)
}

/// The same, where what is dialled is made of the listener's address.
pub(crate) fn streams_by(at: &str, options: &Options, way: impl FnOnce(SocketAddr) -> SocketAddr) -> (Stream, Stream) {
    let mut listen = Listen::bind(at.parse().unwrap(), options).unwrap();
    let mut dial = Dial::start(None, way(listen.local_addr()), options, PATIENCE).unwrap();
    let a = until("connect", || dial.poll().unwrap());
    (a, until("accept", || listen.accept().unwrap()).0)
}

pub(crate) fn rails(at: &str, options: &Options) -> (TcpRail, TcpRail) {
    lending_rails(at, options, ZeroCopyPolicy::Never)
}

pub(crate) fn lending_rails(at: &str, options: &Options, zero_copy: ZeroCopyPolicy) -> (TcpRail, TcpRail) {
    lend_over(streams(at, options), zero_copy)
}

pub(crate) fn lend_over((a, b): (Stream, Stream), how: ZeroCopyPolicy) -> (TcpRail, TcpRail) {
    (zero_copy(a, how), zero_copy(b, how))
}

pub(crate) fn zero_copy(stream: Stream, zero_copy: ZeroCopyPolicy) -> TcpRail {
    TcpRail::new(stream, RailConfig { zero_copy, ..RailConfig::default() }, &[]).unwrap()
}

/// A stream of ours and the plain socket of a peer that may do anything.
pub(crate) fn with_raw() -> (Stream, TcpStream) {
    let listener = TcpListener::bind(V4).unwrap();
    let addr: SocketAddr = listener.local_addr().unwrap();
    let mut dial = Dial::start(None, addr, &Options::default(), PATIENCE).unwrap();
    let stream = until("connect", || dial.poll().unwrap());
    (stream, listener.accept().unwrap().0)
}

pub(crate) fn rail_with_raw() -> (TcpRail, TcpStream) {
    let (stream, raw) = with_raw();
    (TcpRail::new(stream, RailConfig::default(), &[]).unwrap(), raw)
}

pub(crate) fn head(kind: Kind, len: usize, seq: u32) -> Head {
    let mut head = Head::new(kind);
    head.len.set(len as u32);
    head.seq.set(seq);
    head
}

/// The bytes of message `seq`: no two messages, and no two places in one, look alike for long.
pub(crate) fn pattern(seq: u32, len: usize) -> Vec<u8> {
    let mut x = u64::from(seq).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A message on the wire.
pub(crate) fn wire(kind: Kind, seq: u32, len: usize) -> Vec<u8> {
    let mut bytes = head(kind, len, seq).as_wire().to_vec();
    bytes.extend(pattern(seq, len));
    bytes.resize(next_head(bytes.len()), 0xEE);
    bytes
}

/// Where the head behind a message lies that ends at `end`.
pub(crate) fn next_head(end: usize) -> usize {
    end + padding(end)
}

/// Payloads in a row on the wire, from message `seq` on.
pub(crate) fn batch(seq: u32, lens: &[usize]) -> Vec<u8> {
    let heads = lens.iter().zip(seq..).map(|(&len, seq)| head(Kind::Put, len, seq));
    let heads: Vec<u8> = heads.flat_map(|head| head.as_wire().to_vec()).collect();
    let mut bytes = head(Kind::BatchHeads, heads.len(), 0).as_wire().to_vec();
    bytes.extend(heads);
    bytes.extend(lens.iter().zip(seq..).flat_map(|(&len, seq)| pattern(seq, len)));
    bytes.resize(next_head(bytes.len()), 0xEE);
    bytes
}

/// Messages of all kinds, and where each ends, without its padding.
pub(crate) fn script() -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::new(), vec![0]);
    let list = [(Kind::Eager, 10), (Kind::Chunk, 100), (Kind::Notify, 0), (Kind::Put, 33), (Kind::InlinePut, 5)];
    for (seq, (kind, len)) in list.into_iter().enumerate() {
        ends.push(bytes.len() + HEAD_LEN + len);
        bytes.extend(wire(kind, seq as u32, len));
    }
    let lens = [7, 30, 1];
    let mut end = bytes.len() + (1 + lens.len()) * HEAD_LEN;
    bytes.extend(batch(list.len() as u32, &lens));
    for len in lens {
        end += len;
        ends.push(end);
    }
    ends.push(bytes.len() + HEAD_LEN);
    bytes.extend(wire(Kind::Ack, list.len() as u32 + 3, 0));
    (bytes, ends)
}

/// Whether no message has begun and not ended in the first `cut` bytes of the script: its padding may be cut off. Within the batch
/// there is none, so only its last payload ends one.
pub(crate) fn is_between(ends: &[usize], cut: usize) -> bool {
    let batch = 6..8;
    let whole = |&(n, _): &(usize, &usize)| !batch.contains(&n);
    cut == 0 || ends.iter().enumerate().skip(1).filter(whole).any(|(_, &end)| (end..=next_head(end)).contains(&cut))
}

pub(crate) fn buf(bytes: &[u8]) -> StaticBuf {
    let buf = StaticBuf::new(bytes.len());
    assert!(buf.slice().fill(0, bytes));
    buf
}

const GUARD: usize = 256;

/// Expects messages with the sequence numbers 0, 1, ... and their patterns, and checks them as they come.
pub(crate) struct Model {
    pub(crate) next: u32,
    pub(crate) bytes: u64,
    /// Chunks whose number divides by this are drained; 0: none.
    pub(crate) drain: u32,
    place: StaticBuf,
    placed: VecDeque<(Head, Option<MemSlice>)>,
    /// Which of a batch each of these is.
    slots: VecDeque<usize>,
}

/// Bytes for a payload, or for the first of a batch.
const FIRST: usize = (1 << 20) + 4096;

/// Bytes for each payload of a batch but the first.
const SLOT: usize = (64 << 10) + 2 * GUARD + 256;

/// Where the place of the `n`th payload of a batch begins.
fn slot(n: usize) -> usize {
    if n == 0 { 0 } else { FIRST + (n - 1) * SLOT }
}

impl Model {
    pub(crate) fn new() -> Model {
        let place = StaticBuf::new(FIRST + (BATCH_MAX - 1) * SLOT);
        assert!(place.slice().fill(0, &vec![0xEE; place.len()]));
        Model { next: 0, bytes: 0, drain: 0, place, placed: VecDeque::new(), slots: VecDeque::new() }
    }

    /// Ends in the middle of a chunk.
    pub(crate) fn inside_chunk(&self) -> bool {
        !self.placed.is_empty()
    }
}

impl Sink for Model {
    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        assert!(self.placed.is_empty(), "a message in the middle of a chunk");
        assert!(!Kind::from_u8(head.kind).unwrap().is_payload());
        assert_eq!(head.seq.get(), self.next, "order");
        assert_eq!(payload, pattern(self.next, head.len.get() as usize), "content of message {}", self.next);
        self.next += 1;
        self.bytes += payload.len() as u64;
        Ok(())
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        let (n, seq) = (self.placed.len(), self.next + self.placed.len() as u32);
        assert!(n < BATCH_MAX, "more chunks at once than a batch has");
        assert_eq!(head.seq.get(), seq, "order");
        let drain = self.drain > 0 && seq.is_multiple_of(self.drain);
        // Every alignment within two lines comes up.
        let at = slot(n) + GUARD + seq as usize * 37 % 256;
        let mem = self.place.slice().sub(at as u64, head.len.get().into()).expect("chunk fits the model's place");
        self.placed.push_back((*head, (!drain).then_some(mem)));
        self.slots.push_back(n);
        Ok((!drain).then_some(mem))
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        let (announced, mem) = self.placed.pop_front().expect("landed without a place");
        let n = self.slots.pop_front().expect("one for each");
        assert_eq!(*head, announced);
        let len = head.len.get() as usize;
        if let Some(mem) = mem {
            assert!(mem.to_vec() == pattern(self.next, len), "content of chunk {}", self.next);
            assert!(mem.fill(0, &vec![0xEE; len]));
        }
        // Nothing was written beside the place, or anywhere by a drained chunk.
        let near = self.place.slice().sub(slot(n) as u64, (len + 2 * GUARD + 256) as u64).unwrap();
        assert!(near.to_vec().iter().all(|&b| b == 0xEE), "chunk {} wrote outside its place", self.next);
        self.next += 1;
        self.bytes += len as u64;
        Ok(())
    }
}

/// Polls until the rail is down; what came before is in `sink`.
pub(crate) fn poll_to_end(rail: &mut TcpRail, sink: &mut impl Sink) -> Down {
    until("the end of the rail", || rail.poll(sink).err())
}

/// Polls until nothing has come for a while.
pub(crate) fn poll_to_silence(rail: &mut TcpRail, sink: &mut impl Sink) {
    let mut idle = 0;
    while idle < 20 {
        match rail.poll(sink).unwrap() {
            Poll::Active => idle = 0,
            Poll::Idle => idle += 1,
        }
    }
}
