//! Connections over RDMA, between hosts that are fabrics with NICs in software.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_fabric::{Buf, Channel, Config, DirectBy, Error, Fabric, Gpu, Log, MemSlice, Ticket, wait_any};
use linkspan_gpu::conformance::StaticGpuBuf;
use linkspan_gpu::{SimConfig, SimGpu};
use linkspan_transport::StaticBuf;
use linkspan_verbs::Rdma;
use linkspan_verbs_sys::soft::{Faults, SoftConfig, SoftNet, SoftNic};
use linkspan_verbs_sys::{self as nic, GidEntry, Keys, Mr, Nic, SendOp, SendWr};

mod registering;

/// Two hosts on one cable.
struct World {
    net: SoftNet,
    nics: [SoftNic; 2],
    fabrics: [Fabric; 2],
    lines: [Arc<Mutex<Vec<String>>>; 2],
}

type Env = &'static [(&'static str, &'static str)];

fn registrations(fabric: &Fabric) -> u64 {
    fabric.transport().map_or(0, Rdma::<SoftNic>::registrations)
}

fn config(extra: Env) -> Config {
    let base = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off"), ("LINKSPAN_IB_TIMEOUT", "8")];
    Config::read(&|name| base.iter().chain(extra).rev().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap()
}

pub(crate) fn lo() -> u32 {
    linkspan_net::interface_of(Ipv4Addr::LOCALHOST.into(), 0).unwrap().unwrap().index
}

fn world(envs: [Env; 2], acked: bool) -> World {
    world_of(envs, acked, |_| {})
}

fn world_of(envs: [Env; 2], acked: bool, change: impl Fn(&mut SoftConfig)) -> World {
    let net = SoftNet::new(1);
    let nics = [1, 2].map(|n| {
        let mut config = SoftConfig::roce(&format!("soft{n}"), Ipv4Addr::new(10, 0, 0, n), lo());
        change(&mut config);
        net.nic(config)
    });
    let lines = [(), ()].map(|()| Arc::new(Mutex::new(Vec::new())));
    let fabrics = [0, 1].map(|n| {
        let said = lines[n].clone();
        let log = Log::to(move |level, line| said.lock().unwrap().push(format!("{level:?} {line}")));
        Fabric::apart(config(envs[n]), log, acked, vec![Box::new(Rdma::given(vec![nics[n].clone()]))]).unwrap()
    });
    World { net, nics, fabrics, lines }
}

type Ends = (Result<Channel, Error>, Result<Channel, Error>);

impl World {
    /// What comes of a connection from the first host to the second; the side that fails first ends it.
    fn connect(&self) -> Ends {
        let listener = self.fabrics[1].listen(0).unwrap();
        let mut connecting = self.fabrics[0].connect(0, &listener.handle()).unwrap();
        let (mut here, mut there) = (None, None);
        let until = Instant::now() + Duration::from_secs(30);
        while here.is_none() || there.is_none() {
            assert!(Instant::now() < until, "neither up nor refused within 30 s");
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

    fn said(&self, n: usize, what: &str) -> bool {
        self.lines[n].lock().unwrap().iter().any(|line| line.contains(what))
    }

    fn all(&self, n: usize) -> String {
        self.lines[n].lock().unwrap().join("\n")
    }
}

/// One message; `Err` says how it failed.
fn message(a: &mut Channel, b: &mut Channel, len: usize, seed: u8) -> Result<(), String> {
    let (src, dst) = (StaticBuf::new(len), StaticBuf::new(len));
    let pattern = (0..=255u8).map(|i| i.wrapping_mul(7) ^ seed).collect::<Vec<u8>>().repeat(len / 256 + 1);
    let pattern = &pattern[..len];
    assert!(src.slice().fill(0, pattern));
    let until = Instant::now() + Duration::from_secs(30);
    let recv = b.post_recv(&[(3, dst.slice())]).map_err(|e| e.to_string())?.ok_or("busy")?;
    let (mut send, mut sent, mut got) = (None, false, false);
    while !sent || !got {
        assert!(Instant::now() < until, "not done in 30 s: {} | {}", a.describe(), b.describe());
        let why = |c: &Channel, e: &dyn std::fmt::Display| format!("{e}: {}", c.lost().unwrap_or_default());
        if let Err(e) = a.progress() {
            return Err(why(a, &e));
        }
        if let Err(e) = b.progress() {
            return Err(why(b, &e));
        }
        match send {
            None => send = a.post_send(3, src.slice()).map_err(|e| why(a, &e))?,
            Some(ticket) => sent = sent || a.test(ticket).map_err(|e| why(a, &e))?.is_some(),
        }
        got = got || b.test(recv).map_err(|e| why(b, &e))?.is_some();
    }
    assert!(dst.slice().to_vec() == pattern, "{len} bytes differ");
    Ok(())
}

#[test]
fn rdma_is_taken_where_both_hosts_have_it_and_the_line_says_how() {
    for acked in [false, true] {
        let world = world([&[], &[]], acked);
        let (mut a, mut b) = world.pair();
        for (n, len) in [0, 1, 8192, 8193, 1 << 20, (3 << 20) + 7].into_iter().enumerate() {
            message(&mut a, &mut b, len, n as u8).unwrap();
            message(&mut b, &mut a, len, 99).unwrap();
        }
        for (n, end) in [&a, &b].into_iter().enumerate() {
            let line = end.describe();
            let other = 2 - n;
            let path = format!("verbs soft{}/1 10.0.0.{} -> 10.0.0.{other} (GID 3, MTU 4096, ", n + 1, n + 1);
            assert!(line.contains(&path) && line.contains("rate unknown"), "{line}");
            // The stream that the queue pair was set up over is kept where it can take over.
            assert_eq!(line.contains("on standby behind RDMA"), acked, "{line}");
            assert!(world.said(n, &path), "{}", world.all(n));
            assert!(!world.said(n, "Warn"), "{}", world.all(n));
        }
        assert!(world.net.packets() > 1000, "the bytes went over the cable");
        assert_eq!(end_transports(&a), if acked { vec!["verbs", "tcp"] } else { vec!["verbs"] });
    }
}

fn end_transports(channel: &Channel) -> Vec<&'static str> {
    channel.rails().map(|r| r.transport).collect()
}

#[test]
fn one_sided_operations_go_over_it() {
    let world = world([&[], &[]], true);
    let (mut a, mut b) = world.pair();
    let (src, dst) = (StaticBuf::new(1 << 20), StaticBuf::new(1 << 20));
    assert!(src.slice().fill(0, &[7; 1 << 20]));
    let key = b.expose(dst.slice(), linkspan_fabric::Access::ReadWrite).unwrap();
    let to = linkspan_fabric::RemoteSlice { key, offset: 0 };
    let ticket = a.post_write(src.slice(), to, Some(5)).unwrap().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while a.test(ticket).unwrap().is_none() || b.notifies_seen() == 0 {
        assert!(Instant::now() < until);
        a.progress().unwrap();
        b.progress().unwrap();
    }
    assert_eq!(b.take_notify(), Some(5));
    assert!(dst.slice().to_vec() == vec![7; 1 << 20]);
}

/// The owner of the memory takes it back while the card still has a write to bring.
#[test]
fn a_cut_path_revokes_what_is_still_on_the_cable() {
    let world = world([&[], &[]], true);
    let (mut a, mut b) = world.pair();
    let len = 1 << 20;
    let (src, dst) = (StaticBuf::new(len), StaticBuf::new(len));
    assert!(src.slice().fill(0, &vec![7; len]));
    let key = b.expose(dst.slice(), linkspan_fabric::Access::ReadWrite).unwrap();
    let to = linkspan_fabric::RemoteSlice { key, offset: 0 };
    // The first goes through, so that places are known.
    for held in [false, true] {
        if held {
            // Its first queue pair; see SoftConfig.
            world.net.hold(&world.nics[1], 0x11);
        }
        let ticket = a.post_write(src.slice(), to, Some(1)).unwrap().unwrap();
        let since = Instant::now();
        loop {
            assert!(since.elapsed() < Duration::from_secs(30), "not done in 30 s");
            a.progress().unwrap();
            b.progress().unwrap();
            let done = a.test(ticket).unwrap().is_some();
            assert!(!(done && held), "nothing can have acknowledged it");
            if done || held && since.elapsed() > Duration::from_millis(5) {
                break;
            }
        }
    }
    b.cut("it took too long");
    assert!(dst.slice().fill(0, &vec![9; len]));
    world.net.release();
    world.net.run();
    let since = Instant::now();
    while a.progress().is_ok() {
        assert!(since.elapsed() < Duration::from_secs(30), "the writer is not told");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(dst.slice().to_vec() == vec![9; len], "late bytes landed");
}

#[test]
fn several_queue_pairs_share_a_message() {
    let world = world([&[("LINKSPAN_QPS", "3")], &[("LINKSPAN_QPS", "5")]], false);
    let (mut a, mut b) = world.pair();
    assert_eq!(end_transports(&a), ["verbs", "verbs", "verbs", "tcp"], "the side that connects chooses");
    assert_eq!(end_transports(&b), ["verbs", "verbs", "verbs", "tcp"]);
    for n in 0..4 {
        message(&mut a, &mut b, 8 << 20, n).unwrap();
    }
}

#[test]
fn the_path_can_be_forced_either_way() {
    let tcp: Env = &[("LINKSPAN_PATH", "tcp")];
    let verbs: Env = &[("LINKSPAN_PATH", "verbs")];
    let here = world([tcp, &[]], false);
    let (a, b) = here.pair();
    assert_eq!((end_transports(&a), end_transports(&b)), (vec!["tcp"], vec!["tcp"]));
    assert!(!here.said(0, "Warn") && !here.said(1, "Warn"), "that was asked for");
    let both = world([verbs, verbs], false);
    assert_eq!(end_transports(&both.pair().0), ["verbs"]);
    let refused = world([verbs, tcp], false).connect().0.unwrap_err().to_string();
    assert!(refused.starts_with("LS0511 LINKSPAN_PATH=verbs cannot be used"), "{refused}");
}

#[test]
fn a_port_that_is_down_is_a_downgrade_with_its_reason() {
    for (n, words) in [(0, "soft1/1"), (1, "the peer says: soft2/1")] {
        let world = world([&[], &[]], false);
        world.net.cable(&world.nics[n], false);
        let (mut a, mut b) = world.pair();
        assert_eq!(end_transports(&a), ["tcp"]);
        message(&mut a, &mut b, 100_000, 1).unwrap();
        for words in ["Warn downgrade: TCP in place of RDMA", words, "the port is not active"] {
            assert!(world.said(0, words), "{words}: {}", world.all(0));
        }
    }
    let strict = world([&[("LINKSPAN_STRICT", "1")], &[]], false);
    strict.net.cable(&strict.nics[1], false);
    let refused = strict.connect().0.unwrap_err().to_string();
    assert!(refused.starts_with("LS0509") && refused.contains("not active"), "{refused}");
}

#[test]
fn a_cable_that_carries_no_packet_is_found_before_the_first_message() {
    let world = world([&[], &[]], false);
    world.net.faults(Faults { loss: 1_000_000, ..Faults::default() });
    let (mut a, mut b) = world.pair();
    assert_eq!((end_transports(&a), end_transports(&b)), (vec!["tcp"], vec!["tcp"]));
    message(&mut a, &mut b, 100_000, 1).unwrap();
    for n in [0, 1] {
        assert!(world.said(n, "Warn downgrade: TCP in place of RDMA"), "{}", world.all(n));
    }
    let why = [world.all(0), world.all(1)].join("\n");
    assert!(why.contains("LS1218 no RDMA packet passes over soft") && why.contains("4791"), "{why}");
}

#[test]
fn settings_that_do_not_fit_are_told_by_name() {
    let wrong = world([&[("LINKSPAN_GID_INDEX", "0"), ("LINKSPAN_PATH", "verbs")], &[]], false);
    let refused = wrong.connect().0.unwrap_err().to_string();
    assert!(refused.contains("LS1213 GID index 0 of soft1 port 1"), "{refused}");
    let chosen = world([&[("LINKSPAN_GID_INDEX", "2")], &[("LINKSPAN_GID_INDEX", "2")]], false);
    let (a, _b) = chosen.pair();
    assert!(a.describe().contains("(GID 2, "), "{}", a.describe());
    assert!(Config::read(&|n| (n == "LINKSPAN_QPS").then(|| "8".to_owned())).is_err());
}

#[test]
fn the_order_of_addresses_may_differ_from_host_to_host() {
    let mut world = world([&[], &[]], false);
    let mut other = SoftConfig::roce("other", Ipv4Addr::new(10, 0, 0, 9), lo());
    other.gids.reverse();
    (0..).zip(&mut other.gids).for_each(|(n, entry)| entry.index = n);
    let nic = world.net.nic(other);
    world.fabrics[1] = Fabric::apart(config(&[]), Log::off(), false, vec![Box::new(Rdma::given(vec![nic]))]).unwrap();
    let (mut a, mut b) = world.pair();
    assert!(a.describe().contains("(GID 3, ") && b.describe().contains("(GID 0, "), "{a:?} {b:?}");
    message(&mut a, &mut b, 100_000, 1).unwrap();
}

#[test]
fn infiniband_is_taken_by_lid_and_partition() {
    let lid = |n: u16| SoftConfig {
        gids: vec![GidEntry { ifindex: lo(), ..SoftConfig::infiniband("", n).gids[0] }],
        pkeys: vec![0xffff, 0x8001],
        ..SoftConfig::infiniband(&format!("ib{n}"), n)
    };
    let key: Env = &[("LINKSPAN_IB_PKEY", "1")];
    for (env, good) in [([&[], &[]] as [Env; 2], true), ([key, key], true), ([key, &[]], false)] {
        let mut world = world(env, false);
        for n in [0, 1] {
            let nic = world.net.nic(lid(n as u16 + 1));
            let said = world.lines[n].clone();
            let log = Log::to(move |level, line| said.lock().unwrap().push(format!("{level:?} {line}")));
            world.fabrics[n] =
                Fabric::apart(config(env[n]), log, false, vec![Box::new(Rdma::given(vec![nic]))]).unwrap();
        }
        let (mut a, mut b) = world.pair();
        message(&mut a, &mut b, 3 << 20, 1).unwrap();
        message(&mut b, &mut a, 8192, 2).unwrap();
        let line = a.describe();
        if good {
            assert!(line.contains("verbs ib1/1 lid 1 -> lid 2 ("), "{line}");
        } else {
            assert!(end_transports(&a) == ["tcp"] && world.said(0, "Warn downgrade: TCP in place of RDMA"), "{line}");
        }
    }
}

#[test]
fn both_sides_may_connect_at_once() {
    for round in 0..10 {
        let world = world([&[], &[]], round % 2 == 0);
        let listeners = [0, 1].map(|n| world.fabrics[n].listen(0).unwrap());
        let mut calls = [0, 1].map(|n| world.fabrics[n].connect(0, &listeners[1 - n].handle()).unwrap());
        let (mut out, mut inn) = ([None, None], [None, None]);
        let until = Instant::now() + Duration::from_secs(30);
        while out.iter().chain(&inn).any(Option::is_none) {
            assert!(Instant::now() < until, "not up in 30 s");
            for n in [0, 1] {
                out[n] = out[n].take().or_else(|| calls[n].poll().unwrap());
                inn[n] = inn[n].take().or_else(|| listeners[n].accept().unwrap());
            }
        }
        let ([Some(mut ab), Some(mut ba)], [Some(mut a_in), Some(mut b_in)]) = (out, inn) else { panic!("all are up") };
        assert!([&ab, &ba, &a_in, &b_in].iter().all(|c| end_transports(c)[0] == "verbs"));
        message(&mut ab, &mut b_in, 1 << 20, 1).unwrap();
        message(&mut ba, &mut a_in, 1 << 20, 2).unwrap();
        message(&mut a_in, &mut ba, 5000, 3).unwrap();
    }
}

#[test]
fn tcp_carries_on_when_the_last_queue_pair_is_lost() {
    for qps in [&[("LINKSPAN_QPS", "1")], &[("LINKSPAN_QPS", "2")]] as [Env; 2] {
        let world = world([qps, qps], true);
        let (mut a, mut b) = world.pair();
        message(&mut a, &mut b, 1 << 20, 1).unwrap();
        let (src, dst) = (StaticBuf::new(16 << 20), StaticBuf::new(16 << 20));
        assert!(src.slice().fill(0, &[5; 16 << 20]));
        let recv = b.post_recv(&[(3, dst.slice())]).unwrap().unwrap();
        let mut send = None;
        let since = Instant::now();
        let (mut cut, mut sent, mut got) = (None, false, false);
        while !sent || !got {
            assert!(since.elapsed() < Duration::from_secs(30), "{}", a.describe());
            a.progress().unwrap();
            b.progress().unwrap();
            match send {
                None => send = a.post_send(3, src.slice()).unwrap(),
                Some(ticket) => sent = sent || a.test(ticket).unwrap().is_some(),
            }
            got = got || b.test(recv).unwrap().is_some();
            // In the middle of it.
            if cut.is_none() && world.net.packets() > 2000 {
                world.net.cable(&world.nics[0], false);
                cut = Some(Instant::now());
            }
        }
        let took = cut.expect("cut in the middle").elapsed();
        eprintln!("over TCP {took:?} after the cable went");
        assert!(dst.slice().to_vec() == vec![5; 16 << 20]);
        while !(world.said(0, "rail lost: verbs") && world.said(0, "TCP carries on in place of RDMA")) {
            assert!(since.elapsed() < Duration::from_secs(60), "{}", world.all(0));
            let _ = (a.progress(), b.progress());
            wait_any(&mut [&mut a, &mut b], Duration::from_millis(20));
        }
        message(&mut b, &mut a, 1 << 20, 2).unwrap();
        assert_eq!(end_transports(&a), ["tcp"]);
    }
}

fn rdma_comes_back_with_its_cable(qps: Env) {
    let world = world([qps, &[]], true);
    let (mut a, mut b) = world.pair();
    let transports = end_transports(&a).len();
    for (round, down) in (1..).zip([0, 1]) {
        message(&mut a, &mut b, 1 << 20, 1).unwrap();
        world.net.cable(&world.nics[down], false);
        let since = Instant::now();
        // Nobody loses the other while there is no RDMA.
        while since.elapsed() < Duration::from_millis(2500) || a.rails().count() > 1 || b.rails().count() > 1 {
            message(&mut b, &mut a, 100_000, 2).unwrap();
            wait_any(&mut [&mut a, &mut b], Duration::from_millis(20));
            assert!(since.elapsed() < Duration::from_secs(30), "{} | {}", a.describe(), b.describe());
        }
        assert_eq!((end_transports(&a), end_transports(&b)), (vec!["tcp"], vec!["tcp"]));
        world.net.cable(&world.nics[down], true);
        let since = Instant::now();
        while a.rails().count() < transports || b.rails().count() < transports {
            message(&mut a, &mut b, 100_000, 3).unwrap();
            wait_any(&mut [&mut a, &mut b], Duration::from_millis(20));
            assert!(since.elapsed() < Duration::from_secs(30), "{} | {}", a.describe(), b.describe());
        }
        eprintln!("RDMA is back {:?} after its cable", since.elapsed());
        let packets = world.net.packets();
        message(&mut a, &mut b, 8 << 20, 4).unwrap();
        message(&mut b, &mut a, 8 << 20, 5).unwrap();
        assert!(world.net.packets() > packets + 2000, "the bytes went over the cable");
        for n in [0, 1] {
            assert!(world.said(n, "Warn rail back: verbs"), "{}", world.all(n));
            let rested = world.all(n).matches("RDMA is in use again, TCP is on standby").count();
            assert_eq!(rested, round, "{}", world.all(n));
        }
    }
}

#[test]
fn rdma_comes_back_with_its_cable_and_tcp_rests_again() {
    rdma_comes_back_with_its_cable(&[("LINKSPAN_QPS", "1")]);
}

#[test]
fn two_queue_pairs_come_back_with_their_cable_and_tcp_rests_again() {
    rdma_comes_back_with_its_cable(&[("LINKSPAN_QPS", "2")]);
}

#[test]
fn a_lost_queue_pair_without_a_second_rail_is_an_error_with_its_reason() {
    let world = world([&[], &[]], false);
    let (mut a, mut b) = world.pair();
    message(&mut a, &mut b, 1 << 20, 1).unwrap();
    world.net.remove(&world.nics[1]);
    let why = message(&mut a, &mut b, 1 << 20, 2).unwrap_err();
    assert!(why.contains("LS0101") || why.contains("LS0102"), "{why}");
}

#[test]
fn a_peer_that_goes_is_told_at_once() {
    let world = world([&[], &[]], true);
    let (mut a, b) = world.pair();
    drop(b);
    let since = Instant::now();
    while a.progress().is_ok() {
        assert!(since.elapsed() < Duration::from_secs(10));
    }
    assert!(a.peer_sent_goaway());
}

/// Time that this thread has run; schedstat of proc(5).
fn running() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn an_idle_connection_sleeps_on_completion_events() {
    let world = world([&[], &[]], true);
    let (mut a, mut b) = world.pair();
    message(&mut a, &mut b, 1 << 20, 1).unwrap();
    let (busy, since) = (running(), Instant::now());
    while since.elapsed() < Duration::from_secs(4) {
        wait_any(&mut [&mut a, &mut b], Duration::from_secs(1));
        a.progress().unwrap();
        b.progress().unwrap();
    }
    let (busy, took) = (running() - busy, since.elapsed());
    eprintln!("{busy:?} of {took:?}");
    // Both ends, unoptimized, with what the card in software does by itself.
    assert!(busy < took / 50, "{busy:?} of {took:?}");
    message(&mut b, &mut a, 1 << 20, 2).unwrap();
}

#[test]
fn registered_memory_costs_the_operations_nothing_and_is_given_back() {
    let world = world([&[], &[]], false);
    let (mut a, mut b) = world.pair();
    let memory = a.memory();
    assert!(memory.is_registered());
    let buf = StaticBuf::new(1 << 20);
    let held = memory.register(buf.slice(), true).unwrap();
    let regions = |n: usize| registrations(&world.fabrics[n]);
    let before = regions(0);
    for n in 0..5 {
        let dst = StaticBuf::new(1 << 20);
        let recv = b.post_recv(&[(3, dst.slice())]).unwrap().unwrap();
        let mut send = None;
        let until = Instant::now() + Duration::from_secs(30);
        while send.is_none_or(|t| a.test(t).unwrap().is_none()) || b.test(recv).unwrap().is_none() {
            assert!(Instant::now() < until, "round {n}");
            a.progress().unwrap();
            b.progress().unwrap();
            if send.is_none() {
                send = a.post_send(3, buf.slice()).unwrap();
            }
            if send.is_some_and(|t| a.test(t).is_ok_and(|d| d.is_some())) {
                break;
            }
        }
    }
    assert_eq!(regions(0), before, "registered once");
    drop(held);
    message(&mut a, &mut b, 1 << 20, 1).unwrap();
    assert!(regions(0) > before, "anew after it was given back");
}

/// What the first host would do that keeps the keys it was told, and writes by them through its queue pair when it likes.
struct Hostile<'a> {
    world: &'a World,
    keys: Vec<Keys>,
    bytes: (StaticBuf, <SoftNic as Nic>::Mr),
}

impl Hostile<'_> {
    /// With the keys by which the second host's memory can be written now.
    fn knows(world: &World, mem: MemSlice) -> Hostile<'_> {
        let bytes = StaticBuf::new(16);
        assert!(bytes.slice().fill(0, &[0x5a; 16]));
        let mr = world.nics[0].register(bytes.slice(), nic::Access::LOCAL_READ).unwrap();
        let keys = targets(world, mem);
        assert!(!keys.is_empty(), "no key was given out");
        Hostile { world, keys, bytes: (bytes, mr) }
    }

    /// Whether what is written by the first of the keys lands; nobody does anything meanwhile.
    fn lands(&self, mem: MemSlice) -> bool {
        let place = mem.sub(0, 16).unwrap();
        assert!(place.fill(0, &[0; 16]));
        let (own, op) = (self.bytes.1.keys(), SendOp::Write { addr: place.as_ptr() as u64, rkey: self.keys[0].rkey() });
        let before = self.world.net.packets();
        // Its first queue pair; see SoftConfig.
        self.world.net.forge(&self.world.nics[0], 0x11, SendWr::new(0, op, own.sge(own.addr(), 16))).unwrap();
        self.world.net.run();
        assert!(self.world.net.packets() > before, "nothing travelled");
        place.to_vec() == [0x5a; 16]
    }
}

fn targets(world: &World, mem: MemSlice) -> Vec<Keys> {
    let covers = |keys: &Keys| keys.covers(mem.as_ptr() as u64, mem.len() as u64);
    world.nics[1].targets().into_iter().filter(covers).collect()
}

#[test]
fn memory_that_was_given_back_is_closed_to_the_peer_before_its_connection_does_anything_else() {
    let world = world([&[], &[]], false);
    let (mut a, mut b) = world.pair();
    let buf = StaticBuf::new(1 << 20);
    let held = b.memory().register(buf.slice(), true).unwrap();
    moved(&mut a, &mut b, StaticBuf::new(1 << 20).slice(), buf.slice()).unwrap();
    let hostile = Hostile::knows(&world, buf.slice());
    assert!(hostile.lands(buf.slice()), "as long as it is registered");
    drop(held);
    assert_eq!(targets(&world, buf.slice()), []);
    assert!(!hostile.lands(buf.slice()));
}

/// Sends what a receive with tag 3 waits for. No rail is lost with that.
fn fill(from: &mut Channel, to: &mut Channel, recv: Ticket, len: usize) {
    let src = StaticBuf::new(len);
    let until = Instant::now() + Duration::from_secs(30);
    let mut send = None;
    while to.test(recv).unwrap().is_none() {
        assert!(Instant::now() < until);
        from.progress().unwrap();
        to.progress().unwrap();
        send = send.or_else(|| from.post_send(3, src.slice()).unwrap());
    }
    assert_eq!((from.rails_lost(), to.rails_lost()), (0, 0), "what it was granted is not taken from it");
}

/// NCCL registers a buffer with each connection that uses it.
#[test]
fn memory_that_another_connection_has_registered_stays_open_until_that_gives_it_back() {
    let world = world([&[], &[]], false);
    let (_a, b) = world.pair();
    let (mut c, mut d) = world.pair();
    let buf = StaticBuf::new(1 << 20);
    let [first, second] = [&b, &d].map(|end| end.memory().register(buf.slice(), true).unwrap());
    let recv = d.post_recv(&[(3, buf.slice())]).unwrap().unwrap();
    d.progress().unwrap();
    drop(first);
    fill(&mut c, &mut d, recv, 1 << 20);
    assert_eq!(targets(&world, buf.slice()).len(), 1);
    drop(second);
    assert_eq!(targets(&world, buf.slice()), []);
}

#[test]
fn a_region_that_is_exposed_no_more_is_closed_to_the_peers_card() {
    let world = world([&[], &[]], true);
    let (mut a, mut b) = world.pair();
    let (src, dst) = (StaticBuf::new(1 << 20), StaticBuf::new(1 << 20));
    for (access, open) in [(linkspan_fabric::Access::Read, false), (linkspan_fabric::Access::ReadWrite, true)] {
        let key = b.expose(dst.slice(), access).unwrap();
        assert_eq!(!targets(&world, dst.slice()).is_empty(), open, "{access:?}");
        if !open {
            assert!(b.unexpose(key));
            continue;
        }
        let to = linkspan_fabric::RemoteSlice { key, offset: 0 };
        let ticket = a.post_write(src.slice(), to, None).unwrap().unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while a.test(ticket).unwrap().is_none() {
            assert!(Instant::now() < until);
            a.progress().unwrap();
            b.progress().unwrap();
        }
        let hostile = Hostile::knows(&world, dst.slice());
        assert!(hostile.lands(dst.slice()), "as long as it is exposed");
        assert!(b.unexpose(key), "nothing is under way");
        assert_eq!(targets(&world, dst.slice()), []);
        assert!(!hostile.lands(dst.slice()));
    }
}

/// One message between memory of any kind; `Err` says how it failed.
fn moved(a: &mut Channel, b: &mut Channel, src: MemSlice, dst: MemSlice) -> Result<(), String> {
    let (mut recv, mut send, mut sent, mut got) = (None, None, false, false);
    let until = Instant::now() + Duration::from_secs(30);
    while !sent || !got {
        assert!(Instant::now() < until, "not done in 30 s");
        if recv.is_none() {
            recv = b.post_recv(&[(3, dst)]).unwrap();
        }
        if send.is_none() {
            send = a.post_send(3, src).unwrap();
        }
        if a.progress().is_err() || b.progress().is_err() {
            return Err([a.lost(), b.lost()].into_iter().flatten().collect::<Vec<_>>().join("; "));
        }
        sent = sent || send.is_some_and(|t| a.test(t).is_ok_and(|d| d.is_some()));
        got = got || recv.is_some_and(|t| b.test(t).is_ok_and(|d| d.is_some()));
    }
    Ok(())
}

/// Device memory that the cards were given goes past the staging, of which there is enough for one direction alone here.
#[test]
fn device_memory_goes_by_dma_buf_by_peer_memory_or_is_staged() {
    const LITTLE: Env = &[("LINKSPAN_GPU", "staged"), ("LINKSPAN_STAGE_MEMORY", "8")];
    for (dmabuf, peer_memory) in [(true, false), (true, true), (false, true), (false, false)] {
        let world = world_of([LITTLE, LITTLE], false, |config| {
            (config.dmabuf, config.peer_memory) = (dmabuf, peer_memory);
        });
        let (mut a, mut b) = world.pair();
        let sim = SimGpu::new(SimConfig::default()).unwrap();
        let gpu: Arc<dyn Gpu> = sim.clone();
        a.attach(&gpu).unwrap();
        b.attach(&gpu).unwrap();
        let len = (3 << 20) + 7;
        // Each begins in the middle of its dma-buf.
        let made = [(); 2].map(|()| {
            // What a descriptor is of does not matter to a card in software.
            let (whole, (file, _)) = (StaticGpuBuf::new(&gpu, len + 4096).unwrap(), UnixStream::pair().unwrap());
            world.net.dmabuf(file.as_fd(), whole.slice()).unwrap();
            (whole.slice().sub(4096, len as u64).unwrap(), whole, file)
        });
        let pattern: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
        assert!(made[0].0.fill(0, &pattern));
        let [up, down] = [(&a, &made[0]), (&b, &made[1])]
            .map(|(end, (mem, _, file))| end.memory().register_device(Some((file.as_fd(), 4096)), *mem, true));
        if !dmabuf && !peer_memory {
            let why = up.err().unwrap();
            assert!(why.contains("by dma-buf: LS1206 ") && why.contains("as peer memory: LS12"), "{why}");
            moved(&mut a, &mut b, made[0].0, made[1].0).unwrap();
            assert!(made[1].0.to_vec() == pattern);
            let why = moved(&mut b, &mut a, made[1].0, made[0].0).unwrap_err();
            assert!(why.contains("LS1311"), "it was staged, for which there is no memory: {why}");
            continue;
        }
        let ((_up, how, before), (_down, ..)) = (up.unwrap(), down.unwrap());
        assert_eq!(how, if dmabuf { DirectBy::DmaBuf } else { DirectBy::PeerMemory });
        assert_eq!(before.is_some(), !dmabuf, "{before:?}");
        let regions = world.fabrics.each_ref().map(registrations);
        for _ in 0..3 {
            assert!(made[1].0.fill(0, &vec![0; len]));
            moved(&mut a, &mut b, made[0].0, made[1].0).unwrap();
            assert!(made[1].0.to_vec() == pattern);
            assert!(made[0].0.fill(0, &vec![0; len]));
            moved(&mut b, &mut a, made[1].0, made[0].0).unwrap();
            assert!(made[0].0.to_vec() == pattern);
        }
        assert_eq!(world.fabrics.each_ref().map(registrations), regions, "nothing else was registered");
        drop((a, b));
        assert_eq!(sim.fault(), None);
    }
}

/// TCP on standby is given no chunk of device memory, registered or staged: the staging before it would take what the standby path must
/// not. There is staging memory for one rail in one direction alone, so that whatever is staged there too fails. So also when the
/// standby path has been activated and deactivated again.
fn not_staged_before_a_reserve_that_rests(registered: bool) {
    const LITTLE: Env = &[("LINKSPAN_GPU", "staged"), ("LINKSPAN_STAGE_MEMORY", "8")];
    let world = world_of([LITTLE, LITTLE], true, |config| config.dmabuf = true);
    let (mut a, mut b) = world.pair();
    assert_eq!(end_transports(&a), ["verbs", "tcp"]);
    let sim = SimGpu::new(SimConfig::default()).unwrap();
    let gpu: Arc<dyn Gpu> = sim.clone();
    a.attach(&gpu).unwrap();
    b.attach(&gpu).unwrap();
    let len = (3 << 20) + 7;
    let made = [(); 2].map(|()| {
        let (buf, (file, _)) = (StaticGpuBuf::new(&gpu, len).unwrap(), UnixStream::pair().unwrap());
        world.net.dmabuf(file.as_fd(), buf.slice()).unwrap();
        (buf, file)
    });
    let [src, dst] = made.each_ref().map(|m| m.0.slice());
    let register = |end: &Channel, n: usize| {
        let (held, by, _) =
            end.memory().register_device(Some((made[n].1.as_fd(), 0)), made[n].0.slice(), true).unwrap();
        assert_eq!(by, DirectBy::DmaBuf);
        held
    };
    let _held = registered.then(|| [register(&a, 0), register(&b, 1)]);
    let carried = |a: &mut Channel, b: &mut Channel, (from, to): (MemSlice, MemSlice), seed: u8| {
        let pattern: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8 ^ seed).collect();
        assert!(from.fill(0, &pattern));
        moved(a, b, from, to).unwrap();
        assert!(to.to_vec() == pattern, "{len} bytes differ");
    };
    for round in 0..2 {
        for seed in 0..4 {
            carried(&mut a, &mut b, (src, dst), seed);
            if registered {
                carried(&mut b, &mut a, (dst, src), seed + 100);
            }
        }
        for n in [0, 1] {
            assert!(!world.said(n, "LS1311"), "something was staged before the standby path: {}", world.all(n));
            assert_eq!(world.all(n).matches("rail lost").count(), round, "{}", world.all(n));
        }
        if round == 0 {
            world.net.cable(&world.nics[0], false);
            let since = Instant::now();
            let soon = || assert!(since.elapsed() < Duration::from_secs(60), "{}", world.all(0));
            while [0, 1].iter().any(|n| !world.said(*n, "TCP carries on in place of RDMA")) {
                soon();
                message(&mut a, &mut b, 1000, 1).unwrap();
                wait_any(&mut [&mut a, &mut b], Duration::from_millis(20));
            }
            world.net.cable(&world.nics[0], true);
            while [0, 1].iter().any(|n| !world.said(*n, "RDMA is in use again, TCP is on standby")) {
                soon();
                message(&mut a, &mut b, 1000, 2).unwrap();
                wait_any(&mut [&mut a, &mut b], Duration::from_millis(20));
            }
        }
    }
    drop((a, b));
    assert_eq!(sim.fault(), None);
}

#[test]
fn registered_device_memory_is_not_staged_before_a_reserve_that_rests() {
    not_staged_before_a_reserve_that_rests(true);
}

#[test]
fn other_device_memory_is_not_staged_before_a_reserve_that_rests() {
    not_staged_before_a_reserve_that_rests(false);
}

#[test]
fn eight_devices_and_what_the_survey_says() {
    let net = SoftNet::new(1);
    let nics: Vec<SoftNic> = (1..=8)
        .map(|n| {
            let ifindex = if n == 5 { lo() } else { 1000 + u32::from(n) };
            net.nic(SoftConfig::roce(&format!("soft{n}"), Ipv4Addr::new(10, 0, 1, n), ifindex))
        })
        .collect();
    let many = Fabric::apart(config(&[]), Log::off(), false, vec![Box::new(Rdma::given(nics))]).unwrap();
    let (ports, reasons) = many.transport::<Rdma<SoftNic>>().unwrap().ports();
    assert_eq!(ports.len(), 8);
    assert!(reasons.is_empty() && ports.iter().all(|p| p.why_not.is_none()));
    assert_eq!((ports[4].name.as_str(), ports[4].interfaces.as_slice()), ("soft5/1", &[lo()][..]));
    // The one on the interface that reaches the peer is taken.
    let one = net.nic(SoftConfig::roce("one", Ipv4Addr::new(10, 0, 2, 1), lo()));
    assert_eq!(one.name(), "one");
    let single = Fabric::apart(config(&[]), Log::off(), false, vec![Box::new(Rdma::given(vec![one]))]).unwrap();
    let world = World {
        nics: [1, 2].map(|n| net.nic(SoftConfig::roce("spare", Ipv4Addr::new(10, 0, 3, n), 0))),
        net,
        fabrics: [many, single],
        lines: [(), ()].map(|()| Arc::default()),
    };
    let (mut a, mut b) = world.pair();
    assert!(a.describe().contains("verbs soft5/1 10.0.1.5 -> 10.0.2.1"), "{}", a.describe());
    message(&mut a, &mut b, 1 << 20, 1).unwrap();
}
