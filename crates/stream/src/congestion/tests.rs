use super::*;
use socket2::{Domain, Type};

fn socket() -> Socket {
    Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()
}

#[test]
fn near_and_far() {
    let near = |s: &str| nearness(s.parse().unwrap());
    for ip in ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(near(ip), Some("on this machine"), "{ip}");
    }
    for ip in ["169.254.1.1", "fe80::1"] {
        assert_eq!(near(ip), Some("on the same link"), "{ip}");
    }
    for ip in ["10.0.0.1", "172.31.0.1", "192.168.7.7", "fd00::1"] {
        assert_eq!(near(ip), Some("on a private network"), "{ip}");
    }
    for ip in ["192.0.2.1", "172.32.0.1", "2001:db8::1", "11.0.0.1"] {
        assert_eq!(near(ip), None, "{ip}");
    }
}

#[test]
fn a_pacing_default_is_replaced_nearby_and_kept_far_away() {
    let socket = socket();
    let default = current(&socket);
    let far = Congestion::apply(&socket, None, "192.0.2.1".parse().unwrap()).unwrap();
    assert_eq!(far.name, default);
    let near = Congestion::apply(&socket, None, "127.0.0.1".parse().unwrap()).unwrap();
    assert!(GOOD_NEARBY.contains(&near.name.as_str()), "{near:?}: neither cubic nor reno is in this kernel?");
    assert_eq!(current(&socket), near.name);
    if !GOOD_NEARBY.contains(&default.as_str()) {
        assert!(near.reason.contains(&default) && near.reason.contains("on this machine"), "{near:?}");
    }
}

/// That looks at all addresses of the machine, for each stream of a stranger too.
#[test]
fn where_the_peer_is_is_not_asked_where_the_answer_changes_nothing() {
    let asked = || -> Option<&'static str> { panic!("asked") };
    let socket = socket();
    Congestion::choose(&socket, Some("reno"), asked).unwrap();
    assert_eq!(Congestion::choose(&socket, None, asked).unwrap().name, "reno");
}

#[test]
fn an_accepted_stream_says_of_its_congestion_control_what_its_listener_did() {
    let options = crate::Options::default();
    let mut listen = crate::Listen::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let own = Congestion::apply_listening(&socket(), None, listen.local_addr().ip()).unwrap();
    let patience = std::time::Duration::from_secs(30);
    let mut dial = crate::Dial::start(None, listen.local_addr(), &options, patience).unwrap();
    let accepted = loop {
        let _ = dial.poll().unwrap();
        if let Some((accepted, _)) = listen.accept().unwrap() {
            break accepted;
        }
    };
    assert_eq!(accepted.congestion(), &own);
}

#[test]
fn the_asked_for_wins_and_an_unknown_one_is_named() {
    // reno is compiled into every kernel and always allowed.
    let socket = socket();
    let got = Congestion::apply(&socket, Some("reno"), "127.0.0.1".parse().unwrap()).unwrap();
    assert_eq!((got.name.as_str(), current(&socket).as_str()), ("reno", "reno"));
    let error = Congestion::apply(&socket, Some("warp"), "127.0.0.1".parse().unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("LS0305") && error.to_string().contains("warp"), "{error}");
}
