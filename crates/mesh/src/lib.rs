//! The mesh that needs no switch: neighbours meet on `LINKSPAN_MESH_PORT`, tell each other what they see, and relay for
//! each other where two hosts have no cable between them.
//!
//! One thread per process listens, tells and answers; it is asleep nearly always. A stream that is relayed gets a thread of
//! its own, on the relay, for as long as it lasts. Of several processes on a host the first one opens the mesh server; the others
//! listen to the same beacons and open it when that one has gone.

#![forbid(unsafe_code)]

mod agent;
mod approach;
mod beacon;
mod crossing;
mod error;
pub mod hops;
mod measure;
mod ports;
mod relay;
mod server;
mod work;

pub use approach::Approach;
pub use error::Error;
pub use measure::{EdgeSpeed, Prober};

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linkspan_proto::login::Psk;
use linkspan_proto::mesh::{Keys, Node};
use linkspan_setup::clock;
use linkspan_setup::log::Log;
use linkspan_setup::stats::Stats;
use linkspan_stream::Options;
use linkspan_topology::IfFilter;
use linkspan_topology::mesh::{Database, Graph, MeshRoute, Target};
use linkspan_transport::{Provider, Site};

use work::Works;

/// How long a process that ends goes on relaying for others that still move bytes.
const LAST_RELAYS: Duration = Duration::from_secs(5);

/// Without news for so long, what neighbours see has been told: one beat of each of them (a second), and the slack of a busy
/// machine.
const QUIET: Duration = Duration::from_millis(1300);

/// How long a host with another key is remembered: some beats.
const FOREIGN: Duration = Duration::from_secs(5);

/// What a process's part in the mesh is made of.
pub struct Config {
    /// Number of this host in the mesh and in its handles.
    pub id: u64,
    /// The cluster key.
    pub psk: Psk,
    /// Port of beacons (UDP) and of the mesh server (TCP).
    pub port: u16,
    /// File that declares the mesh; nothing is sent to find it then.
    pub file: Option<PathBuf>,
    /// Which interfaces belong to it.
    pub filter: Option<IfFilter>,
    /// Where it logs.
    pub log: Log,
    /// Where it counts what it relays.
    pub stats: Arc<Stats>,
    /// Of its TCP sockets.
    pub options: Options,
    /// Whose rails may be joined here, best first.
    pub providers: Vec<Arc<dyn Provider>>,
    /// Settings of those rails; the address is that of each stream.
    pub site: Site<'static>,
}

/// What it takes to send requests to a relay.
#[derive(Clone)]
pub struct Means {
    pub(crate) psk: Psk,
    pub(crate) keys: Keys,
    pub(crate) options: Options,
}

/// What the thread and its owner share.
pub(crate) struct Shared {
    known: Mutex<Known>,
    stop: AtomicBool,
    works: Works,
    /// A count that moves with relayed bytes.
    moved: AtomicUsize,
    /// Threads that relay and measure; they are waited for before the code may be unloaded.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Known {
    database: Database,
    own: Node,
    /// Addresses of the ports in `own`, those of one link only included.
    declared: Option<Graph>,
    /// Hosts with another key, the last one heard on each interface.
    foreign: Vec<ForeignHost>,
}

/// A host on one of our cables that has another cluster key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignHost {
    /// Our interface.
    pub interface: String,
    /// Its address there.
    pub from: IpAddr,
    /// What it calls itself; nothing proves it.
    pub name: String,
    heard: Duration,
}

impl Shared {
    fn new(own: Node, declared: Option<Graph>) -> Arc<Shared> {
        Arc::new(Shared {
            known: Mutex::new(Known { database: Database::default(), own, declared, foreign: Vec::new() }),
            stop: AtomicBool::new(false),
            works: Works::default(),
            moved: AtomicUsize::new(0),
            threads: Mutex::default(),
        })
    }

    /// Of a host that knows of no other.
    #[cfg(any(test, feature = "fixture"))]
    fn alone(id: u64) -> Arc<Shared> {
        let node = Node {
            id,
            epoch: 1,
            seq: 1,
            name: "own".into(),
            relays: false,
            server_port: 1,
            ports: vec![],
            heard: vec![],
        };
        Shared::new(node, None)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn host_at(&self, ip: IpAddr) -> Option<u64> {
        let known = self.known();
        let has = |node: &&Node| node.ports.iter().any(|port| port.addr.is_some_and(|addr| addr.0 == ip));
        known.database.others(clock::now()).find(has).map(|node| node.id)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn keep(&self, thread: JoinHandle<()>) {
        let mut threads = self.threads();
        threads.retain(|t| !t.is_finished());
        threads.push(thread);
    }
}

/// A process's part in the mesh.
pub struct Mesh {
    id: u64,
    /// What it takes to send requests to a relay.
    pub means: Means,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    wake: UnixStream,
    since: Duration,
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mesh")
    }
}

impl Mesh {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Start`]: a socket or the thread cannot be made. [`Error::Read`] and [`Error::File`]: the file that declares the
    /// mesh cannot be used.
    pub fn start(config: Config) -> Result<Mesh, Error> {
        let keys = Keys::new(&config.psk);
        let means = Means { psk: config.psk.clone(), keys, options: config.options.clone() };
        let (wake, woken) = UnixStream::pair().map_err(Error::Start)?;
        woken.set_nonblocking(true).map_err(Error::Start)?;
        let id = config.id;
        let (agent, shared) = agent::Agent::new(config, means.clone(), woken)?;
        let thread = std::thread::Builder::new().name("linkspan mesh".into()).spawn(move || agent.run());
        Ok(Mesh { id, means, shared, thread: Some(thread.map_err(Error::Start)?), wake, since: clock::now() })
    }

    /// What is known of the mesh now.
    pub fn graph(&self) -> Graph {
        self.graph_at(clock::now())
    }

    fn graph_at(&self, now: Duration) -> Graph {
        let known = self.shared.known();
        match &known.declared {
            Some(graph) => graph.clone(),
            None => known.database.graph(known.own.clone(), now),
        }
    }

    /// Hosts with another key whose beacons came lately.
    pub fn foreign(&self) -> Vec<ForeignHost> {
        let now = clock::now();
        let known = self.shared.known();
        known.foreign.iter().filter(|host| now.saturating_sub(host.heard) < FOREIGN).cloned().collect()
    }

    /// Whether all neighbours have had the time to tell what they see, and nothing new has come since.
    pub fn is_settled(&self) -> bool {
        let known = self.shared.known();
        let since = self.since.max(known.database.last_news());
        known.declared.is_some() || clock::now().saturating_sub(since) >= QUIET
    }

    /// The way to a host whose listener has these addresses.
    pub fn way(&self, id: u64, addrs: Vec<SocketAddr>, reroute: bool) -> MeshRoute {
        self.way_in(&self.graph(), id, addrs, reroute)
    }

    /// A route over relays to such a host: one that is there, or else one that was there a moment ago. Where something `carries`
    /// and a cable of ours led there a moment ago too, all hosts are merely busy, and nothing is cut.
    pub fn reroute(&self, id: u64, addrs: &[SocketAddr], carries: bool) -> MeshRoute {
        self.reroute_at(clock::now(), id, addrs, carries)
    }

    fn reroute_at(&self, now: Duration, id: u64, addrs: &[SocketAddr], carries: bool) -> MeshRoute {
        let way = self.way_in(&self.graph_at(now), id, addrs.to_vec(), true);
        if !matches!(way, MeshRoute::None(_)) {
            return way;
        }
        let graph = {
            let known = self.shared.known();
            if known.declared.is_some() {
                return way;
            }
            known.database.remembered(known.own.clone(), now)
        };
        if carries && matches!(self.way_in(&graph, id, addrs.to_vec(), false), MeshRoute::Direct(_)) {
            return way;
        }
        self.way_in(&graph, id, addrs.to_vec(), true)
    }

    fn way_in(&self, graph: &Graph, id: u64, addrs: Vec<SocketAddr>, reroute: bool) -> MeshRoute {
        let declared = self.shared.known().declared.is_some();
        // A declared node goes by the name of its line, not by the number in its handles.
        let by_addr = |addrs: &[SocketAddr]| {
            let has = |ip: IpAddr| addrs.iter().any(|a| a.ip() == ip);
            graph.nodes.iter().find(|n| n.ports.iter().any(|p| p.addr.is_some_and(|a| has(a.0)))).map(|n| n.id)
        };
        let id = if declared { by_addr(&addrs).unwrap_or(id) } else { id };
        graph.way(self.id, &Target { id, addrs }, reroute)
    }

    /// The host that tells of this address on one of its ports.
    pub fn host_at(&self, ip: IpAddr) -> Option<u64> {
        self.shared.host_at(ip)
    }

    /// Whether beacons of this host have come lately, over any cable. A declared mesh receives none.
    pub fn hears(&self, host: u64) -> bool {
        self.shared.known().database.others(clock::now()).any(|node| node.id == host)
    }

    /// The number of this host.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// One without a thread, which receives what a test gives it.
    #[cfg(any(test, feature = "fixture"))]
    pub fn deaf(id: u64, psk: Psk) -> std::io::Result<Mesh> {
        let means = Means { keys: Keys::new(&psk), psk, options: Options::default() };
        let (wake, _) = UnixStream::pair()?;
        Ok(Mesh { id, means, shared: Shared::alone(id), thread: None, wake, since: clock::now() })
    }

    /// Gives it a beacon of a node, sent by `sender`.
    #[cfg(any(test, feature = "fixture"))]
    pub fn hear(&self, sender: u64, tick: u64, node: Node) {
        let beacon = linkspan_proto::mesh::Beacon { sender, port: 0, epoch: 1, tick, node };
        self.shared.known().database.take(self.id, 0, beacon, clock::now());
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        // Others may still be at what this process has finished: as long as their bytes move, they are carried on.
        let until = Instant::now() + LAST_RELAYS;
        let mut moved = usize::MAX;
        while self.shared.works.relays() > 0 && Instant::now() < until {
            let now = self.shared.moved.load(Ordering::Relaxed);
            if now == std::mem::replace(&mut moved, now) {
                break;
            }
            std::thread::sleep(Duration::from_millis(300));
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.wake.write_all(&[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let rest = std::mem::take(&mut *self.shared.threads());
        for thread in rest {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
