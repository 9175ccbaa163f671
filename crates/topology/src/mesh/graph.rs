//! Nodes and the cables between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linkspan_proto::mesh::{MeshPort, Node};

/// One end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The node, by its place in [`Graph::nodes`].
    pub node: usize,
    /// The port, by its place in [`Node::ports`].
    pub port: usize,
}

/// Why nothing can be sent over a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An end has no address.
    NoAddress,
    /// The two addresses are not in one subnet, seen from at least one end.
    Subnets,
    /// Only one end receives from the other.
    OneWay,
}

/// A cable between two nodes. The end with the smaller place comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// One end.
    pub a: End,
    /// The other.
    pub b: End,
    /// Why it is of no use, if so.
    pub fault: Option<Fault>,
}

impl Edge {
    /// The end on this node and the other one.
    pub fn seen_from(&self, node: usize) -> Option<(End, End)> {
        match node {
            n if n == self.a.node => Some((self.a, self.b)),
            n if n == self.b.node => Some((self.b, self.a)),
            _ => None,
        }
    }
}

/// Everything that is known: the same on every node once the beacons have gone round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// The nodes, by their number.
    pub nodes: Vec<Node>,
    /// The cables, by their ends.
    pub edges: Vec<Edge>,
}

/// Whether `ip` lies in the subnet of an address with this prefix.
pub fn same_subnet(addr: (IpAddr, u8), ip: IpAddr) -> bool {
    subnet(addr.0, addr.1).is_some_and(|net| subnet(ip, addr.1) == Some(net))
}

fn subnet(ip: IpAddr, prefix: u8) -> Option<IpAddr> {
    Some(match ip {
        IpAddr::V4(ip) if prefix <= 32 => {
            Ipv4Addr::from_bits(ip.to_bits() & !u32::MAX.checked_shr(prefix.into()).unwrap_or(0)).into()
        }
        IpAddr::V6(ip) if prefix <= 128 => {
            Ipv6Addr::from_bits(ip.to_bits() & !u128::MAX.checked_shr(prefix.into()).unwrap_or(0)).into()
        }
        _ => return None,
    })
}

impl Graph {
    /// A graph of nodes and the neighbours each receives from.
    pub fn new(mut nodes: Vec<Node>) -> Graph {
        nodes.sort_by_key(|n| n.id);
        nodes.dedup_by_key(|n| n.id);
        let mut edges: Vec<Edge> = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            for heard in &node.heard {
                let Ok(other) = nodes.binary_search_by_key(&heard.node, |n| n.id) else { continue };
                let (own, theirs) = (usize::from(heard.port), usize::from(heard.theirs));
                if other == at || own >= node.ports.len() || theirs >= nodes[other].ports.len() {
                    continue;
                }
                let (x, y) = (End { node: at, port: own }, End { node: other, port: theirs });
                let (a, b) = if x < y { (x, y) } else { (y, x) };
                if edges.iter().any(|e| (e.a, e.b) == (a, b)) {
                    continue;
                }
                let back = nodes[other]
                    .heard
                    .iter()
                    .any(|h| h.node == node.id && usize::from(h.port) == theirs && usize::from(h.theirs) == own);
                let fault =
                    if back { fault(&node.ports[own], &nodes[other].ports[theirs]) } else { Some(Fault::OneWay) };
                edges.push(Edge { a, b, fault });
            }
        }
        edges.sort_by_key(|e| (e.a, e.b));
        Graph { nodes, edges }
    }

    /// The port at an end.
    pub fn port(&self, end: End) -> &MeshPort {
        &self.nodes[end.node].ports[end.port]
    }

    /// `node/port` for people.
    pub fn name(&self, end: End) -> String {
        format!("{}/{}", self.nodes[end.node].name, self.port(end).name)
    }

    /// The place of a node.
    pub fn find(&self, id: u64) -> Option<usize> {
        self.nodes.binary_search_by_key(&id, |n| n.id).ok()
    }

    /// Speed of a cable, Mb/s: its slower end's; 0 when unknown.
    pub fn mbps(&self, edge: &Edge) -> u32 {
        let (a, b) = (self.port(edge.a).mbps, self.port(edge.b).mbps);
        if a == 0 || b == 0 { a.max(b) } else { a.min(b) }
    }

    /// The cables that carry between two nodes, fastest first.
    pub fn between(&self, a: usize, b: usize) -> Vec<(End, End)> {
        let good = self.edges.iter().filter(|e| e.fault.is_none());
        let mut found: Vec<(&Edge, (End, End))> =
            good.filter_map(|e| Some((e, e.seen_from(a)?))).filter(|(_, (_, theirs))| theirs.node == b).collect();
        found.sort_by_key(|(edge, ends)| (std::cmp::Reverse(self.mbps(edge)), *ends));
        found.into_iter().map(|(_, ends)| ends).collect()
    }
}

fn fault(a: &MeshPort, b: &MeshPort) -> Option<Fault> {
    match (a.addr, b.addr) {
        (Some(a), Some(b)) if a.0 != b.0 && same_subnet(a, b.0) && same_subnet(b, a.0) => None,
        (Some(_), Some(_)) => Some(Fault::Subnets),
        _ => Some(Fault::NoAddress),
    }
}
