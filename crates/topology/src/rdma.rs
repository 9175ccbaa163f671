//! RDMA devices: ports, GIDs, and whether a queue pair could leave through them.
//!
//! From `/sys/class/infiniband` (Documentation/ABI/stable/sysfs-class-infiniband).

mod gid;

use std::fmt;
use std::path::Path;

pub use gid::{Gid, GidKind};

use crate::look::{Look, thousandths};
use crate::pci::{PciPlace, PcieLinks};
use crate::sysfs::{self, Roots};
use crate::thunderbolt;

/// Most devices and ports that are looked at; eight cards with 16 virtual functions each are 136.
const DEVICES_MAX: usize = 256;
/// Ports of a device; the port number is a byte (InfiniBand Architecture 1.4, 14.2.5.6), cards have two.
const PORTS_MAX: usize = 16;

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Name, as in `mlx5_0`.
    pub name: String,
    /// Kernel driver of the device below it; `None` for one made of software.
    pub driver: Option<String>,
    /// `CA` for InfiniBand and RoCE, `RNIC` for iWARP.
    pub node_type: Option<String>,
    /// GUID of the device.
    pub node_guid: Option<String>,
    /// GUID of the adapter: the same in all devices of one.
    pub sys_image_guid: Option<String>,
    /// Firmware version.
    pub firmware: Option<String>,
    /// The host at the end of a Thunderbolt cable (`0-1`) that it was made of.
    pub xdomain: Option<String>,
    /// Where it sits; `None` for one made of software.
    pub pci: Option<PciPlace>,
    /// Its PCIe link.
    pub link: PcieLinks,
    /// Its ports by number.
    pub ports: Vec<RdmaPort>,
}

/// What a port's link is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// RoCE or iWARP.
    Ethernet,
    /// InfiniBand.
    Infiniband,
    /// Something else, or unknown.
    Unknown,
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkLayer::Ethernet => "Ethernet",
            LinkLayer::Infiniband => "InfiniBand",
            LinkLayer::Unknown => "unknown",
        })
    }
}

/// A port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaPort {
    /// Its number, from 1.
    pub number: u32,
    /// Logical state: `DOWN`, `INIT`, `ARMED`, `ACTIVE`, `ACTIVE_DEFER`.
    pub state: Option<String>,
    /// Physical state: `LinkUp`, `Disabled`, `Polling`, ...
    pub phys_state: Option<String>,
    /// What its link is made of.
    pub link_layer: LinkLayer,
    /// Width times speed, Mb/s.
    pub rate_mbps: Option<u32>,
    /// Local identifier that a subnet manager gave; 0 for none, and on Ethernet.
    pub lid: Option<u32>,
    /// Local identifier of the subnet manager.
    pub sm_lid: Option<u32>,
    /// The network interface on the same port.
    pub interface: Option<String>,
    /// Entries of its GID table that are in use.
    pub gids: Vec<Gid>,
    /// iWARP instead of RoCE.
    iwarp: bool,
}

/// Why no queue pair can leave through a port. The text names the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotReady {
    /// The port has no link.
    Down {
        /// Physical state.
        phys_state: String,
    },
    /// The port has a link, but is not active yet.
    State {
        /// Logical state.
        state: String,
        /// An InfiniBand port: a subnet manager is wanted.
        infiniband: bool,
    },
    /// An InfiniBand port without a local identifier.
    NoLid,
    /// No entry in the GID table.
    NoGid,
    /// No RoCE v2 entry with an address that others reach; the text is the interface to give one to.
    LinkLocalOnly(Option<String>),
    /// RoCE v1 entries alone.
    RoceV1Only,
    /// iWARP, which linkspan does not support.
    Iwarp,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReady::Down { phys_state } => {
                write!(f, "the port is down ({phys_state}): no cable, or nothing at its other end")
            }
            NotReady::State { state, infiniband: true } => {
                write!(f, "the port is in state {state}: no subnet manager has set it up; start opensm on one host")
            }
            NotReady::State { state, infiniband: false } => {
                write!(f, "the port is in state {state}; set its network interface up")
            }
            NotReady::NoLid => f.write_str("no LID: no subnet manager has set the port up; start opensm on one host"),
            NotReady::NoGid => f.write_str("the GID table is empty; set the network interface of the port up"),
            NotReady::LinkLocalOnly(interface) => write!(
                f,
                "no RoCE v2 GID but link-local ones; give {} an IP address",
                interface.as_deref().unwrap_or("the port's network interface")
            ),
            NotReady::RoceV1Only => {
                f.write_str("RoCE v1 GIDs only, which no router passes; enable RoCE v2 on the card")
            }
            NotReady::Iwarp => f.write_str("an iWARP device; linkspan supports InfiniBand and RoCE v2"),
        }
    }
}

impl RdmaPort {
    /// The GID to leave by: on Ethernet a RoCE v2 one that is not link-local, IPv4-mapped before IPv6; on InfiniBand
    /// the first.
    ///
    /// # Errors
    /// [`NotReady`], whose variant says why no queue pair can be connected over this port.
    pub fn ready(&self) -> Result<Option<&Gid>, NotReady> {
        let infiniband = self.link_layer == LinkLayer::Infiniband;
        match self.state.as_deref() {
            Some("ACTIVE" | "ACTIVE_DEFER") => {}
            Some("DOWN") | None => {
                let phys_state = self.phys_state.clone().unwrap_or_else(|| "state unknown".into());
                return Err(NotReady::Down { phys_state });
            }
            Some(state) => return Err(NotReady::State { state: state.to_owned(), infiniband }),
        }
        if self.iwarp {
            return Err(NotReady::Iwarp);
        }
        if infiniband {
            return if self.lid.unwrap_or(0) == 0 { Err(NotReady::NoLid) } else { Ok(self.gids.first()) };
        }
        let v2 = |gid: &&Gid| gid.kind == GidKind::RoceV2;
        let best = self.gids.iter().filter(v2).filter(|gid| !gid.is_link_local());
        match best.min_by_key(|gid| (gid.ipv4().is_none(), gid.index)) {
            Some(gid) => Ok(Some(gid)),
            None if self.gids.is_empty() => Err(NotReady::NoGid),
            None if self.gids.iter().any(|gid| v2(&gid)) => Err(NotReady::LinkLocalOnly(self.interface.clone())),
            None => Err(NotReady::RoceV1Only),
        }
    }
}

/// All RDMA devices by name.
pub(crate) fn read(look: &mut Look<'_>) -> Vec<RdmaDevice> {
    let class = look.roots.sys.join("class/infiniband");
    look.names(&class, DEVICES_MAX).iter().map(|name| device(look, &class.join(name), name)).collect()
}

/// `4: ACTIVE` and `1: CA`: a number, then the word.
fn word(look: &mut Look<'_>, path: &Path) -> Option<String> {
    let text = look.name(path)?;
    Some(text.split_once(':').map_or(&*text, |(_, word)| word).trim().to_owned())
}

fn device(look: &mut Look<'_>, dir: &Path, name: &str) -> RdmaDevice {
    let pci = PciPlace::read(look.roots, &dir.join("device"));
    let link = if pci.is_some() { PcieLinks::read(look, &dir.join("device")) } else { PcieLinks::default() };
    let node_type = word(look, &dir.join("node_type"));
    let iwarp = node_type.as_deref() == Some("RNIC");
    let mut ports: Vec<RdmaPort> = Vec::new();
    for number in look.names(&dir.join("ports"), PORTS_MAX) {
        if let Ok(number) = number.parse() {
            ports.push(port(look, dir, number, iwarp));
        }
    }
    ports.sort_by_key(|port| port.number);
    RdmaDevice {
        name: name.to_owned(),
        driver: sysfs::link_name(&dir.join("device/driver")),
        node_type,
        node_guid: look.name(&dir.join("node_guid")),
        sys_image_guid: look.name(&dir.join("sys_image_guid")),
        firmware: look.name(&dir.join("fw_ver")),
        xdomain: xdomain(look.roots, dir),
        pci,
        link,
        ports,
    }
}

/// The device or service of another host (`0-1`, `0-1.2`) below which the device is in sysfs.
fn xdomain(roots: &Roots, dir: &Path) -> Option<String> {
    let real = roots.real(&dir.join("device")).or_else(|| roots.real(dir))?;
    let name = real.iter().rev().find_map(|name| thunderbolt::host(name.to_str()?))?;
    // Devices of USB have such names, too.
    let domain = format!("domain{}", name.split('-').next()?);
    real.iter().any(|part| part == domain.as_str()).then(|| name.to_owned())
}

fn port(look: &mut Look<'_>, device: &Path, number: u32, iwarp: bool) -> RdmaPort {
    let dir = device.join("ports").join(number.to_string());
    let link_layer = match look.text(&dir.join("link_layer")).as_deref() {
        Some("Ethernet") => LinkLayer::Ethernet,
        Some("InfiniBand") => LinkLayer::Infiniband,
        _ => LinkLayer::Unknown,
    };
    let gids = gid::read(look, &dir, link_layer);
    let interface = gids.iter().find_map(|gid| gid.interface.clone()).or_else(|| interface(look, device, number));
    RdmaPort {
        number,
        state: word(look, &dir.join("state")),
        phys_state: word(look, &dir.join("phys_state")),
        link_layer,
        rate_mbps: look.parsed(&dir.join("rate"), "a rate in Gb/sec", |text| thousandths(text, "Gb/s")),
        lid: look.hex(&dir.join("lid")),
        sm_lid: look.hex(&dir.join("sm_lid")),
        interface,
        gids,
        iwarp,
    }
}

/// The network interface of a port whose GID table does not name one: soft-RoCE tells it as `parent`; a card has it
/// below the same PCI function, told apart by `dev_port` (from 0) where there are several.
fn interface(look: &mut Look<'_>, device: &Path, number: u32) -> Option<String> {
    if let Some(parent) = look.name(&device.join("parent")) {
        return Some(parent);
    }
    let net = device.join("device/net");
    let names = look.names(&net, 64);
    if let [only] = &*names {
        return Some(only.clone());
    }
    names.into_iter().find(|name| look.number::<u32>(&net.join(name).join("dev_port")) == number.checked_sub(1))
}

#[cfg(test)]
mod tests;
