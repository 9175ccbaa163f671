//! Connections over Thunderbolt and USB4 cables, between hosts that are fabrics with cables in software.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_fabric::{Buf, Channel, Config, DirectBy, Error, Fabric, Gpu, Log, MemSlice, wait_any};
use linkspan_gpu::conformance::StaticGpuBuf;
use linkspan_gpu::{SimConfig, SimGpu};
use linkspan_thunderbolt::Cables;
use linkspan_thunderbolt::soft::{SoftRingLink, SoftStreamLink};
use linkspan_thunderbolt::{Cable, CableAddress, Ports, Tier};
use linkspan_transport::{Offer, Provider, Site, StaticBuf};

type Env = &'static [(&'static str, &'static str)];

struct World {
    ring: Option<SoftRingLink>,
    /// A second cable between the same hosts.
    second: Option<SoftRingLink>,
    streams: Vec<SoftStreamLink>,
    fabrics: Vec<Fabric>,
    lines: [Arc<Mutex<Vec<String>>>; 2],
}

fn config(extra: Env) -> Config {
    let base = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off")];
    Config::read(&|name| base.iter().chain(extra).rev().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap()
}

const HOSTS: [[u8; 16]; 2] = [[0xaa; 16], [0xbb; 16]];

/// Two hosts on one cable; `peers`: whom each believes to be at its other end.
fn world(ring: bool, streams: usize, envs: [Env; 2], acked: bool, peers: [[u8; 16]; 2]) -> World {
    let ring = ring.then(SoftRingLink::new);
    let streams: Vec<_> = (0..streams).map(|_| SoftStreamLink::new(256).unwrap()).collect();
    let lines = [(), ()].map(|()| Arc::new(Mutex::new(Vec::new())));
    let fabrics = [0, 1].map(|n| {
        let said = lines[n].clone();
        let log = Log::to(move |level, line| said.lock().unwrap().push(format!("{level:?} {line}")));
        let base = Cable {
            tier: Tier::Ring,
            name: format!("soft{n}"),
            link: "0-1".into(),
            local: HOSTS[n],
            peer: peers[n],
            hops: (0, 0),
            ring: 0,
            speed: 5_000_000_000,
            place: CableAddress::ring("/none"),
        };
        let mut ports = Ports { plugged: true, ..Ports::default() };
        if let Some(link) = &ring {
            ports.cables.push(Cable { place: link.address(n), ..base.clone() });
        } else {
            ports.why_not.push((Tier::Ring, "no /dev/linkspan here".into()));
        }
        for (i, link) in streams.iter().enumerate() {
            let hops = [8 + 2 * i as u16, 9 + 2 * i as u16];
            let hops = (hops[n], hops[1 - n]);
            let place = link.address(n);
            ports.cables.push(Cable { tier: Tier::Stream, hops, ring: 256, place, ..base.clone() });
        }
        Fabric::apart(config(envs[n]), log, acked, vec![Box::new(Cables::given(ports.shared()))]).unwrap()
    });
    World { ring, second: None, streams, fabrics: fabrics.into(), lines }
}

fn joined(ring: bool, streams: usize, envs: [Env; 2], acked: bool) -> World {
    world(ring, streams, envs, acked, [HOSTS[1], HOSTS[0]])
}

impl World {
    fn connect(&self) -> (Result<Channel, Error>, Result<Channel, Error>) {
        let listener = self.fabrics[1].listen(0).unwrap();
        let mut connecting = self.fabrics[0].connect(0, &listener.handle()).unwrap();
        let (mut here, mut there) = (None, None);
        let until = Instant::now() + Duration::from_secs(60);
        while here.is_none() || there.is_none() {
            assert!(Instant::now() < until, "neither up nor refused");
            if here.is_none() {
                here = connecting.poll().transpose();
            }
            if there.is_none() {
                there = listener.accept().transpose();
            }
            if let Some(Err(_)) = &here {
                break;
            }
        }
        let none = || Err(Error::NoDevice { index: 9, count: 0 });
        (here.unwrap_or_else(none), there.unwrap_or_else(none))
    }

    fn pair(&self) -> (Channel, Channel) {
        let (a, b) = self.connect();
        (a.unwrap(), b.unwrap())
    }

    /// How many lines of one side say so.
    fn count(&self, n: usize, what: &str) -> usize {
        self.lines[n].lock().unwrap().iter().filter(|line| line.contains(what)).count()
    }

    fn all(&self, n: usize) -> String {
        self.lines[n].lock().unwrap().join("\n")
    }
}

fn message(a: &mut Channel, b: &mut Channel, len: usize, seed: u8) -> Result<(), String> {
    let (src, dst) = (StaticBuf::new(len), StaticBuf::new(len));
    moved(a, b, src.slice(), dst.slice(), seed)
}

/// Bytes of a seed, a word at a time: most of what these tests compute, in a build without optimisation.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let mut x = (u64::from(seed) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = vec![0; len.next_multiple_of(8)];
    let mut at = 0;
    while at < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes[at..at + 8].copy_from_slice(&x.to_le_bytes());
        at += 8;
    }
    bytes.truncate(len);
    bytes
}

/// Sleeps until either end has something to do, for a moment at most.
fn pause(a: &mut Channel, b: &mut Channel) {
    wait_any(&mut [a, b], Duration::from_millis(20));
}

/// Waits until a line of either side says this.
fn tells(world: &World, a: &mut Channel, b: &mut Channel, what: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    while world.count(0, what) + world.count(1, what) == 0 {
        assert!(Instant::now() < until, "{what}: {}\n{}", world.all(0), world.all(1));
        let _ = (a.progress(), b.progress());
        pause(a, b);
    }
}

/// The bytes of a seed from one to the other, compared.
fn moved(a: &mut Channel, b: &mut Channel, src: MemSlice, dst: MemSlice, seed: u8) -> Result<(), String> {
    let len = src.len();
    let pattern = pattern(len, seed);
    assert!(src.fill(0, &pattern));
    let until = Instant::now() + Duration::from_secs(60);
    let recv = b.post_recv(&[(3, dst)]).map_err(|e| e.to_string())?.ok_or("busy")?;
    let (mut send, mut sent, mut got) = (None, false, false);
    while !sent || !got {
        assert!(Instant::now() < until, "not done: {} | {}", a.describe(), b.describe());
        let why = |c: &Channel, e: &dyn std::fmt::Display| format!("{e}: {}", c.lost().unwrap_or_default());
        a.progress().map_err(|e| why(a, &e))?;
        b.progress().map_err(|e| why(b, &e))?;
        match send {
            None => send = a.post_send(3, src).map_err(|e| why(a, &e))?,
            Some(ticket) => sent = sent || a.test(ticket).map_err(|e| why(a, &e))?.is_some(),
        }
        got = got || b.test(recv).map_err(|e| why(b, &e))?.is_some();
    }
    assert!(dst.to_vec() == pattern, "{len} bytes differ");
    Ok(())
}

#[test]
fn a_cable_is_taken_and_the_line_says_which_tier_and_why() {
    for acked in [false, true] {
        for (ring, streams, tier, why) in [
            (true, 1, "tier 1 (ring)", "our ring driver"),
            (false, 2, "tier 2 (stream)", "no tier 1 (ring): no /dev/linkspan here"),
        ] {
            let world = joined(ring, streams, [&[], &[]], acked);
            let (mut a, mut b) = world.pair();
            for (n, len) in [0, 1, 8192, 8193, 1 << 20, (3 << 20) + 7].into_iter().enumerate() {
                message(&mut a, &mut b, len, n as u8).unwrap();
                message(&mut b, &mut a, len, 99).unwrap();
            }
            for end in [&a, &b] {
                let line = end.describe();
                assert!(line.contains("thunderbolt") && line.contains(tier), "{line}");
            }
            assert!(world.all(0).contains(why), "{}", world.all(0));
            assert!(!world.all(0).contains("Warn") && !world.all(1).contains("Warn"), "{}", world.all(0));
            assert_eq!(a.memory().is_registered(), ring);
        }
    }
}

#[test]
fn a_tier_can_be_forced_and_says_when_it_cannot_be_had() {
    let world = joined(true, 1, [&[("LINKSPAN_THUNDERBOLT_TIER", "stream")], &[]], false);
    let (mut a, mut b) = world.pair();
    message(&mut a, &mut b, 100_000, 1).unwrap();
    assert!(a.describe().contains("tier 2 (stream)"), "{}", a.describe());
    assert!(world.all(0).contains("LINKSPAN_THUNDERBOLT_TIER=stream excludes it"), "{}", world.all(0));

    for tier in ["off", "net"] {
        let env: Env = if tier == "off" {
            &[("LINKSPAN_THUNDERBOLT_TIER", "off")]
        } else {
            &[("LINKSPAN_THUNDERBOLT_TIER", "net")]
        };
        let world = joined(true, 0, [env, env], false);
        let (mut a, mut b) = world.pair();
        message(&mut a, &mut b, 100_000, 1).unwrap();
        assert!(a.describe().contains("tcp"), "{}", a.describe());
    }

    let env: Env = &[("LINKSPAN_THUNDERBOLT_TIER", "ring")];
    let world = joined(false, 1, [env, env], false);
    let refused = world.connect().0.err().unwrap().to_string();
    assert!(refused.contains("thunderbolt") && refused.contains("no /dev/linkspan here"), "{refused}");
}

#[test]
fn a_cable_to_somebody_else_is_nobodys_trouble() {
    let world = world(true, 1, [&[("LINKSPAN_STRICT", "1")], &[]], false, [[1; 16], [2; 16]]);
    let (mut a, mut b) = world.pair();
    message(&mut a, &mut b, 100_000, 1).unwrap();
    assert!(a.describe().contains("tcp"), "{}", a.describe());
    assert!(!world.all(0).contains("Warn"), "{}", world.all(0));
}

#[test]
fn a_stream_that_is_in_use_is_a_downgrade_that_is_said() {
    let world = joined(false, 1, [&[], &[]], false);
    let (mut a, mut b) = world.pair();
    let (mut c, mut d) = world.pair();
    message(&mut a, &mut b, 100_000, 1).unwrap();
    message(&mut c, &mut d, 100_000, 2).unwrap();
    assert!(c.describe().contains("tcp"), "{}", c.describe());
    assert!(
        world.all(0).contains("downgrade") && world.all(0).contains("another connection has it"),
        "{}",
        world.all(0)
    );
}

#[test]
fn an_unplugged_cable_leaves_the_standby_path_or_ends_the_connection() {
    for acked in [true, false] {
        let world = joined(true, 0, [&[], &[]], acked);
        let (mut a, mut b) = world.pair();
        message(&mut a, &mut b, 1 << 20, 1).unwrap();
        world.ring.as_ref().unwrap().unplug();
        let after = message(&mut a, &mut b, 1 << 20, 2);
        assert_eq!(after.is_ok(), acked, "{after:?}");
        if acked {
            tells(&world, &mut a, &mut b, "TCP carries on");
        }
        assert!(world.streams.is_empty());
    }
}

/// Device memory that the driver was given goes past the staging, of which there is enough for one direction alone here.
#[test]
fn device_memory_goes_by_dma_buf_at_tier_1_or_is_staged() {
    const LITTLE: Env = &[("LINKSPAN_GPU", "staged"), ("LINKSPAN_STAGE_MEMORY", "8")];
    for (ring, takes) in [(true, true), (true, false), (false, false)] {
        let world = joined(ring, 1, [LITTLE, LITTLE], false);
        if let Some(link) = world.ring.as_ref().filter(|_| !takes) {
            link.refuse_dmabufs();
        }
        let (mut a, mut b) = world.pair();
        let sim = SimGpu::new(SimConfig::default()).unwrap();
        let gpu: Arc<dyn Gpu> = sim.clone();
        a.attach(&gpu).unwrap();
        b.attach(&gpu).unwrap();
        let len = (3 << 20) + 7;
        // Each begins in the middle of a page of its dma-buf.
        let made = [(); 2].map(|()| {
            let (whole, (file, _)) = (StaticGpuBuf::new(&gpu, len + 5000).unwrap(), UnixStream::pair().unwrap());
            (whole.slice().sub(5000, len as u64).unwrap(), whole, file)
        });
        let (src, dst) = (made[0].0, made[1].0);
        let register = |end: &Channel, n: usize, target| {
            let (mem, _, file) = &made[n];
            end.memory().register_device(Some((file.as_fd(), 5000)), *mem, target)
        };
        if !takes {
            if ring {
                let why = register(&a, 0, true).err().unwrap();
                assert!(why.contains("by dma-buf: LS1505 ") && why.contains("as peer memory: "), "{why}");
            } else {
                assert!(!a.memory().is_registered(), "streams have nothing to register with");
            }
            moved(&mut a, &mut b, src, dst, 1).unwrap();
            let why = moved(&mut b, &mut a, dst, src, 2).unwrap_err();
            assert!(why.contains("LS1311"), "it was staged, for which there is no memory: {why}");
            let (line, direct) = (a.describe(), a.describe().contains("sim:0 by dma-buf where it is registered"));
            assert!(line.contains("staged through pinned host memory") && direct == ring, "{line}");
            continue;
        }
        assert!(a.describe().contains("sim:0 by dma-buf where it is registered, else staged"), "{}", a.describe());
        let (kept, by, before) = register(&a, 0, true).unwrap();
        assert_eq!((by, before), (DirectBy::DmaBuf, None));
        let _other = register(&b, 1, true).unwrap();
        for seed in 0..3 {
            moved(&mut a, &mut b, src, dst, seed).unwrap();
            moved(&mut b, &mut a, dst, src, seed + 100).unwrap();
        }
        // Parts of it, beside host memory.
        let part = |mem: MemSlice, at| mem.sub(at, 100_001).unwrap();
        let host = StaticBuf::new(100_001);
        moved(&mut a, &mut b, part(src, 70_001), part(dst, 3), 7).unwrap();
        moved(&mut b, &mut a, host.slice(), part(src, 1), 8).unwrap();
        moved(&mut b, &mut a, part(dst, 5), host.slice(), 9).unwrap();
        // Taken back, it is staged: one direction after the other, for which there is memory in one alone.
        drop(kept);
        moved(&mut a, &mut b, src, dst, 4).unwrap();
        let why = moved(&mut b, &mut a, dst, src, 5).unwrap_err();
        assert!(why.contains("LS1311"), "{why}");
        drop((a, b));
        assert_eq!(sim.fault(), None);
    }
}

/// Two hosts with two cables, on host interfaces of their own or on one.
fn doubled(own: bool, acked: bool) -> World {
    let links = [SoftRingLink::new(), SoftRingLink::new()];
    let lines = [(), ()].map(|()| Arc::new(Mutex::new(Vec::new())));
    let fabrics = [0, 1].map(|n| {
        let said = lines[n].clone();
        let log = Log::to(move |level, line| said.lock().unwrap().push(format!("{level:?} {line}")));
        let mut ports = Ports { plugged: true, ..Ports::default() };
        for (i, link) in links.iter().enumerate() {
            let id = |side: usize| if own { [HOSTS[side][0] + i as u8; 16] } else { HOSTS[side] };
            ports.cables.push(Cable {
                tier: Tier::Ring,
                name: format!("soft{n}/{i}"),
                link: format!("0-{i}"),
                local: id(n),
                peer: id(1 - n),
                hops: (0, 0),
                ring: 0,
                speed: 5_000_000_000,
                place: link.address(n),
            });
        }
        Fabric::apart(config(&[]), log, acked, vec![Box::new(Cables::given(ports.shared()))]).unwrap()
    });
    let [ring, second] = links.map(Some);
    World { ring, second, streams: Vec::new(), fabrics: fabrics.into(), lines }
}

/// Two cables are one link; each of them goes and comes back, then both go.
fn either_of_two_cables_goes_and_comes_back(own: bool, acked: bool) {
    let world = doubled(own, acked);
    let (mut a, mut b) = world.pair();
    for (end, n) in [(&a, 0), (&b, 1)] {
        let line = end.describe();
        assert!(line.contains(&format!("soft{n}/0")) && line.contains(&format!("soft{n}/1")), "{line}");
    }
    let (ring, second) = (world.ring.as_ref().unwrap(), world.second.as_ref().unwrap());
    message(&mut a, &mut b, 4 << 20, 1).unwrap();
    for (link, other) in [(ring, second), (second, ring)] {
        let before = [ring.moved(), second.moved()];
        message(&mut a, &mut b, 4 << 20, 2).unwrap();
        message(&mut b, &mut a, 4 << 20, 3).unwrap();
        let both = [ring.moved() - before[0], second.moved() - before[1]];
        assert!(both.iter().all(|n| *n > 1 << 20), "both carry their part of 8 MiB: {both:?}");
        link.unplug();
        // What has happened is told about once a second, while messages go on.
        let (until, lost) = (Instant::now() + Duration::from_secs(60), world.count(0, "rail lost: thunderbolt soft0/"));
        while world.count(0, "rail lost: thunderbolt soft0/") == lost {
            assert!(Instant::now() < until, "{}", world.all(0));
            message(&mut a, &mut b, 1 << 20, 4).unwrap();
            message(&mut b, &mut a, 1 << 20, 5).unwrap();
            pause(&mut a, &mut b);
        }
        assert!(!world.all(0).contains("TCP carries on"), "{}", world.all(0));
        assert!(other.moved() > 0);
        link.replug();
        let until = Instant::now() + Duration::from_secs(60);
        let whole = |c: &Channel| c.describe().contains("/0 ") && c.describe().contains("/1 ");
        while !whole(&a) || !whole(&b) {
            assert!(Instant::now() < until, "{}\n{}", world.all(0), world.all(1));
            message(&mut a, &mut b, 1000, 9).unwrap();
            pause(&mut a, &mut b);
        }
        tells(&world, &mut a, &mut b, "rail back: thunderbolt soft0/");
    }
    // Without either, what is on standby carries on.
    ring.unplug();
    second.unplug();
    message(&mut a, &mut b, 1 << 20, 7).unwrap();
    tells(&world, &mut a, &mut b, "TCP carries on in place of a cable");
}

#[test]
fn either_of_two_cables_on_interfaces_of_their_own_goes_and_comes_back() {
    either_of_two_cables_goes_and_comes_back(true, true);
}

#[test]
fn either_of_two_cables_on_one_interface_goes_and_comes_back() {
    either_of_two_cables_goes_and_comes_back(false, true);
}

#[test]
fn either_of_two_cables_goes_and_comes_back_without_acknowledgements() {
    either_of_two_cables_goes_and_comes_back(true, false);
}

/// A path that came back keeps no registration of memory that its owner has taken back, though it was registered while the path was away
/// or before: what is mapped there next is other memory.
#[test]
fn memory_that_is_taken_back_is_forgotten_by_a_cable_that_came_back() {
    let world = doubled(true, true);
    let (mut a, mut b) = world.pair();
    let (src, dst) = (StaticBuf::new(4 << 20), StaticBuf::new(4 << 20));
    let register = |a: &Channel, b: &Channel| {
        let one = a.memory().register(src.slice(), false).unwrap();
        (one, b.memory().register(dst.slice(), true).unwrap())
    };
    let kept = register(&a, &b);
    moved(&mut a, &mut b, src.slice(), dst.slice(), 1).unwrap();
    let ring = world.ring.as_ref().unwrap();
    ring.unplug();
    let until = Instant::now() + Duration::from_secs(60);
    while world.count(0, "rail lost: thunderbolt") == 0 || world.count(1, "rail lost: thunderbolt") == 0 {
        assert!(Instant::now() < until, "{}", world.all(0));
        moved(&mut a, &mut b, src.slice(), dst.slice(), 2).unwrap();
        pause(&mut a, &mut b);
    }
    ring.replug();
    while world.count(0, "rail back: thunderbolt") == 0 || world.count(1, "rail back: thunderbolt") == 0 {
        assert!(Instant::now() < until, "{}", world.all(0));
        message(&mut a, &mut b, 1000, 3).unwrap();
        pause(&mut a, &mut b);
    }
    let mut twice = |kept| {
        moved(&mut a, &mut b, src.slice(), dst.slice(), 4).unwrap();
        let before = ring.registered();
        moved(&mut a, &mut b, src.slice(), dst.slice(), 5).unwrap();
        assert_eq!(ring.registered(), before, "what is known is not registered again");
        drop(kept);
        moved(&mut a, &mut b, src.slice(), dst.slice(), 6).unwrap();
        assert!(ring.registered() >= before + 2, "both sides had to forget theirs");
        register(&a, &b)
    };
    let again = twice(kept);
    twice(again);
}

/// Device memory goes by its dma-buf over a cable that came back, whether it was registered before the cable went or while it was away;
/// once its owner has taken it back, it is staged there. TCP on standby, which would stage all of it, is given nothing.
#[test]
fn device_memory_is_registered_with_a_cable_that_came_back() {
    const LITTLE: Env = &[("LINKSPAN_GPU", "staged"), ("LINKSPAN_STAGE_MEMORY", "8")];
    let world = joined(true, 0, [LITTLE, LITTLE], true);
    let (mut a, mut b) = world.pair();
    let sim = SimGpu::new(SimConfig::default()).unwrap();
    let gpu: Arc<dyn Gpu> = sim.clone();
    a.attach(&gpu).unwrap();
    b.attach(&gpu).unwrap();
    let len = 3 << 20;
    let made = [(); 4].map(|()| (StaticGpuBuf::new(&gpu, len).unwrap(), UnixStream::pair().unwrap().0));
    let mem = |n: usize| made[n].0.slice();
    let register = |end: &Channel, n: usize| {
        let (held, by, _) = end.memory().register_device(Some((made[n].1.as_fd(), 0)), mem(n), true).unwrap();
        assert_eq!(by, DirectBy::DmaBuf);
        held
    };
    let mut held = vec![register(&a, 0), register(&b, 1)];
    let ring = world.ring.as_ref().unwrap();
    for round in 0..2 {
        ring.unplug();
        let until = Instant::now() + Duration::from_secs(60);
        while [0, 1].iter().any(|n| world.count(*n, "rail lost: thunderbolt") <= round) {
            assert!(Instant::now() < until, "{}", world.all(0));
            message(&mut a, &mut b, 1000, 2).unwrap();
            pause(&mut a, &mut b);
        }
        if round == 0 {
            held.extend([register(&a, 2), register(&b, 3)]);
        }
        ring.replug();
        while [0, 1].iter().any(|n| world.count(*n, "rail back: thunderbolt") <= round) {
            assert!(Instant::now() < until, "{}", world.all(0));
            message(&mut a, &mut b, 1000, 3).unwrap();
            pause(&mut a, &mut b);
        }
        // Staging has memory for one direction alone.
        for (here, there) in [(0, 1), (2, 3)] {
            moved(&mut a, &mut b, mem(here), mem(there), 4).unwrap();
            moved(&mut b, &mut a, mem(there), mem(here), 5).unwrap();
        }
    }
    let short = || world.count(0, "LS1311") + world.count(1, "LS1311");
    assert_eq!(short(), 0, "nothing was staged: {}", world.all(0));
    held.truncate(2);
    moved(&mut b, &mut a, mem(1), mem(0), 6).unwrap();
    moved(&mut a, &mut b, mem(2), mem(3), 7).unwrap();
    moved(&mut b, &mut a, mem(3), mem(2), 8).unwrap();
    // What was taken back is staged, for which there is too little.
    tells(&world, &mut a, &mut b, "LS1311");
    drop((a, b));
    assert_eq!(sim.fault(), None);
}

/// A card without a port and a cable whose link is down, both at loopback.
struct Lacking;

impl Provider for Lacking {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn title(&self) -> &'static str {
        "RDMA"
    }

    fn support(&self) -> Result<String, String> {
        Err("no port".into())
    }

    fn offer(&self, _: &Site<'_>) -> Result<Box<dyn Offer>, String> {
        Err("no port".into())
    }

    fn lacks(&self, interface: &str) -> Option<String> {
        (interface == "lo").then(|| "the link is down".into())
    }
}

#[test]
fn what_a_cable_lacks_is_said_beside_what_a_card_lacks_and_counts_for_no_listener_that_wants_tcp_alone() {
    let strict: Env = &[("LINKSPAN_STRICT", "1")];
    let listeners: [(Env, bool); 2] = [(strict, false), (&[("LINKSPAN_STRICT", "1"), ("LINKSPAN_PATH", "tcp")], true)];
    for (env, accepts) in listeners {
        let mut world = joined(false, 0, [&[], env], false);
        let said = world.lines[0].clone();
        let log = Log::to(move |level, line| said.lock().unwrap().push(format!("{level:?} {line}")));
        world.fabrics[0] = Fabric::apart(config(&[]), log, false, vec![Box::new(Lacking)]).unwrap();
        let (here, there) = world.connect();
        assert!(here.is_ok() || !accepts);
        match there {
            Err(Error::Strict { what }) if !accepts => {
                assert!(what.contains("the peer says: no port; the link is down"), "{what}");
            }
            there => assert!(accepts && there.is_ok(), "{env:?}"),
        }
        assert_eq!(world.count(0, "TCP in place of RDMA: no port; the link is down"), 1, "{}", world.all(0));
    }
}
