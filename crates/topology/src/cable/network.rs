//! Cables of network cards: Ethernet and InfiniBand.

use crate::cable::{Cable, CablePath, Means, Medium};
use crate::{Interface, Kind, Lanes, Link, Machine, RdmaDevice, RdmaPort, Verdict};

/// Smallest packet of a network interface that leaves space for RoCE's largest path MTU, 4096 bytes of payload with
/// its headers (InfiniBand Architecture, annex A17).
const ROCE_MTU: u32 = 4200;

/// Cards that have a carrier.
pub(super) fn cables(machine: &Machine, survey: &[(Interface, Verdict)]) -> Vec<Cable> {
    let wired = survey.iter().filter(|(iface, _)| matches!(iface.kind, Kind::Physical | Kind::Infiniband));
    wired
        .filter(|(iface, _)| iface.up && iface.carrier == Some(true))
        .map(|(iface, _)| {
            let mut own = ports(machine, &iface.name);
            // RDMA of a bond is one device for all its cards (mlx5_bond_0), with the bond's addresses.
            if let Some(master) = &iface.master {
                own.extend(ports(machine, master));
            }
            let mut paths = vec![CablePath::tcp(&iface.name, survey)];
            paths.extend(own.iter().map(|(device, port)| rdma(device, port)));
            let lanes = iface.speed_mbps.map(|mbps| Lanes { lane_mbps: mbps, lanes: 1 });
            Cable {
                medium: if iface.kind == Kind::Infiniband { Medium::Infiniband } else { Medium::Ethernet },
                name: iface.name.clone(),
                link: Link { rx: lanes, tx: lanes },
                peer: None,
                neighbours: Vec::new(),
                neighbour_count: 0,
                paths,
                notes: notes(machine, survey, iface, &own),
            }
        })
        .collect()
}

/// RDMA ports on the same port as this interface.
pub(super) fn ports<'a>(machine: &'a Machine, interface: &str) -> Vec<(&'a RdmaDevice, &'a RdmaPort)> {
    let all = machine.rdma.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    all.filter(|(_, port)| port.interface.as_deref() == Some(interface)).collect()
}

pub(super) fn rdma(device: &RdmaDevice, port: &RdmaPort) -> CablePath {
    let over = format!("{}/{}", device.name, port.number);
    match port.ready() {
        Err(why) => CablePath::no(Means::Rdma, &over, why.to_string()),
        Ok(gid) => {
            let by = match gid {
                Some(gid) if port.lid.unwrap_or(0) == 0 => match gid.ipv4() {
                    Some(ip) => format!("{} GID {} ({ip})", gid.kind, gid.index),
                    None => format!("{} GID {} ({})", gid.kind, gid.index, gid.gid),
                },
                _ => format!("LID {}", port.lid.unwrap_or(0)),
            };
            CablePath { means: Means::Rdma, over, usable: true, reason: Some(by) }
        }
    }
}

fn notes(
    machine: &Machine,
    survey: &[(Interface, Verdict)],
    iface: &Interface,
    ports: &[(&RdmaDevice, &RdmaPort)],
) -> Vec<String> {
    let mut notes = Vec::new();
    let roce = |(_, port): &(&RdmaDevice, &RdmaPort)| port.link_layer == crate::LinkLayer::Ethernet;
    if let Some(mtu) = iface.mtu.filter(|&mtu| mtu < ROCE_MTU)
        && ports.iter().any(roce)
    {
        let path_mtu = if mtu < 2200 { 1024 } else { 2048 };
        notes.push(format!(
            "MTU {mtu} gives RoCE packets of {path_mtu} bytes; `ip link set {} mtu 9000` on both ends",
            iface.name
        ));
    }
    for (device, port) in ports {
        if let (Some(now), Some(rate)) = (device.link.now, port.rate_mbps)
            && now.mbps() < rate
        {
            let slot = device.link.most.filter(|_| device.link.narrow());
            notes.push(format!(
                "{} is on PCIe {now}{}, which carries {} Gb/s, less than the port's {}",
                device.name,
                slot.map_or_else(String::new, |most| format!(" of x{}", most.width)),
                now.mbps() / 1000,
                rate / 1000
            ));
        }
    }
    let twins = twins(machine, survey, iface, ports);
    if !twins.is_empty() {
        let port = iface.port_name.as_deref().unwrap_or_default();
        notes.push(format!(
            "shares port {port} of its adapter with {}: use both, each has its own PCIe link",
            twins.join(", ")
        ));
    }
    notes
}

/// Interfaces that reach the same physical port through another PCI device of the same adapter (DGX Spark: each port
/// through two PCIe links).
fn twins(
    machine: &Machine,
    survey: &[(Interface, Verdict)],
    iface: &Interface,
    ports_here: &[(&RdmaDevice, &RdmaPort)],
) -> Vec<String> {
    let adapter = |list: &[(&RdmaDevice, &RdmaPort)]| list.iter().find_map(|(device, _)| device.sys_image_guid.clone());
    let Some(own) = adapter(ports_here).filter(|_| iface.port_name.is_some()) else {
        return Vec::new();
    };
    let others = survey.iter().map(|(other, _)| other).filter(|other| other.name != iface.name);
    others
        .filter(|other| other.port_name == iface.port_name && other.pci_address() != iface.pci_address())
        .filter(|other| adapter(&ports(machine, &other.name)).as_ref() == Some(&own))
        .map(|other| other.name.clone())
        .collect()
}
