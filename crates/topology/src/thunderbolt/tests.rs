use super::*;
use crate::Machine;
use crate::fixture::{Fixture, LAPTOP, STRIX_HALO, TWO_CABLES};

fn machine(tree: &str) -> Machine {
    Machine::read(&Fixture::tree(tree).roots())
}

#[test]
fn a_pair_of_mini_pcs() {
    let machine = machine(STRIX_HALO);
    assert_eq!(machine.notes, Vec::<String>::new());
    let [first, second] = &machine.thunderbolt[..] else { panic!("{:?}", machine.thunderbolt) };
    assert_eq!((first.number, first.security.as_deref(), first.iommu_dma_protection), (0, Some("user"), Some(true)));
    assert_eq!(first.pci.as_ref().unwrap().address(), "0000:c6:00.5");
    assert_eq!(second.pci.as_ref().unwrap().address(), "0000:c6:00.6");
    assert!(second.xdomains.is_empty());

    let router = &first.routers[0];
    assert_eq!((&*router.name, router.route, router.generation, &*router.ports), ("0-0", 0, Some(4), &[1, 3][..]));
    assert_eq!(router.authorized, None, "a host lets itself through");
    assert_eq!(first.routers.len(), 1, "the retimer is no router");

    let peer = &first.xdomains[0];
    assert_eq!((&*peer.name, peer.port(), peer.chained()), ("0-1", 1, false));
    assert_eq!((peer.vendor_name.as_deref(), peer.device_name.as_deref()), (Some("Linux"), Some("strix-b")));
    assert_eq!((peer.vendor_id, peer.device_id, peer.max_hopid), (Some(0x1d6b), Some(4), Some(63)));
    assert_eq!(peer.unique_id.as_deref(), Some("d2040000-0080-7518-b3c8-e1ac3a6b0201"));
    assert_eq!(peer.link.rx, Some(Lanes { lane_mbps: 20_000, lanes: 2 }));
    assert_eq!(peer.link.rx.unwrap().mbps(), 40_000);

    let service = &peer.services[0];
    assert_eq!((&*service.name, service.key.as_deref(), service.prtcid), ("0-1.0", Some("network"), Some(1)));
    assert_eq!(service.driver.as_deref(), Some("thunderbolt-net"));
    assert_eq!(service.interface.as_deref(), Some("thunderbolt0"));
}

#[test]
fn asymmetric_links_and_services_without_drivers() {
    let machine = machine(TWO_CABLES);
    let link = machine.thunderbolt[1].xdomains[0].link;
    assert_eq!((link.tx.unwrap().mbps(), link.rx.unwrap().mbps()), (120_000, 40_000));
    let mac = &machine.thunderbolt[1].xdomains[1];
    let keys: Vec<(&str, u32)> = mac.services.iter().map(|s| (s.key.as_deref().unwrap(), s.prtcid.unwrap())).collect();
    assert_eq!(keys, [("rdma", 64087), ("odd", 77)]);
    assert!(mac.services.iter().all(|s| s.driver.is_none() && s.interface.is_none()));
}

#[test]
fn a_dock_is_a_router_and_no_host() {
    let machine = machine(LAPTOP);
    let domain = &machine.thunderbolt[0];
    assert!(domain.xdomains.is_empty());
    let dock = &domain.routers[1];
    assert_eq!((dock.device_name.as_deref(), dock.authorized, dock.route), (Some("TS4"), Some(false), 1));
}

#[test]
fn names_on_the_bus() {
    let route = |name: &str| match entry(name) {
        Some(Entry::Domain(number)) => format!("domain {number}"),
        Some(Entry::Routed(domain, route)) => format!("{domain} {route:#x}"),
        Some(Entry::Service(domain, route)) => format!("service {domain} {route:#x}"),
        None => "none".into(),
    };
    for (name, want) in [
        ("domain0", "domain 0"),
        ("0-0", "0 0x0"),
        ("12-301", "12 0x301"),
        ("1-f0f", "1 0xf0f"),
        ("0-1.0", "service 0 0x1"),
        ("0-0:1.1", "none"),
        ("0-1.x", "none"),
        ("0-", "none"),
        ("-1", "none"),
        ("0-+1", "none"),
        ("domain", "none"),
        ("domain+1", "none"),
        ("0-11111111111111111", "none"),
        ("99999999999-1", "none"),
    ] {
        assert_eq!(route(name), want, "{name}");
    }
}

#[test]
fn a_peer_behind_a_dock_and_without_uevent() {
    let fix = Fixture::new();
    let bus = "sys/bus/thunderbolt/devices";
    fix.file(&format!("{bus}/0-301/device_name"), "far").file(&format!("{bus}/0-1/authorized"), "1");
    let machine = Machine::read(&fix.roots());
    let domain = &machine.thunderbolt[0];
    assert_eq!(domain.routers[0].name, "0-1", "authorized is for routers alone");
    assert_eq!((domain.xdomains[0].port(), domain.xdomains[0].chained()), (1, true));
}

#[test]
fn malformed_attributes_are_notes() {
    let fix = Fixture::new();
    let peer = "sys/bus/thunderbolt/devices/0-1";
    fix.file(&format!("{peer}/uevent"), "DEVTYPE=thunderbolt_xdomain")
        .file(&format!("{peer}/rx_speed"), "fast")
        .file(&format!("{peer}/rx_lanes"), "2")
        .file(&format!("{peer}/tx_speed"), "20.0 Gb/s")
        .file(&format!("{peer}/tx_lanes"), "4000000000")
        .file(&format!("{peer}/vendor"), "0xzz")
        .file(&format!("{peer}/device_name"), "evil\u{1b}[31m\nname")
        .file("sys/bus/thunderbolt/devices/0-9.0/key", "network")
        .file("sys/bus/thunderbolt/devices/domain0/iommu_dma_protection", "maybe");
    let machine = Machine::read(&fix.roots());
    let peer = &machine.thunderbolt[0].xdomains[0];
    assert_eq!(peer.link, Link::default());
    assert_eq!(peer.device_name.as_deref(), Some("evil\u{fffd}[31m\u{fffd}name"));
    for part in ["rx_speed: \"fast\"", "tx_lanes: \"4000000000\"", "vendor: \"0xzz\"", "0-9.0: a service", "\"maybe\""]
    {
        assert!(machine.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", machine.notes);
    }
}

#[test]
fn a_crowded_bus_is_bounded() {
    let fix = Fixture::new();
    for n in 0..DEVICES_MAX + 10 {
        fix.file(&format!("sys/bus/thunderbolt/devices/0-{n:x}/device_name"), "x");
    }
    let machine = Machine::read(&fix.roots());
    assert_eq!(machine.thunderbolt[0].xdomains.len() + machine.thunderbolt[0].routers.len(), DEVICES_MAX);
    assert!(machine.notes.iter().any(|note| note.contains("only the first")), "{:?}", machine.notes);
}

#[test]
fn names_of_hosts_and_their_services() {
    for (name, want) in [
        ("0-1", Some("0-1")),
        ("0-301.2", Some("0-301")),
        ("0-0", None),
        ("domain0", None),
        ("0000:c6:00.5", None),
        ("infiniband", None),
    ] {
        assert_eq!(host(name), want, "{name}");
    }
}
