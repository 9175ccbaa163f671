//! Entries of a GID table.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::look::Look;
use crate::rdma::LinkLayer;

/// Most entries of a table that are read; soft-RoCE has 1024, the largest that we know.
const TABLE_MAX: u32 = 1024;

/// Free entries in a row after which the rest is taken as free: the kernel fills the first free one, so holes are as
/// long as the addresses that went away. Without it a server with virtual functions reads 30,000 files for nothing.
const HOLE_MAX: u32 = 32;

/// What a GID is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    Infiniband,
    /// RoCE version 1: an Ethernet type of its own.
    RoceV1,
    /// RoCE version 2: UDP.
    RoceV2,
    /// The kernel does not say.
    Unknown,
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GidKind::Infiniband => "IB",
            GidKind::RoceV1 => "RoCE v1",
            GidKind::RoceV2 => "RoCE v2",
            GidKind::Unknown => "unknown",
        })
    }
}

/// One entry of a GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its place in the table, as `NCCL_IB_GID_INDEX` counts.
    pub index: u32,
    /// The 128 bits; they have the form of an IPv6 address.
    pub gid: Ipv6Addr,
    /// What it is used for.
    pub kind: GidKind,
    /// The network interface it came from.
    pub interface: Option<String>,
}

impl Gid {
    /// The IPv4 address that is mapped into it (`::ffff:a.b.c.d`).
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.gid.to_ipv4_mapped()
    }

    /// Whether it means something on its own link only: fe80::/10, or 169.254.0.0/16 mapped.
    pub fn is_link_local(&self) -> bool {
        self.gid.is_unicast_link_local() || self.ipv4().is_some_and(|ip| ip.is_link_local())
    }
}

/// The entries in use of the port in this directory.
pub(crate) fn read(look: &mut Look<'_>, port: &Path, layer: LinkLayer) -> Vec<Gid> {
    let (table, attrs) = (port.join("gids"), port.join("gid_attrs"));
    let mut gids = Vec::new();
    let mut free = 0;
    for index in 0..TABLE_MAX {
        let name = index.to_string();
        let file = table.join(&name);
        let Some(gid) = look.parsed(&file, "a GID", |text| text.parse::<Ipv6Addr>().ok()) else {
            if !file.exists() {
                break;
            }
            free += 1;
            if free >= HOLE_MAX {
                break;
            }
            continue;
        };
        // An InfiniBand GID has the port's GUID in its lower half; without one the entry is free (IBA 4.1.1).
        if gid.is_unspecified() || layer == LinkLayer::Infiniband && gid.to_bits() as u64 == 0 {
            free += 1;
            if free >= HOLE_MAX {
                break;
            }
            continue;
        }
        free = 0;
        let kind = match (look.text(&attrs.join("types").join(&name)).as_deref(), layer) {
            (Some("RoCE v2"), _) => GidKind::RoceV2,
            (Some(_), LinkLayer::Ethernet) => GidKind::RoceV1,
            (_, LinkLayer::Infiniband) => GidKind::Infiniband,
            _ => GidKind::Unknown,
        };
        gids.push(Gid { index, gid, kind, interface: look.name(&attrs.join("ndevs").join(&name)) });
    }
    gids
}
