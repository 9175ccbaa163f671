//! The mesh for people.

use linkspan_perf::format::table;
use linkspan_topology::mesh::{Edge, Fault, Graph, MeshRoute};

use super::View;

pub(super) const NO_CABLE: &str = "this host has no cabled interface for the mesh: LINKSPAN_IFNAME chooses interfaces, and \
                                   `lspan status` says why others are left out";

pub(super) fn gbit(mbps: u32) -> String {
    if mbps == 0 { "-".into() } else { format!("{} Gb/s", f64::from(mbps) / 1e3) }
}

pub(super) fn fault(fault: Fault) -> &'static str {
    match fault {
        Fault::NoAddress => "no address",
        Fault::Subnets => "addresses do not match",
        Fault::OneWay => "one end is deaf",
    }
}

pub(super) fn subnet(graph: &Graph, edge: &Edge) -> String {
    let addr = graph.port(edge.a).addr.or(graph.port(edge.b).addr);
    addr.map_or_else(|| "-".into(), |(ip, prefix)| linkspan_topology::IfAddr { ip, prefix, scope: 0 }.subnet())
}

pub(super) fn mesh(view: &View) -> String {
    let graph = &view.graph;
    let mut text = String::new();
    let mut rows = vec![["host", "port", "address", "speed", "MTU", "RDMA"].map(String::from).to_vec()];
    for node in view.order().into_iter().map(|n| &graph.nodes[n]) {
        let here = if node.id == view.own { " (this one)" } else { "" };
        let name = format!("{}{here}", node.name);
        if node.ports.is_empty() {
            rows.push(vec![name.clone(), "no cabled interface".into(), "-".into(), "-".into(), "-".into(), "-".into()]);
        }
        for (n, port) in node.ports.iter().enumerate() {
            rows.push(vec![
                if n == 0 { name.clone() } else { String::new() },
                port.name.clone(),
                port.addr.map_or_else(|| "-".into(), |(ip, prefix)| format!("{ip}/{prefix}")),
                gbit(port.mbps),
                if port.mtu == 0 { "-".into() } else { port.mtu.to_string() },
                match (port.rdma, port.gid) {
                    (true, true) => "ready".into(),
                    (true, false) => "no GID".into(),
                    _ => "-".into(),
                },
            ]);
        }
    }
    text.push_str(&table(&rows));

    text.push_str("\ncables\n");
    let mut rows = Vec::new();
    for edge in &graph.edges {
        let measured = view.speeds.iter().find(|s| s.edge == *edge);
        rows.push(vec![
            format!("  {} - {}", graph.name(edge.a), graph.name(edge.b)),
            subnet(graph, edge),
            gbit(graph.mbps(edge)),
            match measured.map(|s| &s.mbps) {
                Some(Ok(mbps)) => format!("measured {:.2} Gb/s, {:.2} GB/s", *mbps as f64 / 1e3, *mbps as f64 / 8e3),
                Some(Err(_)) => "not measured".into(),
                None => String::new(),
            },
            edge.fault.map_or_else(String::new, |f| format!("UNUSED: {}", fault(f))),
        ]);
    }
    let cabled = graph.nodes.iter().any(|node| node.id == view.own && !node.ports.is_empty());
    text.push_str(&match rows.is_empty() {
        true if cabled => "  none: no neighbour was found\n".into(),
        true => format!("  none: {NO_CABLE}\n"),
        false => table(&rows),
    });

    if graph.nodes.len() > 1 {
        text.push_str("\nroutes\n");
        for (a, b) in view.pairs() {
            let (from, to) = (&graph.nodes[a].name, &graph.nodes[b].name);
            let way = match view.way(a, b) {
                MeshRoute::Direct(links) if links.len() == 1 => "direct, 1 cable".into(),
                MeshRoute::Direct(links) => format!("direct, {} cables", links.len()),
                MeshRoute::Over(routes) => {
                    let each: Vec<String> = routes.iter().map(|r| format!("over {}", r.over.join(", "))).collect();
                    each.join(" and ")
                }
                MeshRoute::None(why) => format!("NONE: {why}"),
            };
            text.push_str(&format!("  {from} - {to}: {way}\n"));
        }
    }
    if !view.findings.is_empty() {
        text.push_str("\nwrong\n");
        for finding in &view.findings {
            text.push_str(&format!(
                "  {} {}\n      on {}: {}\n",
                finding.code, finding.what, finding.node, finding.fix
            ));
        }
        if let Some(keep) = view.findings.iter().find_map(|finding| finding.keep()) {
            text.push_str(&format!("  {keep}\n"));
        }
    }
    if let Some(settings) = &view.nccl {
        text.push_str(&format!(
            "\nNCCL 2.30 and later serves this mesh by itself: {} (and NCCL_SOCKET_IFNAME for its bootstrap)\n",
            settings.join(" ")
        ));
    }
    text
}
