//! The program that manages the network here, and how it is told to change something for good.

use linkspan_topology::{Kind, Roots};

use crate::finding::Step;
use crate::shell::word;

/// Most bytes taken of /proc/1/net/dev: a line of it has some 125, and hosts of many containers have thousands of interfaces.
const DEV_MAX: u64 = 4 << 20;

/// What manages an interface. A change behind its back is gone with the next start, or sooner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Manages {
    /// NetworkManager.
    NetworkManager(Profile),
    /// systemd-networkd.
    Networkd,
    /// None that is known: changes hold until the next boot.
    None,
}

/// How NetworkManager is told of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// A profile of its own, of this type.
    Own(&'static str),
    /// The profile that is active on it, by its UUID: a bond, a VLAN or a bridge is what its profile makes of it.
    Active(String),
    /// It has a profile, whose name is not known.
    Unknown,
}

impl Manages {
    /// What manages the interface of this kind.
    pub(crate) fn of(roots: &Roots, name: &str, kind: &Kind) -> Manages {
        // In another network namespace than that of the first process, as in a container's, none of them sees the interface.
        let first = roots.bytes("/proc/1/net/dev", DEV_MAX).unwrap_or_default();
        let first = String::from_utf8_lossy(&first);
        let has = |line: &str| line.split_once(':').is_some_and(|(other, _)| other.trim() == name);
        if !first.is_empty() && !first.lines().any(has) {
            return Manages::None;
        }
        let index = roots.text(&format!("/sys/class/net/{name}/ifindex")).unwrap_or_default();
        let state = |dir: &str| roots.text(&format!("{dir}/{index}")).unwrap_or_default();
        let networkd = state("/run/systemd/netif/links");
        let configured = value(&networkd, "ADMIN_STATE").is_some_and(|admin| admin.starts_with("config"));
        let present = roots.has(DEVICES) || roots.has("/run/NetworkManager/system-connections");
        let device = state(DEVICES);
        // Its file says so of what it manages, and of what somebody took from it. Of what its settings leave out it says nothing: that is
        // another program's where that one has it.
        let theirs = || configured || ifupdown(roots, name);
        let manages = match value(&device, "managed") {
            Some("true") => true,
            Some(_) => false,
            None => present && !theirs(),
        };
        if manages {
            let active = value(&device, "connection-uuid").map(str::to_owned);
            Manages::NetworkManager(match kind {
                Kind::Physical | Kind::Thunderbolt | Kind::Veth => Profile::Own("ethernet"),
                Kind::Infiniband => Profile::Own("infiniband"),
                _ => active.map_or(Profile::Unknown, Profile::Active),
            })
        } else if !networkd.is_empty()
            // A running networkd has a file for each link; Debian makes the folder at boot whether it runs or not.
            && !ifupdown(roots, name)
            && value(&networkd, "ADMIN_STATE") != Some("unmanaged")
        {
            Manages::Networkd
        } else {
            Manages::None
        }
    }

    /// Gives an interface this address (`10.0.0.1/30`) for good.
    pub(crate) fn address(&self, name: &str, addr: &str) -> Vec<Step> {
        let own = word(name);
        let run = match self {
            Manages::NetworkManager(profile) => {
                return profile.set(name, &format!("ipv4.addresses {addr} ipv4.method manual ipv6.method link-local"));
            }
            Manages::Networkd => networkd(name, &format!("Address={addr}")),
            Manages::None => format!("sudo ip addr add {addr} dev {own} && sudo ip link set {own} up"),
        };
        vec![Step::Run(run)]
    }

    /// Gives an interface an address that holds on its link alone, for good: between the two ends of a cable that is enough.
    pub(crate) fn link_local(&self, name: &str) -> Vec<Step> {
        let own = word(name);
        let run = match self {
            Manages::NetworkManager(profile) => {
                // NetworkManager takes no `disabled` beside addresses, which an earlier command may have set.
                return profile.set(name, "ipv4.addresses \"\" ipv4.method disabled ipv6.method link-local");
            }
            Manages::Networkd => networkd(name, "LinkLocalAddressing=ipv6"),
            // A slash stands for a dot in a name (sysctl(8)).
            Manages::None => {
                let key = word(&format!("net.ipv6.conf.{}", name.replace('.', "/")));
                format!(
                    "sudo sysctl -w {key}.disable_ipv6=0 {key}.addr_gen_mode=0 && sudo ip link set {own} down && sudo ip link set {own} up"
                )
            }
        };
        vec![Step::Run(run)]
    }

    /// Switches an interface on.
    pub(crate) fn up(&self, name: &str) -> Vec<Step> {
        let name = word(name);
        vec![Step::Run(match self {
            // Without waiting for a carrier, which a cable has only once its other end is switched on too.
            Manages::NetworkManager(_) => format!("sudo nmcli --wait 0 device connect {name}"),
            Manages::Networkd => format!("sudo networkctl up {name}"),
            Manages::None => format!("sudo ip link set {name} up"),
        })]
    }

    /// Has the kernel cut TCP segments in place of the driver. The command works at once below every manager; what holds is told beside it.
    pub(crate) fn tso_off(&self, name: &str) -> Vec<Step> {
        let stays = match self {
            Manages::NetworkManager(_) => "nmcli connection modify CONNECTION ethtool.feature-tso off".to_owned(),
            Manages::Networkd => {
                "TCPSegmentationOffload=no in the [Link] part of a .link file (systemd.link(5))".to_owned()
            }
            Manages::None => format!("put that into the file that sets {name} up at boot"),
        };
        vec![Step::Run(format!("sudo ethtool -K {} tso off", word(name))), Step::Do(format!("to keep it: {stays}"))]
    }

    /// Sets the MTU. The kernel's command works at once below every manager; what holds is told beside it.
    pub(crate) fn mtu(&self, name: &str, mtu: u32) -> Vec<Step> {
        let name = word(name);
        let now = Step::Run(format!("sudo ip link set {name} mtu {mtu}"));
        let stays = match self {
            Manages::NetworkManager(Profile::Own("infiniband")) => {
                format!(
                    "to keep it: nmcli connection modify CONNECTION infiniband.mtu {mtu}, with the name of {name}'s connection"
                )
            }
            Manages::NetworkManager(_) => {
                format!(
                    "to keep it: nmcli connection modify CONNECTION 802-3-ethernet.mtu {mtu}, with the name of {name}'s connection"
                )
            }
            Manages::Networkd => format!("to keep it: MTUBytes={mtu} in the [Link] part of {name}'s .network file"),
            Manages::None => format!("to keep it, put that into the file that sets {name} up at boot"),
        };
        vec![now, Step::Do(stays)]
    }
}

/// Where NetworkManager keeps the state of each interface, by its number.
const DEVICES: &str = "/run/NetworkManager/devices";

impl Profile {
    fn set(&self, name: &str, settings: &str) -> Vec<Step> {
        match self {
            Profile::Own(kind) => {
                let (name, profile) = (word(name), word(&format!("linkspan-{name}")));
                let settings = format!("connection.autoconnect-priority 10 {settings}");
                // Changed where it is there: of two profiles of one name the next command would not know which.
                vec![Step::Run(format!(
                    "sudo nmcli connection modify {profile} {settings} 2>/dev/null || sudo nmcli connection add type {kind} ifname {name} con-name \
                     {profile} {settings} && sudo nmcli connection up {profile}"
                ))]
            }
            Profile::Active(uuid) => {
                let uuid = word(uuid);
                vec![Step::Run(format!(
                    "sudo nmcli connection modify uuid {uuid} {settings} && sudo nmcli connection up uuid {uuid}"
                ))]
            }
            Profile::Unknown => vec![Step::Do(format!(
                "change the connection of {name} (`nmcli connection show` names it): sudo nmcli connection modify NAME {settings}, then sudo nmcli \
                 connection up NAME"
            ))],
        }
    }
}

fn networkd(name: &str, setting: &str) -> String {
    let text = word(&format!("[Match]\\nName={name}\\n\\n[Network]\\n{setting}\\n"));
    let file = word(&format!("/etc/systemd/network/10-linkspan-{name}.network"));
    format!("printf {text} | sudo tee {file} && sudo networkctl reload")
}

/// The value of a line `KEY=VALUE`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(str::trim)
}

/// Whether ifupdown has the interface (interfaces(5)).
fn ifupdown(roots: &Roots, name: &str) -> bool {
    let folder = "/etc/network/interfaces.d";
    let files = roots.names(folder).into_iter().map(|file| format!("{folder}/{file}"));
    let has = |file: String| {
        let text = roots.text(&file).unwrap_or_default();
        text.lines().any(|line| line.split_whitespace().take(2).eq(["iface", name]))
    };
    std::iter::once("/etc/network/interfaces".to_owned()).chain(files).any(has)
}

#[cfg(test)]
mod tests;
