//! Which interfaces are used, and the reason where one is not.

use std::fmt;

use crate::{IfAddr, IfFilter, Interface, Kind};

/// An interface this many times slower than the fastest one is left out: it would carry a small part of each
/// message and decide when the whole arrives. 2.5 beside 10 Gb/s stays, 1 beside 10 does not.
pub const FAR_SLOWER: u32 = 8;

/// Whether an interface may carry traffic between hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Usable,
    /// It is of a kind that is left out, but has the default route, and no other may carry any.
    LastResort,
    /// It is left out.
    LeftOut(Reason),
}

/// What there is to know of [`Verdict::LastResort`].
pub const LAST_RESORT: &str = "as a last resort: it has the default route, and no interface of a network card is usable here; \
                               one (host network, macvlan or SR-IOV) would be faster, and naming this one in LINKSPAN_IFNAME accepts it";

impl Verdict {
    /// Whether it may carry traffic.
    pub fn is_usable(&self) -> bool {
        matches!(self, Verdict::Usable | Verdict::LastResort)
    }
}

/// Why an interface is left out. The text names the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A list of names forbids it, or does not name it; the text is the setting.
    Excluded(String),
    /// Administratively down.
    Down,
    /// Up, but nothing at the other end of the cable.
    NoCarrier,
    /// Part of this bond or bridge, which is looked at in its place.
    PartOf(String),
    /// No address.
    NoAddress,
    /// The loopback interface.
    Loopback,
    /// A bridge that no real card is a port of, such as docker0.
    Bridge,
    /// A virtual cable.
    Veth,
    /// A tunnel or overlay of this kind.
    Tunnel(String),
    /// Another software device.
    Virtual,
    /// Link-local addresses alone.
    LinkLocalOnly,
    /// A radio, beside at least one cable.
    Wireless,
    /// It leads to everywhere, in a mesh of cables to neighbours.
    Management,
    /// Far slower than another interface.
    Slow {
        /// Its speed, Mb/s.
        mbps: u32,
        /// Name of the fastest one.
        than: String,
        /// Speed of the fastest one, Mb/s.
        fastest_mbps: u32,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Excluded(setting) => write!(f, "not chosen by {setting}"),
            Reason::Down => f.write_str("down; bring it up with `ip link set DEV up`"),
            Reason::NoCarrier => f.write_str("no carrier: no cable, or nothing at its other end"),
            Reason::PartOf(master) => write!(f, "part of {master}, which is used instead"),
            Reason::NoAddress => f.write_str("has no IP address"),
            Reason::Loopback => f.write_str("reaches this host only"),
            Reason::Bridge => f.write_str(
                "a bridge without a cable: other hosts often have one with the same subnet; name it in LINKSPAN_IFNAME to use it",
            ),
            Reason::Veth => f.write_str("a veth interface of a container; name it in LINKSPAN_IFNAME to use it"),
            Reason::Tunnel(what) => write!(f, "a tunnel ({what}); name it in LINKSPAN_IFNAME to use it"),
            Reason::Virtual => f.write_str("a software device; name it in LINKSPAN_IFNAME to use it"),
            Reason::LinkLocalOnly => {
                f.write_str("has link-local addresses only; give it an address or name it in LINKSPAN_IFNAME")
            }
            Reason::Wireless => f.write_str("wireless, and a cable is there; name it in LINKSPAN_IFNAME to use it"),
            Reason::Management => f.write_str(
                "has the default route, so it is assumed to be the management network, which a mesh does not use; name it in LINKSPAN_IFNAME to use it",
            ),
            Reason::Slow { mbps, than, fastest_mbps } => write!(
                f,
                "far slower ({mbps} Mb/s) than {than} ({fastest_mbps} Mb/s); name it in LINKSPAN_IFNAME to use it"
            ),
        }
    }
}

/// Judges every interface; the answer has the order of `list`. A filter that names an interface overrules every
/// reason but a missing link or address. `everywhere` names the interfaces of default routes: where none is usable, as in a
/// container whose only interface is a virtual cable, the kind of these is no reason to leave them out.
pub fn judge(list: &[Interface], filter: Option<&IfFilter>, everywhere: &[String]) -> Vec<Verdict> {
    let asked = |iface: &Interface| filter.is_some_and(|filter| filter.asks_for(&iface.name));
    let mut verdicts: Vec<Verdict> = list.iter().map(|iface| alone(iface, filter, asked(iface))).collect();

    // A cable to one neighbour makes no interface needless by which others are reached.
    let broad = || list.iter().zip(&verdicts).filter(|(iface, verdict)| verdict.is_usable() && !iface.is_bare_cable());
    let wired = broad().any(|(iface, _)| iface.kind != Kind::Wireless);
    let fastest =
        broad().filter_map(|(iface, _)| Some((iface.speed_mbps?, iface.name.clone()))).max_by_key(|(mbps, _)| *mbps);
    for (iface, verdict) in list.iter().zip(&mut verdicts) {
        if !verdict.is_usable() || asked(iface) {
            continue;
        }
        if wired && iface.kind == Kind::Wireless {
            *verdict = Verdict::LeftOut(Reason::Wireless);
        } else if let (Some(mbps), Some((fastest_mbps, than))) = (iface.speed_mbps, &fastest)
            && mbps.saturating_mul(FAR_SLOWER) < *fastest_mbps
        {
            let (than, fastest_mbps) = (than.clone(), *fastest_mbps);
            *verdict = Verdict::LeftOut(Reason::Slow { mbps, than, fastest_mbps });
        }
    }
    if !verdicts.iter().any(Verdict::is_usable) {
        for (_, verdict) in list.iter().zip(&mut verdicts).filter(|(iface, _)| everywhere.contains(&iface.name)) {
            if let Verdict::LeftOut(Reason::Bridge | Reason::Veth | Reason::Tunnel(_) | Reason::Virtual) = verdict {
                *verdict = Verdict::LastResort;
            }
        }
    }
    verdicts
}

/// The verdict on one interface without a look at the others.
fn alone(iface: &Interface, filter: Option<&IfFilter>, asked: bool) -> Verdict {
    let reason = if let Some(filter) = filter.filter(|filter| !filter.allows(&iface.name)) {
        Some(Reason::Excluded(filter.shown()))
    } else if !iface.up {
        Some(Reason::Down)
    } else if iface.carrier == Some(false) || matches!(&*iface.operstate, "down" | "lowerlayerdown" | "notpresent") {
        Some(Reason::NoCarrier)
    } else if let Some(master) = &iface.master {
        Some(Reason::PartOf(master.clone()))
    } else if iface.addrs.is_empty() {
        Some(Reason::NoAddress)
    } else if asked {
        None
    } else {
        match &iface.kind {
            Kind::Loopback => Some(Reason::Loopback),
            Kind::Bridge { wired: false } => Some(Reason::Bridge),
            Kind::Veth => Some(Reason::Veth),
            Kind::Tunnel(what) => Some(Reason::Tunnel(what.clone())),
            Kind::Virtual => Some(Reason::Virtual),
            _ if iface.addrs.iter().all(IfAddr::is_link_local) && !iface.is_bare_cable() => Some(Reason::LinkLocalOnly),
            _ => None,
        }
    };
    reason.map_or(Verdict::Usable, Verdict::LeftOut)
}

#[cfg(test)]
mod tests;
