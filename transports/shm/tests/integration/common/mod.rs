//! What the tests share: a sink that keeps everything, and patterns.

pub(crate) mod bed;

use std::time::{Duration, Instant};

use linkspan_proto::{Head, Kind};
use linkspan_shm::{Config, ShmRail};
use linkspan_transport::{Buf, Busy, Down, MemSlice, Poll, Rail, Sink, StaticBuf, Violation};

/// A sink that places each chunk at `head.offset` of one area and remembers what came.
pub(crate) struct Catch {
    pub(crate) area: MemSlice,
    pub(crate) drain: bool,
    /// Chunks whose bytes go nowhere.
    pub(crate) unwanted: Vec<u32>,
    pub(crate) ctrl: Vec<(u32, Vec<u8>)>,
    pub(crate) placed: Vec<u32>,
    pub(crate) landed: Vec<u32>,
}

impl Catch {
    pub(crate) fn new(area: MemSlice) -> Catch {
        Catch { area, drain: false, unwanted: Vec::new(), ctrl: Vec::new(), placed: Vec::new(), landed: Vec::new() }
    }
}

impl Sink for Catch {
    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        self.ctrl.push((head.seq.get(), payload.to_vec()));
        Ok(())
    }
    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        self.placed.push(head.seq.get());
        if self.drain || self.unwanted.contains(&head.seq.get()) {
            return Ok(None);
        }
        self.area.sub(head.offset.get(), head.len.get().into()).map(Some).ok_or(Violation("outside the area".into()))
    }
    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        self.landed.push(head.seq.get());
        Ok(())
    }
}

pub(crate) fn head(kind: Kind, seq: u32, len: usize, offset: u64) -> Head {
    let mut head = Head::new(kind);
    head.seq.set(seq);
    head.len.set(len as u32);
    head.offset.set(offset);
    head
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((i + 1 + seed * 0x1_0001).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

pub(crate) fn filled(bytes: &[u8]) -> StaticBuf {
    let buf = StaticBuf::new(bytes.len());
    assert!(buf.slice().fill(0, bytes));
    buf
}

pub(crate) fn ctrl(rail: &mut ShmRail, seq: u32, body: &[u8]) -> Result<u64, Busy> {
    let buf = filled(body);
    rail.ctrl(&head(Kind::Eager, seq, body.len(), 0), buf.slice())
}

/// Polls both until `done`, or panics after 20 s.
pub(crate) fn drive(
    a: (&mut ShmRail, &mut Catch),
    b: (&mut ShmRail, &mut Catch),
    mut done: impl FnMut(&Catch, &Catch, u64) -> bool,
) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done(a.1, b.1, a.0.taken()) {
        a.0.flush().expect("a step");
        b.0.poll(b.1).expect("a step");
        b.0.flush().expect("a step");
        a.0.poll(a.1).expect("a step");
        assert!(Instant::now() < end, "nothing moves any more");
    }
}

/// Polls until the rail is down, and says how.
pub(crate) fn until_down(rail: &mut ShmRail, sink: &mut Catch) -> Down {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match rail.poll(sink) {
            Err(down) => return down,
            Ok(Poll::Active) => {}
            Ok(Poll::Idle) => std::thread::yield_now(),
        }
        assert!(Instant::now() < end, "the peer's end is never noticed");
    }
}

/// Every way the transport has: both processes copy, and the ring alone.
pub(crate) fn ways() -> [(&'static str, Config); 4] {
    let direct = Config::default();
    let small = Config { ring: 64 << 10, cma_from: 1, slice: 4096, ..direct };
    let batches = Config { ring: 64 << 10, batches: true, ..direct };
    [
        ("direct", direct),
        ("batches", batches),
        ("small ring, all direct", small),
        ("ring", Config { cma: false, ..direct }),
    ]
}
