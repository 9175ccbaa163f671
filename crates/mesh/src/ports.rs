//! The ports of this host that cables to neighbours can be plugged into.

use std::collections::BTreeMap;
use std::io;

use linkspan_proto::mesh::{MeshPort, PORTS_MAX};
use linkspan_setup::interfaces;
use linkspan_topology::{IfAddr, IfFilter, Interface, Kind, Machine, NotReady, Reason, Roots, Verdict};

/// A port, with what it takes to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cabled {
    pub(super) index: u32,
    pub(super) addr: Option<IfAddr>,
    pub(super) port: MeshPort,
}

/// Interfaces with an RDMA device on them, and whether that has a GID to use.
pub(super) fn rdma() -> BTreeMap<String, bool> {
    rdma_of(&Machine::read(&Roots::default()))
}

fn rdma_of(machine: &Machine) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for port in machine.rdma.iter().flat_map(|device| &device.ports) {
        let gid = match port.ready() {
            Ok(_) => true,
            Err(NotReady::NoGid | NotReady::LinkLocalOnly(_)) => false,
            // No cable, or no address, makes one of them that this mesh can use.
            Err(_) => continue,
        };
        if let Some(interface) = &port.interface {
            *found.entry(interface.clone()).or_default() |= gid;
        }
    }
    found
}

/// The ports, by name.
///
/// # Errors
/// That of [`interfaces::look`], as EMFILE: nothing is known then.
pub(super) fn cabled(filter: Option<&IfFilter>, rdma: &BTreeMap<String, bool>) -> io::Result<Vec<Cabled>> {
    let survey = interfaces::look(filter, true)?;
    let mut used: Vec<(&Interface, Option<IfAddr>)> = survey
        .iter()
        .filter_map(|(interface, verdict)| match verdict {
            _ if interface.kind == Kind::Loopback => None,
            Verdict::Usable => Some((interface, interfaces::address(interface, interfaces::family().as_deref()))),
            // Nothing can be sent there yet, but beacons can be received and sent.
            Verdict::LeftOut(Reason::NoAddress | Reason::LinkLocalOnly) => {
                let real = matches!(interface.kind, Kind::Physical | Kind::Thunderbolt);
                let asked = filter.is_some_and(|f| f.asks_for(&interface.name));
                (real || asked).then_some((interface, None))
            }
            Verdict::LeftOut(_) | Verdict::LastResort => None,
        })
        .collect();
    used.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    used.truncate(PORTS_MAX);
    let names: Vec<&Interface> = used.iter().map(|(i, _)| *i).collect();
    let ports = used.iter().map(|(interface, addr)| {
        let addr = addr.filter(|a| !a.is_link_local());
        let gid = rdma.get(&interface.name);
        let port = MeshPort {
            name: interface.name.clone(),
            addr: addr.map(|a| (a.ip, a.prefix)),
            mtu: interface.mtu.unwrap_or(0),
            mbps: interface.speed_mbps.unwrap_or(0),
            carrier: interface.carrier != Some(false),
            rdma: gid.is_some(),
            gid: gid == Some(&true),
            twin: names.iter().position(|other| twins(interface, other)).map(|n| n as u8),
        };
        Cabled { index: interface.index, addr, port }
    });
    Ok(ports.collect())
}

/// Whether two interfaces are halves of one socket: a DGX Spark reaches each of its ports through two PCI functions that
/// differ in their domain alone and call the port by the same name.
fn twins(a: &Interface, b: &Interface) -> bool {
    let place = |i: &Interface| {
        i.pci_address().and_then(|p| p.split_once(':')).map(|(d, rest)| (d.to_owned(), rest.to_owned()))
    };
    match (place(a), place(b)) {
        (Some(x), Some(y)) => x.0 != y.0 && x.1 == y.1 && a.port_name.is_some() && a.port_name == b.port_name,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use linkspan_topology::fixture::{EIGHT_GPUS, Fixture};

    use super::*;

    #[test]
    fn only_a_port_that_wants_an_address_has_no_gid() {
        let found = |file: &str, text: &str| {
            let machine = Fixture::tree(EIGHT_GPUS);
            machine.file(&format!("sys/devices/virtual/infiniband/rxe0/{file}"), text);
            let found = rdma_of(&Machine::read(&machine.roots()));
            assert_eq!(found.get("ibp25s0"), Some(&true), "another device's");
            found.get("eno1").copied()
        };
        assert_eq!(found("fw_ver", ""), Some(false));
        assert_eq!(found("ports/1/state", "1: DOWN"), None);
        assert_eq!(found("node_type", "4: RNIC"), None);
    }
}
