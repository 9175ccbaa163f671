//! How fast a cable is: bytes for a moment, one stream, counted by the receiver.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use linkspan_net::WaitSet;
use linkspan_proto::mesh::Request;
use linkspan_stream::Stream;
use linkspan_topology::mesh::{Edge, Graph, MeshRoute, Target};

use super::{Approach, Means, Mesh};

/// How long bytes are sent.
const SENDING: Duration = Duration::from_millis(400);

/// How long a sink reads, and its client waits: longer than a sender may send.
const SINKING: Duration = Duration::from_secs(3);

/// How long anything else may take.
const PATIENCE: Duration = Duration::from_secs(4);

const BLOCK: usize = 256 << 10;

/// Sleeps until `stream` may be used, at most a tenth of a second.
fn nap(stream: &Stream, write: bool) {
    let mut set = WaitSet::new();
    let mut fd = stream.wait_fd(write);
    fd.read = !write;
    set.add(fd);
    let _ = set.wait(Some(Duration::from_millis(100)));
}

/// Reads and drops what comes, answers with the number of bytes.
pub(super) fn sink(mut stream: Stream) {
    let mut block = vec![0; BLOCK];
    let (since, mut count) = (Instant::now(), 0u64);
    while since.elapsed() < SINKING {
        match stream.try_read(&mut block) {
            Ok(Some(0)) => break,
            Ok(Some(n)) => count += n as u64,
            Ok(None) => nap(&stream, false),
            Err(_) => return,
        }
    }
    let _ = stream.try_write(&count.to_le_bytes());
}

/// Drives an approach to its end.
fn finish(mut approach: Approach) -> Result<(Stream, String), String> {
    let since = Instant::now();
    let mut set = WaitSet::new();
    while since.elapsed() < PATIENCE + SINKING {
        if let Some(done) = approach.poll()? {
            return Ok(done);
        }
        let mut fds = Vec::new();
        approach.wait_fds(&mut fds);
        set.clear();
        fds.into_iter().for_each(|fd| {
            set.add(fd);
        });
        let _ = set.wait(Some(Duration::from_millis(100)));
    }
    Err("no answer".into())
}

/// Speed of the cable out of `interface` to the mesh server `to`, Mb/s.
pub(super) fn cable(means: &Means, interface: &str, from: IpAddr, to: SocketAddr) -> Result<u64, String> {
    let ask = Approach::ask(means, interface, from, to, Some(Request::Sink), PATIENCE)?;
    let (mut stream, _) = finish(ask)?;
    let block = vec![0x5a; BLOCK];
    let since = Instant::now();
    while since.elapsed() < SENDING {
        match stream.try_write(&block).map_err(|e| e.to_string())? {
            Some(_) => {}
            None => nap(&stream, true),
        }
    }
    stream.finish().map_err(|e| e.to_string())?;
    let mut count = [0; 8];
    let mut had = 0;
    while had < count.len() {
        match stream.try_read(&mut count[had..]).map_err(|e| e.to_string())? {
            Some(0) => return Err("the other end went away".into()),
            Some(n) => had += n,
            None if since.elapsed() > SINKING => return Err("the other end does not report what it received".into()),
            None => nap(&stream, false),
        }
    }
    let seconds = since.elapsed().as_secs_f64();
    Ok((u64::from_le_bytes(count) as f64 * 8e-6 / seconds) as u64)
}

/// What was measured on one cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeSpeed {
    /// The cable.
    pub edge: Edge,
    /// Mb/s from its first end to its second over one TCP stream, or why there is no number.
    pub mbps: Result<u64, String>,
}

/// Measures cables, those between other hosts too.
#[derive(Debug)]
pub struct Prober<'a> {
    mesh: &'a Mesh,
}

impl<'a> Prober<'a> {
    /// Of this part in the mesh.
    pub fn new(mesh: &'a Mesh) -> Prober<'a> {
        Prober { mesh }
    }

    /// Measures a cable of `graph`; takes a second, or a few where there is no answer.
    pub fn measure(&self, graph: &Graph, edge: &Edge) -> EdgeSpeed {
        EdgeSpeed { edge: *edge, mbps: self.try_measure(graph, edge) }
    }

    fn try_measure(&self, graph: &Graph, edge: &Edge) -> Result<u64, String> {
        let own = graph.find(self.mesh.id()).ok_or("this host is not in the mesh")?;
        let (near, far) = edge.seen_from(own).unwrap_or((edge.a, edge.b));
        let server = graph.nodes[far.node].server_port;
        let to = graph.port(far).addr.ok_or("no address")?.0;
        if near.node == own {
            let port = graph.port(near);
            return cable(&self.mesh.means, &port.name, port.addr.ok_or("no address")?.0, SocketAddr::new(to, server));
        }
        // Another host's cable: that host is asked to measure it.
        let asked = &graph.nodes[near.node];
        let addrs = asked.ports.iter().filter_map(|p| Some(SocketAddr::new(p.addr?.0, asked.server_port))).collect();
        let means = &self.mesh.means;
        let approach = match graph.way(self.mesh.id(), &Target { id: asked.id, addrs }, false) {
            MeshRoute::Direct(links) => {
                let link = links.first().ok_or("no route")?;
                Approach::start(means, &link.interface, link.from, &[link.to], PATIENCE)?
            }
            MeshRoute::Over(routes) => {
                let route = routes.first().ok_or("no route")?;
                Approach::start(means, &route.interface, route.from, &route.hops, PATIENCE)?
            }
            MeshRoute::None(why) => return Err(why),
        };
        let (stream, _) = finish(approach)?;
        let asking = Approach::over(means, stream, Request::Measure(SocketAddr::new(to, server)))?;
        let (_, text) = finish(asking)?;
        text.parse().map_err(|_| "the answer is not a number".into())
    }
}
