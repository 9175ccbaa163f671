use std::net::Ipv4Addr;

use super::*;
use crate::Machine;
use crate::fixture::{EIGHT_GPUS, Fixture, SPARK};

fn machine(tree: &str) -> Machine {
    Machine::read(&Fixture::tree(tree).roots())
}

#[test]
fn four_devices_of_one_adapter() {
    let machine = machine(SPARK);
    assert_eq!(machine.notes, Vec::<String>::new());
    let names: Vec<&str> = machine.rdma.iter().map(|device| &*device.name).collect();
    assert_eq!(names, ["roceP2p1s0f0", "roceP2p1s0f1", "rocep1s0f0", "rocep1s0f1"]);
    assert!(machine.rdma.iter().all(|device| device.sys_image_guid == machine.rdma[0].sys_image_guid));

    let device = &machine.rdma[2];
    assert_eq!((device.driver.as_deref(), device.node_type.as_deref()), (Some("mlx5_core"), Some("CA")));
    assert_eq!(device.pci.as_ref().unwrap().address(), "0000:01:00.0");
    assert_eq!(device.link.now.unwrap().to_string(), "32 GT/s x4");
    assert!(device.link.narrow());

    let port = &device.ports[0];
    assert_eq!((port.number, port.link_layer, port.rate_mbps), (1, LinkLayer::Ethernet, Some(200_000)));
    assert_eq!((port.state.as_deref(), port.phys_state.as_deref()), (Some("ACTIVE"), Some("LinkUp")));
    assert_eq!((port.lid, port.interface.as_deref()), (Some(0), Some("enp1s0f0np0")));
    let kinds: Vec<(u32, GidKind, bool)> = port.gids.iter().map(|g| (g.index, g.kind, g.is_link_local())).collect();
    assert_eq!(
        kinds,
        [
            (0, GidKind::RoceV1, true),
            (1, GidKind::RoceV2, true),
            (2, GidKind::RoceV1, false),
            (3, GidKind::RoceV2, false)
        ]
    );
    let best = port.ready().unwrap().unwrap();
    assert_eq!((best.index, best.ipv4()), (3, Some(Ipv4Addr::new(10, 10, 0, 1))));
    assert_eq!(machine.rdma[1].ports[0].ready(), Err(NotReady::LinkLocalOnly(Some("enP2p1s0f1np1".into()))));
}

#[test]
fn infiniband_and_what_can_be_wrong() {
    let machine = machine(EIGHT_GPUS);
    let ready = |name: &str| machine.rdma.iter().find(|d| d.name == name).unwrap().ports[0].ready();
    assert!(ready("mlx5_0").is_ok());
    assert_eq!(ready("mlx5_3"), Err(NotReady::State { state: "INIT".into(), infiniband: true }));
    assert!(ready("mlx5_4").unwrap().is_some());
    assert!(matches!(ready("mlx5_6"), Err(NotReady::LinkLocalOnly(_))));
    assert_eq!(ready("mlx5_7"), Err(NotReady::Down { phys_state: "Polling".into() }));
    assert_eq!(ready("rxe0"), Err(NotReady::NoGid));
    let port = &machine.rdma[0].ports[0];
    assert_eq!((port.lid, port.sm_lid, port.gids[0].kind), (Some(17), Some(1), GidKind::Infiniband));
    assert_eq!(port.interface.as_deref(), Some("ibp25s0"), "by the PCI function, for the GID names none");
    let rxe = machine.rdma.iter().find(|d| d.name == "rxe0").unwrap();
    assert_eq!((&rxe.pci, rxe.ports[0].interface.as_deref()), (&None, Some("eno1")));
    assert_eq!(rxe.ports[0].rate_mbps, Some(2500));
}

fn port(state: &str, layer: LinkLayer, gids: &[(u32, &str, GidKind)]) -> RdmaPort {
    RdmaPort {
        number: 1,
        state: Some(state.into()),
        phys_state: None,
        link_layer: layer,
        rate_mbps: None,
        lid: Some(0),
        sm_lid: None,
        interface: None,
        gids: gids
            .iter()
            .map(|(index, gid, kind)| Gid { index: *index, gid: gid.parse().unwrap(), kind: *kind, interface: None })
            .collect(),
        iwarp: false,
    }
}

#[test]
fn the_gid_to_leave_by() {
    use GidKind::{RoceV1, RoceV2};
    let best =
        |gids: &[(u32, &str, GidKind)]| port("ACTIVE", LinkLayer::Ethernet, gids).ready().map(|gid| gid.unwrap().index);
    assert_eq!(best(&[(0, "fe80::1", RoceV2), (5, "fd00::1", RoceV2), (7, "::ffff:10.0.0.1", RoceV2)]), Ok(7));
    assert_eq!(best(&[(0, "fe80::1", RoceV2), (5, "fd00::1", RoceV2)]), Ok(5));
    assert_eq!(best(&[(4, "::ffff:10.0.0.2", RoceV2), (3, "::ffff:10.0.0.1", RoceV2)]), Ok(3));
    assert_eq!(best(&[(3, "::ffff:169.254.0.1", RoceV2)]), Err(NotReady::LinkLocalOnly(None)));
    assert_eq!(best(&[(2, "::ffff:10.0.0.1", RoceV1)]), Err(NotReady::RoceV1Only));
    assert_eq!(best(&[]), Err(NotReady::NoGid));
}

#[test]
fn states_and_technologies() {
    let ib = port("ACTIVE", LinkLayer::Infiniband, &[]);
    assert_eq!(ib.ready(), Err(NotReady::NoLid));
    assert_eq!(RdmaPort { lid: Some(3), ..ib }.ready(), Ok(None));
    let iwarp = RdmaPort { iwarp: true, ..port("ACTIVE", LinkLayer::Ethernet, &[]) };
    assert_eq!(iwarp.ready(), Err(NotReady::Iwarp));
    let unknown = RdmaPort { state: None, ..port("", LinkLayer::Ethernet, &[]) };
    assert!(matches!(unknown.ready(), Err(NotReady::Down { .. })));
    for infiniband in [true, false] {
        let text = NotReady::State { state: "ARMED".into(), infiniband }.to_string();
        assert!(text.contains("ARMED") && text.contains(if infiniband { "opensm" } else { "up" }));
    }
}

/// A table with holes: entries that failed, entries of zeroes, and one after a hole that is too long.
#[test]
fn tables_with_holes() {
    let fix = Fixture::new();
    let dir = "sys/class/infiniband/mlx5_0/ports/1";
    fix.file(&format!("{dir}/link_layer"), "Ethernet");
    for index in 0..100 {
        let text = match index {
            0 | 20 | 90 => "fd00:0000:0000:0000:0000:0000:0000:0001",
            7 => "not a gid",
            _ => "0000:0000:0000:0000:0000:0000:0000:0000",
        };
        fix.file(&format!("{dir}/gids/{index}"), text);
    }
    let machine = Machine::read(&fix.roots());
    let found: Vec<u32> = machine.rdma[0].ports[0].gids.iter().map(|gid| gid.index).collect();
    assert_eq!(found, [0, 20]);
    assert!(machine.notes[0].contains("gids/7: \"not a gid\" is not a GID"), "{:?}", machine.notes);
}
