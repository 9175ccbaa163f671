//! Network interfaces as sysfs describes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use crate::host::cpu_list;
use crate::kind::{self, Kind};
use crate::look::clean;
use crate::pci::{PciPlace, is_pci};
use crate::sysfs::{self, Roots};

/// One address as the kernel lists it (getifaddrs, netlink): the input of [`interfaces`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddrEntry {
    /// Interface name.
    pub name: String,
    /// The address.
    pub ip: IpAddr,
    /// Length of the network prefix, bits.
    pub prefix: u8,
    /// IPv6 scope id (interface index) of a link-local address, 0 otherwise.
    pub scope: u32,
}

impl AddrEntry {
    /// Of the interface with this name and index.
    pub fn new(name: String, index: u32, ip: IpAddr, prefix: u8) -> AddrEntry {
        let scope = match ip {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => index,
            _ => 0,
        };
        AddrEntry { name, ip, prefix, scope }
    }
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IfAddr {
    /// The address.
    pub ip: IpAddr,
    /// Length of the network prefix, bits.
    pub prefix: u8,
    /// IPv6 scope id of a link-local address, 0 otherwise.
    pub scope: u32,
}

impl IfAddr {
    /// As [`is_link_local`].
    pub fn is_link_local(&self) -> bool {
        is_link_local(self.ip)
    }

    /// The subnet, as in `10.0.4.0/22`.
    pub fn subnet(&self) -> String {
        let net: IpAddr = match self.ip {
            IpAddr::V4(ip) => {
                Ipv4Addr::from_bits(ip.to_bits() & !u32::MAX.checked_shr(self.prefix.into()).unwrap_or(0)).into()
            }
            IpAddr::V6(ip) => {
                Ipv6Addr::from_bits(ip.to_bits() & !u128::MAX.checked_shr(self.prefix.into()).unwrap_or(0)).into()
            }
        };
        format!("{net}/{}", self.prefix)
    }

    /// Whether `other` lies in this address's subnet.
    pub fn same_subnet(&self, other: IpAddr) -> bool {
        match (self.ip, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same_prefix(&a.octets(), &b.octets(), self.prefix),
            (IpAddr::V6(a), IpAddr::V6(b)) => same_prefix(&a.octets(), &b.octets(), self.prefix),
            _ => false,
        }
    }
}

/// Whether the address means something on its own link only: 169.254.0.0/16 (RFC 3927) or fe80::/10 (RFC 4291).
pub fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn same_prefix(a: &[u8], b: &[u8], prefix: u8) -> bool {
    let (whole, rest) = (usize::from(prefix / 8), prefix % 8);
    if whole > a.len() || (whole == a.len() && rest > 0) || a[..whole] != b[..whole] {
        return false;
    }
    rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0
}

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, as in `eth0`.
    pub name: String,
    /// Interface index; 0 when unknown.
    pub index: u32,
    /// What it is made of.
    pub kind: Kind,
    /// Kernel driver of the device below it.
    pub driver: Option<String>,
    /// Speed that the driver reports, Mb/s. Virtual cards often report none.
    pub speed_mbps: Option<u32>,
    /// Largest packet, bytes.
    pub mtu: Option<u32>,
    /// Administratively up (IFF_UP of netdevice(7)).
    pub up: bool,
    /// Whether a carrier is seen; `None` where the driver does not say.
    pub carrier: Option<bool>,
    /// Operational state of RFC 2863 as the kernel spells it: `up`, `down`, `dormant`, `unknown`, ...
    pub operstate: String,
    /// Hardware address.
    pub mac: Option<String>,
    /// Its addresses, in the order given.
    pub addrs: Vec<IfAddr>,
    /// NUMA node of the device.
    pub numa_node: Option<u32>,
    /// sysfs directory of the PCI function it sits on, as NCCL wants it.
    pub pci_path: Option<PathBuf>,
    /// The bond or bridge that it is a part of.
    pub master: Option<String>,
    /// What the card calls the port behind it (`phys_port_name`), as in `p0`.
    pub port_name: Option<String>,
}

impl Interface {
    /// PCI address (`0000:01:00.0`), where there is one.
    pub fn pci_address(&self) -> Option<&str> {
        self.pci_path.as_deref()?.file_name()?.to_str()
    }

    /// Where the device sits on PCI.
    pub fn place(&self) -> Option<PciPlace> {
        PciPlace::of(self.pci_path.as_deref()?, self.numa_node)
    }

    /// The processors near the card, ascending: what its PCI function names (`local_cpulist` of sysfs, as in `0-7`), else
    /// those of its NUMA node. Empty where neither is known.
    pub fn cpus_near(&self, roots: &Roots) -> Vec<u32> {
        let named = self.pci_path.as_ref().and_then(|dir| sysfs::text(&dir.join("local_cpulist")));
        let node = || {
            let node = format!("devices/system/node/node{}/cpulist", self.numa_node?);
            sysfs::text(&roots.sys.join(node))
        };
        let list = |text: String| Some(cpu_list(&text)).filter(|cpus| !cpus.is_empty());
        named.and_then(list).or_else(|| node().and_then(list)).unwrap_or_default()
    }

    /// Whether it is a cable to one neighbour with none but link-local addresses, as NetworkManager leaves a Thunderbolt cable
    /// whose ends nobody gave addresses: it leads to that neighbour or nowhere.
    pub fn is_bare_cable(&self) -> bool {
        self.kind == Kind::Thunderbolt && self.addrs.iter().all(IfAddr::is_link_local)
    }

    fn bare(name: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            index: 0,
            kind: Kind::Unknown,
            driver: None,
            speed_mbps: None,
            mtu: None,
            up: true,
            carrier: None,
            operstate: "unknown".into(),
            mac: None,
            addrs: Vec::new(),
            numa_node: None,
            pci_path: None,
            master: None,
            port_name: None,
        }
    }
}

/// IFF_UP of netdevice(7).
const IFF_UP: u32 = 1;

/// All interfaces, by index. `addrs` is what the kernel listed; an interface that has an address but is missing in
/// sysfs is kept as [`Kind::Unknown`], or [`Kind::Loopback`].
pub fn interfaces(roots: &Roots, addrs: &[AddrEntry]) -> Vec<Interface> {
    let net = roots.net();
    let mut list: Vec<Interface> = sysfs::names(&net)
        .iter()
        .filter(|name| net.join(name).join("ifindex").exists()) // `bonding_masters` is a file beside the interfaces
        .map(|name| read(roots, &net.join(name), name))
        .collect();
    for entry in addrs {
        let at = match list.iter().position(|iface| iface.name == entry.name) {
            Some(at) => at,
            None => {
                // Also where there is no sysfs to tell.
                let kind = if entry.ip.is_loopback() { Kind::Loopback } else { Kind::Unknown };
                list.push(Interface { kind, ..Interface::bare(&entry.name) });
                list.len() - 1
            }
        };
        list[at].addrs.push(IfAddr { ip: entry.ip, prefix: entry.prefix, scope: entry.scope });
    }
    list.sort_by(|a, b| (a.index, &a.name).cmp(&(b.index, &b.name)));
    list
}

fn read(roots: &Roots, dir: &Path, name: &str) -> Interface {
    let driver = sysfs::link_name(&dir.join("device/driver"));
    let flags = sysfs::text(&dir.join("flags"))
        .and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok())
        .unwrap_or(0);
    let pci_path = pci(roots, &dir.join("device"));
    Interface {
        index: sysfs::number(&dir.join("ifindex")).unwrap_or(0),
        kind: kind::read(dir, driver.as_deref()),
        // Drivers without a speed answer -1, or 65535 or 2^32-1 from older ones: none of them is a speed.
        speed_mbps: sysfs::number::<i64>(&dir.join("speed"))
            .filter(|&speed| speed > 0 && speed != 65535 && speed < i64::from(u32::MAX))
            .and_then(|speed| u32::try_from(speed).ok()),
        mtu: sysfs::number(&dir.join("mtu")),
        up: flags & IFF_UP != 0,
        carrier: sysfs::number::<u8>(&dir.join("carrier")).map(|carrier| carrier == 1),
        operstate: sysfs::text(&dir.join("operstate")).unwrap_or_else(|| "unknown".into()),
        mac: sysfs::text(&dir.join("address")),
        // Devices that sit on the function have none of their own; -1, "none", does not parse as u32.
        numa_node: pci_path.as_ref().and_then(|function| sysfs::number(&function.join("numa_node"))),
        pci_path,
        master: sysfs::link_name(&dir.join("master")),
        port_name: sysfs::text(&dir.join("phys_port_name")).map(|name| clean(&name, 16)),
        driver,
        ..Interface::bare(name)
    }
}

/// The PCI function that the device is or sits on (a virtio device is a child of its PCI function).
fn pci(roots: &Roots, device: &Path) -> Option<PathBuf> {
    let real = roots.real(device)?;
    let below = real.ancestors().find(|dir| dir.file_name().and_then(|name| name.to_str()).is_some_and(is_pci))?;
    Some(below.to_owned())
}

#[cfg(test)]
mod tests;
