use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::login::MAC_LEN;

fn keys(byte: u8) -> Keys {
    let mut key = [byte; 32];
    key[0] ^= 0x55;
    Keys::new(&Psk::new(key))
}

fn port(name: &str, addr: Option<(&str, u8)>) -> MeshPort {
    MeshPort {
        name: name.into(),
        addr: addr.map(|(ip, prefix)| (ip.parse().unwrap(), prefix)),
        mtu: 9000,
        mbps: 200_000,
        carrier: true,
        rdma: true,
        gid: addr.is_some(),
        twin: None,
    }
}

fn beacon() -> Beacon {
    let node = Node {
        id: 7,
        epoch: 100,
        seq: 3,
        name: "spark-a".into(),
        relays: true,
        server_port: 7475,
        ports: vec![
            port("enp1s0f0np0", Some(("10.1.0.1", 24))),
            MeshPort { twin: Some(0), ..port("enP2p1s0f0np0", None) },
            port("enp1s0f1np1", Some(("fd00:1::1", 64))),
        ],
        heard: vec![Heard { port: 0, node: 9, theirs: 2 }],
    };
    Beacon { sender: 7, port: 2, epoch: 100, tick: 12, node }
}

#[test]
fn a_beacon_comes_back_as_it_went() {
    let bytes = beacon().encode(&keys(1));
    assert_eq!(Beacon::decode(&bytes, &keys(1)), Ok(beacon()));
    // About another node than its sender.
    let relayed = Beacon { sender: 8, port: 11, epoch: 5, ..beacon() };
    assert_eq!(Beacon::decode(&relayed.encode(&keys(1)), &keys(1)), Ok(relayed));
}

#[test]
fn golden_beacon() {
    let bytes = beacon().encode(&keys(1));
    assert_eq!(bytes.len(), 96 + 3 * 44 + 12 + MAC_LEN);
    assert_eq!(&bytes[..12], b"LSMB\x01\x02\x01\x03\x01\x07\x33\x1d");
    assert_eq!(&bytes[96..117], b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x01\x00\x01\x18\x0f\xff\0\x28");
}

#[test]
fn the_longest_beacon_has_its_announced_length() {
    let mut full = beacon();
    full.node.name = "x".repeat(40);
    full.node.ports = vec![full.node.ports[0].clone(); PORTS_MAX + 3];
    full.node.heard = vec![Heard { port: 0, node: 9, theirs: 2 }; HEARD_MAX + 3];
    let bytes = full.encode(&keys(1));
    assert_eq!(bytes.len(), BEACON_MAX);
    let back = Beacon::decode(&bytes, &keys(1)).unwrap().node;
    assert_eq!((back.name.len(), back.ports.len(), back.heard.len()), (NAME_MAX, PORTS_MAX, HEARD_MAX));
}

#[test]
fn every_changed_bit_and_every_other_key_is_refused() {
    let bytes = beacon().encode(&keys(1));
    assert!(Beacon::decode(&bytes, &keys(2)).is_err());
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Beacon::decode(&bad, &keys(1)).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(Beacon::decode(&bytes[..len], &keys(1)).is_err(), "{len} bytes");
    }
}

/// A peer that holds the key may still lie: each field is bent and sealed again.
#[test]
fn sealed_nonsense_is_refused() {
    let k = keys(1);
    let sealed = |at: usize, value: u8| {
        let mut bytes = beacon().encode(&k);
        bytes.truncate(bytes.len() - MAC_LEN);
        bytes[at] = value;
        k.seal(&mut bytes);
        Beacon::decode(&bytes, &k)
    };
    assert!(sealed(95, 0).is_ok());
    let port0 = 96;
    let heard0 = 96 + 3 * 44;
    for (at, value) in [
        (4, 9),               // version
        (5, 3),               // a sending port that is not there
        (6, 0x80),            // node flags
        (7, 4),               // number of ports
        (8, 2),               // number of neighbours
        (9, 33),              // length of the name
        (12, 1),              // reserved
        (port0 + 12, 127),    // a loopback address
        (port0 + 12, 224),    // a multicast address
        (port0 + 16, 33),     // prefix
        (port0 + 17, 0x1f),   // port flags
        (port0 + 18, 3),      // twin
        (port0 + 19, 1),      // reserved
        (port0 + 28 + 15, 1), // fine as long as an end is there before it
        (heard0, 3),          // hearing port
        (heard0 + 2, 1),      // reserved
        (heard0 + 4, 7),      // hears itself
    ] {
        let fine = at == port0 + 28 + 15;
        assert_eq!(sealed(at, value).is_ok(), fine, "byte {at} = {value}");
    }
}

#[test]
fn names_of_peers_are_cleaned() {
    let mut odd = beacon();
    odd.node.name = "a\x1b[31m\u{e9}".into();
    let name = Beacon::decode(&odd.encode(&keys(1)), &keys(1)).unwrap().node.name;
    assert_eq!(name, "a?[31m??");
    assert_eq!(Beacon::claimed_name(&odd.encode(&keys(2))).unwrap(), "a?[31m??");
}

#[test]
fn an_interface_of_a_peer_is_one_plain_word_of_a_command() {
    for (name, plain) in [
        ("enp1s0f0np0", "enp1s0f0np0"),
        ("br-a.7_b:1@x", "br-a.7_b:1@x"),
        ("d;id>x", "d_id_x"),
        ("-all", "_all"),
        ("$(id)`&|\\'\"", "__id_______"),
        ("a b\x1b\u{e9}", "a_b___"),
    ] {
        let mut odd = beacon();
        odd.node.ports[0].name = name.into();
        let read = Beacon::decode(&odd.encode(&keys(1)), &keys(1)).unwrap();
        assert_eq!(read.node.ports[0].name, plain);
    }
}

/// What a host with another key calls itself is read before anything is proven.
#[test]
fn the_claimed_name_is_read_from_any_bytes_and_is_none_for_what_is_no_beacon() {
    let bytes = beacon().encode(&keys(2));
    assert_eq!(Beacon::claimed_name(&bytes), Some(beacon().node.name));
    let relayed = Beacon { sender: 8, ..beacon() }.encode(&keys(2));
    assert_eq!(Beacon::claimed_name(&relayed), None, "it tells of another host than its sender");
    assert_eq!(Beacon::claimed_name(&[0; BEACON_MAX]), None, "no magic");
    assert_eq!(Beacon::claimed_name(&bytes[..95]), None, "cut in the head");
    assert_eq!(Beacon::claimed_name(&[&bytes[..], &[0; BEACON_MAX]].concat()), None, "longer than any");
    let mut bad = bytes.clone();
    bad[9] = 33;
    assert_eq!(Beacon::claimed_name(&bad), None, "a name longer than its field");
    for bit in 0..96 * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let clean = |name: String| name.len() <= 32 && name.bytes().all(|b| (b' '..=b'~').contains(&b));
        assert!(Beacon::claimed_name(&bad).is_none_or(clean), "bit {bit}");
    }
}

fn hop(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn requests_come_back_as_they_went() {
    let path: Vec<SocketAddr> = (1..=HOPS_MAX).map(|n| hop(&format!("10.0.{n}.1:7475"))).collect();
    for request in [
        Request::Relay(vec![hop("10.0.0.1:9")]),
        Request::Relay(path),
        Request::Sink,
        Request::Measure(hop("[fd00::1]:7475")),
    ] {
        let bytes = request.encode();
        assert!(bytes.len() <= crate::login::BLOB_MAX);
        assert_eq!(Request::decode(&bytes), Ok(request));
    }
}

#[test]
fn impossible_requests_are_refused() {
    let good = Request::Relay(vec![hop("10.0.0.1:9"), hop("10.0.1.1:9")]).encode();
    assert_eq!(good.len(), 4 + 2 * 20);
    for len in 0..good.len() {
        assert!(Request::decode(&good[..len]).is_err(), "{len} bytes");
    }
    for (at, value) in [(0, 0), (0, 2), (0, 3), (0, 9), (1, 1), (1, 9), (2, 1), (4 + 12, 224), (4 + 18, 1)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(Request::decode(&bad).is_err(), "byte {at} = {value}");
    }
    let mut no_port = good.clone();
    no_port[4 + 16..4 + 18].fill(0);
    assert!(Request::decode(&no_port).is_err());
    let loops = Request::Relay(vec![hop("10.0.0.1:9"), hop("10.0.1.1:9"), hop("10.0.0.1:9")]).encode();
    assert!(Request::decode(&loops).unwrap_err().to_string().contains("loop"));
    let none = Request::Relay(Vec::new()).encode();
    assert!(Request::decode(&none).is_err());
}

#[test]
fn answers_are_bounded_and_cleaned() {
    let long = MeshReply::No("x".repeat(500)).encode();
    assert_eq!(MeshReply::decode(&long), Some(MeshReply::No("x".repeat(TEXT_MAX))));
    assert_eq!(MeshReply::decode(&MeshReply::Yes("9\n".into()).encode()), Some(MeshReply::Yes("9?".into())));
    for bad in [&[][..], &[2, b'x'], &[1; TEXT_MAX + 2]] {
        assert_eq!(MeshReply::decode(bad), None);
    }
}

#[test]
fn the_keys_of_one_cluster_differ_from_each_other_and_from_its_psk() {
    let psk = Psk::new([7; 32]);
    let keys = Keys::new(&psk);
    assert_ne!(&keys.token().expose()[..], &psk.expose()[..16]);
    assert_ne!(keys.beacon.expose(), psk.expose());
    assert_ne!(&keys.beacon.expose()[..16], &keys.token().expose()[..]);
    assert_eq!(Keys::new(&psk).token(), keys.token());
}

#[test]
fn a_hop_keeps_its_family() {
    let v6 = Request::Measure(SocketAddr::new(IpAddr::from([0xfd00u16, 0, 0, 0, 0, 0, 0, 1]), 1));
    assert_eq!(Request::decode(&v6.encode()), Ok(v6));
}
