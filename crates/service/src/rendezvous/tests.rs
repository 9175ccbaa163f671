use std::io::Write;
use std::net::TcpListener;

use linkspan_fabric::keys;
use linkspan_topology::IfAddr;

use super::server::scoped;
use super::*;

fn one(peer: &str) -> SocketAddr {
    resolve(peer, PERF, None).unwrap().addrs[0]
}

#[test]
fn spellings_of_a_peer() {
    assert_eq!(one("127.0.0.1"), SocketAddr::from(([127, 0, 0, 1], PERF.port)));
    assert_eq!(one("127.0.0.1:77"), SocketAddr::from(([127, 0, 0, 1], 77)));
    assert_eq!(one("::1").to_string(), format!("[::1]:{}", PERF.port));
    assert_eq!(one("[::1]:77").to_string(), "[::1]:77");
    // As `lspan perf matrix` writes it.
    assert_eq!(one("::1:00077").to_string(), "[::1]:77");
    assert_eq!(one("[::1]").to_string(), format!("[::1]:{}", PERF.port));
    // The loopback interface is number 1 in every network namespace of Linux.
    assert_eq!(one("fe80::9%lo").to_string(), format!("[fe80::9%1]:{}", PERF.port));
    assert_eq!(one("[fe80::9%lo]:77").to_string(), "[fe80::9%1]:77");
    // What is printed is what is taken.
    assert_eq!(shown(&one("[fe80::9%lo]:77")), "[fe80::9%lo]:77");
    assert_eq!(shown(&"[fe80::9%4000000]:77".parse().unwrap()), "[fe80::9%4000000]:77");
    assert_eq!(shown(&one("10.0.0.1:77")), "10.0.0.1:77");
    let mistakes = ["", "a b", "-x", "127.0.0.1:x", "127.0.0.1:0", "127.0.0.1:99999"];
    let no_link = ["fe80::1", "[fe80::1]", "[fe80::1]:77", "fe80::1%no-such-if", "[fe80::1%no-such-if]:77"];
    for peer in mistakes.into_iter().chain(no_link) {
        let error = resolve(peer, PERF, None).unwrap_err();
        assert!(matches!(error, RendezvousError::Spelling { .. }), "{peer}");
        let text = error.to_string();
        assert!(text.contains(&format!("{peer:?}")) && text.contains("HOST:PORT"), "{text}");
    }
}

#[test]
fn a_paired_peer_is_where_it_was_and_has_its_key() {
    let dir = std::env::temp_dir().join(format!("linkspan-rendezvous-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let ring = Keyring::make_in(&dir, false).unwrap();
    let key = Keyring::make_in(&dir.join("other"), false).unwrap().public();
    let hosts = vec!["fe80::1%no-such-if".to_owned(), "127.0.0.9".to_owned()];
    ring.add(keys::Peer { name: "mini2.invalid".into(), key, hosts }).unwrap();
    let Found { key: found, addrs, .. } = resolve("mini2.invalid:80", PERF, Some(&ring)).unwrap();
    assert_eq!((found, addrs), (Some(key), vec![SocketAddr::from(([127, 0, 0, 9], 80))]));
    let Found { key: found, addrs, .. } = resolve("127.0.0.9", PERF, Some(&ring)).unwrap();
    assert_eq!((found, addrs.len()), (None, 1), "an address names nobody");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_link_local_address_is_waited_on_with_its_interface() {
    let addr = |ip: &str, scope| IfAddr { ip: ip.parse().unwrap(), prefix: 64, scope };
    assert_eq!(scoped(&addr("fe80::9", 3), 5).to_string(), "[fe80::9%3]:5");
    assert_eq!(scoped(&addr("10.1.0.1", 0), 5).to_string(), "10.1.0.1:5");
}

#[test]
fn an_impostor_is_named_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server =
        std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap());
    let error = ask(&addr.to_string(), PERF).unwrap_err();
    server.join().unwrap();
    assert!(error.to_string().contains("not `lspan perf serve`"), "{error}");
}

#[test]
fn what_answers_byte_by_byte_is_given_its_time_in_all_and_not_for_each() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        for byte in HELLO.into_iter().chain([0; HANDLE_LEN]) {
            // Each well within the time that there is.
            let gone = stream.set_read_timeout(Some(Duration::from_millis(100))).and_then(|()| stream.read(&mut [0]));
            if stream.write_all(&[byte]).is_err() || gone.is_ok() {
                return;
            }
        }
        panic!("all of it was taken");
    });
    let patience = Duration::from_millis(500);
    let stream = TcpStream::connect(addr).unwrap();
    let error = fetch(stream, FILES, patience).unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
    server.join().unwrap();
}

#[test]
fn a_server_of_files_that_asks_for_no_key_is_nobody_s_peer_however_it_was_named() {
    let peer = |service: Service, key| Peer {
        name: "10.0.0.2".into(),
        handle: [0; HANDLE_LEN],
        key,
        ring: None,
        keyed: service.keyed,
    };
    let text = |peer: Peer| peer.proof(false).map(drop).map_err(|error| error.to_string());
    assert!(text(peer(FILES, None)).unwrap_err().contains("lspan pair"));
    assert!(text(peer(PERF, None)).is_ok(), "with --open there is no key");
    let dir = std::env::temp_dir().join(format!("linkspan-unproven-{}", std::process::id()));
    let key = Keyring::make_in(&dir, false).unwrap().public();
    for service in [FILES, PERF] {
        assert!(text(peer(service, Some(key))).unwrap_err().contains("the name of a paired peer"));
        assert!(peer(service, Some(key)).proof(true).is_ok(), "a cluster key goes before");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn nobody_there() {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = ask(&addr.to_string(), PERF).unwrap_err();
    assert!(matches!(error, RendezvousError::NoPeer { .. }));
    let serve = format!("`lspan perf serve --port {}`", addr.port());
    assert!(error.to_string().contains("refused") && error.to_string().contains(&serve), "{error}");
}

#[test]
fn the_way_out_depends_on_what_went_wrong() {
    let hint = |service: Service, kind, port| service.hint(kind, "b:1", "b", port);
    let refused = io::ErrorKind::ConnectionRefused;
    assert!(hint(PERF, refused, PERF.port).starts_with("type `lspan perf serve` on b: it lets in paired peers"));
    assert!(hint(FILES, refused, 9).starts_with("type `lspan files serve --port 9 NAME=DIR` on b"));
    assert!(hint(LIBRARY, refused, 9).starts_with("let a program serve an endpoint or a listener at this port on b"));
    for kind in [io::ErrorKind::NetworkUnreachable, io::ErrorKind::HostUnreachable] {
        assert!(hint(PERF, kind, PERF.port).contains("`lspan doctor b:1`"), "{kind}");
    }
    assert!(hint(PERF, io::ErrorKind::WouldBlock, 1).contains("another program has port 1 on b"));
}

#[test]
fn a_program_that_says_nothing_or_hangs_up_does_not_serve() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    // The backlog takes the connection.
    let error = answers(&addr, PERF, Duration::from_millis(100)).unwrap_err();
    assert!(error.to_string().contains("said nothing"), "{error}");
    let server = std::thread::spawn(move || {
        // The one of before is still in the backlog.
        drop([listener.accept().unwrap(), listener.accept().unwrap()]);
    });
    let error = answers(&addr, PERF, PATIENCE).unwrap_err();
    server.join().unwrap();
    assert!(error.to_string().contains("ended it"), "{error}");
}
