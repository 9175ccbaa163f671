//! Which address a RoCE queue pair uses.

use std::net::IpAddr;

use linkspan_verbs_sys::{Gid, GidEntry, GidKind};

/// The entry to use: RoCE v2 of `address`, which reaches the peer, else of an IPv4 address, else of a global IPv6 address, else RoCE v1 of
/// either; of the interface `ifindex` where that is not 0. Never a link-local one: those are on every port and lead to whatever answers first.
pub fn choose_gid(table: &[GidEntry], ifindex: u32, address: Option<IpAddr>) -> Option<GidEntry> {
    let wanted = address.map(|ip| match ip {
        IpAddr::V4(v4) => Gid::v4(v4),
        IpAddr::V6(v6) => Gid(v6.octets()),
    });
    let rank = |e: &GidEntry| match (e.kind, e.gid.to_v4()) {
        (GidKind::RoceV2, _) if Some(e.gid) == wanted => 0,
        (GidKind::RoceV2, Some(_)) => 1,
        (GidKind::RoceV2, None) => 2,
        (GidKind::RoceV1, Some(_)) => 3,
        (GidKind::RoceV1, None) => 4,
        (GidKind::Ib, _) => 5,
    };
    let of_it = |e: &&GidEntry| ifindex == 0 || e.ifindex == 0 || e.ifindex == ifindex;
    let usable = table.iter().filter(of_it).filter(|e| !e.gid.is_zero() && !e.gid.is_link_local());
    usable.min_by_key(|e| (rank(e), e.index)).copied()
}

/// The table in words, for errors.
pub(crate) fn words(table: &[GidEntry]) -> String {
    if table.is_empty() {
        return "the table is empty".into();
    }
    let entries: Vec<String> = table
        .iter()
        .take(8)
        .map(|e| format!("{}: {} {:?} of interface {}", e.index, e.gid, e.kind, e.ifindex))
        .collect();
    entries.join(", ")
}

#[cfg(test)]
mod tests;
