//! Cables: who is at the other end, which paths each offers, and why one is or is not usable.

mod network;
mod thunderbolt;

use std::fmt;
use std::net::Ipv4Addr;

use crate::{Interface, Link, Machine, Reason, Verdict};

/// What a cable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Thunderbolt or USB4, with a host at its other end.
    Thunderbolt,
    /// Ethernet.
    Ethernet,
    /// InfiniBand.
    Infiniband,
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Medium::Thunderbolt => "thunderbolt",
            Medium::Ethernet => "ethernet",
            Medium::Infiniband => "infiniband",
        })
    }
}

/// A cable that has something at its other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cable {
    /// What it is.
    pub medium: Medium,
    /// The XDomain (`0-1`) or the network interface on it.
    pub name: String,
    /// Speeds, as far as known; a network card has one "lane".
    pub link: Link,
    /// Who says to be at the other end; networks do not tell.
    pub peer: Option<Peer>,
    /// Who answered at the other end, IPv4; at most [`NEIGHBOURS_SHOWN`].
    pub neighbours: Vec<Ipv4Addr>,
    /// How many answered.
    pub neighbour_count: usize,
    /// Ways for bytes over it: those that can be used, what two hosts take first at their head; then the others, what any kernel has at theirs.
    pub paths: Vec<CablePath>,
    /// What else is worth knowing, a sentence each.
    pub notes: Vec<String>,
}

/// Neighbours listed per cable; behind a switch there may be hundreds.
pub const NEIGHBOURS_SHOWN: usize = 8;

/// The other end of a Thunderbolt cable, as it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// UUID of its host router.
    pub unique_id: Option<String>,
    /// Vendor; `Linux` for Linux 7.3, `Intel Corp.` for 6.12.
    pub vendor_name: Option<String>,
    /// Name of the device; the host name for Linux.
    pub device_name: Option<String>,
    /// It is this host: both ends of the cable are plugged in here.
    pub this_host: bool,
    /// Other cables to the same host router (the same UUID).
    pub also: Vec<String>,
    /// Other cables whose peer has the same names but another UUID: probably another port of the same host.
    pub perhaps_also: Vec<String>,
}

/// How bytes go over a cable: of those that linkspan has, what two hosts take first is last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Means {
    /// TCP over a network interface.
    Tcp,
    /// USB4STREAM.
    Stream,
    /// Rings of `linkspan.ko`.
    Ring,
    /// Queue pairs: InfiniBand or RoCE v2.
    Rdma,
    /// A Thunderbolt service with this key, which linkspan does not have: never usable.
    Service(String),
}

impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Means::Tcp => "tcp",
            Means::Rdma => "rdma",
            Means::Stream => "stream",
            Means::Ring => "ring",
            Means::Service(key) => key,
        })
    }
}

/// A way for bytes over a cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CablePath {
    /// How.
    pub means: Means,
    /// The interface, RDMA device and port (`mlx5_0/1`), or service that carries it; empty where it is missing.
    pub over: String,
    /// Whether linkspan moves bytes there.
    pub usable: bool,
    /// Why not; or, for a usable one, what there is to know.
    pub reason: Option<String>,
}

impl CablePath {
    fn no(means: Means, over: &str, reason: impl Into<String>) -> CablePath {
        CablePath { means, over: over.to_owned(), usable: false, reason: Some(reason.into()) }
    }

    /// TCP over the interface of this name. A part of a bond or bridge is as usable as that.
    fn tcp(name: &str, survey: &[(Interface, Verdict)]) -> CablePath {
        let find = |name: &str| survey.iter().find(|(iface, _)| iface.name == name).map(|(_, verdict)| verdict);
        let Some(mut verdict) = find(name) else {
            return CablePath::no(Means::Tcp, name, "its interface is not in this network namespace");
        };
        let mut whole = None;
        // A port of a bond that is a port of a bridge is the deepest that makes sense.
        for _ in 0..3 {
            let Verdict::LeftOut(Reason::PartOf(master)) = verdict else {
                break;
            };
            let Some(next) = find(master) else {
                break;
            };
            (verdict, whole) = (next, Some(master));
        }
        let why = match verdict {
            Verdict::Usable | Verdict::LastResort => None,
            Verdict::LeftOut(reason) => Some(reason.to_string()),
        };
        let reason = match (whole, why) {
            (Some(whole), Some(why)) => Some(format!("part of {whole}, which is left out: {why}")),
            (Some(whole), None) => Some(format!("as a part of {whole}")),
            (None, why) => why,
        };
        CablePath { means: Means::Tcp, over: name.to_owned(), usable: verdict.is_usable(), reason }
    }
}

/// All cables of the machine: Thunderbolt ones by name, then those of network cards in the order of `survey`, which is
/// every interface with the verdict on it.
pub fn cables(machine: &Machine, survey: &[(Interface, Verdict)]) -> Vec<Cable> {
    let mut cables = thunderbolt::cables(machine, survey);
    cables.extend(network::cables(machine, survey));
    for cable in &mut cables {
        // Of equal ones the first that was found stays first.
        cable.paths.sort_by(|a, b| {
            let means = if a.usable { b.means.cmp(&a.means) } else { a.means.cmp(&b.means) };
            b.usable.cmp(&a.usable).then(means)
        });
        let names: Vec<&str> = match cable.medium {
            Medium::Thunderbolt => {
                cable.paths.iter().filter(|path| path.means == Means::Tcp).map(|path| &*path.over).collect()
            }
            Medium::Ethernet | Medium::Infiniband => vec![&*cable.name],
        };
        let heard = machine.neighbours.iter().filter(|neighbour| names.contains(&&*neighbour.interface));
        let heard: Vec<Ipv4Addr> = heard.map(|neighbour| neighbour.ip).collect();
        cable.neighbour_count = heard.len();
        cable.neighbours = heard.into_iter().take(NEIGHBOURS_SHOWN).collect();
    }
    cables
}

#[cfg(test)]
mod tests;
