//! A declared mesh: the file that `LINKSPAN_MESH_FILE` names.
//!
//! One line per node, `node NAME ADDRESS/PREFIX ...`; `#` begins a comment. Two nodes with addresses in one subnet are
//! joined by a cable. A declared mesh is believed as it stands: what neighbours say is not listened to.

use std::net::IpAddr;

use linkspan_proto::handle::host_hash;
use linkspan_proto::mesh::{Heard, MeshPort, NAME_MAX, Node, PORTS_MAX};

use super::{Graph, NODES_MAX, same_subnet};

/// What is wrong with a declared mesh.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("LS1401 line {line} of the mesh file {why}; a line reads `node NAME ADDRESS/PREFIX ...`")]
pub struct BadFile {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

/// Reads a declared mesh. `ours` are the addresses of this host, which find its line; that node gets the number `own`.
///
/// # Errors
/// [`BadFile`] with the first line that cannot be understood.
pub fn parse(text: &str, server_port: u16, own: u64, ours: &[IpAddr]) -> Result<Graph, BadFile> {
    let mut nodes: Vec<Node> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let bad = |why: String| BadFile { line: at + 1, why };
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let addrs = match words.as_slice() {
            [] => continue,
            ["node", _, addrs @ ..] if !addrs.is_empty() => addrs,
            _ => return Err(bad("is no node with addresses".into())),
        };
        let name = words[1];
        if name.len() > NAME_MAX || nodes.iter().any(|n| n.name == name) {
            return Err(bad(format!("names {name:?} a second time, or longer than {NAME_MAX} bytes")));
        }
        if addrs.len() > PORTS_MAX || nodes.len() >= NODES_MAX {
            return Err(bad(format!("is over the limits of {PORTS_MAX} addresses and {NODES_MAX} nodes")));
        }
        let mut ports = Vec::new();
        for text in addrs {
            let (ip, prefix) = address(text).ok_or_else(|| bad(format!("has {text:?} for an address")))?;
            if nodes.iter().flat_map(|n| &n.ports).chain(&ports).any(|p: &MeshPort| p.addr.is_some_and(|a| a.0 == ip)) {
                return Err(bad(format!("has the address {ip} a second time")));
            }
            ports.push(MeshPort {
                name: ip.to_string(),
                addr: Some((ip, prefix)),
                mtu: 0,
                mbps: 0,
                carrier: true,
                rdma: false,
                gid: false,
                twin: None,
            });
        }
        let here = ports.iter().any(|p| p.addr.is_some_and(|(ip, _)| ours.contains(&ip)));
        let id = if here { own } else { host_hash(format!("mesh file {name}").as_bytes()) };
        let (name, heard) = (name.to_owned(), Vec::new());
        nodes.push(Node { id, epoch: 1, seq: 1, name, relays: true, server_port, ports, heard });
    }
    let all = nodes.clone();
    for node in &mut nodes {
        for other in all.iter().filter(|o| o.id != node.id) {
            for (port, own) in node.ports.iter().enumerate() {
                let meets = |p: &&MeshPort| own.addr.zip(p.addr).is_some_and(|(a, b)| same_subnet(a, b.0));
                let places = other.ports.iter().enumerate().filter(|(_, p)| meets(p));
                node.heard.extend(places.map(|(n, _)| Heard { port: port as u8, node: other.id, theirs: n as u8 }));
            }
        }
    }
    Ok(Graph::new(nodes))
}

fn address(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, prefix) = text.split_once('/')?;
    let (ip, prefix): (IpAddr, u8) = (ip.parse().ok()?, prefix.parse().ok()?);
    let most = if ip.is_ipv4() { 32 } else { 128 };
    (prefix <= most && !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback()).then_some((ip, prefix))
}

#[cfg(test)]
mod tests;
