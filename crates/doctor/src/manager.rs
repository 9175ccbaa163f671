//! The program that manages the network here, and how it is told to change something for good.

use linkspan_topology::Roots;

use crate::finding::Step;

/// What manages the network here. A change behind its back is gone with the next start, or sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manages {
    /// NetworkManager.
    NetworkManager,
    /// systemd-networkd.
    Networkd,
    /// None that is known: changes hold until the next boot.
    None,
}

impl Manages {
    /// What manages the interface.
    pub(crate) fn of(roots: &Roots, name: &str) -> Manages {
        // In another network namespace than that of the first process, as in a container's, none of them sees the interface.
        let first = roots.text("/proc/1/net/dev").unwrap_or_default();
        let has = |line: &str| line.split_once(':').is_some_and(|(other, _)| other.trim() == name);
        if !first.is_empty() && !first.lines().any(has) {
            return Manages::None;
        }
        if roots.has("/run/NetworkManager/devices") || roots.has("/run/NetworkManager/system-connections") {
            Manages::NetworkManager
        } else if roots.has("/run/systemd/netif/links") {
            Manages::Networkd
        } else {
            Manages::None
        }
    }

    /// Gives an interface this address (`10.0.0.1/30`) for good.
    pub(crate) fn address(self, name: &str, addr: &str) -> Vec<Step> {
        let run = match self {
            Manages::NetworkManager => format!(
                "sudo nmcli connection add type ethernet ifname {name} con-name linkspan-{name} connection.autoconnect-priority 10 \
                 ipv4.method manual ipv4.addresses {addr} ipv6.method link-local && sudo nmcli connection up linkspan-{name}"
            ),
            Manages::Networkd => format!(
                "printf '[Match]\\nName={name}\\n\\n[Network]\\nAddress={addr}\\n' | sudo tee /etc/systemd/network/10-linkspan-{name}.network \
                 && sudo networkctl reload"
            ),
            Manages::None => format!("sudo ip addr add {addr} dev {name} && sudo ip link set {name} up"),
        };
        vec![Step::Run(run)]
    }

    /// Gives an interface an address that holds on its link alone, for good: between the two ends of a cable that is enough.
    pub(crate) fn link_local(self, name: &str) -> Vec<Step> {
        let run = match self {
            Manages::NetworkManager => format!(
                "sudo nmcli connection add type ethernet ifname {name} con-name linkspan-{name} connection.autoconnect-priority 10 \
                 ipv4.method disabled ipv6.method link-local && sudo nmcli connection up linkspan-{name}"
            ),
            Manages::Networkd => format!(
                "printf '[Match]\\nName={name}\\n\\n[Network]\\nLinkLocalAddressing=ipv6\\n' | sudo tee \
                 /etc/systemd/network/10-linkspan-{name}.network && sudo networkctl reload"
            ),
            Manages::None => format!(
                "sudo sysctl -w net.ipv6.conf.{name}.disable_ipv6=0 net.ipv6.conf.{name}.addr_gen_mode=0 && sudo ip link set {name} down && \
                 sudo ip link set {name} up"
            ),
        };
        vec![Step::Run(run)]
    }

    /// Switches an interface on.
    pub(crate) fn up(self, name: &str) -> Vec<Step> {
        vec![Step::Run(match self {
            // Without waiting for a carrier, which a cable has only once its other end is switched on too.
            Manages::NetworkManager => format!("sudo nmcli --wait 0 device connect {name}"),
            Manages::Networkd => format!("sudo networkctl up {name}"),
            Manages::None => format!("sudo ip link set {name} up"),
        })]
    }

    /// Sets the MTU. The kernel's command works at once below every manager; what holds is told beside it.
    pub(crate) fn mtu(self, name: &str, mtu: u32) -> Vec<Step> {
        let now = Step::Run(format!("sudo ip link set {name} mtu {mtu}"));
        let stays = match self {
            Manages::NetworkManager => {
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
