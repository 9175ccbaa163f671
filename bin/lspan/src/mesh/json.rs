//! `lspan mesh --json`: rows of `docs/schema/mesh-1.json`.

use linkspan_topology::mesh::MeshRoute;
use serde_json::{Value, json};

use super::{View, text};

/// Schema of `--json`: `docs/schema/mesh-1.json`.
const SCHEMA: &str = "linkspan.mesh/1";

fn some(number: u32) -> Option<u32> {
    (number > 0).then_some(number)
}

pub(super) fn mesh(view: &View) -> Value {
    let graph = &view.graph;
    let nodes: Vec<Value> = view
        .order()
        .into_iter()
        .map(|n| &graph.nodes[n])
        .map(|node| {
            let ports: Vec<Value> = node
                .ports
                .iter()
                .map(|port| {
                    json!({
                        "name": port.name,
                        "address": port.addr.map(|(ip, prefix)| format!("{ip}/{prefix}")),
                        "speed_mbit_s": some(port.mbps),
                        "mtu_bytes": some(port.mtu),
                        "carrier": port.carrier,
                        "rdma": port.rdma,
                        "gid": port.gid,
                    })
                })
                .collect();
            json!({
                "name": node.name,
                "id": format!("{:016x}", node.id),
                "this_host": node.id == view.own,
                "relays": node.relays,
                "ports": ports,
            })
        })
        .collect();
    let cables: Vec<Value> = graph
        .edges
        .iter()
        .map(|edge| {
            let end = |end: linkspan_topology::mesh::End| {
                json!({ "node": graph.nodes[end.node].name, "port": graph.port(end).name })
            };
            let measured = view.speeds.iter().find(|s| s.edge == *edge);
            json!({
                "ends": [end(edge.a), end(edge.b)],
                "subnet": text::subnet(graph, edge),
                "speed_mbit_s": some(graph.mbps(edge)),
                "fault": edge.fault.map(text::fault),
                "measured_mbit_s": measured.and_then(|s| s.mbps.as_ref().ok()),
            })
        })
        .collect();
    let ways: Vec<Value> = view
        .pairs()
        .into_iter()
        .map(|(a, b)| {
            let (kind, over, why) = match view.way(a, b) {
                MeshRoute::Direct(_) => ("direct", Vec::new(), None),
                MeshRoute::Over(routes) => ("relayed", routes.into_iter().map(|r| r.over).collect(), None),
                MeshRoute::None(why) => ("none", Vec::new(), Some(why)),
            };
            json!({
                "between": [graph.nodes[a].name, graph.nodes[b].name],
                "kind": kind,
                "over": over,
                "why": why,
            })
        })
        .collect();
    let findings: Vec<Value> =
        view.findings.iter().map(|f| json!({ "code": f.code, "node": f.node, "what": f.what, "fix": f.fix })).collect();
    json!({
        "schema": SCHEMA,
        "nodes": nodes,
        "cables": cables,
        "ways": ways,
        "findings": findings,
        "nccl_settings": view.nccl,
    })
}
