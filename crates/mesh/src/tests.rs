//! Which way a connection is led around where beacons are late.

use linkspan_proto::mesh::{Beacon, Heard, MeshPort};

use super::*;

fn port(name: &str, addr: &str) -> MeshPort {
    let addr = Some((addr.parse().unwrap(), 24));
    MeshPort { name: name.into(), addr, mtu: 1500, mbps: 0, carrier: true, rdma: false, gid: false, twin: None }
}

fn node(id: u64, ports: &[(&str, &str)], heard: &[(u8, u64, u8)]) -> Node {
    let heard = heard.iter().map(|&(port, node, theirs)| Heard { port, node, theirs }).collect();
    let ports = ports.iter().map(|(name, addr)| port(name, addr)).collect();
    Node { id, epoch: 1, seq: 1, name: format!("n{id}"), relays: true, server_port: 7, ports, heard }
}

/// When a mesh has been silent for longer than a cable or a node is believed in.
const LATE: Duration = Duration::from_secs(10);

/// A triangle of which node 1 receives nothing after the first moment; with `cable` it has a port that leads to node 2.
fn silent(cable: bool) -> Mesh {
    let mesh = Mesh::deaf(1, Psk::new([7; 32])).unwrap();
    let mut known = mesh.shared.known();
    let ports = [("cab0", "10.0.0.1"), ("cab1", "10.0.1.1")];
    known.own.ports = node(1, &ports[..if cable { 2 } else { 1 }], &[]).ports;
    let far = node(3, &[("cab0", "10.0.0.2"), ("cab2", "10.0.2.1")], &[(0, 1, 0), (1, 2, 1)]);
    let peer = node(2, &[("cab1", "10.0.1.2"), ("cab2", "10.0.2.2")], &[(0, 1, 1), (1, 3, 1)]);
    for (port, node) in [(0, far), (1, peer)].into_iter().filter(|(port, _)| cable || *port == 0) {
        let beacon = Beacon { sender: node.id, port: 0, epoch: 1, tick: 1, node };
        known.database.take(1, port, beacon, Duration::ZERO);
    }
    drop(known);
    mesh
}

fn over(way: MeshRoute) -> Option<Vec<String>> {
    match way {
        MeshRoute::Over(routes) => Some(routes.into_iter().flat_map(|r| r.over).collect()),
        _ => None,
    }
}

#[test]
fn what_was_there_a_moment_ago_is_tried_where_nothing_else_is_left() {
    let to = [SocketAddr::new("10.0.1.2".parse().unwrap(), 9), SocketAddr::new("10.0.2.2".parse().unwrap(), 9)];
    let around = Some(vec!["n3".to_owned()]);
    let mesh = silent(true);
    assert_eq!(over(mesh.way_in(&mesh.graph_at(LATE), 2, to.to_vec(), true)), None);
    assert_eq!(over(mesh.reroute_at(LATE, 2, &to, false)), around);
    // Something carries, and our cable was there a moment ago too: nothing is cut, everybody is late.
    assert_eq!(over(mesh.reroute_at(LATE, 2, &to, true)), None);
    // Our end of the cable has gone.
    let mesh = silent(false);
    assert_eq!(over(mesh.way_in(&mesh.graph_at(LATE), 2, to.to_vec(), true)), None);
    assert_eq!(over(mesh.reroute_at(LATE, 2, &to, true)), around);
}
