//! What an interface is made of.

use std::fmt;
use std::path::Path;

use crate::sysfs;

/// What an interface is made of, as far as the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A network card of its own.
    Physical,
    /// Ethernet over a Thunderbolt or USB4 cable (`thunderbolt-net`, or `linkspan.ko` in mode network).
    Thunderbolt,
    /// IP over InfiniBand.
    Infiniband,
    /// A radio.
    Wireless,
    /// The host talking to itself.
    Loopback,
    /// A software switch; the flag says whether a real card is one of its ports.
    Bridge {
        /// A port of it leads out of this host.
        wired: bool,
    },
    /// Several cards joined by the bonding driver.
    Bond,
    /// A VLAN on another interface.
    Vlan,
    /// One end of a virtual cable, usually into a container.
    Veth,
    /// A sub-interface with its own address (macvlan, ipvlan).
    Macvlan,
    /// A tunnel or overlay; the text names it (`tun`, `wireguard`, `vxlan`, `sit`, ...).
    Tunnel(String),
    /// Another device made of software alone.
    Virtual,
    /// The kernel listed an address on it, but sysfs does not show it (another network namespace is mounted there).
    Unknown,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Physical => "physical",
            Kind::Thunderbolt => "thunderbolt",
            Kind::Infiniband => "infiniband",
            Kind::Wireless => "wireless",
            Kind::Loopback => "loopback",
            Kind::Bridge { .. } => "bridge",
            Kind::Bond => "bond",
            Kind::Vlan => "vlan",
            Kind::Veth => "veth",
            Kind::Macvlan => "macvlan",
            Kind::Tunnel(what) => return write!(f, "tunnel ({what})"),
            Kind::Virtual => "virtual",
            Kind::Unknown => "unknown",
        })
    }
}

/// Hardware types of `linux/if_arp.h`: loopback.
const ARPHRD_LOOPBACK: u32 = 772;
/// InfiniBand.
const ARPHRD_INFINIBAND: u32 = 32;

/// Tunnel hardware types of `linux/if_arp.h`.
fn tunnel_type(arphrd: u32) -> Option<&'static str> {
    Some(match arphrd {
        512 => "ppp",
        768 => "ipip",
        769 => "ip6tnl",
        776 => "sit",
        778 => "gre",
        823 => "ip6gre",
        65534 => "tun",
        _ => return None,
    })
}

/// Reads the kind of the interface whose sysfs directory is `dir`.
pub(crate) fn read(dir: &Path, driver: Option<&str>) -> Kind {
    let arphrd: u32 = sysfs::number(&dir.join("type")).unwrap_or(0);
    let uevent = sysfs::text(&dir.join("uevent")).unwrap_or_default();
    let devtype = uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE=")).unwrap_or("");
    let device = dir.join("device").exists();

    if arphrd == ARPHRD_LOOPBACK {
        return Kind::Loopback;
    }
    if dir.join("bridge").is_dir() || devtype == "bridge" {
        let wired = sysfs::names(&dir.join("brif")).iter().any(|port| leads_out(dir, port));
        return Kind::Bridge { wired };
    }
    if dir.join("bonding").is_dir() || devtype == "bond" {
        return Kind::Bond;
    }
    if dir.join("wireless").is_dir() || dir.join("phy80211").exists() || matches!(devtype, "wlan" | "wwan") {
        return Kind::Wireless;
    }
    if dir.join("tun_flags").exists() {
        return Kind::Tunnel("tun/tap".into());
    }
    if matches!(devtype, "vxlan" | "wireguard" | "geneve" | "gre" | "gtp" | "bareudp") {
        return Kind::Tunnel(devtype.into());
    }
    if let Some(what) = tunnel_type(arphrd) {
        return Kind::Tunnel(what.into());
    }
    if devtype == "vlan" {
        return Kind::Vlan;
    }
    // In a container the interface below is the host's, and no `lower_` link leads to it.
    if matches!(devtype, "macvlan" | "macvtap" | "ipvlan" | "ipvtap") {
        return Kind::Macvlan;
    }
    if matches!(driver, Some("thunderbolt-net" | "linkspan")) {
        return Kind::Thunderbolt;
    }
    if arphrd == ARPHRD_INFINIBAND {
        return Kind::Infiniband;
    }
    if device {
        return Kind::Physical;
    }
    if sysfs::names(dir).iter().any(|name| name.starts_with("lower_")) {
        return Kind::Macvlan;
    }
    // veth has no mark of its own in sysfs: it is the software device whose `iflink` is the index of its other end.
    let index: Option<u32> = sysfs::number(&dir.join("ifindex"));
    match sysfs::number::<u32>(&dir.join("iflink")) {
        Some(link) if link != 0 && Some(link) != index && devtype.is_empty() => Kind::Veth,
        _ => Kind::Virtual,
    }
}

/// Whether a bridge's port is a real card, or a bond or VLAN over one.
fn leads_out(bridge: &Path, port: &str) -> bool {
    let Some(net) = bridge.parent() else {
        return false;
    };
    let dir = net.join(port);
    dir.join("device").exists() && !dir.join("tun_flags").exists()
        || dir.join("bonding").is_dir()
        || sysfs::text(&dir.join("uevent")).is_some_and(|text| text.lines().any(|line| line == "DEVTYPE=vlan"))
}
