//! How to reach a host: over a cable of our own, or over other nodes.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};

use linkspan_proto::mesh::HOPS_MAX;

use super::{End, Graph, same_subnet};

/// Most routes that one connection uses at a time: both directions of a ring.
pub const ROUTES_MAX: usize = 2;

/// Where to.
#[derive(Clone, Debug)]
pub struct Target {
    /// Number of the host.
    pub id: u64,
    /// Where it listens.
    pub addrs: Vec<SocketAddr>,
}

/// A cable of ours that leads to the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshLink {
    /// Our interface.
    pub interface: String,
    /// Our address on it.
    pub from: IpAddr,
    /// Where the target listens on it.
    pub to: SocketAddr,
    /// Speed of the cable, Mb/s; 0 when unknown.
    pub mbps: u32,
}

/// A route over other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Our interface.
    pub interface: String,
    /// Our address on it.
    pub from: IpAddr,
    /// The mesh servers of the nodes on the route, then where the target listens.
    pub hops: Vec<SocketAddr>,
    /// Names of the nodes on the route.
    pub over: Vec<String>,
    /// Speed of the slowest cable, Mb/s; 0 when unknown.
    pub mbps: u32,
}

/// What the graph knows of the route to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeshRoute {
    /// A cable of ours leads there.
    Direct(Vec<MeshLink>),
    /// Other nodes do.
    Over(Vec<Route>),
    /// Nothing does; the text says what is missing.
    None(String),
}

/// A partial route: nodes passed, without the first, and the slowest cable so far.
#[derive(Clone, Debug)]
struct Partial {
    nodes: Vec<usize>,
    mbps: u32,
}

impl Graph {
    /// The route from the node `own` to `target`. With `reroute`, cables of our own to it do not count.
    ///
    /// Routes share no relay with each other; each has the fewest hops, then the fastest slowest cable, then the smallest
    /// node numbers of what is left.
    pub fn way(&self, own: u64, target: &Target, reroute: bool) -> MeshRoute {
        let Some(from) = self.find(own) else {
            return MeshRoute::None("this host is not in the mesh: it has no cabled interface".into());
        };
        let goal = self.find(target.id);
        if let (Some(goal), false) = (goal, reroute) {
            let links = self.links(from, goal, target);
            if !links.is_empty() {
                return MeshRoute::Direct(links);
            }
        }
        let mut shut: Vec<usize> = Vec::new();
        let mut routes = Vec::new();
        while routes.len() < ROUTES_MAX {
            let Some(route) = self.shortest(from, goal, target, &mut shut) else { break };
            routes.push(route);
        }
        if routes.is_empty() { MeshRoute::None(self.missing(from, goal)) } else { MeshRoute::Over(routes) }
    }

    fn links(&self, from: usize, goal: usize, target: &Target) -> Vec<MeshLink> {
        let mut links = Vec::new();
        for (ours, theirs) in self.between(from, goal) {
            let (Some((ip, _)), Some((peer, _))) = (self.port(ours).addr, self.port(theirs).addr) else { continue };
            let Some(to) = target.addrs.iter().find(|a| a.ip() == peer) else { continue };
            let mbps = self.speed(&[(ours, theirs)]);
            links.push(MeshLink { interface: self.port(ours).name.clone(), from: ip, to: *to, mbps });
        }
        links
    }

    /// Where the last relay finds the target, if that node reaches it.
    fn last(&self, node: usize, goal: Option<usize>, target: &Target) -> Option<(SocketAddr, u32)> {
        match goal {
            Some(goal) => self.between(node, goal).into_iter().find_map(|(ours, theirs)| {
                let (peer, _) = self.port(theirs).addr?;
                let to = target.addrs.iter().find(|a| a.ip() == peer)?;
                Some((*to, self.speed(&[(ours, theirs)])))
            }),
            // A host that tells nothing of itself is where its address says.
            None => self.nodes[node].ports.iter().filter(|p| p.carrier).find_map(|port| {
                let addr = port.addr?;
                let to = target.addrs.iter().find(|to| same_subnet(addr, to.ip()) && to.ip() != addr.0)?;
                Some((*to, port.mbps))
            }),
        }
    }

    fn speed(&self, ends: &[(End, End)]) -> u32 {
        let each = ends.iter().flat_map(|(a, b)| [self.port(*a).mbps, self.port(*b).mbps]);
        each.filter(|mbps| *mbps > 0).min().unwrap_or(0)
    }

    /// The shortest route that avoids the relays in `shut`; those it takes are added to it.
    fn shortest(&self, from: usize, goal: Option<usize>, target: &Target, shut: &mut Vec<usize>) -> Option<Route> {
        let mut seen: Vec<usize> = shut.iter().copied().chain([from]).chain(goal).collect();
        let mut layer = vec![Partial { nodes: Vec::new(), mbps: u32::MAX }];
        // A hop to each relay and one to the target.
        for _ in 1..HOPS_MAX {
            let mut next: Vec<Partial> = Vec::new();
            for partial in &layer {
                let at = partial.nodes.last().copied().unwrap_or(from);
                for (n, node) in self.nodes.iter().enumerate() {
                    if seen.contains(&n) || !node.relays {
                        continue;
                    }
                    let Some(ends) = self.between(at, n).first().copied() else { continue };
                    let hop = Some(self.speed(&[ends])).filter(|m| *m > 0).unwrap_or(u32::MAX);
                    let mut nodes = partial.nodes.clone();
                    nodes.push(n);
                    next.push(Partial { nodes, mbps: partial.mbps.min(hop) });
                }
            }
            // The best way to each node of this layer.
            next.sort_by(|a, b| (Reverse(a.mbps), &a.nodes).cmp(&(Reverse(b.mbps), &b.nodes)));
            let mut best: Vec<Partial> = Vec::new();
            for partial in next {
                if best.iter().all(|b| b.nodes.last() != partial.nodes.last()) {
                    best.push(partial);
                }
            }
            let mut arrived: Vec<(u32, &Partial, SocketAddr)> = Vec::new();
            for partial in &best {
                let Some(at) = partial.nodes.last() else { continue };
                if let Some((to, mbps)) = self.last(*at, goal, target) {
                    let mbps = if mbps == 0 { partial.mbps } else { partial.mbps.min(mbps) };
                    arrived.push((mbps, partial, to));
                }
            }
            arrived.sort_by(|a, b| (Reverse(a.0), &a.1.nodes).cmp(&(Reverse(b.0), &b.1.nodes)));
            if let Some((mbps, partial, to)) = arrived.first() {
                shut.extend(&partial.nodes);
                return self.route(from, &partial.nodes, *to, *mbps);
            }
            if best.is_empty() {
                return None;
            }
            seen.extend(best.iter().filter_map(|p| p.nodes.last()));
            layer = best;
        }
        None
    }

    fn route(&self, from: usize, nodes: &[usize], to: SocketAddr, mbps: u32) -> Option<Route> {
        let mut hops = Vec::with_capacity(nodes.len() + 1);
        let mut at = from;
        let mut first = None;
        for &node in nodes {
            let (ours, theirs) = *self.between(at, node).first()?;
            first.get_or_insert(ours);
            hops.push(SocketAddr::new(self.port(theirs).addr?.0, self.nodes[node].server_port));
            at = node;
        }
        hops.push(to);
        let port = self.port(first?);
        Some(Route {
            interface: port.name.clone(),
            from: port.addr?.0,
            hops,
            over: nodes.iter().map(|n| self.nodes[*n].name.clone()).collect(),
            mbps: if mbps == u32::MAX { 0 } else { mbps },
        })
    }

    fn missing(&self, from: usize, goal: Option<usize>) -> String {
        let neighbours: Vec<&str> = (0..self.nodes.len())
            .filter(|n| !self.between(from, *n).is_empty())
            .map(|n| self.nodes[n].name.as_str())
            .collect();
        let goal = match goal {
            Some(goal) => format!("{} is known but no chain of cables leads to it", self.nodes[goal].name),
            None => "no node reports it".to_owned(),
        };
        match neighbours.as_slice() {
            [] => format!(
                "{goal}; no neighbour answers on any cable of this host: does linkspan run there, with the same key and LINKSPAN_MESH_PORT?"
            ),
            some => format!("{goal}; the neighbours of {} are {}", self.nodes[from].name, some.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
