use linkspan_topology::fixture::{ALL, EIGHT_GPUS, Fixture, LAPTOP, SPARK, STRIX_HALO, TWO_CABLES};
use serde_json::Value;

use super::*;
use crate::schema;

fn with<T>(tree: &str, look: impl FnOnce(&View<'_>) -> T) -> T {
    let fix = Fixture::tree(tree);
    let (machine, survey) = (Machine::read(&fix.roots()), fix.survey());
    let cables = cables(&machine, &survey);
    look(&View { machine: &machine, survey: &survey, devices: &[], cables: &cables })
}

/// As it goes into a pipe.
fn plain(tree: &str) -> String {
    anstream::adapter::strip_str(&with(tree, text::text)).to_string()
}

fn json(tree: &str) -> Value {
    with(tree, |view| serde_json::to_value(json::status(view, &[])).unwrap())
}

fn line<'a>(text: &'a str, begin: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no line {begin:?} in\n{text}"))
}

#[test]
fn every_fixture_fits_the_schema() {
    for (name, tree) in ALL {
        let problems = schema::problems("status-1.json", &json(tree));
        assert!(problems.is_empty(), "{name}: {problems:#?}");
    }
}

#[test]
fn a_cable_between_mini_pcs() {
    let text = plain(STRIX_HALO);
    let cable = line(&text, "thunderbolt 0-1 ");
    for part in ["40 Gb/s (2 x 20)", "strix-b (Linux) d2040000, 10.0.0.2", "tcp over thunderbolt0", "yes"] {
        assert!(cable.contains(part), "{part}: {cable}");
    }
    assert_eq!(
        line(&text, "thunderbolt domain 0"),
        "thunderbolt domain 0 (0000:c6:00.5): security user, IOMMU protection on; port 1: 0-1, port 3: nothing"
    );
    let gpu = line(&text, "0000:c5:00.0");
    assert!(gpu.contains("AMD 1586") && gpu.contains("16 GT/s x16") && gpu.contains("PHB"), "{gpu}");
}

#[test]
fn why_a_cable_is_not_used() {
    let text = plain(TWO_CABLES);
    assert!(line(&text, "thunderbolt 1-1 ").contains("tx 120 Gb/s (3 x 40), rx 40 Gb/s"), "{text}");
    // Of ways that cannot be used, what any kernel has is first.
    assert!(line(&text, "thunderbolt 1-1 ").ends_with("`modprobe thunderbolt_net`"), "{text}");
    assert!(line(&text, "thunderbolt 0-3: to the same").ends_with("host router as 0-1"), "{text}");
    assert!(text.contains("service rdma over 1-3.0"), "{text}");
    let json = json(TWO_CABLES);
    let cable = json["cables"].as_array().unwrap().iter().find(|cable| cable["name"] == "1-1").unwrap();
    assert_eq!((&cable["tx_mbit_s"], &cable["tx_lanes"]), (&120_000.into(), &3.into()));
    assert_eq!((&cable["rx_mbit_s"], &cable["rx_lanes"]), (&40_000.into(), &1.into()));
    assert_eq!((&cable["paths"][0]["means"], &cable["paths"][0]["usable"]), (&"tcp".into(), &false.into()));
    assert_eq!(
        (&json["cables"][0]["paths"][0]["means"], &json["cables"][0]["paths"][1]["means"]),
        (&"stream".into(), &"tcp".into())
    );
    assert_eq!(cable["peer"]["perhaps_also"], serde_json::json!(["0-1", "0-3"]));
}

#[test]
fn four_ports_of_a_spark() {
    let text = plain(SPARK);
    assert!(line(&text, "ethernet enp1s0f0np0 ").contains("200 Gb/s"), "{text}");
    assert!(line(&text, "rocep1s0f0/1").contains("yes: RoCE v2 GID 3 (10.10.0.1)"), "{text}");
    assert!(line(&text, "roceP2p1s0f1/1").contains("no: no RoCE v2 GID but link-local ones"), "{text}");
    assert!(line(&text, "docker0").contains("no: a bridge"), "{text}");
    let json = json(SPARK);
    assert_eq!(json["interfaces"][1]["subnets"][0], "10.10.0.0/30");
    assert_eq!(json["interfaces"][1]["port_name"], "p0");
    let port = &json["rdma"][2]["ports"][0];
    assert_eq!((&port["gid_index"], &port["gids"][3]["ipv4"]), (&3.into(), &"10.10.0.1".into()));
}

#[test]
fn a_laptop_without_cables() {
    let text = plain(LAPTOP);
    assert!(text.contains("no cable to another host"), "{text}");
    assert!(
        line(&text, "thunderbolt 0-1: TS4").contains("boltctl authorize 00d4a0c8-0000-0018-8000-000000000abc"),
        "{text}"
    );
    assert!(line(&text, "0000:01:00.0").contains("asleep"), "{text}");
    assert!(!text.contains("RDMA"), "{text}");
}

#[test]
fn distances_of_eight_gpus() {
    let text = plain(EIGHT_GPUS);
    let row = line(&text, "0000:18:00.0");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[cells.len() - 9..], ["PIX", "PHB", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS", "PHB"], "{row}");
    assert!(row.contains("NVIDIA H100 80GB HBM3"), "{row}");
    let json = json(EIGHT_GPUS);
    let gpu = json["gpus"].as_array().unwrap().iter().find(|gpu| gpu["pci_address"] == "0000:18:00.0").unwrap();
    assert_eq!(
        gpu["distances"][0],
        serde_json::json!({"to": "mlx5_0", "pci_address": "0000:19:00.0", "distance": "PIX"})
    );
}

#[test]
fn rdma_ports_say_what_they_can_and_how_they_reach_device_memory() {
    use linkspan_fabric::DirectBy;
    use linkspan_verbs::RdmaPort;
    use linkspan_verbs_sys::Limits;
    let limits = Limits {
        qp: 256,
        qp_wr: 1024,
        sge: 16,
        cq: 64,
        cqe: 4096,
        mr: 1000,
        mr_size: 1 << 30,
        rd_atomic: 16,
        init_rd_atomic: 16,
        ports: 1,
    };
    let port = |name: &str, why_not: Option<&str>, gpu_direct| RdmaPort {
        name: name.into(),
        interfaces: vec![2],
        why_not: why_not.map(str::to_owned),
        limits: Some(limits),
        gpu_direct,
    };
    let ports = vec![
        port("one/1", None, Ok(DirectBy::DmaBuf)),
        port("two/1", None, Ok(DirectBy::PeerMemory)),
        port("three/1", Some("the port is not active"), Err("no dma-buf; and nvidia_peermem is not loaded".into())),
    ];
    let text = text::rdma_limits(&(ports, vec!["four: left out by LINKSPAN_IB_HCA".into()]));
    assert_eq!(
        text,
        "RDMA one/1: used; at most 256 queue pairs of 1024 requests, 64 completion queues of 4096, 1000 regions of 1073741824 bytes, \
         16 ranges in a request; device memory: by dma-buf (LINKSPAN_GPU=staged), else staged\n\
         RDMA two/1: used; at most 256 queue pairs of 1024 requests, 64 completion queues of 4096, 1000 regions of 1073741824 bytes, \
         16 ranges in a request; device memory: as peer memory (LINKSPAN_GPU=staged), else staged\n\
         RDMA three/1: not used: the port is not active; device memory is staged through host memory: no dma-buf; and nvidia_peermem is \
         not loaded\n\
         no RDMA: four: left out by LINKSPAN_IB_HCA\n"
    );
}

#[test]
fn ring_pairs_show_their_state_and_frames() {
    use linkspan_thunderbolt::{Pair, PairState, Ports};
    let pair = |state, sent| {
        let mut pair = Pair { state, raw: Default::default() };
        (pair.raw.tx_frames, pair.raw.rx_frames) = (sent, 7);
        pair
    };
    let pairs = [
        pair(PairState::Up, 5),
        pair(PairState::NoRing, 0),
        pair(PairState::Refused(12), 0),
        pair(PairState::Limit, 0),
    ];
    let ports = Ports { pairs: vec![("/dev/linkspan/0".into(), pairs)], ..Ports::default() };
    assert_eq!(
        text::cables_used(&ports),
        "  /dev/linkspan/0 ring pair 0: up; 5 frames sent, 7 received\n  \
           /dev/linkspan/0 ring pair 1: left out: the host interface has no ring pair left; a lower `ring_pairs` leaves one for \
           another driver, such as thunderbolt0; 0 frames sent, 7 received\n  \
           /dev/linkspan/0 ring pair 2: left out: its path was refused, Cannot allocate memory (os error 12): the others may have all credits; a lower \
           `thunderbolt.dma_credits` (14 by default) gives each fewer, or `ring_pairs` asks for fewer pairs; 0 frames sent, 7 received\n  \
           /dev/linkspan/0 ring pair 3: left out by the driver's parameter ring_pairs; 0 frames sent, 7 received\n"
    );
}
