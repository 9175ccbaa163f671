use linkspan_topology::mesh::parse;

use super::*;
use crate::schema;

/// A ring of four with a fifth host on a cable of its own, declared.
fn ring() -> Graph {
    let text = "node a 10.0.0.1/24 10.0.3.2/24\nnode b 10.0.0.2/24 10.0.1.1/24\n\
                node c 10.0.1.2/24 10.0.2.1/24 10.0.4.1/24\nnode d 10.0.2.2/24 10.0.3.1/24\nnode e 10.0.4.2/24\n";
    parse(text, 7475, 1, &["10.0.0.1".parse().unwrap()]).unwrap()
}

fn at(graph: &Graph, name: &str) -> usize {
    graph.nodes.iter().position(|n| n.name == name).unwrap()
}

#[test]
fn people_see_hosts_cables_ways_and_what_is_wrong() {
    let mut graph = ring();
    let d = at(&graph, "d");
    (graph.nodes[d].ports[0].mtu, graph.nodes[d].ports[1].mtu) = (1500, 9000);
    let c = at(&graph, "c");
    graph.nodes[c].ports.iter_mut().for_each(|p| p.mtu = 9000);
    let view = View::new(1, graph, Vec::new());
    let shown = text::mesh(&view);
    for part in [
        "a (this one)",
        "10.0.3.0/24",
        "direct, 1 cable\n",
        " and over ",
        "LS1415",
        "mtu 9000",
        "on d:",
        "lost at reboot",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
    assert_eq!(view.exit(), Exit::Degraded);
    assert!(view.nccl.is_none() && !shown.contains("NCCL_IB"));
}

#[test]
fn a_ring_is_fine_and_a_host_apart_is_not() {
    assert_eq!(View::new(1, ring(), Vec::new()).exit(), Exit::Ok);
    let mut graph = ring();
    let e = at(&graph, "e");
    graph.edges.retain(|edge| edge.seen_from(e).is_none());
    let view = View::new(1, graph, Vec::new());
    assert_eq!(view.exit(), Exit::Degraded);
    assert!(text::mesh(&view).contains("NONE: e is known"));
    assert_eq!(View::new(1, Graph::default(), Vec::new()).exit(), Exit::NoPeer);
}

#[test]
fn slow_and_silent_cables_are_findings() {
    let mut graph = ring();
    graph.nodes.iter_mut().flat_map(|n| &mut n.ports).for_each(|p| p.mbps = 10_000);
    let (first, second) = (graph.edges[0], graph.edges[1]);
    let speeds = vec![
        EdgeSpeed { edge: first, mbps: Ok(4_999) },
        EdgeSpeed { edge: second, mbps: Ok(5_000) },
        EdgeSpeed { edge: graph.edges[2], mbps: Err("no answer".into()) },
    ];
    let view = View::new(1, graph, speeds);
    let codes: Vec<_> = view.findings.iter().map(|f| f.code.as_str()).collect();
    assert_eq!(codes, ["LS1421", "LS1422"]);
    assert!(text::mesh(&view).contains("measured 5.00 Gb/s, 0.62 GB/s"));
}

#[test]
fn a_cable_that_one_stream_cannot_fill_is_not_slow() {
    let mut graph = ring();
    graph.nodes.iter_mut().flat_map(|n| &mut n.ports).for_each(|p| p.mbps = 200_000);
    let edges = graph.edges.clone();
    let speed = |n: usize, mbps| EdgeSpeed { edge: edges[n], mbps: Ok(mbps) };
    let view = View::new(1, graph, vec![speed(0, 45_000), speed(1, 9_000)]);
    let findings: Vec<_> = view.findings.iter().map(|f| f.what.as_str()).collect();
    assert!(matches!(findings[..], [one] if one.contains("carries 9.0 of 200 Gb/s")), "{findings:?}");
}

#[test]
fn json_keeps_to_its_schema() {
    let mut graph = ring();
    graph.edges[0].fault = Some(linkspan_topology::mesh::Fault::OneWay);
    let speeds = vec![EdgeSpeed { edge: graph.edges[1], mbps: Ok(5_000) }];
    for view in [View::new(1, graph, speeds), View::new(1, Graph::default(), Vec::new())] {
        assert_eq!(schema::problems("mesh-1.json", &json::mesh(&view)), Vec::<String>::new());
    }
    let bent = serde_json::json!({ "schema": "linkspan.mesh/1", "nodes": [], "cables": [{}] });
    assert!(!schema::problems("mesh-1.json", &bent).is_empty());
}
