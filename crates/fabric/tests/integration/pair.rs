//! Two ends of a connection in one process, over each path a machine has.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_fabric::stats::{self, Counter};
use linkspan_fabric::{Access, Buf, Cancel, Channel, Config, Error, Fabric, Level, Log, Poll, RemoteSlice, Ticket};
use linkspan_transport::StaticBuf;
use linkspan_transport::conformance::{Direction, Proxy};
use linkspan_verbs::Rdma;
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet};

use super::common::{connect, elsewhere};
use super::verbs::lo;

fn fabric(extra: &'static [(&'static str, &'static str)], acked: bool) -> Fabric {
    let get = move |name: &str| {
        let base = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
        base.iter().chain(extra).rev().find(|p| p.0 == name).map(|p| p.1.to_owned())
    };
    Fabric::new(Config::read(&get).unwrap(), Log::off(), acked, Vec::new()).unwrap()
}

fn pair(extra: &'static [(&'static str, &'static str)], acked: bool) -> (Channel, Channel) {
    let fabric = fabric(extra, acked);
    between(&fabric, &fabric)
}

fn between(near: &Fabric, far: &Fabric) -> (Channel, Channel) {
    let listener = far.listen(0).unwrap();
    connect(near, &listener, &listener.handle()).unwrap()
}

/// With acknowledgements there is a keepalive connection on one host too, whose login must not spoil the offer of the other stream.
#[test]
fn one_host_shares_memory_where_nothing_is_forced() {
    for acked in [false, true] {
        let (a, b) = pair(&[("LINKSPAN_PATH", "auto")], acked);
        for end in [&a, &b] {
            assert_eq!(end.rails().map(|rail| rail.transport).collect::<Vec<_>>(), ["shm"], "{}", end.describe());
        }
    }
}

fn finish(a: &mut Channel, ta: Ticket, b: &mut Channel, tb: Ticket) -> (u64, u64) {
    let (mut da, mut db) = (None, None);
    let until = Instant::now() + Duration::from_secs(60);
    while da.is_none() || db.is_none() {
        assert!(Instant::now() < until, "no completion within 60 s");
        for end in [&mut *a, &mut *b] {
            end.progress().unwrap_or_else(|error| panic!("{error}: {:?}", end.lost()));
        }
        da = da.or_else(|| a.test(ta).unwrap());
        db = db.or_else(|| b.test(tb).unwrap());
    }
    (da.unwrap(), db.unwrap())
}

fn send_and_receive(a: &mut Channel, b: &mut Channel, len: usize) {
    let (src, dst) = (StaticBuf::new(len), StaticBuf::new(len + 5));
    let pattern = (0..256).map(|i| (i * 7 + len) as u8).collect::<Vec<u8>>().repeat(len / 256 + 1);
    let pattern = &pattern[..len];
    assert!(Buf::fill(&src.slice(), 0, pattern));
    let tb = b.post_recv(&[(3, dst.slice())]).unwrap().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let ta = loop {
        assert!(Instant::now() < until, "busy for 60 s");
        if let Some(ticket) = a.post_send(3, src.slice()).unwrap() {
            break ticket;
        }
        a.progress().unwrap();
        b.progress().unwrap();
    };
    assert_eq!(finish(a, ta, b, tb), (len as u64, len as u64));
    let mut got = dst.slice().to_vec();
    assert!(got.split_off(len).iter().all(|&x| x == 0), "bytes behind the message were touched");
    assert!(got == pattern, "{len} bytes differ");
}

const SIZES: [usize; 9] = [0, 1, 8, 8192, 8193, 65_536, 1 << 20, (3 << 20) + 7, 32 << 20];

#[test]
fn messages_of_all_sizes_arrive() {
    const SHM: &[(&str, &str)] = &[("LINKSPAN_PATH", "shm")];
    const RING: &[(&str, &str)] = &[("LINKSPAN_PATH", "shm"), ("LINKSPAN_CMA", "0")];
    for (path, extra) in [("tcp lo", &[] as &[_]), ("shm", SHM), ("shm", RING)] {
        for acked in [false, true] {
            let (mut a, mut b) = pair(extra, acked);
            for end in [&a, &b] {
                assert!(end.describe().starts_with(path), "{}", end.describe());
            }
            for len in SIZES {
                send_and_receive(&mut a, &mut b, len);
                send_and_receive(&mut b, &mut a, len);
            }
        }
    }
}

#[test]
fn the_peers_end_is_an_error_and_not_silence() {
    let (mut a, b) = pair(&[], false);
    let dst = StaticBuf::new(64);
    let ticket = a.post_recv(&[(0, dst.slice())]).unwrap().unwrap();
    drop(b);
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        assert!(Instant::now() < until, "the loss was not noticed");
        let _ = a.progress();
        if a.test(ticket).is_err() {
            break;
        }
    }
    assert!(a.lost().is_some());
}

#[test]
fn a_congestion_control_that_cannot_be_taken_is_told_before_anything_connects() {
    let made = |name: &'static str| {
        let set = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off"), ("LINKSPAN_TCP_CONGESTION", name)];
        let get = move |name: &str| set.iter().find(|p| p.0 == name).map(|p| p.1.to_owned());
        Fabric::new(Config::read(&get).unwrap(), Log::off(), false, Vec::new())
    };
    let error = made("no-such-control").unwrap_err();
    assert!(matches!(&error, Error::Param(bad) if bad.value == "no-such-control"), "{error}");
    made("reno").unwrap();
}

#[test]
fn statistics_that_cannot_be_written_are_warned_of_where_a_directory_was_named() {
    for (name, warned) in [("LINKSPAN_STATS_DIR", true), ("XDG_RUNTIME_DIR", false)] {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = lines.clone();
        let log = Log::to(move |level, line| {
            if level == Level::Warn {
                to.lock().unwrap().push(line.to_owned());
            }
        });
        let set = [("LINKSPAN_IFNAME", "=lo"), (name, "/proc/none")];
        let get = |name: &str| set.iter().find(|p| p.0 == name).map(|p| p.1.to_owned());
        let _fabric = Fabric::new(Config::read(&get).unwrap(), log, false, Vec::new()).unwrap();
        let told = lines.lock().unwrap().iter().any(|line| line.starts_with("no statistics: /proc/none"));
        assert_eq!(told, warned, "{name}");
    }
}

/// Why a connection does not come up: to the side that connects, which never has it, and to the other.
fn refused(near: &Fabric, far: &Fabric) -> (Error, Error) {
    let listener = far.listen(0).unwrap();
    let mut connecting = near.connect(0, &listener.handle()).unwrap();
    let (mut here, mut there) = (None, None);
    let until = Instant::now() + Duration::from_secs(60);
    while here.is_none() || there.is_none() {
        assert!(Instant::now() < until, "neither refused nor timed out");
        if here.is_none() {
            match connecting.poll() {
                Ok(None) => {}
                Ok(Some(channel)) => panic!("the other side refuses {}", channel.describe()),
                Err(error) => here = Some(error),
            }
        }
        match listener.accept() {
            Ok(None) => {}
            Ok(Some(channel)) => panic!("{}", channel.describe()),
            Err(error) => there = Some(error),
        }
    }
    (here.unwrap(), there.unwrap())
}

#[test]
fn what_is_lost_is_said_once_although_the_connection_is_refused_and_tried_again() {
    let (lines, far) = (Arc::new(AtomicUsize::new(0)), fabric(&[("LINKSPAN_PATH", "devmem")], false));
    let to = lines.clone();
    let log = Log::to(move |level, line| {
        if level == Level::Warn && line.starts_with("downgrade: TCP in place of shared memory") {
            to.fetch_add(1, Ordering::Relaxed);
        }
    });
    let set = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off"), ("LINKSPAN_CONNECT_TIMEOUT_MS", "1000")];
    let get = |name: &str| set.iter().find(|p| p.0 == name).map(|p| p.1.to_owned());
    let near = Fabric::new(Config::read(&get).unwrap(), log, false, Vec::new()).unwrap();
    let (_, error) = refused(&near, &far);
    assert!(matches!(&error, Error::Forced { path, .. } if path == "devmem"), "{error}");
    assert_eq!(lines.load(Ordering::Relaxed), 1);
}

#[test]
fn a_path_that_the_accepting_side_names_is_taken_or_nothing() {
    const AUTO: &[(&str, &str)] = &[("LINKSPAN_PATH", "auto")];
    const SHM: &[(&str, &str)] = &[("LINKSPAN_PATH", "shm")];
    // It says tcp; the peer would take shared memory.
    let (a, b) = between(&fabric(AUTO, false), &fabric(&[], false));
    for end in [&a, &b] {
        assert!(end.describe().starts_with("tcp"), "{}", end.describe());
    }
    // It says shm; the peer has nothing but tcp.
    let (near, far) = (fabric(&[("LINKSPAN_CONNECT_TIMEOUT_MS", "1000")], false), fabric(SHM, false));
    let (refused, error) = refused(&near, &far);
    assert!(matches!(refused, Error::Vanished { .. } | Error::Timeout { .. }), "{refused}");
    assert!(matches!(&error, Error::Forced { path, .. } if path == "shm"), "{error}");
}

#[test]
fn a_handle_is_not_enough_with_a_wrong_token() {
    let fabric = fabric(&[("LINKSPAN_CONNECT_TIMEOUT_MS", "2000")], false);
    let listener = fabric.listen(0).unwrap();
    let mut handle = listener.handle();
    handle[24] ^= 1; // the token begins here
    let mut connecting = fabric.connect(0, &handle).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let error = loop {
        assert!(Instant::now() < until, "neither refused nor timed out");
        assert!(listener.accept().unwrap().is_none());
        match connecting.poll() {
            Ok(None) => {}
            Ok(Some(_)) => panic!("a forged handle was accepted"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("127.0.0.1"), "{error}");
}

/// One that is connected is waited for 5 s; a dial that nobody answers, for 1 s.
#[test]
fn a_stream_that_logs_in_late_is_waited_for() {
    let env = &[("LINKSPAN_STRICT", "1"), ("LINKSPAN_TCP_STREAMS", "3")];
    let (near, far) = (fabric(env, false), fabric(env, false));
    let listener = far.listen(0).unwrap();
    let (_proxy, handle) = elsewhere(&listener.handle(), |to| {
        let streams = AtomicUsize::new(0);
        let proxy = Proxy::with_tap(to, move |way, done, _| {
            if way == Direction::There && done == 0 && streams.fetch_add(1, Ordering::Relaxed) == 1 {
                std::thread::sleep(Duration::from_millis(1500));
            }
        });
        let port = proxy.addr().port();
        (proxy, port)
    });
    let (mut a, mut b) = connect(&near, &listener, &handle).unwrap();
    assert_eq!([&a, &b].map(|end| end.rails().count()), [3, 3], "{}", a.describe());
    send_and_receive(&mut a, &mut b, 3 << 20);
}

#[test]
fn an_idle_connection_finds_nothing_to_do() {
    let (mut a, _b) = pair(&[], false);
    for _ in 0..1000 {
        assert_eq!(a.progress().unwrap(), Poll::Idle);
    }
}

#[test]
fn a_group_reports_the_size_of_each_part() {
    let (mut a, mut b) = pair(&[], false);
    let (x, y) = (StaticBuf::new(100), StaticBuf::new(100));
    let group = b.post_recv(&[(1, x.slice()), (2, y.slice())]).unwrap().unwrap();
    let src = StaticBuf::new(100);
    for (tag, len) in [(2, 7), (1, 60)] {
        let part = Buf::sub(&src.slice(), 0, len).unwrap();
        a.post_send(tag, part).unwrap().unwrap();
    }
    let until = Instant::now() + Duration::from_secs(60);
    let mut sizes = [0; 2];
    loop {
        assert!(Instant::now() < until, "no completion within 60 s");
        a.progress().unwrap();
        b.progress().unwrap();
        if b.test_sizes(group, &mut sizes).unwrap() {
            break;
        }
    }
    assert_eq!(sizes, [60, 7]);
}

/// Drives both ends until an operation of `a` has reported.
fn wait_for(a: &mut Channel, b: &mut Channel, ticket: Ticket) {
    let until = Instant::now() + Duration::from_secs(60);
    while a.test(ticket).unwrap().is_none() {
        assert!(Instant::now() < until, "no completion within 60 s");
        a.progress().unwrap();
        b.progress().unwrap();
    }
}

/// The connection has a fabric of its own, which is not the last one of the process.
#[test]
fn what_a_connection_with_a_traffic_class_has_sent_arrives_after_its_end_also_where_the_peer_stood_still() {
    const LEN: usize = 512 << 10;
    let far = fabric(&[], false);
    let (mut a, mut b) = between(&far.with_traffic_class(8), &far);
    let (src, dst) = (StaticBuf::new(LEN), StaticBuf::new(LEN));
    let receives: Vec<Ticket> = (0..16).map(|_| b.post_recv(&[(0, dst.slice())]).unwrap().unwrap()).collect();
    for _ in 0..100 {
        b.progress().unwrap();
    }
    let mut sent = 0;
    for _ in &receives {
        let ticket = a.post_send(0, src.slice()).unwrap();
        let done = ticket.is_some_and(|ticket| {
            (0..2000).any(|_| {
                a.progress().unwrap();
                a.test(ticket).unwrap().is_some()
            })
        });
        if !done {
            break;
        }
        sent += 1;
    }
    assert!((1..16).contains(&sent), "{sent} of 16 messages were taken by the kernel");
    drop(a);
    // What this side says now must not be answered by a reset.
    assert!(b.post_recv(&[(0, dst.slice())]).unwrap().is_some());
    let until = Instant::now() + Duration::from_secs(60);
    for (number, ticket) in receives.iter().take(sent).enumerate() {
        while b.test(*ticket).unwrap_or_else(|error| panic!("message {number} of {sent}: {error}")).is_none() {
            assert!(Instant::now() < until, "message {number} of {sent} did not come within 60 s");
            let _ = b.progress();
        }
    }
}

/// Bytes sent and received and operations sent and received, as the processes of this directory report them.
fn counted(dir: &Path) -> [u64; 4] {
    let found = stats::read(dir).unwrap();
    let records = || found.iter().flat_map(|process| &process.records);
    [Counter::TxBytes, Counter::RxBytes, Counter::TxOps, Counter::RxOps]
        .map(|counter| records().map(|record| record.counters[counter as usize]).sum())
}

/// Messages as the library and as NCCL take them, those that come before their receive, reads and writes, all small and large.
#[test]
fn what_one_side_sends_is_what_the_other_has_received_in_the_statistics() {
    for path in ["tcp", "shm", "verbs"] {
        let net = SoftNet::new(1);
        let dirs = ["here", "there"]
            .map(|side| std::env::temp_dir().join(format!("linkspan-pair-{path}-{side}-{}", std::process::id())));
        let [near, far] = [0, 1].map(|n| {
            let dir = dirs[n].display().to_string();
            let get = move |name: &str| match name {
                "LINKSPAN_IFNAME" => Some("=lo".to_owned()),
                "LINKSPAN_PATH" => Some(path.to_owned()),
                "LINKSPAN_STATS_DIR" => Some(dir.clone()),
                _ => None,
            };
            let config = Config::read(&get).unwrap();
            if path == "verbs" {
                let nic = net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, 1 + n as u8), lo()));
                return Fabric::apart(config, Log::off(), true, vec![Box::new(Rdma::given(vec![nic]))]).unwrap();
            }
            Fabric::new(config, Log::off(), true, Vec::new()).unwrap()
        });
        let (mut a, mut b) = between(&near, &far);
        let (here, there) = (StaticBuf::new(1 << 20), StaticBuf::new(1 << 20));
        let key = b.expose(there.slice(), Access::ReadWrite).unwrap();
        let mut bytes = 0;
        for len in [8, 8192, 1 << 20] {
            let part = |buf: &StaticBuf| Buf::sub(&buf.slice(), 0, len as u64).unwrap();
            send_and_receive(&mut a, &mut b, len);
            let recv = b.post_recv(&[(1, part(&there))]).unwrap().unwrap();
            let until = Instant::now() + Duration::from_secs(60);
            let (mut send, mut sizes) = (None, [0]);
            while !b.test_sizes(recv, &mut sizes).unwrap() {
                assert!(Instant::now() < until, "no completion within 60 s");
                send = send.or_else(|| a.post_send(1, part(&here)).unwrap());
                a.progress().unwrap();
                b.progress().unwrap();
            }
            wait_for(&mut a, &mut b, send.unwrap());
            let to = RemoteSlice { key, offset: 0 };
            let write = a.post_write(part(&here), to, Some(1)).unwrap().unwrap();
            wait_for(&mut a, &mut b, write);
            let read = a.post_read(part(&here), to).unwrap().unwrap();
            wait_for(&mut a, &mut b, read);
            bytes += len as u64;
        }
        // It is posted before its receive and waits; another one waits and is withdrawn.
        let waits = a.post_send(4, here.slice()).unwrap().unwrap();
        let never = a.post_send(4, here.slice()).unwrap().unwrap();
        assert_eq!(a.cancel(never), Cancel::Withdrawn);
        let recv = b.post_recv(&[(4, there.slice())]).unwrap().unwrap();
        wait_for(&mut a, &mut b, waits);
        wait_for(&mut b, &mut a, recv);
        // It is there before its receive.
        let early = a.post_send(2, Buf::sub(&here.slice(), 0, 100).unwrap()).unwrap().unwrap();
        wait_for(&mut a, &mut b, early);
        let late = b.post_recv(&[(2, there.slice())]).unwrap().unwrap();
        wait_for(&mut b, &mut a, late);
        drop((a, b));
        assert_eq!(counted(&dirs[0]), [3 * bytes + 100 + (1 << 20), bytes, 11, 3], "{path}");
        assert_eq!(counted(&dirs[1]), [bytes, 3 * bytes + 100 + (1 << 20), 0, 8], "{path}");
        drop((near, far));
        for dir in dirs {
            std::fs::remove_dir_all(dir).unwrap();
        }
    }
}
