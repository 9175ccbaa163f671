use super::*;
use crate::fixture::Fixture;
use crate::{AddrEntry, interfaces};

fn entry(name: &str, ip: &str) -> AddrEntry {
    AddrEntry { name: name.into(), ip: ip.parse().unwrap(), prefix: 24, scope: 0 }
}

fn machine() -> (Fixture, Vec<AddrEntry>) {
    let fix = Fixture::new();
    fix.iface(1, "lo", &[("type", "772"), ("operstate", "unknown")]);
    fix.iface(2, "eth0", &[("speed", "10000")]).device("eth0", "pci0000:00/0000:00:01.0", "0", "x");
    fix.iface(3, "eth1", &[("speed", "1000")]).device("eth1", "pci0000:00/0000:00:02.0", "0", "x");
    fix.iface(4, "eth2", &[("speed", "2500")]).device("eth2", "pci0000:00/0000:00:03.0", "0", "x");
    fix.iface(5, "docker0", &[("bridge/x", "")]);
    fix.iface(6, "wlan0", &[("wireless/x", "")]).device("wlan0", "pci0000:00/0000:00:04.0", "0", "x");
    fix.iface(7, "eth3", &[("flags", "0x1002"), ("operstate", "down")]).device(
        "eth3",
        "pci0000:00/0000:00:05.0",
        "0",
        "x",
    );
    fix.iface(8, "eth4", &[("carrier", "0")]).device("eth4", "pci0000:00/0000:00:06.0", "0", "x");
    fix.iface(9, "thunderbolt0", &[]).device("thunderbolt0", "pci0000:00/0000:00:0d.2/0-1.0", "0", "thunderbolt-net");
    fix.iface(10, "eth5", &[]).device("eth5", "pci0000:00/0000:00:07.0", "0", "x");
    fix.iface(11, "veth0", &[("iflink", "99")]);
    fix.iface(12, "eth6", &[]).device("eth6", "pci0000:00/0000:00:08.0", "0", "x");
    let addrs = [
        ("eth6", "169.254.3.5"),
        ("lo", "127.0.0.1"),
        ("eth0", "10.0.0.1"),
        ("eth1", "10.0.1.1"),
        ("eth2", "10.0.2.1"),
        ("docker0", "172.17.0.1"),
        ("wlan0", "192.168.1.2"),
        ("eth3", "10.0.3.1"),
        ("eth4", "10.0.4.1"),
        ("thunderbolt0", "169.254.3.4"),
        ("veth0", "10.9.0.1"),
    ];
    (fix, addrs.map(|(name, ip)| entry(name, ip)).to_vec())
}

fn reasons(filter: Option<&str>) -> Vec<(String, Option<Reason>)> {
    let (fix, addrs) = machine();
    let list = interfaces(&fix.roots(), &addrs);
    let filter = filter.map(|text| IfFilter::parse("LINKSPAN_IFNAME", text).unwrap());
    let verdicts = judge(&list, filter.as_ref(), &[]);
    list.iter()
        .zip(verdicts)
        .map(|(iface, verdict)| {
            let reason = match verdict {
                Verdict::Usable | Verdict::LastResort => None,
                Verdict::LeftOut(reason) => Some(reason),
            };
            (iface.name.clone(), reason)
        })
        .collect()
}

#[test]
fn defaults() {
    let slow = Reason::Slow { mbps: 1000, than: "eth0".into(), fastest_mbps: 10000 };
    let want = [
        ("lo", Some(Reason::Loopback)),
        ("eth0", None),
        ("eth1", Some(slow)),
        ("eth2", None),
        ("docker0", Some(Reason::Bridge)),
        ("wlan0", Some(Reason::Wireless)),
        ("eth3", Some(Reason::Down)),
        ("eth4", Some(Reason::NoCarrier)),
        ("thunderbolt0", None),
        ("eth5", Some(Reason::NoAddress)),
        ("veth0", Some(Reason::Veth)),
        ("eth6", Some(Reason::LinkLocalOnly)),
    ];
    assert_eq!(reasons(None), want.map(|(name, reason)| (name.to_owned(), reason)));
}

#[test]
fn naming_an_interface_overrules_taste_but_not_facts() {
    for (name, reason) in reasons(Some("docker0,wlan0,eth,thunderbolt,lo,veth")) {
        match &*name {
            "eth3" => assert_eq!(reason, Some(Reason::Down)),
            "eth4" => assert_eq!(reason, Some(Reason::NoCarrier)),
            "eth5" => assert_eq!(reason, Some(Reason::NoAddress)),
            _ => assert_eq!(reason, None, "{name}"),
        }
    }
    for (name, reason) in reasons(Some("^eth0")) {
        match &*name {
            "eth0" => assert_eq!(reason, Some(Reason::Excluded("LINKSPAN_IFNAME=^eth0".into()))),
            "eth1" => assert_eq!(reason, None, "1 Gb/s beside 2.5 is not far slower"),
            "docker0" => assert_eq!(reason, Some(Reason::Bridge), "not forbidding is not asking"),
            _ => {}
        }
    }
}

#[test]
fn a_radio_alone_is_used() {
    let fix = Fixture::new();
    fix.iface(6, "wlan0", &[("wireless/x", "")]).device("wlan0", "pci0000:00/0000:00:04.0", "0", "x");
    let list = interfaces(&fix.roots(), &[entry("wlan0", "192.168.1.2")]);
    assert_eq!(judge(&list, None, &[]), [Verdict::Usable]);
}

/// Whoever is at the end of such a cable, others are reached by the other interfaces.
#[test]
fn a_cable_with_link_local_addresses_alone_is_used_and_makes_no_other_needless() {
    let fix = Fixture::new();
    fix.iface(2, "eth0", &[("speed", "1000")]).device("eth0", "pci0000:00/0000:00:01.0", "0", "x");
    fix.iface(6, "wlan0", &[("wireless/x", "")]).device("wlan0", "pci0000:00/0000:00:04.0", "0", "x");
    let tb = [("speed", "40000")];
    fix.iface(9, "thunderbolt0", &tb).device("thunderbolt0", "pci0000:00/0000:00:0d.2/0-1.0", "0", "thunderbolt-net");
    let judged = |addrs: &[(&str, &str)]| {
        let addrs: Vec<AddrEntry> = addrs.iter().map(|(name, ip)| entry(name, ip)).collect();
        judge(&interfaces(&fix.roots(), &addrs), None, &[])
    };
    let (eth, wlan) = (("eth0", "10.0.0.1"), ("wlan0", "192.168.1.2"));
    for bare in [("thunderbolt0", "169.254.3.4"), ("thunderbolt0", "fe80::2")] {
        assert_eq!(judged(&[wlan, bare])[1..], [Verdict::Usable, Verdict::Usable], "the radio stays");
        let radio = Verdict::LeftOut(Reason::Wireless);
        assert_eq!(judged(&[eth, wlan, bare]), [Verdict::Usable, radio, Verdict::Usable], "the slow card too");
        let both = judged(&[eth, bare, ("thunderbolt0", "10.0.9.1")]);
        let slow = Reason::Slow { mbps: 1000, than: "thunderbolt0".into(), fastest_mbps: 40000 };
        assert_eq!(both[0], Verdict::LeftOut(slow), "a cable with an address of its own is as any");
    }
}

#[test]
fn a_bridge_over_a_card_replaces_the_card() {
    let fix = Fixture::new();
    fix.iface(2, "eth0", &[]).device("eth0", "pci0000:00/0000:00:01.0", "0", "x");
    fix.link("sys/class/net/eth0/master", "../br0");
    fix.iface(3, "br0", &[("bridge/x", ""), ("brif/eth0/x", "")]);
    let list = interfaces(&fix.roots(), &[entry("br0", "10.0.0.1")]);
    assert_eq!(judge(&list, None, &[]), [Verdict::LeftOut(Reason::PartOf("br0".into())), Verdict::Usable]);
}

/// A container: loopback and what its engine gave it.
fn container(name: &str, attributes: &[(&str, &str)], route: &str) -> Fixture {
    let mut fix = Fixture::new();
    fix.iface(1, "lo", &[("type", "772"), ("operstate", "unknown")]).iface(2, name, attributes);
    fix.file(
        "proc/net/route",
        &format!("Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n{route}"),
    );
    fix.addrs = vec![entry("lo", "127.0.0.1"), entry(name, "10.88.0.7")];
    fix
}

#[test]
fn where_nothing_else_is_usable_the_default_route_is_the_last_resort() {
    for (name, attributes) in [
        ("eth0", &[("iflink", "99")][..]),
        ("eth0", &[("iflink", "2")]),
        ("tap0", &[("tun_flags", "0x1002")]),
        ("wg0", &[("uevent", "DEVTYPE=wireguard")]),
        ("br0", &[("bridge/x", "")]),
    ] {
        let fix = container(name, attributes, &format!("{name} 00000000 0100580A 0003 0 0 0 00000000 0 0 0"));
        let last = || fix.survey().into_iter().map(|(_, verdict)| verdict).collect::<Vec<_>>();
        assert_eq!(last(), [Verdict::LeftOut(Reason::Loopback), Verdict::LastResort], "{name}");
        let list = interfaces(&fix.roots(), &fix.addrs);
        let judged =
            |text: &str| judge(&list, Some(&IfFilter::parse("X", text).unwrap()), &[name.to_owned()]).remove(1);
        assert_eq!(judged(name), Verdict::Usable, "what is named is no downgrade");
        assert_eq!(judged(&format!("^{name}")), Verdict::LeftOut(Reason::Excluded(format!("X=^{name}"))));
        assert_eq!(judged("^other"), Verdict::LastResort);
    }
    let fix = container("eth0", &[("iflink", "99")], "eth0 0000580A 00000000 0001 0 0 0 0000FFFF 0 0 0");
    assert_eq!(fix.survey()[1].1, Verdict::LeftOut(Reason::Veth), "it leads to its subnet alone");
    let down = container("eth0", &[("iflink", "99"), ("flags", "0x1002")], "eth0 00000000 0 3 0 0 0 00000000 0 0 0");
    assert_eq!(down.survey()[1].1, Verdict::LeftOut(Reason::Down));
}

#[test]
fn beside_a_better_interface_the_default_route_changes_nothing() {
    let (fix, addrs) = machine();
    let list = interfaces(&fix.roots(), &addrs);
    let everywhere = ["docker0", "veth0", "eth1", "lo"].map(str::to_owned);
    assert_eq!(judge(&list, None, &everywhere), judge(&list, None, &[]));
    for (name, tree) in crate::fixture::ALL {
        let mut fix = Fixture::tree(tree);
        let before = fix.survey();
        fix.iface(90, "veth9", &[("iflink", "99")])
            .file("proc/net/route", "head\nveth9 00000000 0100580A 0003 0 0 0 00000000 0 0 0");
        fix.addrs.push(entry("veth9", "10.88.0.7"));
        let (mut after, veth) = (fix.survey(), Verdict::LeftOut(Reason::Veth));
        let at = after.iter().position(|(iface, _)| iface.name == "veth9").unwrap();
        assert_eq!((after.remove(at).1, after), (veth, before), "{name}");
    }
}

#[test]
fn every_reason_reads_well() {
    for (_, reason) in reasons(None) {
        if let Some(reason) = reason {
            let text = reason.to_string();
            assert!(text.len() > 8 && !text.ends_with('.') && !text.contains('\n'), "{text}");
        }
    }
}
