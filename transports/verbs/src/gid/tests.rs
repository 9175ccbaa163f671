use std::net::Ipv4Addr;

use linkspan_verbs_sys::Gid;

use super::*;

fn entry(index: u8, gid: Gid, kind: GidKind, ifindex: u32) -> GidEntry {
    GidEntry { index, gid, kind, ifindex }
}

fn v6(first: u16) -> Gid {
    let mut gid = [1; 16];
    gid[..2].copy_from_slice(&first.to_be_bytes());
    Gid(gid)
}

#[test]
fn the_routable_ipv4_entry_of_the_interface_is_taken() {
    let v4 = |d| Gid::v4(Ipv4Addr::new(10, 0, d, 1));
    let auto = Gid::v4(Ipv4Addr::new(169, 254, 3, 4));
    let mut table = vec![
        entry(0, v6(0xfe80), GidKind::RoceV1, 2),
        entry(1, v6(0xfe80), GidKind::RoceV2, 2),
        entry(2, auto, GidKind::RoceV2, 2),
        entry(3, v6(0x2001), GidKind::RoceV2, 2),
        entry(4, v4(0), GidKind::RoceV1, 2),
        entry(5, v4(0), GidKind::RoceV2, 2),
        entry(6, v4(9), GidKind::RoceV2, 7),
    ];
    let index = |table: &[GidEntry], ifindex| choose_gid(table, ifindex, None).map(|e| e.index);
    assert_eq!(index(&table, 2), Some(5));
    assert_eq!(index(&table, 7), Some(6));
    assert_eq!(index(&table, 0), Some(5));
    assert_eq!(index(&table, 9), None);
    table.remove(5);
    assert_eq!(index(&table, 2), Some(3), "IPv6 in UDP before IPv4 that cannot be routed");
    table.remove(3);
    assert_eq!(index(&table, 2), Some(4));
    table.truncate(3);
    assert_eq!(index(&table, 2), None, "link-local ones alone are none");
    assert!(words(&table).contains("169.254.3.4"), "{}", words(&table));
}

/// Else one end takes its IPv4 address and the other, which has none, an IPv6 one: packets of neither reach the other.
#[test]
fn of_several_addresses_of_an_interface_that_is_taken_which_reaches_the_peer() {
    let v4 = Ipv4Addr::new(10, 0, 0, 1);
    let table = [
        entry(0, v6(0xfe80), GidKind::RoceV2, 2),
        entry(1, Gid::v4(v4), GidKind::RoceV2, 2),
        entry(2, v6(0xfd00), GidKind::RoceV1, 2),
        entry(3, v6(0xfd00), GidKind::RoceV2, 2),
        entry(4, v6(0xfd01), GidKind::RoceV2, 2),
    ];
    let index = |address: IpAddr| choose_gid(&table, 2, Some(address)).map(|e| e.index);
    let ip = |gid: Gid| IpAddr::from(gid.0);
    assert_eq!(index(ip(v6(0xfd00))), Some(3));
    assert_eq!(index(ip(v6(0xfd01))), Some(4));
    assert_eq!(index(v4.into()), Some(1));
    assert_eq!(index(Ipv4Addr::new(10, 0, 0, 9).into()), Some(1), "an address that has no entry");
    assert_eq!(index(ip(v6(0xfe80))), Some(1), "a link-local one leads to whatever answers first");
}
