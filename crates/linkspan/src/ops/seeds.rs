//! One-sided operations under seeded faults: paths that stall, end or are revoked in the middle of anything and are made again, and
//! operations that the peer refuses. Checked: no notification is lost, doubled, early or out of order, and none of a refused write comes;
//! what is refused says so and is never done; once an operation has reported, no byte of its local memory changes; once a timeout has
//! reported, no byte of it lands at the target any more; what was dropped brings no bytes that its memory held later.
//!
//! `SEEDS=10000 cargo test --release -p linkspan seeds` runs that many; `SEED=17` runs one.

use std::time::{Duration, Instant};

use linkspan_fabric::{Access, Poll};
use linkspan_sim::{End, Fault, LinkConfig, Rng, SimRail, World};
use linkspan_transport::{Conn, Down, StaticBuf};

use super::*;
use crate::memory::Memory;

const MS: u64 = 1_000_000;
const SHOWN: usize = 130_000;
const MAX_ROUNDS: u32 = 100_000;

const WRITE_KEY: u32 = 1 << 12;
const READ_KEY: u32 = 1 << 12 | 1;

impl Path for Conn<SimRail> {
    fn post_write(&mut self, src: MemSlice, to: RemoteSlice, notify: Option<u64>) -> Posted {
        Conn::post_write(self, src, to, notify)
    }

    fn post_read(&mut self, dst: MemSlice, from: RemoteSlice) -> Posted {
        Conn::post_read(self, dst, from)
    }

    fn copy_alone(&mut self, mem: MemSlice, place: RemoteSlice, write: bool) -> bool {
        Conn::copy_alone(self, mem, place, write)
    }

    fn post_send(&mut self, tag: u32, src: MemSlice) -> Posted {
        Conn::post_send(self, tag, src)
    }

    fn post_recv(&mut self, tag: u32, dst: MemSlice) -> Posted {
        Conn::post_recv(self, &[(tag, dst)])
    }

    fn cancel(&mut self, ticket: Ticket) -> Cancel {
        Conn::cancel(self, ticket)
    }

    fn test(&mut self, ticket: Ticket) -> Result<Option<u64>, ChannelError> {
        Conn::test(self, ticket)
    }

    fn late_error(&mut self) -> Option<OpError> {
        Conn::late_error(self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End1 {
    Open,
    Done,
    TimedOut,
    Dropped,
    Refused,
}

/// One operation as the model knows it. Its number is its notification's value.
struct Known {
    id: OpId,
    read: bool,
    /// A piece of it goes where the peer allows none.
    refused: bool,
    notify: Option<Notify>,
    /// Pieces of local memory, one behind the other at `at` of the target.
    pieces: Vec<Memory>,
    at: usize,
    len: usize,
    heard: bool,
    end: End1,
}

#[derive(Default)]
struct Met {
    revoked: u64,
    lost: u64,
    timed_out: u64,
    done: u64,
    dropped: u64,
    refused: u64,
    late_success: u64,
}

struct Run {
    rng: Rng,
    world: World,
    base: Instant,
    ops: Ops,
    known: Vec<Known>,
    target: StaticBuf,
    used: usize,
    shown: StaticBuf,
    a: Option<Conn<SimRail>>,
    b: Conn<SimRail>,
    /// Rounds until the path is made again.
    remake_in: u32,
    last_heard: Option<u64>,
    met: Met,
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(seed | 1) >> 3) as u8 ^ seed as u8).collect()
}

fn link(rng: &mut Rng) -> LinkConfig {
    LinkConfig {
        ordered: !rng.one_in(3),
        chunk: *rng.choose(&[4096usize, 16 << 10, 64 << 10]),
        queue: *rng.choose(&[1, 2, 4, 16]),
        buffer: *rng.choose(&[1000usize, 9000, 64 << 10]),
        segment: *rng.choose(&[333usize, 1500, 9000]),
        budget: *rng.choose(&[700usize, 5000, 40_000]),
        latency: rng.within(500, 200_000),
        jitter: *rng.choose(&[0, 1000, 300_000]),
        speed: *rng.choose(&[50_000_000, 1_250_000_000]),
    }
}

fn path(world: &World, rng: &mut Rng, target: &StaticBuf, shown: &StaticBuf) -> (Conn<SimRail>, Conn<SimRail>) {
    let n = if rng.one_in(3) { 2 } else { 1 };
    let (left, right): (Vec<_>, Vec<_>) = (0..n).map(|_| world.link(link(rng))).unzip();
    let (a, mut b) = (Conn::new(left, true), Conn::new(right, true));
    assert!(b.expose_at(WRITE_KEY, target.slice(), Access::Write));
    assert!(b.expose_at(READ_KEY, shown.slice(), Access::Read));
    (a, b)
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Rng::new(seed);
        let world = World::new(seed ^ 0x33);
        let (target, shown) = (StaticBuf::new(4 << 20), StaticBuf::new(SHOWN));
        assert!(shown.slice().fill(0, &bytes(SHOWN, 5)));
        let (a, b) = path(&world, &mut rng, &target, &shown);
        Run {
            rng,
            world,
            base: Instant::now(),
            ops: Ops::default(),
            known: Vec::new(),
            target,
            used: 0,
            shown,
            a: Some(a),
            b,
            remake_in: 0,
            last_heard: None,
            met: Met::default(),
        }
    }

    fn now(&self) -> Instant {
        self.base + Duration::from_nanos(self.world.now())
    }

    fn begin(&mut self) {
        let rng = &mut self.rng;
        let timeout = rng.one_in(3).then(|| Duration::from_nanos(rng.below(40 * MS)));
        let read = rng.one_in(4);
        let count = if rng.one_in(4) { rng.within(2, 6) as usize } else { 1 };
        let lens: Vec<usize> = (0..count).map(|_| *rng.choose(&[0, 8, 3000, 8192, 8193, 20_000, 9000])).collect();
        let fence = rng.one_in(4).then_some(true);
        let fence = (!read && !rng.one_in(3)).then_some(fence.is_some());
        let refused = rng.one_in(5).then(|| rng.below(count as u64) as usize);
        self.post(read, &lens, fence, timeout, refused);
    }

    /// Posts an operation of pieces of these lengths; with `fence` it notifies. Piece `refused` goes where the peer allows none.
    fn post(
        &mut self,
        read: bool,
        lens: &[usize],
        fence: Option<bool>,
        timeout: Option<Duration>,
        refused: Option<usize>,
    ) {
        let number = self.known.len() as u64;
        let len: usize = lens.iter().sum();
        let notify = fence.map(|fence| Notify { value: number, fence });
        let at = if read { 0 } else { self.used };
        let content = if read { vec![0; len] } else { bytes(len, number) };
        let (mut pieces, mut begin) = (Vec::new(), 0);
        let id = self.ops.start_within(if read { Kind::Read } else { Kind::Write }, notify, timeout);
        let mut parts = Vec::new();
        for (n, &len) in lens.iter().enumerate() {
            let memory = Memory::copy_of(&content[begin..begin + len]);
            let key = if read == (refused == Some(n)) { WRITE_KEY } else { READ_KEY };
            let offset = if refused == Some(n) { 0 } else { (at + begin) as u64 };
            let remote = RemoteSlice { key, offset };
            parts.push((Part { local: memory.view().raw(), remote }, memory.view().hold()));
            pieces.push(memory);
            begin += len;
        }
        self.ops.parts(id, parts.into_iter());
        self.ops.submit(id);
        self.used += if read { 0 } else { len };
        assert!(self.used <= self.target.len(), "the model's target is too small");
        let refused = refused.is_some();
        self.known.push(Known { id, read, refused, notify, pieces, at, len, heard: false, end: End1::Open });
        if let Some(a) = &mut self.a {
            self.ops.pump(a);
        }
    }

    fn there(&self, known: &Known) -> Vec<u8> {
        self.target.slice().sub(known.at as u64, known.len as u64).expect("inside").to_vec()
    }

    fn hear(&mut self) {
        while let Some(value) = self.b.take_notify() {
            let number = value as usize;
            assert!(
                self.last_heard.is_none_or(|last| last < value),
                "notification {value} after {:?}",
                self.last_heard
            );
            self.last_heard = Some(value);
            let known = &self.known[number];
            assert!(!known.heard && known.end != End1::TimedOut, "notification {value} of a write that timed out");
            assert!(!known.refused, "notification {value} of a refused write");
            assert!(self.there(known) == bytes(known.len, value), "{value} is early");
            if known.notify.is_some_and(|n| n.fence) {
                for (n, earlier) in self.known[..number].iter().enumerate().filter(|(_, k)| !k.read) {
                    // One that timed out later, or now, may have been passed over: it was ended, not done.
                    let over = matches!(earlier.end, End1::TimedOut | End1::Dropped)
                        || earlier.refused
                        || self.ops.is_expired(earlier.id);
                    assert!(over || self.there(earlier) == bytes(earlier.len, n as u64), "{value} passed {n}");
                }
            }
            self.known[number].heard = true;
        }
    }

    /// Takes reports; what has reported is poisoned, so that a late byte shows.
    fn take(&mut self) {
        for n in 0..self.known.len() {
            if self.known[n].end != End1::Open {
                continue;
            }
            let touched = self.ops.is_touched(self.known[n].id);
            let Some((result, _)) = self.ops.take(self.known[n].id) else { continue };
            let known = &self.known[n];
            let end = match result {
                Ok(count) => {
                    assert_eq!(count, known.len as u64, "bytes of {n}");
                    assert!(!known.refused, "{n} is done although the peer has refused it");
                    if known.read {
                        let got: Vec<u8> = known.pieces.iter().flat_map(Memory::to_vec).collect();
                        assert!(got == bytes(SHOWN, 5)[..known.len], "read {n} brought other bytes");
                    } else {
                        assert!(self.there(known) == bytes(known.len, n as u64), "write {n} is not there");
                    }
                    self.met.done += 1;
                    End1::Done
                }
                Err(Fail::Timeout) => {
                    assert!(!known.heard, "{n} has notified and timed out");
                    assert!(self.a.is_some() || !touched, "{n} timed out before the peer has confirmed");
                    self.met.timed_out += 1;
                    let place = self.target.slice().sub(known.at as u64, known.len as u64).expect("inside");
                    assert!(known.read || place.fill(0, &vec![0xEE; known.len]));
                    End1::TimedOut
                }
                Err(Fail::Op(OpError::RemoteAccess { .. })) if known.refused => {
                    self.met.refused += 1;
                    End1::Refused
                }
                other => panic!("operation {n}: {other:?}"),
            };
            for piece in known.pieces.iter() {
                piece.fill(0, &vec![0xDD; piece.len()]).expect("inside");
            }
            self.known[n].end = end;
        }
    }

    /// Ends the path on the writer's side.
    fn cut(&mut self) {
        let Some(mut a) = self.a.take() else { return };
        let _ = a.progress();
        self.ops.reap(&mut a);
        self.ops.withdraw_all(&mut a);
        a.fail(Down::PeerGone { path: String::new(), why: "cut".into() });
        self.remake_in = 1 + self.rng.below(30) as u32;
    }

    /// The target drops the old path, tells what it has seen of it, and a new one begins.
    fn remake(&mut self) {
        let _ = self.b.progress();
        self.hear();
        let (seen, refused) = (self.b.notifies_seen(), self.b.notifies_refused());
        let (mut a, b) = path(&self.world, &mut self.rng, &self.target, &self.shown);
        // The drop of the old one comes first: from here on nothing of it lands.
        self.b = b;
        let before: Vec<bool> = self.known.iter().map(|k| self.ops.is_expired(k.id)).collect();
        self.ops.relink(seen, &refused);
        let late = before.iter().zip(&self.known).filter(|(was, k)| **was && k.heard).count();
        self.met.late_success += late as u64;
        self.ops.pump(&mut a);
        self.a = Some(a);
    }

    fn drop_one(&mut self) {
        let open: Vec<usize> = (0..self.known.len()).filter(|&n| self.known[n].end == End1::Open).collect();
        if open.is_empty() {
            return;
        }
        let n = *self.rng.choose(&open);
        let id = self.known[n].id;
        if self.ops.is_reported(id) {
            return;
        }
        let (_, in_use) = self.ops.forget(id, self.a.as_mut());
        if in_use {
            self.cut();
            self.ops.drop_now(id);
        }
        self.met.dropped += 1;
        self.known[n].end = End1::Dropped;
        for piece in self.known[n].pieces.iter() {
            piece.fill(0, &vec![0xDD; piece.len()]).expect("inside");
        }
    }

    fn trouble(&mut self) {
        let links = self.world.links();
        let id = self.world.link_id(links - 1);
        let to = *self.rng.choose(&[End::A, End::B]);
        let fault = match self.rng.below(4) {
            0 => Fault::Stall { to, after: self.rng.below(30_000), time: Some(self.rng.below(60 * MS)) },
            1 => Fault::Storm { at: to, time: self.rng.below(20 * MS) },
            2 => Fault::Delay { time: self.rng.below(10 * MS) },
            _ => Fault::Cut { a: Some(self.rng.below(5 * MS)), b: Some(self.rng.below(5 * MS)) },
        };
        self.world.plant(id, fault);
    }

    fn go(mut self) -> Met {
        let total = self.rng.within(5, 40) as usize;
        self.until_over(total, None);
        self.finish()
    }

    /// Lets `total` operations come to their end, those that are not posted yet and faults at random. With `cut_at` the path is cut
    /// before that round, and nothing else goes wrong. Rounds that it took.
    fn until_over(&mut self, total: usize, cut_at: Option<u32>) -> u32 {
        for round in 0..MAX_ROUNDS {
            if cut_at == Some(round) {
                self.cut();
            }
            if self.known.len() < total && self.rng.one_in(4) {
                self.begin();
            }
            if self.known.len() < total {
                match self.rng.below(120) {
                    0 => self.trouble(),
                    1 => self.drop_one(),
                    _ => {}
                }
            }
            let mut active = false;
            if let Some(a) = &mut self.a {
                match a.progress() {
                    Ok(Poll::Active) => {
                        active = true;
                        self.ops.reap(a);
                        self.ops.pump(a);
                    }
                    Ok(Poll::Idle) => self.ops.pump(a),
                    Err(ChannelError::Op(_)) => active = true,
                    Err(_) => {
                        self.met.lost += 1;
                        self.cut();
                    }
                }
            } else if self.remake_in > 0 {
                self.remake_in -= 1;
                if self.remake_in == 0 {
                    self.remake();
                }
            }
            if matches!(self.b.progress(), Ok(Poll::Active)) {
                active = true;
            }
            self.hear();
            if self.ops.expire(self.now(), self.a.as_mut()) && self.a.is_some() {
                self.met.revoked += 1;
                self.cut();
            }
            self.take();
            let _ = std::mem::take(&mut self.ops.left);
            let notified = |k: &Known| k.end != End1::Done || k.notify.is_none() || k.heard;
            let over = self.known.len() == total && self.known.iter().all(|k| k.end != End1::Open && notified(k));
            if over {
                return round;
            }
            if !active && !self.world.pass() && round % 16 == 0 {
                self.world.advance(MS);
            }
        }
        let open = self.known.iter().filter(|k| k.end == End1::Open).count();
        let (a, b) = (self.a.as_ref().map(|a| (a.moving(), a.lost().is_some())), self.b.lost().map(|l| l.to_string()));
        panic!("hung with {open} operations open; path of the writer (under way, lost) {a:?}; target lost: {b:?}");
    }

    fn finish(mut self) -> Met {
        // Whatever is still under way may come, and must change nothing.
        for _ in 0..200 {
            if let Some(a) = &mut self.a {
                let _ = a.progress();
            }
            let _ = self.b.progress();
            self.hear();
            self.world.advance(MS);
        }
        for (n, known) in self.known.iter().enumerate() {
            let local = known.pieces.iter().flat_map(Memory::to_vec);
            assert!(local.into_iter().all(|b| b == 0xDD), "memory of {n} has changed after its report");
            match known.end {
                End1::TimedOut if !known.read => {
                    assert!(self.there(known).iter().all(|&b| b == 0xEE), "bytes of {n} landed after its timeout");
                }
                End1::Done if !known.read => {
                    assert!(self.there(known) == bytes(known.len, n as u64), "write {n} has changed");
                }
                // Some of it may have come, and nothing that its memory held later.
                End1::Dropped if !known.read => {
                    let there = self.there(known).into_iter().zip(bytes(known.len, n as u64));
                    assert!(
                        there.into_iter().all(|(b, own)| b == own || b == 0),
                        "{n} brought bytes of after its drop"
                    );
                }
                _ => {}
            }
        }
        self.met
    }
}

#[test]
fn no_notification_is_lost_or_early_and_no_byte_late() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seeds = match number("SEED") {
        Some(one) => one..one + 1,
        None => 0..number("SEEDS").unwrap_or(100),
    };
    let many = seeds.end - seeds.start > 1;
    let mut sum = Met::default();
    for seed in seeds {
        let met = std::panic::catch_unwind(|| Run::new(seed).go());
        let met = met.unwrap_or_else(|_| panic!("again with: SEED={seed} cargo test -p linkspan seeds"));
        sum.revoked += met.revoked;
        sum.lost += met.lost;
        sum.timed_out += met.timed_out;
        sum.done += met.done;
        sum.dropped += met.dropped;
        sum.refused += met.refused;
        sum.late_success += met.late_success;
    }
    let Met { revoked, lost, timed_out, done, dropped, refused, late_success } = sum;
    println!(
        "{done} done, {timed_out} timed out, {dropped} dropped, {refused} refused, {late_success} done although late; {revoked} paths revoked, {lost} lost"
    );
    if many {
        assert!(
            [revoked, lost, timed_out, done, dropped, refused].iter().all(|&n| n > 10),
            "some faults hardly happened"
        );
    }
}

/// The peer has seen the notifications and refused some of their writes, and its refusals may be lost with the path.
#[test]
fn a_refused_write_is_never_done_whenever_its_path_is_lost() {
    for seed in 0..3 {
        // The first one knows how many rounds there are. Slow rails have thousands.
        let rounds = refused_and_cut(seed, 0);
        for cut_at in (1..=rounds).step_by(1 + rounds as usize / 100) {
            refused_and_cut(seed, cut_at);
        }
    }
}

/// Writes of which some are refused, over rails of this seed, with the path cut before a round. Rounds that it took.
fn refused_and_cut(seed: u64, cut_at: u32) -> u32 {
    let mut run = Run::new(seed);
    let batch = [8, 20_000, 8];
    for (lens, refused) in [
        (&[100][..], None),
        (&[100], Some(0)),
        (&[8], None),
        (&[20_000], None),
        // Behind the notification of a large write these follow in messages of their own.
        (&[100], Some(0)),
        (&[20_000], Some(0)),
        (&[0], None),
        (&batch, Some(2)),
        (&batch, Some(1)),
        (&batch, None),
        (&[8], Some(0)),
    ] {
        run.post(false, lens, Some(false), None, refused);
    }
    let total = run.known.len();
    let took = run.until_over(total, Some(cut_at));
    for (n, known) in run.known.iter().enumerate() {
        let end = if known.refused { End1::Refused } else { End1::Done };
        assert_eq!(
            (known.end, known.heard),
            (end, !known.refused),
            "write {n}, seed {seed}, cut before round {cut_at}"
        );
    }
    run.finish();
    took
}
