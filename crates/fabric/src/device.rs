//! Devices: what a caller chooses between. A device is one or more interfaces whose rails carry a connection
//! together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use linkspan_proto::handle::host_hash;
use linkspan_setup::interfaces::{address, beside, family, look};
use linkspan_topology::{Host, IfAddr, Interface, Kind, Roots, Verdict};

use crate::{Config, Error};

/// Speed told for an interface whose driver tells none, Mb/s: what a virtual card of the last years does at least.
const UNKNOWN_MBPS: u32 = 10_000;

/// One interface of a device, with the address it is used by.
#[derive(Clone, Debug)]
pub struct DeviceInterface {
    /// Interface name.
    pub name: String,
    /// Its address.
    pub addr: IfAddr,
    /// Its link-local address beside that, where it is a cable to one neighbour, whose end may have no other.
    pub beside: Option<IfAddr>,
    /// Speed, Mb/s.
    pub mbps: u32,
}

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Unique name: its interfaces, joined by `+`.
    pub name: String,
    /// sysfs path of its PCI function; `None` for mixed groups and virtual cards.
    pub pci_path: Option<PathBuf>,
    /// Unique number, stable over restarts of the process.
    pub guid: u64,
    /// Sum of its interfaces, Mb/s.
    pub mbps: u32,
    /// NUMA node, where known.
    pub numa: Option<u32>,
    /// Its interfaces.
    pub ports: Vec<DeviceInterface>,
    /// The devices it was merged from; empty for one of the machine's own.
    pub members: Vec<usize>,
    /// It reaches this host only.
    pub loopback: bool,
}

/// This machine's interfaces with the verdict on each.
///
/// # Errors
/// [`Error::Interfaces`]: `getifaddrs(3)` failed.
pub fn survey(config: &Config) -> Result<Vec<(Interface, Verdict)>, Error> {
    look(config.interfaces.as_ref(), config.meshes()).map_err(Error::Interfaces)
}

/// An interface as part of a device; `None` without an address of the family.
pub(crate) fn port(interface: &Interface, family: Option<&str>) -> Option<DeviceInterface> {
    let mbps = interface.speed_mbps.unwrap_or(UNKNOWN_MBPS);
    let (addr, beside) = (address(interface, family)?, beside(interface, family));
    Some(DeviceInterface { name: interface.name.clone(), addr, beside, mbps })
}

/// Groups the usable interfaces into devices.
///
/// # Errors
/// [`Error::NoInterface`]: no interface is usable, not even loopback.
pub fn devices(config: &Config, survey: &[(Interface, Verdict)]) -> Result<Vec<Device>, Error> {
    let family = family();
    let host = Host::read(&Roots::default());
    let mut groups: BTreeMap<(u32, usize), Vec<(&Interface, DeviceInterface)>> = BTreeMap::new();
    for (n, (interface, verdict)) in survey.iter().enumerate() {
        let Some(port) = port(interface, family.as_deref()).filter(|_| verdict.is_usable()) else {
            continue;
        };
        // In a mesh each peer is behind another port, so one device has them all.
        let group = match config.meshes() {
            true => (0, 0),
            false => (interface.numa_node.unwrap_or(0), if config.split { n } else { 0 }),
        };
        groups.entry(group).or_default().push((interface, port));
    }
    if groups.is_empty() {
        // Without a network two processes of this host can still connect.
        let loopback = survey.iter().find(|(i, _)| i.kind == Kind::Loopback);
        if let Some((interface, port)) = loopback.and_then(|(i, _)| Some((i, port(i, family.as_deref())?))) {
            groups.insert((0, 0), vec![(interface, port)]);
        }
    }
    if groups.is_empty() {
        let reasons: Vec<String> = survey
            .iter()
            .map(|(i, v)| match v {
                Verdict::Usable | Verdict::LastResort => {
                    format!("{} has no address of the family in NCCL_SOCKET_FAMILY", i.name)
                }
                Verdict::LeftOut(reason) => format!("{} {reason}", i.name),
            })
            .collect();
        return Err(Error::NoInterface { reasons: reasons.join("; ") });
    }
    Ok(groups.into_values().map(|members| device(&host, members)).collect())
}

fn device(host: &Host, mut members: Vec<(&Interface, DeviceInterface)>) -> Device {
    members.sort_by_key(|(_, port)| (port.addr.is_link_local(), std::cmp::Reverse(port.mbps)));
    let name = members.iter().map(|(i, _)| i.name.as_str()).collect::<Vec<_>>().join("+");
    let pci_path =
        members[0].0.pci_path.clone().filter(|p| members.iter().all(|(i, _)| i.pci_path.as_ref() == Some(p)));
    let seed = format!("{}/{name}", host.boot_id.as_deref().unwrap_or(&host.name));
    Device {
        pci_path,
        guid: host_hash(seed.as_bytes()),
        mbps: members.iter().map(|(_, p)| p.mbps).sum(),
        numa: members[0].0.numa_node,
        members: Vec::new(),
        loopback: members.iter().all(|(i, _)| i.kind == Kind::Loopback),
        ports: members.into_iter().map(|(_, port)| port).collect(),
        name,
    }
}

impl DeviceInterface {
    /// The interface that sockets are tied to because routes do not tell it from others: they know one of all with
    /// 169.254.0.0/16. (IPv6 has scopes for that.)
    pub(crate) fn tie(&self) -> Option<String> {
        (self.addr.is_link_local() && self.addr.ip.is_ipv4()).then(|| self.name.clone())
    }

    /// The same cable by its link-local address.
    pub(crate) fn by_link_local(&self) -> Option<DeviceInterface> {
        Some(DeviceInterface { addr: self.beside?, beside: None, ..self.clone() })
    }
}

impl Device {
    /// One device of several; `numbers` are theirs.
    pub(crate) fn merged(parts: &[Device], numbers: &[usize]) -> Result<Device, Error> {
        let first = parts.first().ok_or(Error::NoDevice { index: 0, count: 0 })?;
        let name = parts.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join("+");
        Ok(Device {
            pci_path: first.pci_path.clone().filter(|p| parts.iter().all(|d| d.pci_path.as_ref() == Some(p))),
            guid: host_hash(format!("{:016x}/{name}", first.guid).as_bytes()),
            mbps: parts.iter().map(|d| d.mbps).sum(),
            numa: first.numa,
            loopback: parts.iter().all(|d| d.loopback),
            ports: parts.iter().flat_map(|d| d.ports.clone()).collect(),
            members: numbers.to_vec(),
            name,
        })
    }
}
