//! What the silence of a keepalive connection proves of queue pairs, over NICs in software.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use linkspan_proto::login::{Guard, Psk};
use linkspan_stream::{Dial, Options};
use linkspan_transport::StaticBuf;
use linkspan_verbs::{Config as RailConfig, Domain, Setup, join};
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet, SoftNic};

use super::*;
use crate::reconnect::Dialled;
use crate::route::Path;
use crate::{Config, Log};

mod around;
mod stall;
mod waiting;

const LONG: Duration = Duration::from_secs(60);

type Lines = Arc<Mutex<Vec<String>>>;

fn fabric() -> (Fabric, Lines) {
    let lines = Lines::default();
    let said = lines.clone();
    let log = Log::to(move |_, line| said.lock().unwrap().push(line.to_owned()));
    let get = |name: &str| match name {
        "LINKSPAN_IFNAME" => Some("=lo".to_owned()),
        "LINKSPAN_STATS_DIR" => Some("off".to_owned()),
        _ => None,
    };
    (Fabric::apart(Config::read(&get).unwrap(), log, false, Vec::new()).unwrap(), lines)
}

/// Two channels over one queue pair each, whose ports are on a network interface of this name, and their NICs. Cards that
/// try again forever, as rdma_rxe does: they do not say that a cable is cut.
fn pair(interface: &str, keepalive: Keepalive) -> (SoftNet, [SoftNic; 2], [Channel; 2], Lines) {
    asking(interface, keepalive, RailConfig::default().ask_after)
}

fn asking(interface: &str, keepalive: Keepalive, ask_after: Duration) -> (SoftNet, [SoftNic; 2], [Channel; 2], Lines) {
    let net = SoftNet::new(1);
    let nics = [1, 2].map(|n| net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, n), 1)));
    let config = RailConfig { timeout: 31, interface: interface.into(), ask_after, ..RailConfig::default() };
    let [one, two] = nics.each_ref().map(|nic| Setup::new(Domain::new(nic.clone()), config.clone()).unwrap());
    let (one, two) = join(one, two).unwrap();
    let (fabric, lines) = fabric();
    let channel = |rail, keepalive| {
        let rail = fabric.staged(Box::new(rail));
        let (policy, device) = (ReconnectPolicy::Never, "lo".to_owned());
        let conn = Conn::new([rail], false);
        Channel::new(
            &fabric,
            Parts { conn, keepalive, policy, device, verb: "made", peer_key: None, left_out: Vec::new() },
        )
    };
    let ends = [channel(one, None), channel(two, Some(keepalive))];
    (net, nics, ends, lines)
}

/// A stream on `lo`, and its far end.
fn stream() -> (linkspan_stream::Stream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let mut dial = Dial::start(None, to, &Options::default(), LONG).unwrap();
    let stream = loop {
        if let Some(stream) = dial.poll().unwrap() {
            break stream;
        }
    };
    (stream, listener.accept().unwrap().0)
}

/// A keepalive connection that is about to fall silent, with its far end: the kernel gives up soon because what was written is not read
/// before, as it does when packets are not answered.
fn silenced() -> (Keepalive, TcpStream) {
    let (mut stream, far) = stream();
    while stream.try_write(&[0; 1 << 16]).unwrap().is_some() {}
    let socket = socket2::Socket::from(stream.as_fd().try_clone_to_owned().unwrap());
    let keepalive = Keepalive::new(stream);
    socket.set_tcp_user_timeout(Some(Duration::from_millis(50))).unwrap();
    (keepalive, far)
}

/// Two ends over loopback, as if on two hosts, with one more setting.
fn tcp(setting: (&str, &str)) -> [Channel; 2] {
    guarded(setting, Guard::Token)
}

fn guarded(setting: (&str, &str), guard: Guard) -> [Channel; 2] {
    let get = |name: &str| match name {
        "LINKSPAN_IFNAME" => Some("=lo".to_owned()),
        "LINKSPAN_STATS_DIR" => Some("off".to_owned()),
        "LINKSPAN_PATH" => Some("tcp".to_owned()),
        name => (name == setting.0).then(|| setting.1.to_owned()),
    };
    let config = Config { guard, ..Config::read(&get).unwrap() };
    let fabric = Fabric::apart(config, Log::off(), false, Vec::new()).unwrap();
    let listener = fabric.listen(0).unwrap();
    let real = Handle::decode(&listener.handle()).unwrap();
    let mut handle = Handle::new(real.listen_id, real.token.clone(), real.host ^ 1);
    handle.push(real.addrs()[0]).unwrap();
    let mut connecting = fabric.connect(0, &handle.encode()).unwrap();
    let (mut here, mut there) = (None, None);
    let since = Instant::now();
    while here.is_none() || there.is_none() {
        assert!(since.elapsed() < LONG);
        here = here.or_else(|| connecting.poll().unwrap());
        there = there.or_else(|| listener.accept().unwrap());
    }
    [here.unwrap(), there.unwrap()]
}

#[test]
fn rails_come_back_when_the_numbers_of_streams_have_run_out() {
    let [mut a, mut b] = tcp(("LINKSPAN_TCP_STREAMS", "2"));
    let ReconnectPolicy::Dials { next, .. } = &mut a.policy else { panic!("it dials") };
    *next = u16::MAX;
    let since = Instant::now();
    for number in [u16::MAX, crate::listener::FIRST_RETURN] {
        let slot = a.conn.rails().next().unwrap().0;
        let why = Down::PeerGone { path: String::new(), why: "lost".into() };
        a.conn.give_up_rail(slot, why).unwrap();
        assert_eq!(a.conn.rails().count(), 1);
        while a.conn.rails().count() < 2 || b.conn.rails().count() < 2 {
            assert!(since.elapsed() < LONG, "number {number} brings no rail back");
            a.progress().unwrap();
            b.progress().unwrap();
        }
    }
}

#[test]
fn a_stream_for_a_connection_that_is_over_is_not_kept() {
    let [a, b] = tcp(("LINKSPAN_TCP_STREAMS", "2"));
    let Channel { policy: ReconnectPolicy::Dials { handle, conn, next, .. }, fabric, .. } = &a else { panic!() };
    let ReconnectPolicy::Accepts { acceptor, conn: there, .. } = &b.policy else { panic!("it accepts") };
    let (acceptor, there) = (acceptor.clone(), **there);
    let dialled = Dialled { handle, conn: *conn, peer_key: None };
    // False: it was ended, not taken.
    let dial = |mut number: u16| {
        let mut way = Reconnector::now(Path::Plain { from: None, to: handle.addrs()[0].socket(), device: None });
        let (since, mut stream) = (Instant::now(), None);
        loop {
            assert!(since.elapsed() < LONG, "neither taken nor ended");
            if acceptor.lock().unwrap().returned(there).is_some() {
                return true;
            }
            stream = stream.or_else(|| way.poll(fabric, dialled, &mut number, Instant::now()));
            if stream.as_mut().is_some_and(|stream| stream.secured.read::<1>().is_err()) {
                return false;
            }
        }
    };
    assert!(dial(*next));
    drop(b);
    assert!(!dial(*next + 1));
}

#[test]
fn no_path_is_dialled_for_a_connection_that_its_peer_has_closed() {
    let [mut a, b] = tcp(("LINKSPAN_TCP_STREAMS", "2"));
    drop(b);
    let since = Instant::now();
    while !a.conn.peer_sent_goaway() {
        assert!(since.elapsed() < LONG);
        let _ = a.progress();
    }
    let ReconnectPolicy::Dials { reconnectors, .. } = &mut a.policy else { panic!("it dials") };
    let reach = reconnectors[0].reach().clone();
    *reconnectors = vec![Reconnector::now(reach)];
    a.take_back(Instant::now());
    let ReconnectPolicy::Dials { reconnectors, .. } = &a.policy else { panic!("it dials") };
    assert!(!reconnectors[0].is_busy());
}

fn said(lines: &Lines, what: &str) -> bool {
    lines.lock().unwrap().iter().any(|line| line.contains(what))
}

#[test]
fn a_queue_pair_on_the_interface_of_a_silent_keepalive_proves_nothing() {
    let (keepalive, _far) = silenced();
    let (net, [nic, _], [_a, mut b], lines) = pair("lo", keepalive);
    // The other end's cable: this end's own port stays up.
    net.cable(&nic, false);
    let since = Instant::now();
    while b.progress().is_ok() {
        assert!(since.elapsed() < LONG && !said(&lines, "other paths carry on"), "{lines:?}");
    }
    let why = b.lost().unwrap();
    assert!(why.starts_with("LS0101") && why.contains("timed out") && why.contains("lo 127.0.0.1"), "{why}");
}

/// As where the last relay of the only way left has died.
#[test]
fn a_last_queue_pair_that_nobody_answers_ends_what_no_keepalive_watches() {
    let (stream, _far) = stream();
    let (net, [nic, _], [mut a, _b], lines) = asking("lo", Keepalive::new(stream), Duration::from_millis(50));
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        assert!(a.progress().is_ok(), "the peer's card answers: {lines:?}");
    }
    net.cable(&nic, false);
    while a.progress().is_ok() {
        assert!(since.elapsed() < LONG, "{lines:?}");
    }
    let why = a.lost().unwrap();
    assert!(why.starts_with("LS0101") && why.contains("nothing has been acknowledged"), "{why}");
}

/// A keepalive connection whose far end was given up while the cable was away, and says so now that it is back.
fn reset() -> Keepalive {
    let (stream, far) = stream();
    socket2::SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    Keepalive::new(stream)
}

#[test]
fn one_on_another_interface_carries_on() {
    let (silent, _far) = silenced();
    for keepalive in [silent, reset()] {
        let (_net, _nics, ends, lines) = pair("another0", keepalive);
        carries_on(ends, &lines, || ());
    }
}

/// Both cables were out, and that of the other interface has just come back: its next transmission is still to come.
#[test]
fn one_on_another_interface_that_is_stalled_at_that_moment_is_waited_for() {
    let (silent, _far) = silenced();
    let (net, [_, nic], ends, lines) = pair("another0", silent);
    // A port that is down stalls its rails.
    net.cable(&nic, false);
    carries_on(ends, &lines, || net.cable(&nic, true));
}

#[test]
fn a_keepalive_that_ends_in_good_order_ends_everything() {
    let (near, far) = stream();
    drop(far);
    let (_net, _nic, [_a, mut b], lines) = pair("another0", Keepalive::new(near));
    let since = Instant::now();
    while b.progress().is_ok() {
        assert!(since.elapsed() < LONG && !said(&lines, "other paths carry on"), "{lines:?}");
    }
    assert!(matches!(b.peer_state(), PeerState::Gone), "its process has ended");
}

#[test]
fn what_the_rails_have_brought_is_read_before_the_end_of_the_keepalive_is_believed() {
    let (near, far) = stream();
    let (_net, _nic, [mut a, mut b], lines) = pair("another0", Keepalive::new(near));
    let (src, dst) = (StaticBuf::new(100), StaticBuf::new(100));
    let recvs: Vec<_> = (0..10).map(|_| b.post_recv(&[(1, dst.slice())]).unwrap().unwrap()).collect();
    let since = Instant::now();
    for _ in 0..recvs.len() {
        let send = loop {
            if let Some(send) = a.post_send(1, src.slice()).unwrap() {
                break send;
            }
            assert!(since.elapsed() < LONG, "{lines:?}");
            a.progress().unwrap();
        };
        while a.test(send).unwrap().is_none() {
            assert!(since.elapsed() < LONG, "{lines:?}");
            a.progress().unwrap();
        }
    }
    drop(far);
    while b.lost().is_none() {
        assert!(since.elapsed() < LONG, "{lines:?}");
        b.watch(Instant::now());
    }
    let missing = recvs.into_iter().filter(|&recv| !matches!(b.test(recv), Ok(Some(100)))).count();
    assert_eq!(missing, 0, "its last messages");
}

/// As a process that has what it wants and ends: both messages of [`Channel::swap`] are on their way, and so is the end.
#[test]
fn messages_are_swapped_with_a_peer_that_ends_at_once() {
    let psk = Psk::new([7; 32]);
    let [a, b] = guarded(("LINKSPAN_TCP_STREAMS", "1"), Guard::Psk { psk, encrypt: true });
    let a = std::cell::Cell::new(Some(a));
    let (src, dst) = (StaticBuf::new(5), StaticBuf::new(5));
    assert!(src.slice().fill(0, b"there"));
    // Asked when the other end has sent its message and is about to sleep.
    let swaps_and_ends = || {
        let Some(mut a) = a.take() else { return false };
        let (recv, send) =
            (a.post_recv(&[(1, dst.slice())]).unwrap().unwrap(), a.post_send(1, src.slice()).unwrap().unwrap());
        let since = Instant::now();
        let (mut received, mut sent) = (false, false);
        while !received || !sent {
            assert!(since.elapsed() < LONG);
            a.progress().unwrap();
            received = received || a.test(recv).unwrap().is_some();
            sent = sent || a.test(send).unwrap().is_some();
        }
        false
    };
    let (b, heard) = b.swap(1, b"here", 5, Instant::now() + LONG, &swaps_and_ends).unwrap();
    assert_eq!((&dst.slice().to_vec()[..4], &heard[..]), (&b"here"[..], &b"there"[..]));
    assert!(b.lost().is_some(), "it has seen the end");
}

/// The second end's keepalive connection falls silent; then `back`, and they go on.
fn carries_on([mut a, mut b]: [Channel; 2], lines: &Lines, back: impl FnOnce()) {
    let since = Instant::now();
    while !said(lines, "the keepalive connection is lost, other paths carry on") {
        assert!(since.elapsed() < LONG, "{lines:?}");
        b.progress().unwrap();
    }
    assert!(!said(lines, "is gone"), "the path is, and not the peer: {lines:?}");
    back();
    let (src, dst) = (StaticBuf::new(100_000), StaticBuf::new(100_000));
    assert!(src.slice().fill(0, &[7; 100_000]));
    let recv = b.post_recv(&[(1, dst.slice())]).unwrap().unwrap();
    let mut send = None;
    while b.test(recv).unwrap().is_none() {
        assert!(since.elapsed() < 2 * LONG, "{lines:?}");
        a.progress().unwrap();
        b.progress().unwrap();
        if send.is_none() {
            send = a.post_send(1, src.slice()).unwrap();
        }
    }
    assert!(dst.slice().to_vec().iter().all(|&byte| byte == 7));
}
