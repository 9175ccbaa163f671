//! What is wrong with a mesh, and the command that mends it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linkspan_proto::mesh::MeshPort;

use super::{Edge, End, Fault, Graph};

/// Largest packet wanted on fast cables, bytes: what the makers of DGX Spark recommend. 1500 halves the speed of TCP.
pub const MTU_WANTED: u32 = 9000;

/// Cables at least this fast want it, Mb/s.
const FAST: u32 = 25_000;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Stable code.
    pub code: String,
    /// The node where it is to be mended.
    pub node: String,
    /// What is wrong.
    pub what: String,
    /// The command that mends it, which begins with `sudo` and is typed as it is, or what to do by hand.
    pub fix: String,
}

/// Everything that is wrong, in the order of nodes and cables.
pub fn findings(graph: &Graph) -> Vec<Finding> {
    let (mut found, net) = (Vec::new(), Net::of(graph));
    for edge in &graph.edges {
        match edge.fault {
            Some(Fault::NoAddress) => no_address(&net, edge, &mut found),
            Some(Fault::Subnets) => subnets(&net, edge, &mut found),
            Some(Fault::OneWay) => one_way(graph, edge, &mut found),
            None => working(graph, edge, &mut found),
        }
    }
    doubles(&net, &mut found);
    halves(&net, &mut found);
    gids(graph, &mut found);
    found
}

/// A graph with what is looked up in it for each finding: strangers tell of as many ports as they like.
struct Net<'a> {
    graph: &'a Graph,
    /// The first cable at each end.
    cables: BTreeMap<End, &'a Edge>,
    taken: BTreeSet<IpAddr>,
    /// Subnets of four addresses in 10.79.0.0/16 that nothing in the mesh has.
    free: Vec<Ipv4Addr>,
}

/// The subnets of four addresses that are given to cables: how many, and the first.
const NETS: u32 = 1 << 14;
const FIRST_NET: u32 = u32::from_be_bytes([10, 79, 0, 0]);

impl<'a> Net<'a> {
    fn of(graph: &'a Graph) -> Net<'a> {
        let mut cables = BTreeMap::new();
        for edge in &graph.edges {
            for end in [edge.a, edge.b] {
                cables.entry(end).or_insert(edge);
            }
        }
        let addrs = || graph.nodes.iter().flat_map(|n| &n.ports).filter_map(|p| p.addr);
        // Where a subnet of theirs begins and behind its end, by the places of ours.
        let mut steps = vec![0_i64; NETS as usize + 1];
        for (ip, prefix) in addrs() {
            let (IpAddr::V4(ip), true) = (ip, prefix <= 32) else { continue };
            let mask = !u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
            let (low, high) = (ip.to_bits() & mask, ip.to_bits() | !mask);
            if high >= FIRST_NET && low < FIRST_NET + (NETS << 2) {
                let first = low.saturating_sub(FIRST_NET) >> 2;
                let last = (high.min(FIRST_NET + (NETS << 2) - 1) - FIRST_NET) >> 2;
                steps[first as usize] += 1;
                steps[last as usize + 1] -= 1;
            }
        }
        let mut over = 0;
        let net = |(n, step): (u32, i64)| {
            over += step;
            (over == 0).then(|| Ipv4Addr::from_bits(FIRST_NET + (n << 2)))
        };
        let free = (0..NETS).zip(steps).filter_map(net).collect();
        Net { graph, cables, taken: addrs().map(|(ip, _)| ip).collect(), free }
    }
}

impl Finding {
    /// From a text that begins with the code.
    pub fn new(node: String, text: &str, fix: String) -> Finding {
        let (code, what) = text.split_once(' ').unwrap_or((text, ""));
        Finding { code: code.to_owned(), node, what: what.to_owned(), fix }
    }

    /// What is done beside the command, where it sets something for the moment alone.
    pub fn keep(&self) -> Option<&'static str> {
        let sets = self.fix.contains(" addr add ") || self.fix.contains(" mtu ");
        sets.then_some(
            "what `ip` sets is lost at reboot, or with the cable unplugged: put it into netplan, NetworkManager or systemd-networkd",
        )
    }
}

fn add(graph: &Graph, at: End, text: &str, fix: String, found: &mut Vec<Finding>) {
    found.push(Finding::new(graph.nodes[at.node].name.clone(), text, fix));
}

/// A free address of the subnet that this one is in, with its prefix; where there is none, what to do by hand with both ends.
fn beside(net: &Net<'_>, (ip, prefix): (IpAddr, u8), end: End, other: End) -> Result<String, String> {
    let (graph, taken) = (net.graph, |ip: IpAddr| net.taken.contains(&ip));
    let free = match ip {
        IpAddr::V4(own) => {
            let size = 32u32.saturating_sub(prefix.into());
            let mask = u32::MAX.checked_shl(size).unwrap_or(0);
            // Neither the subnet's own address nor its broadcast; a /31 has neither (RFC 3021).
            let (first, last) = match size {
                0 => (1, 0),
                1 => (0, 1),
                _ => (1, !mask - 1),
            };
            (first..=last)
                .take(1024)
                .map(|n| IpAddr::from(Ipv4Addr::from_bits(own.to_bits() & mask | n)))
                .find(|ip| !taken(*ip))
        }
        IpAddr::V6(own) => {
            // A /127 is two hosts (RFC 6164); of a large subnet the last 16 bits are enough.
            let size = 128u32.saturating_sub(prefix.into());
            let mask = (1u128 << size.min(16)) - 1;
            let first = if size == 1 { 0 } else { 1 };
            (first..=mask)
                .take(1024)
                .map(|n| IpAddr::from(Ipv6Addr::from_bits(own.to_bits() & !mask | n)))
                .find(|ip| !taken(*ip))
        }
    };
    free.map(|free| format!("{free}/{prefix}")).ok_or_else(|| {
        let (end, other) = (graph.name(end), graph.name(other));
        format!("give {end} and {other} addresses of a subnet that no other cable has: in that of {ip}/{prefix} none is free")
    })
}

/// An address for one end of a cable, of a subnet that nothing else in the mesh has: the ends of a cable get two of the same.
fn own_subnet(net: &Net<'_>, edge: &Edge, end: End) -> String {
    let place = net.graph.edges.binary_search_by_key(&(edge.a, edge.b), |e| (e.a, e.b)).unwrap_or(0);
    let free = net.free.get(place).copied().unwrap_or(Ipv4Addr::from_bits(FIRST_NET));
    let last = if end == edge.a { 1 } else { 2 };
    format!("{}/30", Ipv4Addr::from_bits(free.to_bits() + last))
}

fn addr(port: &MeshPort) -> String {
    port.addr.map_or_else(|| "no address".into(), |(ip, prefix)| format!("{ip}/{prefix}"))
}

/// Another address for a port that has one.
fn instead(port: &MeshPort, new: &str) -> String {
    format!("sudo ip addr del {} dev {n} && sudo ip addr add {new} dev {n}", addr(port), n = port.name)
}

fn no_address(net: &Net<'_>, edge: &Edge, found: &mut Vec<Finding>) {
    let graph = net.graph;
    for (end, other) in [(edge.a, edge.b), (edge.b, edge.a)] {
        let (port, theirs) = (graph.port(end), graph.port(other));
        if port.addr.is_some() {
            continue;
        }
        let (what, name) = (graph.name(end), &port.name);
        let what = format!("LS1410 {what} is cabled to {} but has no IP address", graph.name(other));
        let new = match theirs.addr {
            Some(theirs) => beside(net, theirs, end, other),
            None => Ok(own_subnet(net, edge, end)),
        };
        let fix = new.map_or_else(|words| words, |new| format!("sudo ip addr add {new} dev {name}"));
        add(graph, end, &what, fix, found);
    }
}

fn subnets(net: &Net<'_>, edge: &Edge, found: &mut Vec<Finding>) {
    let graph = net.graph;
    let (a, b) = (graph.port(edge.a), graph.port(edge.b));
    let (Some(x), Some(y)) = (a.addr, b.addr) else { return };
    let both = format!("{} ({}) is cabled to {} ({})", graph.name(edge.a), addr(a), graph.name(edge.b), addr(b));
    if x.0 == y.0 {
        let fix = beside(net, y, edge.b, edge.a).map_or_else(|words| words, |new| instead(b, &new));
        add(graph, edge.b, &format!("LS1411 {both}: both ends have the same address"), fix, found);
    } else if super::same_subnet(x, y.0) || super::same_subnet(y, x.0) {
        let (wrong, right) = if x.1 > y.1 { (edge.a, y.1) } else { (edge.b, x.1) };
        let port = graph.port(wrong);
        let ip = if x.1 > y.1 { x.0 } else { y.0 };
        let fix = instead(port, &format!("{ip}/{right}"));
        add(graph, wrong, &format!("LS1412 {both}: the prefixes differ, one end does not see the other"), fix, found);
    } else {
        // The port of the other node on which our subnet was expected: the cables are swapped there.
        let expected = |net: (IpAddr, u8), node: usize| {
            let meets = |p: &&MeshPort| p.addr.is_some_and(|(ip, _)| super::same_subnet(net, ip));
            graph.nodes[node].ports.iter().find(meets).map(|p| p.name.clone())
        };
        let (what, fix) = match (expected(x, edge.b.node), expected(y, edge.a.node)) {
            (Some(there), _) => (
                format!("crossed cables, {} expects the port {there}", graph.name(edge.a)),
                format!("move the cable from {} to {there} on {}", b.name, graph.nodes[edge.b.node].name),
            ),
            (None, Some(there)) => (
                format!("crossed cables, {} expects the port {there}", graph.name(edge.b)),
                format!("move the cable from {} to {there} on {}", a.name, graph.nodes[edge.a.node].name),
            ),
            (None, None) => (
                "the addresses are not in one subnet".to_owned(),
                beside(net, x, edge.b, edge.a).map_or_else(|words| words, |new| instead(b, &new)),
            ),
        };
        add(graph, edge.b, &format!("LS1413 {both}: {what}"), fix, found);
    }
}

fn one_way(graph: &Graph, edge: &Edge, found: &mut Vec<Finding>) {
    let hears = |end: End, other: End| {
        let id = graph.nodes[other.node].id;
        graph.nodes[end.node].heard.iter().any(|h| usize::from(h.port) == end.port && h.node == id)
    };
    let (deaf, speaker) = if hears(edge.a, edge.b) { (edge.b, edge.a) } else { (edge.a, edge.b) };
    let server_port = graph.nodes[deaf.node].server_port;
    let what = format!(
        "LS1414 {} receives nothing from {}, which receives its beacons",
        graph.name(deaf),
        graph.name(speaker)
    );
    let fix = format!(
        "let UDP and TCP port {server_port} in on {}: a firewall drops them, or another program holds the port (`ss -lntup`)",
        graph.port(deaf).name
    );
    add(graph, deaf, &what, fix, found);
}

fn working(graph: &Graph, edge: &Edge, found: &mut Vec<Finding>) {
    let (a, b) = (graph.port(edge.a), graph.port(edge.b));
    let both = format!("{} - {}", graph.name(edge.a), graph.name(edge.b));
    if a.mtu != 0 && b.mtu != 0 && a.mtu != b.mtu {
        let (low, high) = if a.mtu < b.mtu { (edge.a, b.mtu) } else { (edge.b, a.mtu) };
        let what = format!("LS1415 {both}: MTU {} and {}, large packets are lost", a.mtu, b.mtu);
        let fix = format!("sudo ip link set {} mtu {high}", graph.port(low).name);
        add(graph, low, &what, fix, found);
    } else if graph.mbps(edge) >= FAST && a.mtu != 0 && a.mtu < MTU_WANTED {
        for end in [edge.a, edge.b] {
            let what = format!("LS1416 {both}: MTU {} on a cable of {} Gb/s", a.mtu, graph.mbps(edge) / 1000);
            let fix = format!("sudo ip link set {} mtu {MTU_WANTED}", graph.port(end).name);
            add(graph, end, &what, fix, found);
        }
    }
    if a.mbps != 0 && b.mbps != 0 && a.mbps != b.mbps {
        let (low, high) = if a.mbps < b.mbps { (edge.a, b.mbps) } else { (edge.b, a.mbps) };
        let what =
            format!("LS1417 {both}: {} and {} Gb/s at the two ends", f64::from(a.mbps) / 1e3, f64::from(b.mbps) / 1e3);
        let fix =
            format!("take another cable, or try sudo ethtool -s {} speed {high} autoneg off", graph.port(low).name);
        add(graph, low, &what, fix, found);
    }
}

/// One subnet on two cables of a node: the kernel sends everything over the first. Told of both ends of the second cable, for both
/// have to be given another.
fn doubles(net: &Net<'_>, found: &mut Vec<Finding>) {
    let (graph, mut told) = (net.graph, BTreeSet::new());
    let edge_of = |end: End| net.cables.get(&end).copied();
    // The text of the node itself, for the second of its two cables.
    let double = |end: End| -> Option<String> {
        let (ports, port) = (&graph.nodes[end.node].ports, graph.port(end));
        let (own, _) = (port.addr?, edge_of(end)?);
        let twice = |(at, p): &(usize, &MeshPort)| {
            let meets = p.addr.is_some_and(|(ip, _)| super::same_subnet(own, ip));
            meets && edge_of(End { node: end.node, port: *at }).is_some()
        };
        let (first, other) = ports.iter().enumerate().take(end.port).find(twice)?;
        Some(format!(
            "LS1418 {} and {} are on two cables but in one subnet ({} and {})",
            graph.name(End { node: end.node, port: first }),
            graph.name(end),
            addr(other),
            addr(port)
        ))
    };
    for node in 0..graph.nodes.len() {
        for port in 0..graph.nodes[node].ports.len() {
            let here = End { node, port };
            let (Some(what), Some(edge)) = (double(here), edge_of(here)) else { continue };
            for end in [edge.a, edge.b] {
                if !told.insert(end) {
                    continue;
                }
                let port = graph.port(end);
                let new = own_subnet(net, edge, end);
                let fix = match port.addr {
                    Some(_) => instead(port, &new),
                    None => format!("sudo ip addr add {new} dev {}", port.name),
                };
                let own = double(end).unwrap_or_else(|| {
                    let (code, text) = what.split_at("LS1418".len() + 1);
                    format!("{code}{} gets another subnet with the other end of its cable: {text}", graph.name(end))
                });
                add(graph, end, &own, fix, found);
            }
        }
    }
}

/// One half of a port carries, the other does not.
fn halves(net: &Net<'_>, found: &mut Vec<Finding>) {
    let graph = net.graph;
    for (n, node) in graph.nodes.iter().enumerate() {
        for (at, port) in node.ports.iter().enumerate() {
            let Some(twin) = port.twin.map(usize::from).filter(|t| *t < node.ports.len()) else { continue };
            let other = &node.ports[twin];
            if port.addr.is_none() && port.carrier && other.addr.is_some() {
                let end = End { node: n, port: at };
                let what = format!(
                    "LS1419 {} is the unused half of the port of {}: half of its speed is lost",
                    graph.name(end),
                    other.name
                );
                let fix = match net.cables.get(&end) {
                    Some(edge) => format!("sudo ip addr add {} dev {}", own_subnet(net, edge, end), port.name),
                    None => {
                        format!("give {} and its other end addresses of a subnet that no other cable has", port.name)
                    }
                };
                add(graph, end, &what, fix, found);
            }
        }
    }
}

fn gids(graph: &Graph, found: &mut Vec<Finding>) {
    for (n, node) in graph.nodes.iter().enumerate() {
        for (at, port) in node.ports.iter().enumerate() {
            if port.rdma && !port.gid && port.carrier && port.addr.is_some() {
                let end = End { node: n, port: at };
                let what =
                    format!("LS1420 {} has an RDMA device without a RoCE v2 GID for its address", graph.name(end));
                let fix = format!("sudo ip link set {p} down && sudo ip link set {p} up", p = port.name);
                add(graph, end, &what, fix, found);
            }
        }
    }
}

/// The settings with which NCCL's own transport serves this mesh as well, where it does: every pair has a cable with RDMA
/// on both ends, and a node has no more than two ports.
///
/// From NCCL 2.30.7, `src/transport/net_ib/connect.cc`: a handle carries the GIDs of at most two ports of the listening
/// device, and the connector takes a device all of whose ports share a subnet with one of them. With NIC fusion off a
/// listening device is one port and tells one GID, which only the neighbour on that cable can use; so
/// `NCCL_IB_MERGE_NICS` must stay at its default, 1.
pub fn nccl_settings(graph: &Graph) -> Option<Vec<String>> {
    let count = graph.nodes.len();
    let mut prefixes: Vec<u8> = Vec::new();
    if !(2..=3).contains(&count) {
        return None;
    }
    for a in 0..count {
        for b in a + 1..count {
            let cables = graph.between(a, b);
            let rdma = |(x, y): &&(End, End)| graph.port(*x).gid && graph.port(*y).gid;
            let (x, _) = cables.iter().find(rdma)?;
            prefixes.extend(graph.port(*x).addr.filter(|(ip, _)| ip.is_ipv4()).map(|(_, prefix)| prefix));
        }
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    // One length for all; IPv6 is compared by 64 bits whatever is set.
    let prefix = match prefixes.as_slice() {
        [] => None,
        [one] => Some(*one),
        _ => return None,
    };
    let mut settings = vec!["NCCL_IB_SUBNET_AWARE_ROUTING=1".to_owned()];
    settings.extend(prefix.map(|p| format!("NCCL_IB_SUBNET_PREFIX_LEN={p}")));
    settings.push("NCCL_IB_MERGE_NICS=1".to_owned());
    Some(settings)
}

#[cfg(test)]
mod tests;
