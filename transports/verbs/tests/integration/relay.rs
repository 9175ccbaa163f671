//! Rails joined on hosts between: the suite of all transports, over one relay and over two, on a good wire and on a bad
//! one; and what a relay does when a side goes, or takes nothing.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::{Ends, config};
use linkspan_net::WaitSet;
use linkspan_transport::conformance::{Side, Testbed, Want, check_bytes, pattern};
use linkspan_transport::{Buf, Conn, Down, Head, Kind, MemSlice, Poll, Rail, Sink, StaticBuf, Violation};
use linkspan_verbs::{Config, Domain, RELAY_CHUNK, Relay, RelayCounts, Setup, VerbsRail, join};
use linkspan_verbs_sys::mock::MockNic;
use linkspan_verbs_sys::soft::{Faults, SoftConfig, SoftNet, SoftNic};

type R = VerbsRail<SoftNic>;
type Mock = MockNic<SoftNic>;

/// Number of an error that no queue gets over (errno(3)).
const EIO: i32 = 5;

/// Hosts in a line, every one with a device for each of its cables; those between relay, in threads of their own.
struct Line {
    net: SoftNet,
    /// Devices at the ends of each hop.
    hops: Vec<[Domain<SoftNic>; 2]>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
    chunks: Arc<AtomicU64>,
    ends: Ends,
}

impl Line {
    fn new(hops: u8) -> Line {
        let net = SoftNet::new(1);
        let domain = |hop, end| Domain::new(net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, hop, end), 1)));
        let hops = (0..hops).map(|hop| [domain(hop, 1), domain(hop, 2)]).collect();
        Line { net, hops, threads: Arc::default(), chunks: Arc::default(), ends: Ends::default() }
    }

    fn lossy(hops: u8) -> Line {
        let line = Line::new(hops);
        line.net.faults(Faults { loss: 2000, duplicate: 5000, late: 5000, delay: Duration::from_micros(200) });
        line
    }

    fn hop(&self, at: usize) -> (R, R) {
        let side = |d: &Domain<SoftNic>| {
            Setup::new(d.clone(), Config { chunk: RELAY_CHUNK, ..config() }).expect("a side of a hop")
        };
        let [a, b] = &self.hops[at];
        join(side(a), side(b)).expect("joined")
    }

    /// The ends, and what joins the hops.
    fn parts(&self) -> (R, Vec<Relay<SoftNic>>, R) {
        let (first, mut last) = self.hop(0);
        let mut relays = Vec::new();
        for at in 1..self.hops.len() {
            let (near, far) = self.hop(at);
            relays.push(Relay::new(last, near));
            last = far;
        }
        (first, relays, last)
    }

    fn rails(&self) -> (R, R) {
        let (a, relays, b) = self.parts();
        for mut relay in relays {
            let chunks = self.chunks.clone();
            let thread = std::thread::spawn(move || {
                let mut set = WaitSet::new();
                let mut told = 0;
                loop {
                    match relay.poll() {
                        Ok(Poll::Active) => {}
                        Ok(Poll::Idle) => {
                            set.clear();
                            relay.arm().into_iter().flatten().for_each(|fd| {
                                set.add(fd);
                            });
                            let _ = set.wait(Some(Duration::from_micros(500)));
                        }
                        Err(_) => return,
                    }
                    let now = relay.counts().chunks.iter().sum();
                    chunks.fetch_add(now - told, Ordering::Relaxed);
                    told = now;
                }
            });
            self.threads.lock().expect("no thread panics with it").push(thread);
        }
        (a, b)
    }
}

impl Testbed for Line {
    type R = VerbsRail<SoftNic>;

    fn rail(&mut self, _: Want, n: usize) -> (Self::R, Self::R) {
        let (a, b) = Line::rails(self);
        self.ends.made(n, &a, &b);
        (a, b)
    }

    fn rails(&self) -> usize {
        2
    }

    fn stall(&mut self, side: Side, n: usize) {
        self.ends.stall(&self.net, side, n);
    }

    fn release(&mut self) {
        self.net.release();
        self.net.run();
    }

    fn kill(&mut self, side: Side) {
        self.ends.kill(&self.net, side);
    }
}

mod one {
    use super::*;
    linkspan_transport::conformance_suite!(relay, Line::new(2));
}

mod two {
    use super::*;
    linkspan_transport::conformance_suite!(relays, Line::new(3));
}

mod bad {
    use super::*;
    linkspan_transport::conformance_suite!(lossy, Line::lossy(2));
}

/// Takes nothing and says nothing, or keeps what comes.
#[derive(Default)]
struct Bag {
    heads: Vec<Head>,
    chunks: Vec<Head>,
}

impl Sink for Bag {
    fn ctrl(&mut self, head: &Head, _: &[u8]) -> Result<(), Violation> {
        self.heads.push(*head);
        Ok(())
    }

    fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(None)
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        self.chunks.push(*head);
        Ok(())
    }
}

fn eager(n: u32, len: usize) -> Head {
    let mut head = Head::new(Kind::Eager);
    head.seq.set(n);
    head.len.set(len as u32);
    head
}

fn chunk(n: u32, len: usize) -> Head {
    let mut head = Head::new(Kind::Chunk);
    head.seq.set(n);
    head.id.set(n);
    head.len.set(len as u32);
    head.total.set(len as u64);
    head
}

/// Everything on the way of two ends that sleep and wake as they like.
struct Storm {
    ends: [R; 2],
    relays: Vec<Relay<SoftNic>>,
    small: StaticBuf,
    large: StaticBuf,
    /// Control messages and chunks that each end has sent.
    sent: [[u32; 2]; 2],
    /// What has come from each.
    bags: [Bag; 2],
}

impl Storm {
    fn send(&mut self, at: usize, chunks: bool) {
        let (rail, sent) = (&mut self.ends[at], &mut self.sent[at]);
        let small = rail.ctrl(&eager(sent[0], self.small.len()), self.small.slice()).is_ok();
        let large = chunks && rail.data(&chunk(sent[1], self.large.len()), self.large.slice()).is_ok();
        *sent = [sent[0] + u32::from(small), sent[1] + u32::from(large)];
        rail.flush().expect("up");
    }

    fn take(&mut self, at: usize) {
        self.ends[at].poll(&mut self.bags[1 - at]).expect("up");
        self.ends[at].flush().expect("up");
    }

    fn pass(&mut self) {
        for relay in &mut self.relays {
            relay.poll().expect("up");
        }
    }
}

/// Both ends send as much as they can, and each takes what comes only at times: everybody on the way stops, also with messages
/// waiting both ways. Nothing is lost, nothing changes places, and no direction waits for the other forever.
#[test]
fn ends_that_take_nothing_for_a_while_stop_their_peers_and_nothing_is_lost() {
    for (hops, seed) in [(2, 1u64), (2, 2), (3, 3), (4, 4)] {
        let line = Line::new(hops);
        let (a, relays, b) = line.parts();
        let (small, large) = (StaticBuf::new(1 << 10), StaticBuf::new(RELAY_CHUNK / 4));
        let mut storm =
            Storm { ends: [a, b], relays, small, large, sent: [[0; 2]; 2], bags: [Bag::default(), Bag::default()] };
        let mut random = seed;
        let mut most = 0;
        for phase in 0..12 {
            // Who takes in this phase: neither, one, the other, both.
            let takes = [phase & 1 != 0, phase & 2 != 0];
            let came = |storm: &Storm, at: usize| storm.bags[at].heads.len() as u32;
            for _ in 0..400 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                for (at, takes) in takes.into_iter().enumerate() {
                    if random >> (40 + at) & 1 == 0 {
                        storm.send(at, random >> 50 & 7 == 0);
                    }
                    if takes {
                        storm.take(at);
                    }
                    most = most.max(storm.sent[at][0] - came(&storm, at));
                }
                storm.pass();
            }
        }
        // Messages under way: the slots of each hop, and as many that wait in each relay.
        assert!(most > 64, "nothing ever waited: {most}");
        assert!(most <= 64 * (2 * u32::from(hops) - 1), "{most} messages under way over {hops} hops");
        let since = Instant::now();
        let left = |storm: &Storm| {
            let all = |at: usize| (storm.bags[at].heads.len() as u32, storm.bags[at].chunks.len() as u32);
            (0..2).any(|at| all(at) != (storm.sent[at][0], storm.sent[at][1]))
        };
        while left(&storm) {
            assert!(since.elapsed() < Duration::from_secs(30), "{hops} hops: stuck, sent {:?}", storm.sent);
            (0..2).for_each(|at| storm.take(at));
            storm.pass();
        }
        for (bag, sent) in storm.bags.iter().zip(storm.sent) {
            assert!(sent[0] > 300 && sent[1] > 30, "{sent:?}");
            assert!(bag.heads.iter().enumerate().all(|(n, head)| head.seq.get() == n as u32), "in order");
            assert!(bag.chunks.iter().enumerate().all(|(n, head)| head.seq.get() == n as u32), "in order");
        }
    }
}

/// The first chunk of a message leaves a relay before the last has come to it.
#[test]
fn chunks_cut_through() {
    let line = Line::new(2);
    let (a, mut relays, b) = line.parts();
    let (mut a, mut b) = (Conn::new([a], true), Conn::new([b], true));
    let len = 64 * RELAY_CHUNK;
    let (src, dst) = (pattern(len, 3), StaticBuf::new(len));
    let receive = b.post_recv(&[(1, dst.slice())]).expect("up").expect("transport");
    let (mut send, mut early) = (None, false);
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < Duration::from_secs(30));
        a.progress().expect("up");
        relays[0].poll().expect("up");
        b.progress().expect("up");
        send = send.or_else(|| a.post_send(1, src.slice()).expect("up"));
        // Far more than the relay has memory for is still with the sender when the first has come.
        let RelayCounts { chunks, .. } = relays[0].counts();
        let begin = |buf: &StaticBuf| {
            let mut bytes = [0; 64];
            assert!(buf.slice().read(0, &mut bytes));
            bytes
        };
        early |= chunks[0] < 32 && begin(&dst) == begin(&src);
        if b.test(receive).expect("up").is_some() {
            break;
        }
    }
    check_bytes(dst.slice(), 3);
    assert!(early, "the first chunk came with the last");
}

#[test]
fn no_memory_stays_registered_behind_a_relay() {
    let line = Line::new(2);
    let (a, relays, b) = line.parts();
    let registered = || line.hops.iter().flatten().map(Domain::kept).sum::<usize>();
    assert!(registered() >= 4, "both lanes on both devices of the relay");
    drop((a, b));
    drop(relays);
    assert_eq!(registered(), 0);
}

/// A chunk larger than a relay has memory for ends the rail by name, on the relay and so at the sender.
#[test]
fn a_chunk_too_large_ends_the_rail() {
    let line = Line::new(2);
    let (mut a, mut relays, _b) = line.parts();
    let big = StaticBuf::new(5 * RELAY_CHUNK);
    a.data(&chunk(0, big.len()), big.slice()).expect("transport");
    let since = Instant::now();
    let why = loop {
        assert!(since.elapsed() < Duration::from_secs(30));
        a.flush().expect("up");
        match relays[0].poll() {
            Ok(_) => {}
            Err(down) => break down,
        }
    };
    assert!(matches!(&why, Down::Protocol { why, .. } if why.contains("a relay takes")), "{why}");
    relays.clear();
    let since = Instant::now();
    while a.poll(&mut Bag::default()).is_ok() {
        assert!(since.elapsed() < Duration::from_secs(30), "the sender is not told");
        let _ = a.flush();
    }
}

/// Empty chunks need no memory, and of others of one byte a million would find space.
#[test]
fn the_smallest_chunks_wait_at_their_sender_too_where_the_next_host_takes_none() {
    for len in [0, 1] {
        let line = Line::new(2);
        let (mut a, mut relays, mut b) = line.parts();
        let (src, mut back, mut sent) = (StaticBuf::new(1), Bag::default(), 0);
        let mem = src.slice().sub(0, len).expect("inside");
        for _ in 0..4000 {
            sent += u32::from(a.data(&chunk(sent, len as usize), mem).is_ok());
            a.flush().and_then(|_| a.poll(&mut back)).expect("up");
            relays[0].poll().expect("up");
        }
        assert!((128..=256).contains(&sent), "{sent} chunks of {len} bytes taken");
        let (mut bag, since) = (Bag::default(), Instant::now());
        while bag.chunks.len() < sent as usize {
            assert!(since.elapsed() < Duration::from_secs(30), "stuck at {} of {sent}", bag.chunks.len());
            b.poll(&mut bag).and_then(|_| b.flush()).expect("up");
            a.flush().and_then(|_| a.poll(&mut back)).expect("up");
            relays[0].poll().expect("up");
        }
        assert!(bag.chunks.iter().enumerate().all(|(n, head)| head.seq.get() == n as u32), "in order");
    }
}

/// Two hops whose devices have scripts: the ends, the relay, and the device that it sends on to the second end from.
fn scripted() -> (VerbsRail<Mock>, Relay<Mock>, VerbsRail<Mock>, Domain<Mock>) {
    let net = SoftNet::new(1);
    let domain =
        |hop, end| Domain::new(MockNic::new(net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, hop, end), 1))));
    let side = |d: &Domain<Mock>| Setup::new(d.clone(), Config { chunk: RELAY_CHUNK, ..config() }).expect("a side");
    let ends = [domain(0, 1), domain(0, 2), domain(1, 1), domain(1, 2)];
    let hop = |a, b| join(side(a), side(b)).expect("joined");
    let ((a, before), (behind, b)) = (hop(&ends[0], &ends[1]), hop(&ends[2], &ends[3]));
    let [.., out, _] = ends;
    (a, Relay::new(before, behind), b, out)
}

fn ended(relay: &mut Relay<Mock>) -> Down {
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < Duration::from_secs(30));
        if let Err(down) = relay.poll() {
            return down;
        }
    }
}

/// What has come to an end when its relay is gone.
fn last_words(end: &mut VerbsRail<Mock>) -> Vec<u32> {
    let (since, mut bag) = (Instant::now(), Bag::default());
    while end.poll(&mut bag).is_ok() {
        assert!(since.elapsed() < Duration::from_secs(30), "it is not told");
        let _ = end.flush();
    }
    bag.heads.iter().map(|head| head.seq.get()).collect()
}

/// A request of the relay's own fails: what had come from there before is passed on, though nobody had read it yet. Nobody would
/// send an end's last words again.
#[test]
fn what_came_before_a_side_failed_is_passed_on() {
    let (mut a, mut relay, mut b, out) = scripted();
    let small = StaticBuf::new(1 << 10);
    // More than are read at a time.
    for n in 0..48 {
        b.ctrl(&eager(n, small.len()), small.slice()).expect("transport");
    }
    b.flush().expect("up");
    a.ctrl(&eager(0, small.len()), small.slice()).expect("transport");
    a.flush().expect("up");
    out.nic().script().partial = Some((u32::MAX, 0, EIO));
    let down = ended(&mut relay);
    assert!(matches!(&down, Down::System { call: "ibv_post_send", .. }), "{down:?}");
    drop(relay);
    assert_eq!(last_words(&mut a), (0..48).collect::<Vec<_>>());
}

/// Behind what could not be read nothing is passed on: it would be out of order.
#[test]
fn nothing_is_passed_on_behind_what_could_not_be_read() {
    let (mut a, mut relay, mut b, _) = scripted();
    let (small, big) = (StaticBuf::new(1 << 10), StaticBuf::new(5 * RELAY_CHUNK));
    b.data(&chunk(0, big.len()), big.slice()).expect("transport");
    b.flush().expect("up");
    for n in 0..48 {
        b.ctrl(&eager(n, small.len()), small.slice()).expect("transport");
    }
    b.flush().expect("up");
    let down = ended(&mut relay);
    assert!(matches!(&down, Down::Protocol { why, .. } if why.contains("a relay takes")), "{down:?}");
    drop(relay);
    assert_eq!(last_words(&mut a), Vec::<u32>::new());
}
