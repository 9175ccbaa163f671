//! Meshes for tests: nodes 0, 1, 2 ... with cables between chosen pairs, each on its own subnet.

use linkspan_proto::mesh::{Heard, MeshPort, Node};

use super::{Graph, Target};

pub(super) fn port(name: &str, ip: &str, prefix: u8) -> MeshPort {
    let addr = Some((ip.parse().unwrap(), prefix));
    let name = name.to_owned();
    MeshPort { name, addr, mtu: 9000, mbps: 100_000, carrier: true, rdma: true, gid: true, twin: None }
}

/// Node `n` has the number `100 + n`; cable `c` is 10.0.c.0/24, its ends are .1 and .2.
pub(super) fn nodes(count: usize, cables: &[(usize, usize)]) -> Vec<Node> {
    let mut nodes: Vec<Node> = (0..count)
        .map(|n| Node {
            id: 100 + n as u64,
            epoch: 1,
            seq: 1,
            name: format!("n{n}"),
            relays: true,
            server_port: 7475,
            ports: Vec::new(),
            heard: Vec::new(),
        })
        .collect();
    for (c, &(a, b)) in cables.iter().enumerate() {
        let (at_a, at_b) = (nodes[a].ports.len(), nodes[b].ports.len());
        nodes[a].ports.push(port(&format!("c{c}"), &format!("10.0.{c}.1"), 24));
        nodes[b].ports.push(port(&format!("c{c}"), &format!("10.0.{c}.2"), 24));
        let (id_a, id_b) = (nodes[a].id, nodes[b].id);
        nodes[a].heard.push(Heard { port: at_a as u8, node: id_b, theirs: at_b as u8 });
        nodes[b].heard.push(Heard { port: at_b as u8, node: id_a, theirs: at_a as u8 });
    }
    nodes
}

pub(super) fn graph(count: usize, cables: &[(usize, usize)]) -> Graph {
    Graph::new(nodes(count, cables))
}

/// Node `n`, listening on port 9 of all its addresses.
pub(super) fn target(graph: &Graph, n: usize) -> Target {
    let node = graph.nodes.iter().find(|node| node.id == 100 + n as u64).unwrap();
    let addrs = node.ports.iter().filter_map(|p| Some((p.addr?.0, 9).into())).collect();
    Target { id: node.id, addrs }
}
