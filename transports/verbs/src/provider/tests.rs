use std::net::Ipv4Addr;
use std::time::Duration;

use linkspan_topology::fixture::{EIGHT_GPUS, Fixture, SPARK};
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet, SoftNic};

use super::*;

fn site() -> Site<'static> {
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    Site { local, plug: None, relayed: None, forced: false, class: 0, limit: Duration::from_secs(1) }
}

fn rdma(nic: SoftConfig, over: &[(&str, u8, &str)]) -> Rdma<SoftNic> {
    let nic = SoftNet::new(1).nic(nic);
    let over = over.iter().map(|(device, port, interface)| ((*device).into(), *port, (*interface).into())).collect();
    let found = Found { domains: vec![Domain::new(nic)], over, refused: Vec::new() };
    Rdma { found: OnceLock::from(found), ..Rdma::given(Vec::new()) }
}

#[test]
fn an_infiniband_port_is_found_by_the_interface_over_it() {
    // Its GIDs belong to no interface, as those of real ones.
    let ib = || SoftConfig::infiniband("ib1", 17);
    let candidate = rdma(ib(), &[("ib1", 1, "lo")]).pairs(&site()).unwrap();
    assert_eq!((candidate.config().port, &*candidate.config().interface), (1, "lo"));
    for elsewhere in [&[("ib1", 1, "ib0")][..], &[("ib1", 2, "lo")], &[("ib2", 1, "lo")], &[]] {
        let why = rdma(ib(), elsewhere).pairs(&site()).err();
        assert_eq!(why.as_deref(), Some(""), "another interface's: nothing to say");
    }
    let unset = SoftConfig { lid: 0, ..ib() };
    let why = rdma(unset, &[("ib1", 1, "lo")]).pairs(&site()).err().unwrap();
    assert_eq!(why, "ib1/1 on lo: no LID: no subnet manager has set the port up; start opensm on one host");
}

#[test]
fn interfaces_over_infiniband_ports_are_read_from_the_machine() {
    let over = |tree| over(&Machine::read(&Fixture::tree(tree).roots()));
    let found = over(EIGHT_GPUS);
    assert!(found.contains(&("mlx5_0".into(), 1, "ibp25s0".into())), "{found:?}");
    assert!(found.iter().all(|o| o.0 != "rxe0"), "Ethernet: its GIDs name the interface: {found:?}");
    assert_eq!(over(SPARK), []);
}

#[test]
fn how_a_card_reaches_memory_of_gpus_is_told_with_the_way_out() {
    let nic = |dmabuf| SoftNet::new(1).nic(SoftConfig { dmabuf, ..SoftConfig::roce("s", Ipv4Addr::LOCALHOST, 1) });
    assert_eq!(gpu_direct(&nic(true), false), Ok(DirectBy::DmaBuf));
    assert_eq!(gpu_direct(&nic(false), true), Ok(DirectBy::PeerMemory));
    let why = gpu_direct(&nic(false), false).unwrap_err();
    assert!(
        why.starts_with("LS12") && why.ends_with("and nvidia_peermem is not loaded (`modprobe nvidia_peermem`)"),
        "{why}"
    );
}
