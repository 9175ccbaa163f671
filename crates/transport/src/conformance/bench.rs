//! Both ends of a connection in one thread, and the bytes they exchange.

use std::time::Instant;

use super::{Patience, Rng, SuiteMemory, Testbed, Want};
use crate::{Buf, Conn, Error, MemSlice, Poll, Rail, StaticBuf, Ticket};

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that connected.
    A,
    /// The one that accepted.
    B,
}

impl Side {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// Both ends.
pub struct Duo<'r, R: Rail> {
    /// The testbed, for time to pass in.
    pub bed: &'r mut dyn Testbed<R = R>,
    /// One end.
    pub a: Conn<R>,
    /// The other.
    pub b: Conn<R>,
}

/// Counts rounds or time until patience ends.
pub(super) struct Wait {
    since: Instant,
    rounds: u64,
}

impl Wait {
    pub(super) fn new() -> Wait {
        Wait { since: Instant::now(), rounds: 0 }
    }

    pub(super) fn round(&mut self, patience: Patience, what: &str) {
        self.rounds += 1;
        let over = match patience {
            Patience::Wall(limit) => self.since.elapsed() > limit,
            Patience::Rounds(limit) => self.rounds > limit,
        };
        assert!(!over, "waited {:?} and {} rounds for {what}", self.since.elapsed(), self.rounds);
    }
}

impl<'r, R: Rail> Duo<'r, R> {
    /// A fresh connection.
    pub fn new(bed: &'r mut dyn Testbed<R = R>, want: Want) -> Duo<'r, R> {
        let (a, b) = bed.pair(want);
        Duo { bed, a, b }
    }

    /// One end.
    pub fn conn(&mut self, side: Side) -> &mut Conn<R> {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    /// Progress on both sides; time passes when neither had anything to do.
    pub fn round(&mut self) {
        let a = self.a.progress().expect("progress of side A");
        let b = self.b.progress().expect("progress of side B");
        if (a, b) == (Poll::Idle, Poll::Idle) {
            self.bed.pass();
        }
    }

    /// This many rounds.
    pub fn rounds(&mut self, n: usize) {
        for _ in 0..n {
            self.round();
        }
    }

    /// Rounds until `done` holds.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let mut wait = Wait::new();
        while !done(self) {
            self.round();
            wait.round(self.bed.patience(), what);
        }
    }

    /// Posts a send, waiting while busy.
    pub fn send(&mut self, side: Side, tag: u32, src: MemSlice) -> Ticket {
        let mut ticket = None;
        self.until("a send to be accepted", |duo| {
            ticket = duo.conn(side).post_send(tag, src).expect("post_send");
            ticket.is_some()
        });
        ticket.expect("until it is there")
    }

    /// Posts a send whose receive is posted, and waits until it is under way.
    pub fn start(&mut self, side: Side, tag: u32, src: MemSlice) -> Ticket {
        let ticket = self.send(side, tag, src);
        self.until("a send to leave", |duo| duo.conn(side).waiting() == 0);
        ticket
    }

    /// Posts a receive, waiting while busy.
    pub fn recv(&mut self, side: Side, parts: &[(u32, MemSlice)]) -> Ticket {
        let mut ticket = None;
        self.until("a receive to be accepted", |duo| {
            ticket = duo.conn(side).post_recv(parts).expect("post_recv");
            ticket.is_some()
        });
        ticket.expect("until it is there")
    }

    /// Waits for an operation and returns its bytes or its error.
    pub fn outcome(&mut self, side: Side, ticket: Ticket) -> Result<u64, Error> {
        let mut outcome = None;
        self.until("an operation to report", |duo| {
            match duo.conn(side).test(ticket) {
                Ok(None) => {}
                Ok(Some(bytes)) => outcome = Some(Ok(bytes)),
                Err(error) => outcome = Some(Err(error)),
            }
            outcome.is_some()
        });
        outcome.expect("until it is there")
    }

    /// Waits for an operation that must succeed.
    pub fn done(&mut self, side: Side, ticket: Ticket) -> u64 {
        self.outcome(side, ticket).unwrap_or_else(|e| panic!("operation of side {side:?} failed: {e}"))
    }

    /// Sends one message from `side` to the other and checks every byte.
    pub fn message(&mut self, side: Side, tag: u32, len: usize, seed: u64) {
        let (src, dst) = (filled(len, seed), SuiteMemory::new(len));
        let recv = self.recv(side.other(), &[(tag, dst.slice())]);
        let send = self.send(side, tag, src.slice());
        assert_eq!(self.done(side.other(), recv), len as u64, "received size");
        assert_eq!(self.done(side, send), len as u64, "sent size");
        check_bytes(dst.slice(), seed);
    }

    /// The connection still works, both ways, small and large.
    pub fn still_works(&mut self) {
        for (side, tag) in [(Side::A, 0xFFF0), (Side::B, 0xFFF1)] {
            self.message(side, tag, 100, u64::from(tag));
            self.message(side, tag, 100_000, u64::from(tag) + 7);
        }
    }
}

/// The shapes of connection a testbed makes: what two-sided behaviours are tried on.
pub(super) fn shapes<R: Rail>(bed: &dyn Testbed<R = R>) -> Vec<Want> {
    vec![Want::PLAIN, Want::ACKED, several(bed)]
}

pub(super) fn several<R: Rail>(bed: &dyn Testbed<R = R>) -> Want {
    Want { rails: bed.rails().min(3), ..Want::ACKED }
}

/// A buffer filled by [`fill_bytes`].
pub fn pattern(len: usize, seed: u64) -> StaticBuf {
    let buf = StaticBuf::new(len);
    fill_bytes(buf.slice(), seed);
    buf
}

/// The same wherever the suite's buffers are.
pub(super) fn filled(len: usize, seed: u64) -> SuiteMemory {
    let buf = SuiteMemory::new(len);
    fill_bytes(buf.slice(), seed);
    buf
}

/// Fills memory with bytes that only this seed gives.
pub fn fill_bytes(mem: MemSlice, seed: u64) {
    blocks(mem.len(), seed, |at, bytes| {
        assert!(mem.fill(at, bytes), "inside by construction");
    });
}

/// Checks that memory is as [`fill_bytes`] left it.
///
/// # Panics
/// A byte differs; the first one is named.
pub fn check_bytes(mem: MemSlice, seed: u64) {
    let mut got = vec![0; BLOCK.min(mem.len())];
    blocks(mem.len(), seed, |at, want| {
        let got = &mut got[..want.len()];
        assert!(mem.read(at, got), "inside by construction");
        if got != want {
            let i = (0..want.len()).find(|&i| got[i] != want[i]).unwrap_or(0);
            panic!(
                "byte {} of {} is {:#04x}, sent as {:#04x} (pattern {seed})",
                at + i as u64,
                mem.len(),
                got[i],
                want[i]
            );
        }
    });
}

/// Fills memory with one byte.
pub(super) fn poison(mem: MemSlice, byte: u8) {
    let block = vec![byte; BLOCK.min(mem.len())];
    for at in (0..mem.len()).step_by(BLOCK) {
        let n = BLOCK.min(mem.len() - at);
        assert!(mem.fill(at as u64, &block[..n]), "inside by construction");
    }
}

/// Checks that memory still is what [`poison`] made it.
pub(super) fn check_poison(mem: MemSlice, byte: u8, when: &str) {
    let mut got = vec![0; BLOCK.min(mem.len())];
    let want = vec![byte; got.len()];
    for at in (0..mem.len()).step_by(BLOCK) {
        let n = BLOCK.min(mem.len() - at);
        assert!(mem.read(at as u64, &mut got[..n]), "inside by construction");
        if got[..n] != want[..n] {
            let i = got[..n].iter().position(|&b| b != byte).unwrap_or(0);
            panic!("byte {} of memory that was free changed to {:#04x} {when}", at + i, got[i]);
        }
    }
}

/// Bytes of a pattern made at a time.
const BLOCK: usize = 64 << 10;

/// Whole slices are copied and compared: builds without optimisation move megabytes too.
fn blocks(len: usize, seed: u64, mut each: impl FnMut(u64, &[u8])) {
    // 8 bytes less than 64 KiB, and turned a little further for each block, so that no two blocks of a message and no
    // two chunks of a round size are alike.
    let period = (BLOCK - 8).min(len);
    let mut rng = Rng::new(seed);
    let mut base = vec![0u8; period];
    for word in base.chunks_mut(8) {
        word.copy_from_slice(&rng.next().to_le_bytes()[..word.len()]);
    }
    let mut block = base.clone();
    let mut turn = 0;
    for at in (0..len).step_by(period.max(1)) {
        let n = period.min(len - at);
        block[..period - turn].copy_from_slice(&base[turn..]);
        block[period - turn..].copy_from_slice(&base[..turn]);
        each(at as u64, &block[..n]);
        turn = (turn + 31) % period;
    }
}

/// The rails of a connection, as slots.
pub(super) fn slots<R: Rail>(conn: &Conn<R>) -> Vec<usize> {
    conn.rails().map(|(slot, _)| slot).collect()
}
