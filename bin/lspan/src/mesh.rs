//! `lspan mesh`: who is cabled to whom, how each pair reaches each other, what is wrong and what mends it.

mod json;
mod text;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use linkspan_fabric::{Config, Fabric, Log};
use linkspan_fabric::{EdgeSpeed, ForeignHost};
use linkspan_topology::mesh::{Finding, Graph, MeshRoute, Target, findings, nccl_settings};

use crate::cli::MeshArgs;
use crate::exit::{Exit, Failure};
use crate::out::{Out, Progress};
use crate::signals;

/// Port where the environment names none: not assigned in IANA's list of services.
const PORT: u16 = 7475;

/// Everything that is shown.
struct View {
    own: u64,
    graph: Graph,
    findings: Vec<Finding>,
    /// Speeds of the cables, where they were measured.
    speeds: Vec<EdgeSpeed>,
    /// Settings with which NCCL needs no help.
    nccl: Option<Vec<String>>,
}

impl View {
    fn new(own: u64, graph: Graph, speeds: Vec<EdgeSpeed>) -> View {
        let mut findings = findings(&graph);
        findings.extend(speeds.iter().filter_map(|s| slow(&graph, s)));
        View { own, nccl: nccl_settings(&graph), findings, graph, speeds }
    }

    /// How one node reaches another.
    fn way(&self, from: usize, to: usize) -> MeshRoute {
        let goal = &self.graph.nodes[to];
        let addrs = goal.ports.iter().filter_map(|p| Some(SocketAddr::new(p.addr?.0, goal.server_port))).collect();
        self.graph.way(self.graph.nodes[from].id, &Target { id: goal.id, addrs }, false)
    }

    /// The hosts in the order of their names.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.graph.nodes.len()).collect();
        order.sort_by_key(|n| &self.graph.nodes[*n].name);
        order
    }

    /// Pairs, each once.
    fn pairs(&self) -> Vec<(usize, usize)> {
        let order = self.order();
        let count = order.len();
        (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).map(|(a, b)| (order[a], order[b])).collect()
    }

    fn exit(&self) -> Exit {
        let apart = self.pairs().into_iter().any(|(a, b)| matches!(self.way(a, b), MeshRoute::None(_)));
        match self.graph.nodes.len() {
            0 | 1 => Exit::NoPeer,
            _ if apart || !self.findings.is_empty() => Exit::Degraded,
            _ => Exit::Ok,
        }
    }
}

/// A host that is on the cable and not in the mesh.
fn foreign(graph: &Graph, own: u64, host: &ForeignHost) -> Finding {
    let node = graph.find(own).map(|n| graph.nodes[n].name.clone()).unwrap_or_default();
    let ForeignHost { interface, from, name, .. } = host;
    Finding::new(
        node,
        &format!("LS1426 a host that calls itself {name:?}, at {from} on {interface}, has another cluster key"),
        "put the same key into LINKSPAN_PSK_FILE on both hosts".into(),
    )
}

/// What the one TCP stream of a measurement carries on a busy machine too, in Mb/s: a fifth of a processor's 7 GB/s (docs/performance.md).
const STREAM_MBPS: u64 = 10_000;

/// A cable that does less than half of what its ends promise, and less than one stream does: a link that came up at a lower rate, a bad
/// cable, a full machine.
fn slow(graph: &Graph, speed: &EdgeSpeed) -> Option<Finding> {
    let edge = &speed.edge;
    let name = format!("{} - {}", graph.name(edge.a), graph.name(edge.b));
    let node = graph.nodes[edge.a.node].name.clone();
    match &speed.mbps {
        Err(why) => Some(Finding::new(
            node,
            &format!("LS1422 {name} could not be measured: {why}"),
            "see the log of `lspan mesh --serve` on both hosts".into(),
        )),
        Ok(mbps) if *mbps < (u64::from(graph.mbps(edge)) / 2).min(STREAM_MBPS) => Some(Finding::new(
            node,
            &format!(
                "LS1421 {name} carries {:.1} of {:.0} Gb/s",
                *mbps as f64 / 1e3,
                f64::from(graph.mbps(edge)) / 1e3
            ),
            format!("look at `ethtool {}` on both hosts, and at the load of their processors", graph.port(edge.a).name),
        )),
        Ok(_) => None,
    }
}

pub(crate) fn run(args: &MeshArgs) -> Result<Exit, Failure> {
    let mut config = Config::from_env()?;
    if config.mesh_port == 0 {
        config.mesh_port = PORT;
    }
    if !config.meshes() {
        return Err(Failure::new(
            Exit::Usage,
            "LS0734 hosts of a mesh know each other by the cluster key: make one (`openssl rand -hex 32`), put it with mode 0600 \
             on every host and name it in LINKSPAN_PSK_FILE; two hosts with a cable between them need no mesh: `lspan pair`, then \
             `lspan perf bw NAME`",
        ));
    }
    let interrupt = signals::interrupt()?;
    let port = config.mesh_port;
    let fabric = Fabric::new(config, Log::stderr(), false, linkspan_transports::all())?;
    let graph = || fabric.mesh_graph().map(Option::unwrap_or_default);
    graph()?;
    if args.serve {
        let own = graph()?.nodes.into_iter().find(|node| node.id == fabric.mesh_id());
        if own.is_some_and(|node| node.ports.is_empty()) {
            eprintln!("lspan: {}; until there is one, nobody is found and nothing is relayed", text::NO_CABLE);
        } else {
            eprintln!("lspan: finding neighbours on port {port} and relaying for them until Ctrl-C");
        }
        while !interrupt.raised() {
            thread::sleep(Duration::from_millis(200));
        }
        return Ok(Exit::Ok);
    }
    let mut progress = Progress::new();
    let until = Instant::now() + args.wait;
    while Instant::now() < until && !interrupt.raised() {
        let count = graph()?.nodes.len();
        progress.say(&format!("listening to neighbours: {count} host(s) so far"));
        thread::sleep(Duration::from_millis(100));
    }
    let graph = graph()?;
    let mut speeds = Vec::new();
    if args.check
        && let Some(prober) = fabric.mesh_prober()?
    {
        for edge in graph.edges.iter().filter(|e| e.fault.is_none()) {
            if interrupt.raised() {
                break;
            }
            progress.say(&format!("measuring {} - {}", graph.name(edge.a), graph.name(edge.b)));
            speeds.push(prober.measure(&graph, edge));
        }
    }
    progress.clear();
    let others: Vec<Finding> =
        fabric.mesh_foreign()?.iter().map(|host| foreign(&graph, fabric.mesh_id(), host)).collect();
    let mut view = View::new(fabric.mesh_id(), graph, speeds);
    view.findings.extend(others);
    let mut out = Out::default();
    if args.json {
        out.json(&json::mesh(&view), true)?;
    } else {
        out.text(&text::mesh(&view))?;
    }
    Ok(if interrupt.raised() { Exit::Interrupted } else { view.exit() })
}

#[cfg(test)]
mod tests;
