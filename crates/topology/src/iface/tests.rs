use super::*;
use crate::fixture::Fixture;

fn entry(name: &str, ip: &str, prefix: u8) -> AddrEntry {
    AddrEntry { name: name.into(), ip: ip.parse().unwrap(), prefix, scope: 0 }
}

#[test]
fn only_link_local_addresses_have_the_scope_of_their_interface() {
    for (ip, scope) in [("fe80::1", 7), ("fd00::1", 0), ("169.254.0.1", 0), ("10.0.0.1", 0)] {
        assert_eq!(AddrEntry::new("eth0".into(), 7, ip.parse().unwrap(), 64).scope, scope, "{ip}");
    }
}

#[test]
fn without_sysfs_loopback_is_known_by_its_address() {
    let list = interfaces(&Fixture::new().roots(), &[entry("lo", "127.0.0.1", 8), entry("eth0", "10.0.0.1", 24)]);
    let kinds: Vec<(&str, &Kind)> = list.iter().map(|iface| (&*iface.name, &iface.kind)).collect();
    assert_eq!(kinds, [("eth0", &Kind::Unknown), ("lo", &Kind::Loopback)]);
}

#[test]
fn every_kind_is_told_apart() {
    let fix = Fixture::new();
    fix.iface(1, "lo", &[("type", "772"), ("operstate", "unknown"), ("mtu", "65536")]);
    fix.iface(2, "enp1s0", &[("speed", "100000")]).device(
        "enp1s0",
        "pci0000:00/0000:00:01.0/0000:01:00.0",
        "1",
        "mlx5_core",
    );
    fix.iface(3, "docker0", &[("bridge/bridge_id", "x"), ("uevent", "DEVTYPE=bridge")]);
    fix.iface(4, "veth1", &[("iflink", "9")]);
    fix.iface(5, "tun0", &[("type", "65534"), ("tun_flags", "0x1001")]);
    fix.iface(6, "bond0", &[("bonding/mode", "802.3ad 4"), ("speed", "20000")]);
    fix.iface(7, "enp1s0.5", &[("uevent", "DEVTYPE=vlan\nINTERFACE=enp1s0.5"), ("iflink", "2")]);
    fix.iface(8, "wlan0", &[("uevent", "DEVTYPE=wlan")]).device("wlan0", "pci0000:00/0000:00:02.0", "-1", "iwlwifi");
    fix.iface(9, "wg0", &[("type", "65534"), ("uevent", "DEVTYPE=wireguard")]);
    fix.iface(10, "vxlan1", &[("uevent", "DEVTYPE=vxlan")]);
    fix.iface(11, "thunderbolt0", &[]).device(
        "thunderbolt0",
        "pci0000:00/0000:00:0d.2/domain0/0-0/0-1/0-1.0",
        "0",
        "thunderbolt-net",
    );
    fix.iface(12, "ib0", &[("type", "32"), ("speed", "200000")]).device(
        "ib0",
        "pci0000:80/0000:80:01.0",
        "1",
        "mlx5_core",
    );
    fix.iface(13, "mv0", &[("iflink", "2"), ("lower_enp1s0/x", "")]);
    fix.iface(17, "net1", &[("iflink", "2"), ("uevent", "DEVTYPE=macvlan\nINTERFACE=net1")]);
    fix.iface(14, "ifb0", &[]);
    fix.iface(15, "br0", &[("bridge/bridge_id", "x"), ("brif/enp1s0/x", "")]);
    fix.iface(16, "sit0", &[("type", "776")]);
    fix.file("sys/class/net/bonding_masters", "bond0");

    let list = interfaces(&fix.roots(), &[]);
    let kinds: Vec<(&str, Kind)> = list.iter().map(|iface| (&*iface.name, iface.kind.clone())).collect();
    let tunnel = |what: &str| Kind::Tunnel(what.into());
    assert_eq!(
        kinds,
        [
            ("lo", Kind::Loopback),
            ("enp1s0", Kind::Physical),
            ("docker0", Kind::Bridge { wired: false }),
            ("veth1", Kind::Veth),
            ("tun0", tunnel("tun/tap")),
            ("bond0", Kind::Bond),
            ("enp1s0.5", Kind::Vlan),
            ("wlan0", Kind::Wireless),
            ("wg0", tunnel("wireguard")),
            ("vxlan1", tunnel("vxlan")),
            ("thunderbolt0", Kind::Thunderbolt),
            ("ib0", Kind::Infiniband),
            ("mv0", Kind::Macvlan),
            ("ifb0", Kind::Virtual),
            ("br0", Kind::Bridge { wired: true }),
            ("sit0", tunnel("sit")),
            ("net1", Kind::Macvlan),
        ]
    );
}

#[test]
fn attributes_of_a_card() {
    let fix = Fixture::new();
    fix.iface(7, "eth0", &[("speed", "25000"), ("mtu", "9000")]);
    fix.device("eth0", "pci0000:00/0000:00:03.0/virtio2", "1", "virtio_net");
    fix.link("sys/class/net/eth0/master", "../bond0");
    let eth0 = &interfaces(&fix.roots(), &[entry("eth0", "10.1.2.3", 24), entry("eth0", "fe80::1", 64)])[0];
    assert_eq!((eth0.index, eth0.speed_mbps, eth0.mtu), (7, Some(25000), Some(9000)));
    assert_eq!(eth0.driver.as_deref(), Some("virtio_net"));
    assert_eq!(eth0.pci_address(), Some("0000:00:03.0"));
    assert_eq!(eth0.pci_path.as_deref(), Some(&*fix.root.join("sys/devices/pci0000:00/0000:00:03.0")));
    assert_eq!(eth0.numa_node, Some(1), "its PCI function's");
    assert_eq!(eth0.master.as_deref(), Some("bond0"));
    assert_eq!(eth0.addrs.len(), 2);
    assert!(!eth0.addrs[0].is_link_local() && eth0.addrs[1].is_link_local());
}

#[test]
fn processors_near_a_card() {
    let fix = Fixture::new();
    fix.iface(7, "eth0", &[]).device("eth0", "pci0000:00/0000:00:03.0/virtio2", "1", "virtio_net");
    let near = || interfaces(&fix.roots(), &[])[0].cpus_near(&fix.roots());
    assert_eq!(near(), Vec::<u32>::new(), "unknown");
    fix.file("sys/devices/system/node/node1/cpulist", "4-5");
    assert_eq!(near(), [4, 5], "the node's");
    fix.file("sys/devices/pci0000:00/0000:00:03.0/local_cpulist", "");
    assert_eq!(near(), [4, 5], "the card says nothing");
    fix.file("sys/devices/pci0000:00/0000:00:03.0/local_cpulist", "0-1,9");
    assert_eq!(near(), [0, 1, 9], "the card's own");
}

#[test]
fn speeds_that_are_none() {
    for text in ["-1", "65535", "4294967295", "0", "fast"] {
        let fix = Fixture::new();
        fix.iface(1, "eth0", &[("speed", text)]);
        assert_eq!(interfaces(&fix.roots(), &[])[0].speed_mbps, None, "{text}");
    }
}

#[test]
fn an_address_without_sysfs_is_kept() {
    let list = interfaces(&Fixture::new().roots(), &[entry("eth7", "10.0.0.1", 8)]);
    assert_eq!((&*list[0].name, &list[0].kind, list[0].up), ("eth7", &Kind::Unknown, true));
}

#[test]
fn subnets() {
    let addr = |ip: &str, prefix| IfAddr { ip: ip.parse().unwrap(), prefix, scope: 0 };
    let inside = |a: &IfAddr, ip: &str| a.same_subnet(ip.parse().unwrap());
    assert!(inside(&addr("10.0.4.1", 22), "10.0.7.255"));
    assert!(!inside(&addr("10.0.4.1", 22), "10.0.8.0"));
    assert!(inside(&addr("10.0.4.1", 0), "1.1.1.1"));
    assert!(inside(&addr("10.0.4.1", 32), "10.0.4.1"));
    assert!(!inside(&addr("10.0.4.1", 33), "10.0.4.1"), "a prefix longer than the address matches nothing");
    assert!(inside(&addr("fd00::1", 127), "fd00::0"));
    assert!(!inside(&addr("fd00::1", 64), "10.0.0.1"));
}

#[test]
fn subnets_as_text() {
    for (ip, prefix, want) in [
        ("10.0.7.255", 22, "10.0.4.0/22"),
        ("10.1.2.3", 0, "0.0.0.0/0"),
        ("10.1.2.3", 32, "10.1.2.3/32"),
        ("10.1.2.3", 31, "10.1.2.2/31"),
        ("fd00:1::7", 64, "fd00:1::/64"),
        ("fd00::1", 128, "fd00::1/128"),
    ] {
        let addr = IfAddr { ip: ip.parse().unwrap(), prefix, scope: 0 };
        assert_eq!(addr.subnet(), want);
    }
}
