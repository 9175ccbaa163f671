use super::*;

fn at(addr: &str, prefix: u8) -> Interface {
    Interface {
        name: "x0".into(),
        index: 3,
        addr: addr.parse().unwrap(),
        prefix,
        up: true,
        running: true,
        loopback: false,
        point_to_point: false,
    }
}

#[test]
fn loopback_is_found_and_named() {
    let all = interfaces().unwrap();
    let lo = all.iter().find(|i| i.addr.is_loopback() && i.addr.is_ipv4()).expect("every machine has 127.0.0.1");
    assert!(lo.loopback && lo.up && lo.index > 0 && lo.prefix == 8, "{lo:?}");
    assert_eq!(interface_of(lo.addr, 0).unwrap().as_ref(), Some(lo));
    for one in &all {
        let index = std::fs::read_to_string(format!("/sys/class/net/{}/ifindex", one.name)).unwrap();
        assert_eq!(one.index.to_string(), index.trim(), "{one:?}");
    }
}

#[test]
fn all_of_127_is_the_loopback_interface() {
    let lo = interface_of("127.9.8.7".parse().unwrap(), 0).unwrap().expect("127/8 is loopback's");
    assert!(lo.loopback);
    // TEST-NET-1 (RFC 5737) belongs to no host.
    assert_eq!(interface_of("192.0.2.77".parse().unwrap(), 0).unwrap(), None);
}

#[test]
fn subnets_compare_their_leading_bits() {
    let ours = at("10.1.2.3", 23);
    assert!(ours.shares_subnet("10.1.3.200".parse().unwrap()));
    assert!(!ours.shares_subnet("10.1.4.1".parse().unwrap()));
    assert!(!ours.shares_subnet("::ffff:10.1.2.3".parse().unwrap()));
    assert!(at("10.1.2.3", 0).shares_subnet("192.0.2.1".parse().unwrap()));
    assert!(!at("10.1.2.3", 32).shares_subnet("10.1.2.2".parse().unwrap()));
    assert!(at("fe80::1", 64).shares_subnet("fe80::ffff".parse().unwrap()));
    assert!(!at("fd00::1", 128).shares_subnet("fd00::2".parse().unwrap()));
}

#[test]
fn masks_become_prefixes() {
    assert_eq!(prefix_of("255.255.254.0".parse().unwrap()), 23);
    assert_eq!(prefix_of("0.0.0.0".parse().unwrap()), 0);
    assert_eq!(prefix_of("ffff:ffff::".parse().unwrap()), 32);
}

#[test]
fn a_labelled_address_is_one_of_its_device() {
    assert_eq!(device("eth0:1"), "eth0");
    assert_eq!(device("eth0:backup:2"), "eth0");
    assert_eq!(device("eth0.7"), "eth0.7");
}
