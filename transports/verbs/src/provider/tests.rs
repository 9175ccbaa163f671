use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    let found = Found { over, ..Found::new(vec![Domain::new(nic)]) };
    Rdma { found: Mutex::new(Some(Arc::new(found))), ..Rdma::given(Vec::new()) }
}

#[test]
fn an_infiniband_port_is_found_by_the_interface_over_it() {
    // Its GIDs belong to no interface, as those of real ones.
    let ib = || SoftConfig::infiniband("ib1", 17);
    let candidate = rdma(ib(), &[("ib1", 1, "lo")]).pairs(&site()).unwrap();
    assert_eq!((candidate.config().port, &*candidate.config().interface), (1, "lo"));
    assert_eq!(candidate.config().address, Some(Ipv4Addr::LOCALHOST.into()));
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

#[test]
fn a_device_that_was_reset_is_opened_anew_and_until_it_answers_the_reason_is_told() {
    let net = SoftNet::new(1);
    let of = |name: &str| net.nic(SoftConfig::roce(name, Ipv4Addr::LOCALHOST, 1));
    let (other, device) = (SoftConfig::roce("other", Ipv4Addr::LOCALHOST, 77), Mutex::new(of("rdma0")));
    let (other, device) = (net.nic(other), Arc::new(device));
    let (opened, kept) = (device.clone(), other.clone());
    let here = move || opened.lock().unwrap().clone();
    let opened = move |_: &RdmaConfig| Found::new(vec![Domain::new(kept.clone()), Domain::new(here())]);
    let rdma = Rdma { left_alone: Duration::ZERO, ..Rdma::opened_by(opened) };
    assert!(rdma.pairs(&site()).is_ok());
    let before = rdma.found();
    net.remove(&device.lock().unwrap());
    let why = rdma.pairs(&site()).err().unwrap();
    assert!(
        why.starts_with("rdma0/1 on lo: LS12") && why.contains("No such device"),
        "TCP would be taken without a word: {why}"
    );
    let new = of("rdma0");
    *device.lock().unwrap() = new;
    assert!(rdma.pairs(&site()).is_ok(), "it is back");
    let after = rdma.found();
    assert!(after.domains[0].is(&before.domains[0]), "another device's registrations are lost");
    assert!(!after.domains[1].is(&before.domains[1]));
    let elsewhere = Rdma::given(vec![other.clone()]);
    elsewhere.found();
    net.remove(&other);
    assert_eq!(elsewhere.pairs(&site()).err().as_deref(), Some(""), "another interface's: nothing to say");
}

#[test]
fn a_device_that_cannot_be_opened_is_named_on_its_interface_and_used_once_it_can_be() {
    let net = SoftNet::new(1);
    let nic = net.nic(SoftConfig::roce("rdma0", Ipv4Addr::LOCALHOST, 1));
    let other = net.nic(SoftConfig::roce("other", Ipv4Addr::LOCALHOST, 77));
    for beside in [vec![], vec![other]] {
        let (can, kept, late) = (Arc::new(AtomicBool::new(false)), beside.clone(), nic.clone());
        let opened = can.clone();
        let open = move |_: &RdmaConfig| {
            let mut found = Found::new(kept.iter().cloned().map(Domain::new).collect());
            if opened.load(Ordering::Relaxed) {
                found.domains.push(Domain::new(late.clone()));
            } else {
                found.refused.push(("rdma0".into(), "LS1204 Operation not permitted".into()));
                found.failed.push(("rdma0".into(), vec!["eth7".into(), "lo".into()]));
            }
            found
        };
        let mut rdma = Rdma { left_alone: Duration::MAX, ..Rdma::opened_by(open) };
        let why = rdma.pairs(&site()).err().unwrap();
        assert_eq!(why, "rdma0 on lo: LS1204 Operation not permitted", "TCP would be taken without a word");
        can.store(true, Ordering::Relaxed);
        assert!(rdma.pairs(&site()).is_err(), "not with every connection");
        rdma.left_alone = Duration::ZERO;
        assert!(rdma.pairs(&site()).is_ok());
    }
}

#[test]
fn a_device_that_came_after_the_first_look_is_found() {
    let nic = SoftNet::new(1).nic(SoftConfig::roce("rdma0", Ipv4Addr::LOCALHOST, 1));
    let looks = AtomicUsize::new(0);
    let open = move |_: &RdmaConfig| match looks.fetch_add(1, Ordering::Relaxed) {
        0 => Found::new(Vec::new()),
        _ => Found::new(vec![Domain::new(nic.clone())]),
    };
    let rdma = Rdma { left_alone: Duration::ZERO, ..Rdma::opened_by(open) };
    assert!(!rdma.is_present());
    assert!(rdma.pairs(&site()).is_ok());
}

#[test]
fn the_interfaces_of_a_device_are_read_from_the_machine() {
    let machine = Machine::read(&Fixture::tree(EIGHT_GPUS).roots());
    assert_eq!(interfaces(&machine, "mlx5_0"), ["ibp25s0"]);
    assert_eq!(interfaces(&machine, "no such device"), [""; 0]);
}

#[test]
fn what_has_gone_for_good_is_not_looked_for_by_every_connection() {
    let net = SoftNet::new(1);
    let nic = net.nic(SoftConfig::roce("rdma0", Ipv4Addr::LOCALHOST, 77));
    let opened = Arc::new(Mutex::new(0));
    let (times, gone) = (opened.clone(), nic.clone());
    let open = move |_: &RdmaConfig| {
        *times.lock().unwrap() += 1;
        Found::new(vec![Domain::new(gone.clone())])
    };
    let mut rdma = Rdma { left_alone: Duration::MAX, ..Rdma::opened_by(open) };
    rdma.found();
    net.remove(&nic);
    for (left_alone, times) in [(Duration::MAX, 1), (Duration::MAX, 1), (Duration::ZERO, 2)] {
        rdma.left_alone = left_alone;
        assert!(rdma.pairs(&site()).is_err());
        assert_eq!(*opened.lock().unwrap(), times);
    }
}
