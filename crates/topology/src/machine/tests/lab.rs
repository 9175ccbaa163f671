//! What sysfs showed in guests of the lab (`cargo xtask lab fixtures`): Linux 7.3 on the virtual cable, an Ethernet card
//! with soft-RoCE beside it.

use crate::fixture::Fixture;
use crate::thunderbolt::Lanes;
use crate::{GidKind, Machine, Means, Medium, cables};

const PAIR: &str = include_str!("../../../../../lab/fixtures/pair-7.3/sysfs.txt");
const TWO_LANES: &str = include_str!("../../../../../lab/fixtures/two-lanes-iommu-7.3/sysfs.txt");

/// The guest with the addresses that the test gave it, which sysfs does not show.
fn guest(sysfs: &str) -> Fixture {
    Fixture::tree(&format!("{sysfs}address lan0 10.8.0.1/24\naddress thunderbolt0 10.9.0.1/24\n"))
}

#[test]
fn a_guest_sees_its_cable_and_who_is_there() {
    for (sysfs, lanes) in [(PAIR, 1), (TWO_LANES, 2)] {
        let machine = Machine::read(&guest(sysfs).roots());
        assert_eq!(machine.notes, Vec::<String>::new());
        let [domain] = &machine.thunderbolt[..] else { panic!("{:?}", machine.thunderbolt) };
        assert_eq!((domain.number, domain.pci.as_ref().unwrap().address()), (0, "0000:00:03.0"));
        assert_eq!(domain.routers.iter().map(|r| &*r.name).collect::<Vec<_>>(), ["0-0"]);
        let [peer] = &domain.xdomains[..] else { panic!("{:?}", domain.xdomains) };
        assert_eq!((&*peer.name, peer.port(), peer.chained()), ("0-1", 1, false));
        assert_eq!((peer.vendor_name.as_deref(), peer.device_name.as_deref()), (Some("Linux"), Some("b")));
        assert_eq!((peer.vendor_id, peer.device_id, peer.max_hopid), (Some(0x1d6b), Some(4), Some(31)));
        assert_eq!(peer.unique_id.as_deref(), Some("02e0b1ca-0034-1200-ffff-ffffffffffff"));
        let link = Some(Lanes { lane_mbps: 20_000, lanes });
        assert_eq!((peer.link.rx, peer.link.tx), (link, link));
        let service = peer.service("network").unwrap();
        assert_eq!(
            (service.driver.as_deref(), service.interface.as_deref()),
            (Some("thunderbolt-net"), Some("thunderbolt0"))
        );
    }
}

#[test]
fn a_guest_says_how_it_is_protected() {
    let domain = |sysfs: &str| Machine::read(&guest(sysfs).roots()).thunderbolt.remove(0);
    // No firmware here that would announce it: a vIOMMU alone is no protection to the kernel.
    for sysfs in [PAIR, TWO_LANES] {
        let domain = domain(sysfs);
        assert_eq!((domain.security.as_deref(), domain.iommu_dma_protection), (Some("user"), Some(false)));
    }
}

#[test]
fn soft_roce_beside_the_cable() {
    let machine = Machine::read(&guest(PAIR).roots());
    let [device] = &machine.rdma[..] else { panic!("{:?}", machine.rdma) };
    assert_eq!((&*device.name, device.driver.as_deref(), device.pci.is_none()), ("rxe0", None, true));
    assert_eq!(device.node_type.as_deref(), Some("CA"));
    let port = &device.ports[0];
    let four = port.gids.iter().find(|gid| gid.kind == GidKind::RoceV2 && gid.ipv4().is_some()).unwrap();
    assert_eq!((four.index, four.ipv4().unwrap().to_string().as_str()), (1, "10.8.0.1"));
}

#[test]
fn cables_of_a_guest_and_their_paths() {
    let fix = guest(TWO_LANES);
    let cables = cables(&Machine::read(&fix.roots()), &fix.survey());
    let names: Vec<(Medium, &str)> = cables.iter().map(|cable| (cable.medium, &*cable.name)).collect();
    assert_eq!(names, [(Medium::Thunderbolt, "0-1"), (Medium::Ethernet, "lan0")]);
    let tcp = cables[0].paths.iter().find(|path| path.means == Means::Tcp).unwrap();
    assert_eq!((&*tcp.over, tcp.usable), ("thunderbolt0", true), "{tcp:?}");
    assert_eq!(cables[0].peer.as_ref().unwrap().device_name.as_deref(), Some("b"));
    assert!(cables[0].notes.iter().any(|note| note.contains("no IOMMU protection")), "{:?}", cables[0].notes);
    assert!(!cables[0].notes.iter().any(|note| note.contains("one lane")), "{:?}", cables[0].notes);
}
