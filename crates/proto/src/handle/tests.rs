use super::*;
use proptest::prelude::*;
use std::net::IpAddr;

fn addr(ip: &str, port: u16, prefix: u8) -> Addr {
    Addr { ip: ip.parse().unwrap(), port, prefix }
}

fn with(addrs: &[Addr]) -> Handle {
    let mut handle = Handle::new(0x1122_3344_5566_7788, Token::new(*b"0123456789abcdef"), 0xA1A2_A3A4_A5A6_A7A8);
    for addr in addrs {
        handle.push(*addr).unwrap();
    }
    handle
}

fn sample() -> Handle {
    let mut handle = with(&[
        addr("192.168.1.17", 4000, 24),
        addr("192.168.2.17", 4000, 24),
        addr("fe80::a11:22ff:fe33:4455", 4001, 64),
        addr("fd00::9", 4001, 48),
    ]);
    handle.psk = true;
    handle
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn golden_bytes() {
    let want = [
        "4c53504e",                             // "LSPN"
        "01",                                   // version
        "01",                                   // flags: PSK
        "04",                                   // addresses
        "2a",                                   // bytes of addresses
        "8877665544332211",                     // listen id
        "a8a7a6a5a4a3a2a1",                     // host hash
        "30313233343536373839616263646566",     // token
        "0018a00fc0a80111",                     // IPv4, /24, port 4000, 192.168.1.17
        "0a180211",                             // IPv4, same port, 2 bytes shared, /24
        "2140a10f0a1122fffe334455",             // IPv6, 8 bytes shared with fe80::, /64, port 4001
        "0330fd000000000000000000000000000009", // IPv6, same port, nothing shared, /48
    ];
    let wire = sample().encode();
    assert_eq!(hex(&wire[..82]), want.concat());
    assert_eq!(wire[82..], [0; 46]);
    assert_eq!(Handle::decode(&wire).unwrap(), sample());
}

#[test]
fn six_addresses_fit_as_the_notes_promise() {
    let v4: Vec<_> = (1..=6).map(|i| addr(&format!("10.{i}.{}.{}", i + 7, i + 9), 1000 + i, 24)).collect();
    let link: Vec<_> = (1..=6).map(|i| addr(&format!("fe80::{i}:2:3:{i}"), 4000, 64)).collect();
    let two: Vec<_> = (1..=6).map(|i| addr(&format!("2001:db8:0:{}:{i}::1", i / 4), 4000, 64)).collect();
    for addrs in [v4, link, two] {
        let handle = with(&addrs);
        assert_eq!(Handle::decode(&handle.encode()).unwrap().addrs(), addrs);
    }
}

#[test]
fn more_than_fit_are_refused_and_leave_the_handle_alone() {
    let mut handle = with(&(1..=6).map(|i| addr(&format!("10.0.{i}.1"), 4000, 24)).collect::<Vec<_>>());
    let one_more = addr("10.0.7.1", 4000, 24);
    assert_eq!(handle.push(one_more), Err(HandleError::Full { addr: one_more, held: 6 }));
    assert_eq!(handle.addrs().len(), 6);

    let mut handle = with(&[]);
    let far = |i: u32| addr(&format!("{i:x}001:db8:1:2:3:4:5:6"), 4000, 64);
    let fitting = (2..=7).take_while(|i| handle.push(far(*i)).is_ok()).count();
    assert_eq!(fitting, 3, "three IPv6 addresses with nothing in common fit");
    assert_eq!(Handle::decode(&handle.encode()).unwrap(), handle);
}

#[test]
fn addresses_that_nobody_can_connect_to_are_refused() {
    for (ip, port, prefix) in [
        ("0.0.0.0", 1, 0),
        ("::", 1, 0),
        ("224.0.0.1", 1, 4),
        ("ff02::1", 1, 8),
        ("10.0.0.1", 0, 8),
        ("10.0.0.1", 1, 33),
        ("fd00::1", 1, 129),
    ] {
        let got = with(&[]).push(addr(ip, port, prefix));
        assert!(matches!(got, Err(HandleError::BadAddr { .. })), "{ip} {port} {prefix}: {got:?}");
    }
}

fn broken(change: impl FnOnce(&mut [u8; HANDLE_LEN])) -> HandleError {
    let mut wire = sample().encode();
    change(&mut wire);
    Handle::decode(&wire).unwrap_err()
}

#[test]
fn each_fault_has_its_own_error() {
    assert_eq!(broken(|w| w[0] = 0), HandleError::Foreign(*b"\0SPN"));
    assert_eq!(broken(|w| w[4] = 2), HandleError::Version(2));
    assert_eq!(broken(|w| w[5] = 0x81), HandleError::Flags(0x81));
    assert_eq!(broken(|w| w[5] = 2), HandleError::Flags(2), "encryption needs a key");
    assert_eq!(broken(|w| w[5] = 5), HandleError::Flags(5), "one method or none");
    assert_eq!(broken(|w| w[6] = 0), HandleError::Count { count: 0, used: 42 });
    assert_eq!(broken(|w| w[6] = 7), HandleError::Count { count: 7, used: 42 });
    assert_eq!(broken(|w| w[7] = 73), HandleError::Count { count: 4, used: 73 });
    assert!(matches!(broken(|w| w[7] = 41), HandleError::Addr { index: 3, .. }));
    assert!(matches!(broken(|w| w[7] = 43), HandleError::Addr { index: 4, .. }));
    assert!(matches!(broken(|w| w[40] |= 2), HandleError::Addr { index: 0, .. }), "no port before the first");
    assert!(matches!(broken(|w| w[40] |= 4), HandleError::Addr { index: 0, .. }), "no address before the first");
    assert!(matches!(broken(|w| w[52] = 0x45), HandleError::Addr { index: 2, .. }), "17 shared bytes");
    assert!(matches!(broken(|w| w[40] |= 0x80), HandleError::Addr { index: 0, .. }));
    assert_eq!(broken(|w| w[90] = 1), HandleError::Spelling);
}

#[test]
fn another_version_names_both() {
    let text = broken(|w| w[4] = 9).to_string();
    assert!(text.contains("version 9") && text.contains("version 1"), "{text}");
}

#[test]
fn the_scratch_is_not_looked_at() {
    let mut wire = sample().encode();
    wire[SCRATCH_AT..].fill(0xEE);
    assert_eq!(Handle::decode(&wire).unwrap(), sample());
}

#[test]
fn debug_does_not_show_the_token() {
    let shown = format!("{:?}", sample());
    assert!(shown.contains("(secret)"));
    for form in ["0123456789abcdef", "30313233", "48, 49, 50"] {
        assert!(!shown.contains(form), "{shown}");
    }
}

#[test]
fn subnets() {
    let here = addr("10.1.2.3", 1, 24);
    assert!(here.same_subnet("10.1.2.200".parse().unwrap()));
    assert!(!here.same_subnet("10.1.3.3".parse().unwrap()));
    assert!(!here.same_subnet("fe80::1".parse().unwrap()));
    assert!(addr("10.1.2.3", 1, 0).same_subnet("99.0.0.1".parse().unwrap()));
    assert!(addr("fd00::1", 1, 0).same_subnet("2001::1".parse().unwrap()));
    assert!(!addr("fd00::1", 1, 128).same_subnet("fd00::2".parse().unwrap()));
}

#[test]
fn host_hash_is_pinned_and_ignores_the_line_end() {
    let id = b"2f0e6f3c-6f3b-4c36-a5a3-0d2d5a0f6f10";
    // Computed with another SHA-256 (Python's hashlib).
    assert_eq!(host_hash(id), 0x116a_797e_0211_e2b1);
    assert_eq!(host_hash(id), host_hash(b"2f0e6f3c-6f3b-4c36-a5a3-0d2d5a0f6f10\n"));
    assert_ne!(host_hash(id), host_hash(b"2f0e6f3c-6f3b-4c36-a5a3-0d2d5a0f6f11"));
}

fn any_addr() -> impl Strategy<Value = Addr> {
    let v4 = (any::<[u8; 4]>(), 0..=32u8).prop_map(|(ip, prefix)| (IpAddr::from(ip), prefix));
    let v6 = (any::<[u8; 16]>(), 0..=16usize, 0..=128u8).prop_map(|(mut ip, shared, prefix)| {
        ip[..shared].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8][..shared]);
        (IpAddr::from(ip), prefix)
    });
    (prop_oneof![v4, v6], prop_oneof![Just(4000), 1..u16::MAX])
        .prop_map(|((ip, prefix), port)| Addr { ip, port, prefix })
        .prop_filter("connectable", |addr| addr.fault().is_none())
}

proptest! {
    #[test]
    fn decode_is_total(bytes: [u8; HANDLE_LEN]) {
        let _ = Handle::decode(&bytes);
    }

    #[test]
    fn decode_is_total_behind_a_good_start(count in 1..=6u8, used in 0..=72u8, tail: [u8; 120]) {
        let mut bytes = [0; HANDLE_LEN];
        bytes[..8].copy_from_slice(&[b'L', b'S', b'P', b'N', 1, 0, count, used]);
        bytes[8..].copy_from_slice(&tail);
        if let Ok(handle) = Handle::decode(&bytes) {
            prop_assert_eq!(&handle.encode()[..SCRATCH_AT], &bytes[..SCRATCH_AT]);
        }
    }

    #[test]
    fn one_flipped_bit_never_gives_the_same_handle(bit in 0..SCRATCH_AT * 8) {
        let mut wire = sample().encode();
        wire[bit / 8] ^= 1 << (bit % 8);
        prop_assert_ne!(Handle::decode(&wire).ok(), Some(sample()));
    }

    #[test]
    fn round_trip(addrs in proptest::collection::vec(any_addr(), 1..=6), psk: bool) {
        let mut handle = with(&[]);
        handle.psk = psk;
        for addr in addrs {
            if handle.push(addr).is_err() {
                break;
            }
        }
        prop_assert_eq!(Handle::decode(&handle.encode()).unwrap(), handle);
    }
}
