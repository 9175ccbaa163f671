//! The ports of this host that cables to neighbours can be plugged into.

use std::io;

use linkspan_proto::mesh::{MeshPort, PORTS_MAX};
use linkspan_setup::interfaces;
use linkspan_topology::{IfAddr, IfFilter, Interface, Kind, Machine, Reason, Roots, Verdict};

/// A port, with what it takes to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cabled {
    pub(super) index: u32,
    pub(super) addr: Option<IfAddr>,
    pub(super) port: MeshPort,
}

/// Interfaces with an RDMA device on them, and whether that has a GID to use.
pub(super) fn rdma() -> Vec<(String, bool)> {
    let machine = Machine::read(&Roots::default());
    let ports = machine.rdma.iter().flat_map(|d| &d.ports);
    ports.filter_map(|p| Some((p.interface.clone()?, p.ready().is_ok()))).collect()
}

/// The ports, by name.
///
/// # Errors
/// That of [`interfaces::look`], as EMFILE: nothing is known then.
pub(super) fn cabled(filter: Option<&IfFilter>, rdma: &[(String, bool)]) -> io::Result<Vec<Cabled>> {
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
        let device = rdma.iter().find(|(name, _)| *name == interface.name);
        let port = MeshPort {
            name: interface.name.clone(),
            addr: addr.map(|a| (a.ip, a.prefix)),
            mtu: interface.mtu.unwrap_or(0),
            mbps: interface.speed_mbps.unwrap_or(0),
            carrier: interface.carrier != Some(false),
            rdma: device.is_some(),
            gid: device.is_some_and(|(_, ready)| *ready),
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
