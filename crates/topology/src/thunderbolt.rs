//! Thunderbolt and USB4: domains, routers, and the hosts at the other ends of cables.
//!
//! From `/sys/bus/thunderbolt/devices` (Documentation/ABI/testing/sysfs-bus-thunderbolt): `domainN` is a host
//! interface, `N-0` its host router, `N-R` a device or a host (XDomain) at route R, `N-R.S` a service of that host.
//! Attributes that take the domain's lock or wake a router (`usb4_portN/link`, `boot_acl`, NVM) are left alone.

use std::path::Path;

use crate::look::{Look, thousandths};
use crate::pci::PciPlace;
use crate::sysfs;

/// Most entries of the bus that are looked at. A domain of six daisy-chained devices with retimers has about 30.
const DEVICES_MAX: usize = 512;

/// A Thunderbolt domain: one host interface of this machine and what hangs below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its number.
    pub number: u32,
    /// Security level set by the firmware: `none`, `user`, `secure`, `dponly`, `usbonly`, `nopcie`.
    pub security: Option<String>,
    /// Whether the IOMMU keeps devices on the cable from memory that was not mapped for them.
    pub iommu_dma_protection: Option<bool>,
    /// The host interface on PCI.
    pub pci: Option<PciPlace>,
    /// Host router first, then device routers (docks, disks) by route.
    pub routers: Vec<Router>,
    /// Hosts at the other ends of cables.
    pub xdomains: Vec<XDomain>,
    /// Such hosts are not looked for: the driver's parameter `xdomain` is off.
    pub xdomain_off: bool,
}

/// A router: the host's own (route 0) or that of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Router {
    /// Name in sysfs, as in `0-0`.
    pub name: String,
    /// Route string: one byte per hop, the lowest is the port of the host router. 0 for that router itself.
    pub route: u64,
    /// Its UUID.
    pub unique_id: Option<String>,
    /// Vendor, as the router tells.
    pub vendor_name: Option<String>,
    /// Model, as the router tells.
    pub device_name: Option<String>,
    /// 1 to 3 Thunderbolt, 4 USB4 (and Thunderbolt 4), 5 USB4 version 2 where the kernel counts so.
    pub generation: Option<u32>,
    /// Whether PCIe and display were let through; `None` for the host router.
    pub authorized: Option<bool>,
    /// Link to the router or host above.
    pub link: Link,
    /// Numbers of its USB4 ports.
    pub ports: Vec<u8>,
}

/// A host at the other end of a cable. Names and identity are what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XDomain {
    /// Name in sysfs, as in `0-1`.
    pub name: String,
    /// Route string, as for [`Router`].
    pub route: u64,
    /// UUID of the host router at the other end.
    pub unique_id: Option<String>,
    /// Vendor number.
    pub vendor_id: Option<u32>,
    /// Device number.
    pub device_id: Option<u32>,
    /// Vendor name; `Linux` for Linux 7.3, `Intel Corp.` for 6.12.
    pub vendor_name: Option<String>,
    /// Device name; the host name for Linux.
    pub device_name: Option<String>,
    /// The cable.
    pub link: Link,
    /// Largest HopID that the peer takes.
    pub max_hopid: Option<u32>,
    /// What the peer offers.
    pub services: Vec<Service>,
}

impl XDomain {
    /// The port of this host's router that the cable (or the chain of devices before it) is plugged into.
    pub fn port(&self) -> u8 {
        self.route.to_le_bytes()[0]
    }

    /// Whether devices sit between this host and the peer.
    pub fn chained(&self) -> bool {
        self.route > 0xff
    }

    /// The first service with this key.
    pub fn service(&self, key: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.key.as_deref() == Some(key))
    }
}

/// A service of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Name in sysfs, as in `0-1.0`.
    pub name: String,
    /// Protocol key, as in `network`, `stream`, `rdma`.
    pub key: Option<String>,
    /// Protocol id.
    pub prtcid: Option<u32>,
    /// Protocol version.
    pub prtcvers: Option<u32>,
    /// Software revision.
    pub prtcrevs: Option<u32>,
    /// Driver on this host that took it.
    pub driver: Option<String>,
    /// Network interface that the driver made of it.
    pub interface: Option<String>,
    /// State of the link that `linkspan.ko` made of it, as in `up`, `waiting`.
    pub ring: Option<String>,
}

/// Both directions of a link, as this host sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// From the peer.
    pub rx: Option<Lanes>,
    /// To the peer.
    pub tx: Option<Lanes>,
}

/// Lanes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Speed of one lane, Mb/s.
    pub lane_mbps: u32,
    /// How many.
    pub lanes: u32,
}

impl Lanes {
    /// All lanes together, Mb/s, before the coding of the wire.
    pub fn mbps(&self) -> u32 {
        self.lane_mbps.saturating_mul(self.lanes)
    }
}

/// What an entry of the bus is, by its name.
enum Entry {
    Domain(u32),
    /// Domain, route.
    Routed(u32, u64),
    /// Domain, route; the number is checked and not needed.
    Service(u32, u64),
}

/// Names as `tb_domain_alloc`, `tb_switch_alloc`, `tb_xdomain_alloc` and `populate_properties` of the kernel make them.
/// `None` for retimers (`0-0:1.1`) and whatever else.
fn entry(name: &str) -> Option<Entry> {
    if let Some(number) = name.strip_prefix("domain") {
        return Some(Entry::Domain(decimal(number)?));
    }
    let (domain, rest) = name.split_once('-')?;
    let (route, service) = rest.split_once('.').map_or((rest, None), |(route, service)| (route, Some(service)));
    let hex = route.bytes().all(|byte| byte.is_ascii_hexdigit());
    let route = u64::from_str_radix(route, 16).ok().filter(|_| hex)?;
    let domain = decimal(domain)?;
    Some(match service {
        Some(number) => decimal(number).map(|_| Entry::Service(domain, route))?,
        None => Entry::Routed(domain, route),
    })
}

/// The routed entry that this name is of or that it is a service of, as in `0-1` for `0-1` and `0-1.2`; no host router.
pub(crate) fn host(name: &str) -> Option<&str> {
    match entry(name)? {
        Entry::Routed(_, route) | Entry::Service(_, route) if route != 0 => name.split('.').next(),
        _ => None,
    }
}

fn decimal(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// All domains by number.
pub(crate) fn read(look: &mut Look<'_>) -> Vec<Domain> {
    let bus = look.roots.sys.join("bus/thunderbolt/devices");
    let names = look.names(&bus, DEVICES_MAX);
    let mut domains: Vec<Domain> = Vec::new();
    let mut at = |number: u32| match domains.iter().position(|domain| domain.number == number) {
        Some(at) => at,
        None => {
            domains.push(bare(number));
            domains.len() - 1
        }
    };
    let mut found: Vec<(usize, &str, Entry)> = Vec::new();
    for name in &names {
        let Some(entry) = entry(name) else {
            continue;
        };
        let (Entry::Domain(number) | Entry::Routed(number, _) | Entry::Service(number, ..)) = entry;
        found.push((at(number), name, entry));
    }
    for (domain, name, entry) in &found {
        let (domain, dir) = (&mut domains[*domain], bus.join(name));
        match entry {
            Entry::Domain(_) => {
                domain.security = look.name(&dir.join("security"));
                domain.iommu_dma_protection = look.flag(&dir.join("iommu_dma_protection"));
                domain.pci = PciPlace::read(look.roots, &dir);
            }
            Entry::Routed(_, route) if is_xdomain(look, &dir, *route) => {
                domain.xdomains.push(xdomain(look, &dir, name, *route));
            }
            Entry::Routed(_, route) => domain.routers.push(router(look, &dir, name, *route)),
            Entry::Service(..) => {}
        }
    }
    for (domain, name, entry) in &found {
        let Entry::Service(_, route) = entry else {
            continue;
        };
        let dir = bus.join(name);
        match domains[*domain].xdomains.iter_mut().find(|xdomain| xdomain.route == *route) {
            Some(xdomain) => xdomain.services.push(service(look, &dir, name)),
            None => look.note(&dir, "a service of a peer that is not there, ignored"),
        }
    }
    domains.sort_by_key(|domain| domain.number);
    for domain in &mut domains {
        domain.routers.sort_by_key(|router| router.route);
        domain.xdomains.sort_by_key(|xdomain| xdomain.route);
        // `module_param_named(xdomain, ...)` in drivers/thunderbolt/xdomain.c, one for all domains.
        let parameter = look.text(&look.roots.sys.join("module/thunderbolt/parameters/xdomain"));
        domain.xdomain_off = parameter.is_some_and(|text| text.trim() == "N");
    }
    domains
}

fn bare(number: u32) -> Domain {
    Domain {
        number,
        security: None,
        iommu_dma_protection: None,
        pci: None,
        routers: Vec::new(),
        xdomains: Vec::new(),
        xdomain_off: false,
    }
}

/// `DEVTYPE` of the uevent tells hosts from devices; where it is missing, only routers have `authorized`.
fn is_xdomain(look: &mut Look<'_>, dir: &Path, route: u64) -> bool {
    let uevent = look.text(&dir.join("uevent")).unwrap_or_default();
    match uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE=")) {
        Some(devtype) => devtype == "thunderbolt_xdomain",
        None => route != 0 && !dir.join("authorized").exists(),
    }
}

fn lanes(look: &mut Look<'_>, dir: &Path, way: &str) -> Option<Lanes> {
    let speed = |text: &str| thousandths(text, "Gb/s").filter(|&mbps| mbps > 0);
    let lane_mbps = look.parsed(&dir.join(format!("{way}_speed")), "a speed in Gb/s", speed)?;
    // Gen 4 asymmetric: three lanes one way and one the other (USB4 version 2.0).
    let count = |text: &str| text.parse::<u32>().ok().filter(|lanes| (1..=4).contains(lanes));
    let lanes = look.parsed(&dir.join(format!("{way}_lanes")), "a number of lanes", count)?;
    Some(Lanes { lane_mbps, lanes })
}

fn link(look: &mut Look<'_>, dir: &Path) -> Link {
    Link { rx: lanes(look, dir, "rx"), tx: lanes(look, dir, "tx") }
}

fn router(look: &mut Look<'_>, dir: &Path, name: &str, route: u64) -> Router {
    let mut ports: Vec<u8> =
        sysfs::names(dir).iter().filter_map(|name| name.strip_prefix("usb4_port")?.parse().ok()).collect();
    ports.sort_unstable();
    Router {
        name: name.to_owned(),
        route,
        unique_id: look.name(&dir.join("unique_id")),
        vendor_name: look.name(&dir.join("vendor_name")),
        device_name: look.name(&dir.join("device_name")),
        generation: look.number(&dir.join("generation")),
        authorized: if route == 0 { None } else { look.flag(&dir.join("authorized")) },
        link: link(look, dir),
        ports,
    }
}

fn xdomain(look: &mut Look<'_>, dir: &Path, name: &str, route: u64) -> XDomain {
    XDomain {
        name: name.to_owned(),
        route,
        unique_id: look.name(&dir.join("unique_id")),
        vendor_id: look.hex(&dir.join("vendor")),
        device_id: look.hex(&dir.join("device")),
        vendor_name: look.name(&dir.join("vendor_name")),
        device_name: look.name(&dir.join("device_name")),
        link: link(look, dir),
        max_hopid: look.number(&dir.join("maxhopid")),
        services: Vec::new(),
    }
}

fn service(look: &mut Look<'_>, dir: &Path, name: &str) -> Service {
    Service {
        name: name.to_owned(),
        key: look.name(&dir.join("key")),
        prtcid: look.number(&dir.join("prtcid")),
        prtcvers: look.number(&dir.join("prtcvers")),
        prtcrevs: look.number(&dir.join("prtcrevs")),
        driver: sysfs::link_name(&dir.join("driver")),
        interface: sysfs::names(&dir.join("net")).into_iter().next(),
        ring: sysfs::names(&dir.join("linkspan"))
            .first()
            .and_then(|link| look.name(&dir.join("linkspan").join(link).join("state"))),
    }
}

#[cfg(test)]
mod tests;
