//! The record of speeds, a file of this user's: what each pair of hosts has carried before. A peer is known by what identifies its host, not
//! by the name that was typed: `cable` is whoever is plugged in, and a host has several names and addresses.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use linkspan_doctor::{Kept, Measured, RECORD};
use linkspan_fabric::keys::Keyring;
use linkspan_service::rendezvous;
use linkspan_topology::{Machine, Roots};
use serde::{Deserialize, Serialize};

use crate::exit::Failure;

/// Schema of the record.
const SCHEMA: &str = "linkspan.speeds/2";

/// Largest record that is read, bytes, and most peers, ways of one and marks of one that are kept in it.
const FILE_MAX: u64 = 1 << 20;
const PEERS_MAX: usize = 256;
const WAYS_MAX: usize = 64;
const IDS_MAX: usize = 16;

/// What is kept of all peers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct File {
    schema: String,
    peers: Vec<Entry>,
}

/// What is kept of one.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    /// What it is known by, as [`ids`] has it.
    ids: Vec<String>,
    /// When it was measured last, seconds since 1970.
    measured: u64,
    ways: Kept,
}

/// Marks of a host that no other has, each of which says by itself whether two hosts are the same: the key that it was paired with, and its
/// Thunderbolt host router.
const OWN: [&str; 2] = ["key ", "router "];

/// What a peer is known by: `key FINGERPRINT`, `router UUID`, and `mac ADDRESS` of each of its interfaces that are known here; where there
/// is none of these, as behind a router, `address IP`.
pub(super) fn ids(peer: &str, asked: Option<IpAddr>) -> Result<Vec<String>, Failure> {
    let all = rendezvous::addresses(peer, rendezvous::PERF)?;
    let asked = asked.map(|ip| all.iter().find(|addr| addr.ip() == ip).copied().unwrap_or(SocketAddr::new(ip, 1)));
    let machine = Machine::read(&Roots::default());
    let host = peer.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(peer, |(host, _)| host);
    let paired = Keyring::find().ok().flatten().and_then(|ring| ring.peer(host));
    let key = paired.map(|peer| peer.key.fingerprint().to_string());
    let route = |addr: SocketAddr| {
        let socket = UdpSocket::bind(if addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).ok()?;
        socket.connect(addr).ok()?;
        let own = socket.local_addr().ok()?;
        let scope = match own {
            SocketAddr::V6(own) => own.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        Some(linkspan_net::interface_of(own.ip(), scope).ok()??.name)
    };
    let first = asked.or(all.first().copied());
    Ok(marks(&machine, key, first.map(|addr| (addr.ip(), route(addr))), all.iter().map(SocketAddr::ip)))
}

/// The same of this machine: `first` is the address that answers, with the interface that leads there.
fn marks(
    machine: &Machine,
    key: Option<String>,
    first: Option<(IpAddr, Option<String>)>,
    all: impl Iterator<Item = IpAddr>,
) -> Vec<String> {
    let mut ids: Vec<String> = key.map(|key| format!("key {key}")).into_iter().collect();
    let (ip, over) = first.map_or((None, None), |(ip, over)| (Some(ip), over));
    let on = |service: &linkspan_topology::Service| over.is_some() && service.interface == over;
    let mut peers = machine.thunderbolt.iter().flat_map(|domain| &domain.xdomains);
    let router = peers.find(|xdomain| xdomain.services.iter().any(on));
    ids.extend(router.and_then(|xdomain| xdomain.unique_id.as_ref()).map(|uuid| format!("router {uuid}")));
    // Of an address that nobody answers from no hardware address is known.
    for addr in ip.into_iter().chain(all) {
        let known = machine.neighbours.iter().filter(|one| IpAddr::from(one.ip) == addr);
        ids.extend(known.map(|one| format!("mac {}", one.mac)));
    }
    if let Some(ip) = ip.filter(|_| ids.is_empty()) {
        ids.push(format!("address {ip}"));
    }
    let mut seen = Vec::new();
    ids.retain(|id| {
        !seen.contains(id) && {
            seen.push(id.clone());
            true
        }
    });
    ids.truncate(IDS_MAX);
    ids
}

/// Whether two hosts are the same.
fn same(a: &[String], b: &[String]) -> bool {
    let of = |ids: &[String], kind: &str| ids.iter().find(|id| id.starts_with(kind)).cloned();
    for kind in OWN {
        if let (Some(a), Some(b)) = (of(a, kind), of(b, kind)) {
            return a == b;
        }
    }
    a.iter().any(|id| b.contains(id))
}

impl File {
    /// What is kept of the host with these marks, which is measured now.
    pub(super) fn of(&mut self, ids: &[String], now: u64) -> &mut Kept {
        let at = self.peers.iter().position(|entry| same(&entry.ids, ids)).unwrap_or_else(|| {
            self.peers.push(Entry { ids: Vec::new(), measured: now, ways: Kept::new() });
            self.peers.len() - 1
        });
        let entry = &mut self.peers[at];
        entry.measured = now;
        // What is known now goes first: a card that was taken out is forgotten in the end.
        let old = std::mem::replace(&mut entry.ids, ids.to_vec());
        entry.ids.extend(old.into_iter().filter(|id| !ids.contains(id)));
        entry.ids.truncate(IDS_MAX);
        &mut entry.ways
    }
}

/// Leaves out ways that are not measured any more, where there are too many.
pub(super) fn cut(kept: &mut Kept, measured: &[Measured]) {
    let mut over = kept.len().saturating_sub(WAYS_MAX);
    kept.retain(|way, _| {
        let gone = over > 0 && measured.iter().all(|one| one.way != *way);
        over -= usize::from(gone);
        !gone
    });
}

/// The record: state of this user (the XDG base directory specification).
pub(super) fn place() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = var("XDG_STATE_HOME").or_else(|| var("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("linkspan/speeds.json"))
}

pub(super) fn load(place: &Path) -> Result<File, String> {
    let bad = |why: &str| format!("{} is no record of speeds ({why}); it is written anew", place.display());
    let mut bytes = Vec::new();
    match std::fs::File::open(place) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(File::default()),
        opened => opened
            .and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| bad(&error.to_string()))?,
    };
    let mut file: File = serde_json::from_slice(&bytes).map_err(|error| bad(&error.to_string()))?;
    if file.schema != SCHEMA || bytes.len() as u64 > FILE_MAX {
        return Err(bad("another version, or too long"));
    }
    for record in file.peers.iter_mut().flat_map(|entry| entry.ways.values_mut()) {
        record.truncate(RECORD);
    }
    Ok(file)
}

/// Writes it whole or not at all.
pub(super) fn save(place: &Path, file: &mut File) -> std::io::Result<()> {
    file.schema = SCHEMA.into();
    // Those that were not measured for longest are forgotten.
    file.peers.sort_by_key(|entry| std::cmp::Reverse(entry.measured));
    file.peers.truncate(PEERS_MAX);
    let folder = place.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    linkspan_user::replace(place, &serde_json::to_vec_pretty(file)?, 0o600)
}

#[cfg(test)]
mod tests;
