use linkspan_proto::mesh::{Heard, MeshPort, Node};

use super::*;

/// A line a - b - c, each cable with a subnet.
fn line() -> Graph {
    let port = |ip: &str| MeshPort {
        name: "cab".into(),
        addr: Some((ip.parse().unwrap(), 24)),
        mtu: 1500,
        mbps: 10_000,
        carrier: true,
        rdma: false,
        gid: false,
        twin: None,
    };
    let node = |id, name: &str, ips: &[&str], heard: &[(u8, u64, u8)]| Node {
        id,
        epoch: 1,
        seq: 1,
        name: name.into(),
        relays: true,
        server_port: 1,
        ports: ips.iter().map(|ip| port(ip)).collect(),
        heard: heard.iter().map(|&(port, node, theirs)| Heard { port, node, theirs }).collect(),
    };
    Graph::new(vec![
        node(1, "spark-a", &["10.0.1.1"], &[(0, 2, 0)]),
        node(2, "spark-b", &["10.0.1.2", "10.0.2.1"], &[(0, 1, 0), (1, 3, 0)]),
        node(3, "spark-c", &["10.0.2.2"], &[(0, 2, 1)]),
    ])
}

#[test]
fn a_neighbour_is_where_its_cable_ends_and_others_are_told() {
    let graph = line();
    assert_eq!(find(&graph, 1, "Spark-B"), Ok(vec!["10.0.1.2".parse().unwrap()]));
    assert_eq!(find(&graph, 3, "spark-b"), Ok(vec!["10.0.2.1".parse().unwrap()]));
    assert!(find(&graph, 1, "spark-c").unwrap_err().contains("no cable joins spark-c"));
    assert!(find(&graph, 1, "spark-d").unwrap_err().contains("there are spark-b, spark-c"));
    assert!(find(&graph, 1, "spark-a").is_err(), "this host is no peer of itself");
    assert!(find(&Graph::new(Vec::new()), 1, "x").unwrap_err().contains("no other host is heard"));
}
