//! Streams that go over to RDMA on software NICs: two ends, and relays in threads as the mesh server starts them.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use linkspan_setup::handshake::{Handshake, HandshakeOutcome};
use linkspan_setup::stats;
use linkspan_stream::{Dial, Listen, Options};
use linkspan_transport::{Buf, Conn, Offer, Provider, Relayer, Role, Site, StaticBuf};
use linkspan_verbs::{Domain, Pairs, Rdma};
use linkspan_verbs_sys::soft::{Engine, SoftConfig, SoftNet, SoftNic};
use linkspan_verbs_sys::{Access, Mr, Nic, SendOp, SendWr};

use super::*;
use crate::Shared;
use crate::work::Work;

const SOON: Duration = Duration::from_secs(30);

fn streams() -> (Stream, Stream) {
    let mut listen = Listen::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let mut dial = Dial::start(None, listen.local_addr(), &Options::default(), SOON).unwrap();
    let (mut a, mut b) = (None, None);
    let since = Instant::now();
    while a.is_none() || b.is_none() {
        assert!(since.elapsed() < SOON);
        a = a.or_else(|| dial.poll().unwrap());
        b = b.or_else(|| listen.accept().unwrap().map(|b| b.0));
    }
    (a.unwrap(), b.unwrap())
}

/// Two ends and the relays between them, every hop with a NIC at each end.
struct RelayedPair {
    ends: [Secured; 2],
    candidates: [Pairs<SoftNic>; 2],
    /// What the first end sends to go over.
    mark: RelayMark,
    nics: Vec<SoftNic>,
    net: SoftNet,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    dir: PathBuf,
    _engine: Engine,
}

fn way(name: &str, relays: u8) -> RelayedPair {
    let dir = std::env::temp_dir().join(format!("linkspan-relay-{name}-{}", std::process::id()));
    let lo = linkspan_net::interface_of(Ipv4Addr::LOCALHOST.into(), 0).unwrap().unwrap().index;
    let net = SoftNet::new(1);
    let mut nics = Vec::new();
    let mut port = |hop: u8, end: u8| {
        let nic = net.nic(SoftConfig::roce(&format!("soft{hop}{end}"), Ipv4Addr::new(10, 0, hop, end), lo));
        nics.push(nic.clone());
        let mut rdma = Rdma::given(vec![nic]);
        rdma.configure(&|name| (name == "LINKSPAN_IB_TIMEOUT").then(|| "8".to_owned()), false).unwrap();
        rdma
    };
    let local = "127.0.0.1:1".parse().unwrap();
    let site = Site { local, plug: None, relayed: Some("a test"), forced: false, class: 0, limit: SOON };
    let first = port(0, 1).pairs(&site).unwrap();
    let stats = Arc::new(Stats::new(Some(&dir), "").unwrap());
    let (shared, mut threads) = (Shared::alone(1), Vec::new());
    let marks: Vec<RelayMark> = (0..relays).map(|_| RelayMark::random().unwrap()).collect();
    let (a, mut from) = streams();
    for n in 0..relays {
        let (on, next) = streams();
        let over = Over {
            candidates: [port(n, 2), port(n + 1, 1)].map(|rdma| rdma.hop(&site).unwrap()),
            provider: Arc::new(Rdma::<SoftNic>::given(Vec::new())),
            mark: marks[usize::from(n)],
            next: marks.get(usize::from(n) + 1).copied(),
        };
        let (relay_slot, stats) = (WorkSlot::take(&shared, Work::Relay).unwrap(), stats.clone());
        let asked = std::mem::replace(&mut from, next);
        threads.push(std::thread::spawn(move || run(asked, on, Some(over), &relay_slot, &stats, &Log::off())));
    }
    let ends = [Secured::new(a, None), Secured::new(from, None)];
    let last = port(relays, 2).pairs(&site).unwrap();
    let engine = net.engine();
    let (candidates, mark) = ([first, last], marks[0]);
    RelayedPair { ends, candidates, mark, nics, net, shared, threads, dir, _engine: engine }
}

impl Drop for RelayedPair {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn until(mut done: impl FnMut() -> bool, what: &str) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < SOON, "{what}: not within {SOON:?}");
    }
}

impl RelayedPair {
    /// Sends bytes through the stream and sees them come, whole and alone.
    fn passes(&mut self, from: usize, bytes: &[u8]) {
        let [a, b] = &mut self.ends;
        let (from, to) = if from == 0 { (a, b) } else { (b, a) };
        let (mut sent, mut got) = (0, Vec::new());
        let mut part = vec![0; 4096];
        until(
            || {
                if let Some(n) = from.stream.try_write(&bytes[sent..]).unwrap() {
                    sent += n;
                }
                if let Some(n) = to.stream.try_read(&mut part).unwrap() {
                    got.extend_from_slice(&part[..n]);
                }
                got.len() >= bytes.len()
            },
            "bytes",
        );
        assert!(got == bytes, "{} bytes came, not the {} that were sent", got.len(), bytes.len());
    }

    /// What a login is, then the mark, then the handshakes of both ends.
    fn cross(&mut self, last: bool) -> [HandshakeOutcome; 2] {
        self.passes(0, &[3; 300]);
        self.passes(1, &[4; 200]);
        self.passes(0, &[5; 77]);
        assert_eq!(self.ends[0].stream.try_write(&self.mark.0).unwrap(), Some(RelayMark::LEN));
        let mut handshakes = [Handshake::answer(), Handshake::answer()];
        let mut mets = [None, None];
        let candidates = &self.candidates;
        until(
            || {
                for n in 0..2 {
                    let make = |count| match n == 0 || last {
                        true => candidates[n].make(count, Role::Caller),
                        false => Err("it has none".into()),
                    };
                    if mets[n].is_none() {
                        mets[n] = handshakes[n].poll(&mut self.ends[n], &make).unwrap();
                    }
                }
                mets.iter().all(Option::is_some)
            },
            "the handshakes",
        );
        mets.map(Option::unwrap)
    }

    fn conns(&mut self) -> [Conn; 2] {
        self.cross(true).map(|met| {
            let rails = met.unwrap();
            assert!(rails.len() == 1 && rails[0].info().transport == "verbs", "{rails:?}");
            Conn::new(rails, true)
        })
    }

    /// Bytes that the relays say they have passed on, as a stream and by RDMA.
    fn told(&self) -> [u64; 2] {
        let records = stats::read(&self.dir).unwrap().into_iter().flat_map(|p| p.records);
        let sum = |transport: &str| {
            let of = records.clone().filter(|r| r.transport == transport);
            of.map(|r| r.counters[Counter::TxBytes as usize] + r.counters[Counter::RxBytes as usize]).sum()
        };
        ["relay", "rdma-hop"].map(sum)
    }
}

/// One message; what went wrong otherwise.
fn message(from: &mut Conn, to: &mut Conn, len: usize, seed: u8) -> Result<(), String> {
    let (src, dst) = (StaticBuf::new(len), StaticBuf::new(len));
    let pattern: Vec<u8> = (0..len).map(|i| (i * 13) as u8 ^ seed).collect();
    assert!(src.slice().fill(0, &pattern));
    let receive = to.post_recv(&[(1, dst.slice())]).map_err(|e| e.to_string())?.ok_or("busy")?;
    let (mut send, mut sent, mut got) = (None, false, false);
    let since = Instant::now();
    while !sent || !got {
        if since.elapsed() > SOON {
            return Err("not done".into());
        }
        from.progress().map_err(|e| e.to_string())?;
        to.progress().map_err(|e| e.to_string())?;
        match send {
            None => send = from.post_send(1, src.slice()).map_err(|e| e.to_string())?,
            Some(ticket) => sent = sent || from.test(ticket).map_err(|e| e.to_string())?.is_some(),
        }
        got = got || to.test(receive).map_err(|e| e.to_string())?.is_some();
    }
    assert!(dst.slice().to_vec() == pattern, "{len} bytes differ");
    Ok(())
}

#[test]
fn a_stream_goes_over_to_rdma_on_every_hop() {
    for relays in [1, 2, 4] {
        let mut way = way(&format!("cross{relays}"), relays);
        let [mut a, mut b] = way.conns();
        let mut payload = 0;
        for (n, len) in [0, 1, 8192, 8193, RELAYED, 3 << 20].into_iter().enumerate() {
            message(&mut a, &mut b, len, n as u8).unwrap();
            message(&mut b, &mut a, len, 99).unwrap();
            payload += 2 * len as u64;
        }
        // The stream still carries: plans, and what is on standby.
        way.passes(0, &[8; 100_000]);
        way.passes(1, &[9; 100_000]);
        drop((a, b));
        // Counters are told twice a second.
        let hops = u64::from(relays);
        until(|| way.told()[1] >= payload * hops && way.told()[0] >= 200_000 * hops, "the counters");
        let [stream, rdma] = way.told();
        assert!(stream < 210_000 * hops, "{stream} bytes went through the stream");
        assert!(rdma < (payload + 100_000) * hops, "{rdma} bytes by RDMA for {payload} of payload");
    }
}

const RELAYED: usize = linkspan_verbs::RELAY_CHUNK + 1;

#[test]
fn a_hop_without_a_device_leaves_the_stream() {
    for relays in [1, 2] {
        let mut way = way(&format!("none{relays}"), relays);
        let [a, b] = way.cross(false);
        let (a, b) = (a.err().unwrap(), b.err().unwrap());
        assert!(a.contains("the peer says") && a.contains("it has none") && b.contains("it has none"), "{a} | {b}");
        way.passes(0, &[8; 300_000]);
        way.passes(1, &[9; 300_000]);
        let before = way.net.packets();
        way.passes(0, &[8; 300_000]);
        assert_eq!(way.net.packets(), before, "nothing goes through the cards");
    }
}

#[test]
fn bytes_that_are_no_mark_pass() {
    let mut way = way("pass", 1);
    let mark = way.mark.0;
    // Beginnings of it, and pieces of it in the middle.
    for n in [1, 2, 3] {
        way.passes(0, &mark[..n]);
    }
    way.passes(0, &[&mark[..15], &[!mark[15]]].concat());
    way.passes(0, &mark[1..]);
    way.passes(1, &mark);
    let mut random = vec![0; 1 << 20];
    getrandom::fill(&mut random).unwrap();
    way.passes(0, &random);
    // So late it is none any more.
    way.passes(0, &mark);
}

#[test]
fn what_begins_like_the_mark_wakes_the_relay_no_more_than_it_may_pass_and_passes_when_nothing_follows() {
    let mark = RelayMark::random().unwrap();
    let mut pipe = Pipe::new(Some(mark));
    pipe.buf[..9].copy_from_slice(&[&[1; 4], &mark.0[..5]].concat());
    pipe.end = 9;
    assert!(pipe.passes());
    pipe.start = 4;
    assert!(!pipe.passes(), "a socket that can be written would wake it at once, again and again");
    let read = pipe.read;
    pipe.give_up(read + HELD - Duration::from_millis(1));
    assert!(!pipe.passes());
    pipe.give_up(read + HELD);
    assert!(pipe.passes());

    let mut way = way("held", 1);
    let part = way.mark.0[..5].to_vec();
    way.passes(0, &part);
    way.passes(0, &[7; 1000]);
}

/// What is told of a rail that ends, on the other side.
fn lost(conn: &mut Conn) -> String {
    let mut why = None;
    until(
        || {
            if let Err(error) = conn.progress() {
                why = Some(error.to_string());
            }
            why = why.take().or_else(|| conn.lost().map(|e| e.to_string()));
            why.is_some()
        },
        "the end",
    );
    why.unwrap_or_default()
}

#[test]
fn an_end_that_goes_is_told_to_the_other() {
    for relays in [1, 2] {
        let mut way = way(&format!("end{relays}"), relays);
        let [mut a, mut b] = way.conns();
        message(&mut a, &mut b, 1 << 20, 1).unwrap();
        drop(b);
        let _ = lost(&mut a);
        way.passes(0, &[8; 1000]);
    }
}

#[test]
fn a_relay_that_ends_is_told_to_both_ends() {
    let mut way = way("killed", 1);
    let [mut a, mut b] = way.conns();
    message(&mut a, &mut b, 1 << 20, 1).unwrap();
    way.shared.stop.store(true, Ordering::Relaxed);
    let _ = (lost(&mut a), lost(&mut b));
}

/// The cable between a relay and the far end is pulled while bytes move.
#[test]
fn a_far_cable_that_is_cut_is_told_to_the_near_end() {
    let mut way = way("cut", 1);
    let [mut a, mut b] = way.conns();
    message(&mut a, &mut b, 1 << 20, 1).unwrap();
    let far = way.nics.last().unwrap().clone();
    way.net.cable(&far, false);
    assert!(message(&mut a, &mut b, 4 << 20, 2).is_err());
    let _ = lost(&mut a);
}

/// The host before a relay knows a key of the relay's own job, and writes by it through the queue pair that it has there.
#[test]
fn a_relayed_stranger_reaches_nothing_of_the_jobs_on_the_host_between() {
    for stranger in [0, 3] {
        let mut way = way(&format!("stranger{stranger}"), 1);
        let [mut a, mut b] = way.conns();
        message(&mut a, &mut b, 1 << 20, 1).unwrap();
        let (from, job) = (&way.nics[stranger], &way.nics[if stranger == 0 { 1 } else { 2 }]);
        let [theirs, ours] = [(); 2].map(|()| StaticBuf::new(4096));
        assert!(theirs.slice().fill(0, &[0x5a; 4096]));
        let bytes = from.register(theirs.slice(), Access::LOCAL_READ).unwrap();
        let domain = Domain::new(job.clone());
        let _held = domain.hold(ours.slice(), true).unwrap();
        let addr = ours.slice().as_ptr() as u64;
        let key = job.targets().into_iter().find(|keys| keys.covers(addr, 4096)).unwrap();
        let op = SendOp::Write { addr, rkey: key.rkey() };
        let qpn = SoftConfig::roce("", Ipv4Addr::LOCALHOST, 1).first_qpn;
        way.net.forge(from, qpn, SendWr::new(0, op, bytes.keys().sge(bytes.keys().addr(), 4096))).unwrap();
        let end = if stranger == 0 { &mut a } else { &mut b };
        let landed = || ours.slice().to_vec() != [0; 4096];
        // What is refused ends the queue pair.
        until(|| landed() || end.progress().is_err() || end.lost().is_some(), "the end of the write");
        assert!(!landed());
    }
}
