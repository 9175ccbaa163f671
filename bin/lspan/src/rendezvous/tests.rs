use super::*;

#[test]
fn spellings_of_a_peer() {
    let one = |peer: &str| resolve(peer).unwrap()[0];
    assert_eq!(one("127.0.0.1"), SocketAddr::from(([127, 0, 0, 1], PORT)));
    assert_eq!(one("127.0.0.1:77"), SocketAddr::from(([127, 0, 0, 1], 77)));
    assert_eq!(one("::1").to_string(), format!("[::1]:{PORT}"));
    assert_eq!(one("[::1]:77").to_string(), "[::1]:77");
    assert_eq!(one("[::1]").to_string(), format!("[::1]:{PORT}"));
    // The loopback interface is number 1 in every network namespace of Linux.
    assert_eq!(one("fe80::9%lo").to_string(), format!("[fe80::9%1]:{PORT}"));
    assert_eq!(one("[fe80::9%lo]:77").to_string(), "[fe80::9%1]:77");
    for peer in ["", "a b", "-x", "127.0.0.1:x", "127.0.0.1:0", "127.0.0.1:99999"] {
        let failure = resolve(peer).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{peer}");
        assert!(
            failure.message.contains(&format!("{peer:?}")) && failure.message.contains("HOST:PORT"),
            "{}",
            failure.message
        );
    }
}

#[test]
fn a_link_local_address_is_waited_on_with_its_interface() {
    let addr = |ip: &str, scope| IfAddr { ip: ip.parse().unwrap(), prefix: 64, scope };
    assert_eq!(scoped(&addr("fe80::9", 3), PORT).to_string(), format!("[fe80::9%3]:{PORT}"));
    assert_eq!(scoped(&addr("10.1.0.1", 0), PORT).to_string(), format!("10.1.0.1:{PORT}"));
}

#[test]
fn an_impostor_is_named_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server =
        std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap());
    let failure = ask(&addr.to_string()).unwrap_err();
    server.join().unwrap();
    assert_eq!(failure.exit, Exit::NoPeer);
    assert!(failure.message.contains("not `lspan perf serve`"), "{}", failure.message);
}

#[test]
fn nobody_there() {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let failure = ask(&addr.to_string()).unwrap_err();
    assert_eq!(failure.exit, Exit::NoPeer);
    assert!(failure.message.contains("refused") && failure.message.contains("perf serve"), "{}", failure.message);
}
