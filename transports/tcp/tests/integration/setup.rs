//! Dialling, listening and options.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, V4, V6, streams, until};
use linkspan_net::WaitSet;
use linkspan_stream::Error;
use linkspan_stream::{Dial, Ended, Keepalive, Listen, Options};
use linkspan_tcp::{RailConfig, TcpRail};
use linkspan_transport::{Down, Rail};
use socket2::SockRef;

fn dial_to_end(mut dial: Dial) -> Error {
    until("the end of a dial", || dial.poll().err())
}

#[test]
fn bytes_travel_both_ways_over_both_families() {
    for at in [V4, V6] {
        let (mut a, mut b) = streams(at, &Options::default());
        assert_eq!((a.local_addr(), a.peer_addr()), (b.peer_addr(), b.local_addr()));
        let mut buf = [0; 8];
        assert_eq!(a.try_read(&mut buf).unwrap(), None);
        assert_eq!(a.try_write(b"ping").unwrap(), Some(4));
        assert_eq!(until("ping", || b.try_read(&mut buf).unwrap()), 4);
        assert_eq!(b.try_write(b"pong!").unwrap(), Some(5));
        assert_eq!(until("pong", || a.try_read(&mut buf).unwrap()), 5);
        assert_eq!(&buf[..5], b"pong!");
        drop(b);
        assert_eq!(until("end", || a.try_read(&mut buf).unwrap()), 0);
    }
}

#[test]
fn a_rail_tells_what_it_is() {
    for at in [V4, V6] {
        let (a, b) = streams(at, &Options::default());
        assert_eq!((a.interface().as_str(), a.is_local()), ("lo", true));
        let path = format!("lo {} -> {}", a.local_addr(), b.local_addr());
        let config = RailConfig { reason: "a test".into(), speed: 7, ..RailConfig::default() };
        let rail = TcpRail::new(a, config, &[]).unwrap();
        let info = rail.info();
        assert_eq!((info.transport, &info.path, info.reason.as_str()), ("tcp", &path, "a test"));
        assert!(info.caps.ordered && info.caps.local && !info.caps.one_sided && !info.caps.device_memory);
        assert_eq!((info.caps.speed, info.caps.chunk), (7, linkspan_tcp::CHUNK));
    }
}

#[test]
fn every_option_is_on_both_ends() {
    let options = Options {
        congestion: Some("reno".into()),
        traffic_class: Some(0x28),
        send_buffer: Some(100_000),
        recv_buffer: Some(120_000),
        device: None,
    };
    for at in [V4, V6] {
        let (a, b) = streams(at, &options);
        for end in [&a, &b] {
            assert_eq!((end.congestion().name.as_str(), end.congestion().reason.as_str()), ("reno", "as asked for"));
            let socket = SockRef::from(end);
            assert!(socket.tcp_congestion().unwrap().starts_with(b"reno"));
            let class = if at == V4 { socket.tos_v4() } else { socket.tclass_v6() };
            assert_eq!(class.unwrap(), 0x28);
            // The kernel doubles what is asked for (socket(7)).
            assert_eq!(socket.send_buffer_size().unwrap(), 200_000);
            assert_eq!(socket.recv_buffer_size().unwrap(), 240_000);
            assert!(socket.tcp_nodelay().unwrap() && socket.nonblocking().unwrap());
            // A dead host is found within 30 s of silence, and a full window never kills.
            let (time, every) = (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
            let found = time + every * socket.tcp_keepalive_retries().unwrap();
            assert!(socket.keepalive().unwrap() && found <= Duration::from_secs(30), "{found:?}");
            assert_eq!(socket.tcp_user_timeout().unwrap(), None);
        }
    }
}

#[test]
fn a_pacing_default_is_replaced_on_both_ends() {
    let (a, b) = streams(V4, &Options::default());
    for end in [&a, &b] {
        assert!(["cubic", "dctcp", "reno"].contains(&end.congestion().name.as_str()), "{:?}", end.congestion());
        let name = SockRef::from(end).tcp_congestion().unwrap();
        assert!(name.starts_with(end.congestion().name.as_bytes()));
    }
}

#[test]
fn children_of_this_process_inherit_nothing() {
    let listen = Listen::bind(V4.parse().unwrap(), &Options::default()).unwrap();
    let (a, b) = streams(V4, &Options::default());
    for fd in [listen.wait_fd().unwrap().fd, a.as_fd().as_raw_fd(), b.as_fd().as_raw_fd()] {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        let flags = info.lines().find_map(|l| l.strip_prefix("flags:")).unwrap().trim();
        // O_CLOEXEC and O_NONBLOCK of asm-generic/fcntl.h.
        let flags = u32::from_str_radix(flags, 8).unwrap();
        assert_eq!(flags & 0o2_004_000, 0o2_004_000, "{info}");
    }
}

#[test]
fn every_interface_is_refused() {
    for any in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0"] {
        let error = Listen::bind(any.parse().unwrap(), &Options::default()).unwrap_err();
        assert!(matches!(error, Error::Unspecified { .. }), "{error}");
        assert!(error.to_string().starts_with("LS0303"));
    }
}

#[test]
fn an_address_of_another_machine_is_refused() {
    // TEST-NET-1, RFC 5737.
    let foreign: SocketAddr = "192.0.2.1:0".parse().unwrap();
    let listen = Listen::bind(foreign, &Options::default()).unwrap_err();
    assert!(matches!(listen, Error::Bind { .. }) && listen.to_string().contains("192.0.2.1"), "{listen}");
    let limit = Duration::from_secs(1);
    let dial = Dial::start(Some(foreign), "127.0.0.1:9".parse().unwrap(), &Options::default(), limit).unwrap_err();
    assert!(matches!(dial, Error::Bind { .. }), "{dial}");
}

#[test]
fn a_port_in_use_is_refused_and_one_that_was_used_is_not() {
    let free = TcpListener::bind(V4).unwrap().local_addr().unwrap();
    let mut listen = Listen::bind(free, &Options::default()).unwrap();
    let addr = listen.local_addr();
    assert!(matches!(Listen::bind(addr, &Options::default()), Err(Error::Bind { .. })));
    // A connection whose listening side closes first leaves the port in TIME_WAIT.
    let mut dial = Dial::start(None, addr, &Options::default(), PATIENCE).unwrap();
    let mut a = until("connect", || dial.poll().unwrap());
    let (b, _) = until("accept", || listen.accept().unwrap());
    drop((b, listen));
    assert_eq!(until("end", || a.try_read(&mut [0; 1]).unwrap()), 0);
    drop(a);
    Listen::bind(addr, &Options::default()).unwrap();
}

#[test]
fn unknown_values_are_named() {
    let limit = Duration::from_secs(1);
    let remote: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let warp = Options { congestion: Some("warp".into()), ..Options::default() };
    let error = Dial::start(None, remote, &warp, limit).unwrap_err();
    assert!(matches!(&error, Error::Congestion { name, .. } if name == "warp"), "{error}");
    let none = Options { device: Some("nosuchdev0".into()), ..Options::default() };
    let error = Dial::start(None, remote, &none, limit).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("SO_BINDTODEVICE") && text.contains("nosuchdev0"), "{text}");
    assert!(Listen::bind(V4.parse().unwrap(), &none).is_err());
}

#[test]
fn a_closed_port_is_a_refusal_from_the_chosen_address() {
    // A port that was just free; it has no listener.
    let port = TcpListener::bind(V4).unwrap().local_addr().unwrap().port();
    let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let from: SocketAddr = "127.0.0.5:0".parse().unwrap();
    let start = Dial::start(Some(from), remote, &Options::default(), PATIENCE);
    let error = start.map_or_else(|e| e, dial_to_end);
    let text = error.to_string();
    assert!(matches!(error, Error::Connect { .. }), "{text}");
    assert!(text.contains("127.0.0.5") && text.contains(&remote.to_string()), "{text}");
}

#[test]
fn the_chosen_address_is_the_one_the_peer_sees() {
    let mut listen = Listen::bind(V4.parse().unwrap(), &Options::default()).unwrap();
    let from: SocketAddr = "127.0.0.5:0".parse().unwrap();
    let mut dial = Dial::start(Some(from), listen.local_addr(), &Options::default(), PATIENCE).unwrap();
    let a = until("connect", || dial.poll().unwrap());
    assert!(dial.wait_fd().is_none());
    let (_, seen) = until("accept", || listen.accept().unwrap());
    assert_eq!((a.local_addr(), seen.ip()), (seen, from.ip()));
    assert_eq!(a.interface(), "lo");
}

#[test]
fn a_dial_that_reaches_itself_is_a_refusal() {
    let port = TcpListener::bind(V4).unwrap().local_addr().unwrap().port();
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let dial = Dial::start(Some(addr), addr, &Options::default(), PATIENCE).unwrap();
    let error = dial_to_end(dial);
    assert!(matches!(error, Error::Itself { .. }) && error.to_string().starts_with("LS0308"), "{error}");
}

#[test]
fn silence_ends_at_the_deadline() {
    // A listener whose queue is full drops further requests, as a dead host would.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = V4.parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    let limit = Duration::from_millis(300);
    let mut waiting = Vec::new();
    let (start, error) = until("a full queue", || {
        let start = Instant::now();
        let mut dial = Dial::start(None, addr, &Options::default(), limit).unwrap();
        loop {
            match dial.poll() {
                Ok(Some(stream)) => {
                    waiting.push(stream);
                    return None;
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return Some((start, error)),
            }
        }
    });
    assert!(matches!(error, Error::Timeout { ms: 300, .. }), "{error}");
    assert!(start.elapsed() >= limit && start.elapsed() < limit * 50);
    assert!(error.to_string().contains(&addr.to_string()));
}

#[test]
fn a_dial_and_a_listener_can_be_slept_on() {
    let mut listen = Listen::bind(V4.parse().unwrap(), &Options::default()).unwrap();
    assert!(listen.accept().unwrap().is_none());
    let mut dial = Dial::start(None, listen.local_addr(), &Options::default(), PATIENCE).unwrap();
    let mut set = WaitSet::new();
    set.add(dial.wait_fd().unwrap().0);
    assert_eq!(set.wait(Some(PATIENCE)).unwrap(), 1);
    assert!(dial.poll().unwrap().is_some());
    set.clear();
    set.add(listen.wait_fd().unwrap());
    assert_eq!(set.wait(Some(PATIENCE)).unwrap(), 1);
    assert!(listen.accept().unwrap().is_some());
}

#[test]
fn a_connection_that_is_gone_before_it_is_accepted_harms_nobody() {
    let mut listen = Listen::bind(V4.parse().unwrap(), &Options::default()).unwrap();
    for _ in 0..20 {
        let raw = std::net::TcpStream::connect(listen.local_addr()).unwrap();
        SockRef::from(&raw).set_linger(Some(Duration::ZERO)).unwrap();
        drop(raw);
    }
    let raw = std::net::TcpStream::connect(listen.local_addr()).unwrap();
    let ours = raw.local_addr().unwrap();
    until("the good one", || listen.accept().unwrap().filter(|(_, from)| *from == ours));
}

#[test]
fn a_thousand_connections_come_and_go() {
    let mut listen = Listen::bind(V4.parse().unwrap(), &Options::default()).unwrap();
    for _ in 0..1000 {
        let mut dial = Dial::start(None, listen.local_addr(), &Options::default(), PATIENCE).unwrap();
        let a = until("connect", || dial.poll().unwrap());
        let (b, _) = until("accept", || listen.accept().unwrap());
        drop((a, b));
    }
}

#[test]
fn a_keepalive_sees_the_end_and_minds_chatter() {
    let (a, mut b) = streams(V4, &Options::default());
    let mut keepalive = Keepalive::new(a);
    keepalive.check().unwrap();
    b.try_write(b"x").unwrap();
    let down = until("chatter", || keepalive.check().err());
    assert!(matches!(down, Down::Protocol { .. }), "{down}");
    let (a, b) = streams(V4, &Options::default());
    let mut keepalive = Keepalive::new(a);
    drop(b);
    let down = until("end", || keepalive.check().err());
    assert!(matches!(down, Down::PeerGone { .. }), "{down}");
    assert_eq!(keepalive.ended(), Some(Ended::Closed));
}

#[test]
fn a_keepalive_ends_after_25_s_although_bytes_of_the_login_are_outstanding() {
    let (a, _b) = streams(V4, &Options::default());
    let socket = SockRef::from(&a).try_clone().unwrap();
    let _keepalive = Keepalive::new(a);
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(25)));
}

#[test]
fn a_keepalive_tells_a_side_that_leaves_from_one_that_is_gone() {
    let both = || {
        let (a, b) = streams(V4, &Options::default());
        (Keepalive::new(a), Keepalive::new(b))
    };
    let ended = |keepalive: &mut Keepalive| {
        until("end", || keepalive.check().err());
        keepalive.ended()
    };
    // One leaves; the other one finds that, answers, and both know.
    let (mut a, mut b) = both();
    a.check().unwrap();
    a.leave();
    assert_eq!(ended(&mut b), Some(Ended::Left));
    b.leave();
    drop(b);
    assert_eq!(ended(&mut a), Some(Ended::Left));
    // Both leave at once, and close with the other one's byte unread.
    let (mut a, mut b) = both();
    a.leave();
    b.leave();
    drop(b);
    assert_eq!(ended(&mut a), Some(Ended::Left));
    // Gone before a word, and gone with our word unread: that ends in a reset.
    let (mut a, b) = both();
    drop(b);
    assert_eq!(ended(&mut a), Some(Ended::Closed));
    let (mut a, b) = both();
    a.leave();
    std::thread::sleep(Duration::from_millis(20));
    drop(b);
    assert_eq!(ended(&mut a), Some(Ended::Closed));
}
