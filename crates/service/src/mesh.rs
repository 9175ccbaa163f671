//! A host of the mesh as the name of a peer.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use linkspan_fabric::{Config, Fabric, Log};
use linkspan_topology::mesh::Graph;

/// How long neighbours are listened to: each announces what it sees once a second.
const PATIENCE: Duration = Duration::from_secs(4);

/// The addresses of a host of this name at the cables that lead to this one. `None`: there is no mesh here. An error is a sentence.
pub(crate) fn addresses(name: &str, port: u16) -> Option<Result<Vec<SocketAddr>, String>> {
    let config = Config::from_env().ok().filter(Config::meshes)?;
    let fabric = Fabric::new(config, Log::off(), false, linkspan_transports::all()).ok()?;
    let until = Instant::now() + PATIENCE;
    loop {
        let graph = fabric.mesh_graph().ok()??;
        match find(&graph, fabric.mesh_id(), name) {
            Ok(found) => return Some(Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())),
            Err(why) if Instant::now() >= until => return Some(Err(why)),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn find(graph: &Graph, own: u64, name: &str) -> Result<Vec<IpAddr>, String> {
    let here = graph.find(own);
    let known = |n: &usize| Some(*n) != here && graph.nodes[*n].name.eq_ignore_ascii_case(name);
    let Some(node) = (0..graph.nodes.len()).find(known) else {
        let mut names: Vec<&str> = graph.nodes.iter().filter(|node| node.id != own).map(|node| &*node.name).collect();
        names.sort_unstable();
        let there = if names.is_empty() {
            "no other host is heard".to_owned()
        } else {
            format!("there are {}", names.join(", "))
        };
        return Err(format!("neither the resolver nor the mesh knows this name; in the mesh {there}"));
    };
    let ends = here.map(|here| graph.between(here, node)).unwrap_or_default();
    let addrs: Vec<IpAddr> = ends.iter().filter_map(|(_, end)| Some(graph.port(*end).addr?.0)).collect();
    match addrs.is_empty() {
        false => Ok(addrs),
        true => Err(format!(
            "no cable joins {} to this host: name it by an address of another network that both are in; the test's own connections \
             go over the mesh all the same",
            graph.nodes[node].name
        )),
    }
}

#[cfg(test)]
mod tests;
