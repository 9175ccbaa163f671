//! The thread: beacons out once a second and in, ports looked at, mesh servers answered.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linkspan_net::WaitSet;
use linkspan_proto::mesh::{BEACON_MAX, Beacon, Node};
use linkspan_setup::clock;
use linkspan_setup::log::warn_seldom;
use linkspan_setup::logins::Slot;
use linkspan_stream::{Listen, Options};
use linkspan_topology::mesh::{BadFile, Graph, parse};
use linkspan_topology::{Host, Roots};
use linkspan_transport::{WaitFd, chain};

use super::beacon::BeaconSocket;
use super::ports::{self, Cabled};
use super::server::MeshServer;
use super::{Config, Error, ForeignHost, Means, Shared};

/// Time between two rounds of beacons.
const BEAT: Duration = Duration::from_secs(1);

/// Time between two looks at the ports, and between two tries to open the mesh server.
const LOOK: Duration = Duration::from_secs(2);

/// How often RDMA devices are looked at, which takes reading some hundred files: a GID comes with an address, a device with its driver.
const LOOK_AT_RDMA: Duration = Duration::from_secs(10);

/// A port that is taken for so long without a beacon of this host is another program's: some beats.
const SILENT: Duration = Duration::from_secs(5);

/// Longest sleep while something is being set up through the mesh server.
const BUSY: Duration = Duration::from_millis(20);

/// Datagrams taken from one port in a row.
const BURST: usize = 64;

pub(super) struct Agent {
    pub(super) config: Config,
    pub(super) means: Means,
    pub(super) shared: Arc<Shared>,
    pub(super) ports: Vec<Cabled>,
    rdma: BTreeMap<String, bool>,
    looked_at_rdma: Duration,
    sockets: Vec<BeaconSocket>,
    listens: Vec<Listen>,
    /// Places of the ports on which the mesh server is not open yet.
    unopened: Vec<usize>,
    /// Why, as it was logged.
    failed: Vec<String>,
    /// The file that declares the mesh.
    text: Option<String>,
    server: MeshServer,
    woken: UnixStream,
    name: String,
    epoch: u64,
    seq: u64,
    tick: u64,
    said: Duration,
    looked: Duration,
    /// Since when another process has the port of the mesh server.
    taken: Option<Duration>,
    /// The declared mesh is complete: no beacons are sent or received.
    mute: bool,
}

/// The mesh that a file declares, with what its addresses here are called here.
fn graph(config: &Config, text: &str, here: &[Cabled]) -> Result<Graph, BadFile> {
    let ours: Vec<IpAddr> = here.iter().filter_map(|c| Some(c.port.addr?.0)).collect();
    let mut graph = parse(text, config.port, config.id, &ours)?;
    if let Some(own) = graph.find(config.id) {
        for port in &mut graph.nodes[own].ports {
            if let Some(here) = here.iter().find(|c| c.port.addr == port.addr) {
                *port = here.port.clone();
            }
        }
    }
    Ok(graph)
}

impl Agent {
    pub(super) fn new(config: Config, means: Means, woken: UnixStream) -> Result<(Agent, Arc<Shared>), Error> {
        let rdma = ports::rdma();
        let list = ports::cabled(config.filter.as_ref(), &rdma).unwrap_or_default();
        let name = Host::read(&Roots::default()).name;
        let (mut text, mut declared) = (None, None);
        if let Some(path) = &config.file {
            let path = path.display().to_string();
            let read = std::fs::read_to_string(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
            declared = Some(graph(&config, &read, &list).map_err(|source| Error::File { path, source })?);
            text = Some(read);
        }
        let mute = declared.is_some();
        let own = Node {
            id: config.id,
            epoch: 0,
            seq: 0,
            name: name.clone(),
            relays: false,
            server_port: config.port,
            ports: list.iter().map(|c| c.port.clone()).collect(),
            heard: Vec::new(),
        };
        let shared = Shared::new(own, declared);
        let mut agent = Agent {
            config,
            means,
            shared: shared.clone(),
            ports: Vec::new(),
            rdma,
            looked_at_rdma: clock::now(),
            sockets: Vec::new(),
            listens: Vec::new(),
            unopened: Vec::new(),
            failed: Vec::new(),
            text,
            server: MeshServer::default(),
            woken,
            name,
            epoch: 0,
            seq: 0,
            tick: 0,
            said: Duration::ZERO,
            looked: Duration::ZERO,
            taken: None,
            mute,
        };
        agent.replug(list);
        Ok((agent, shared))
    }

    pub(super) fn run(mut self) {
        linkspan_net::block_signals();
        let (mut set, mut served) = (WaitSet::new(), Vec::new());
        self.beat(clock::now());
        while !self.shared.stop.load(Ordering::Relaxed) {
            let now = clock::now();
            self.hear(now);
            if now.saturating_sub(self.looked) >= LOOK {
                self.look(now);
                self.look_at_port(now);
                // Another process of this host spoke, with a newer epoch than ours, and has ended.
                let (newest, said) = self.shared.known().database.own_epoch();
                if self.speaks() && newest > self.epoch && now.saturating_sub(said) >= LOOK {
                    self.renew();
                    self.publish_own();
                    self.beat(now);
                }
            }
            let hurry = self.shared.known().database.hurries(self.said, now);
            if hurry || now.saturating_sub(self.said) >= BEAT {
                self.beat(now);
            }
            self.answer();
            set.clear();
            set.add(WaitFd { fd: self.woken.as_raw_fd(), read: true, write: false });
            self.sockets.iter().flat_map(BeaconSocket::wait_fds).for_each(|fd| {
                set.add(fd);
            });
            if !Slot::all_taken() {
                self.listens.iter().filter_map(Listen::wait_fd).for_each(|fd| {
                    set.add(fd);
                });
            }
            self.server.wait_fds(&mut served);
            for fd in served.drain(..) {
                set.add(fd);
            }
            let most = if self.server.is_idle() { BEAT / 4 } else { BUSY };
            let _ = set.wait(Some(most));
            let _ = self.woken.read(&mut [0; 8]);
        }
    }

    /// Looks for what has changed of this host's ports.
    fn look(&mut self, now: Duration) {
        self.looked = now;
        if now.saturating_sub(self.looked_at_rdma) >= LOOK_AT_RDMA {
            (self.rdma, self.looked_at_rdma) = (ports::rdma(), now);
        }
        // Without a descriptor to look with, the ports are what they were.
        if let Ok(list) = ports::cabled(self.config.filter.as_ref(), &self.rdma)
            && list != self.ports
        {
            self.replug(list);
            self.beat(now);
        }
        self.open();
    }

    /// Takes a new list of ports in use. Where their places have changed, neighbours treat the host as one that has restarted.
    fn replug(&mut self, list: Vec<Cabled>) {
        let places = |list: &[Cabled]| list.iter().map(|c| (c.port.name.clone(), c.index)).collect::<Vec<_>>();
        let moved = self.sockets.is_empty() || places(&list) != places(&self.ports);
        let was = std::mem::replace(&mut self.ports, list);
        self.close();
        // An address that has come may be what says which line is this host's.
        if let Some(Ok(graph)) = self.text.as_ref().map(|text| graph(&self.config, text, &self.ports)) {
            self.shared.known().declared = Some(graph);
        }
        if moved {
            self.sockets = self.ports.iter().map(|_| BeaconSocket::default()).collect();
            self.renew();
            let same = |a: &Cabled, b: &Cabled| (&a.port.name, a.index) == (&b.port.name, b.index);
            let place = |at: u8| {
                let port = was.get(usize::from(at))?;
                self.ports.iter().position(|p| same(p, port)).map(|n| n as u8)
            };
            self.shared.known().database.move_ports(place);
        }
        self.open();
        self.publish_own();
    }

    /// Closes the mesh server.
    fn close(&mut self) {
        self.listens.clear();
        self.unopened = (0..self.ports.len()).filter(|port| self.ports[*port].addr.is_some()).collect();
    }

    /// Opens the mesh server on every port that has an address and where it is not open yet, unless another process of this host has done
    /// so; an address that is still looked at for a duplicate cannot be had yet. And the sockets of beacons that could not be opened.
    fn open(&mut self) {
        for (socket, cabled) in self.sockets.iter_mut().zip(&self.ports) {
            let Err(error) = socket.open(&cabled.port.name, cabled.index, self.config.port) else { continue };
            // What else fails has gone, or comes: an interface, its families.
            if !self.mute && matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied) {
                let line = format!(
                    "mesh: no neighbour is heard on {}: UDP port {} (`ss -lnup` names who has it, LINKSPAN_MESH_PORT is another one): {error}",
                    cabled.port.name, self.config.port
                );
                warn_seldom(&self.config.log, &format!("beacons {}", cabled.port.name), &line);
            }
        }
        let (before, mut failed) = (self.listens.len(), Vec::new());
        for port in std::mem::take(&mut self.unopened) {
            let cabled = &self.ports[port];
            let Some(addr) = cabled.addr else { continue };
            let options = Options { device: Some(cabled.port.name.clone()), ..self.means.options.clone() };
            match Listen::bind(SocketAddr::new(addr.ip, self.config.port), &options) {
                Ok(listen) => self.listens.push(listen),
                Err(linkspan_stream::Error::Bind { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
                    self.close();
                    self.taken.get_or_insert(clock::now());
                    break;
                }
                Err(error) => {
                    self.unopened.push(port);
                    failed.push(format!("mesh: {}", chain(&error)));
                }
            }
        }
        // Once, however often it is tried.
        failed.iter().filter(|line| !self.failed.contains(line)).for_each(|line| self.config.log.info(line));
        self.failed = failed;
        if self.listens.len() > before {
            self.taken = None;
            if before == 0 {
                // Whoever was heard of this host before may have begun later than this process.
                self.renew();
            }
            let seen: Vec<String> = self.listens.iter().map(|l| l.local_addr().to_string()).collect();
            self.config.log.info(&format!("mesh: this process listens for neighbours on {}", seen.join(", ")));
        }
        self.publish_own();
    }

    /// A process of this host that has the port says so with every beat.
    fn look_at_port(&self, now: Duration) {
        let said = self.shared.known().database.own_epoch().1;
        if self.taken.is_some_and(|since| now.saturating_sub(since.max(said)) >= SILENT) {
            let line = format!(
                "mesh: TCP port {} of this host is held by a process that takes no part in the mesh (`ss -lntup` names it): \
                 no neighbour can connect to this host; end it, or give every host another LINKSPAN_MESH_PORT",
                self.config.port
            );
            warn_seldom(&self.config.log, "mesh port", &line);
        }
    }

    /// A newer epoch than all that neighbours can have heard of this host, also where its clock was set back.
    fn renew(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let heard = self.shared.known().database.own_epoch().0;
        self.epoch = now.max(self.epoch.max(heard).saturating_add(1));
    }

    /// Name of this host.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn owns(&self) -> bool {
        !self.listens.is_empty()
    }

    /// A host without an address yet still says that it is there.
    fn speaks(&self) -> bool {
        !self.mute && (self.owns() || self.ports.iter().all(|c| c.addr.is_none()))
    }

    fn publish_own(&self) {
        let own = Node {
            id: self.config.id,
            epoch: self.epoch,
            seq: self.seq,
            name: self.name.clone(),
            relays: self.owns(),
            server_port: self.config.port,
            ports: self.ports.iter().map(|c| c.port.clone()).collect(),
            heard: Vec::new(),
        };
        self.shared.known().own = own;
    }

    /// Tells every neighbour everything that is known.
    fn beat(&mut self, now: Duration) {
        self.said = now;
        if !self.speaks() {
            return;
        }
        self.seq += 1;
        let nodes: Vec<Node> = {
            let mut known = self.shared.known();
            known.own.seq = self.seq;
            let own = Node { heard: known.database.heard(now), ..known.own.clone() };
            std::iter::once(own).chain(known.database.others(now).cloned()).collect()
        };
        for (port, socket) in self.sockets.iter().enumerate() {
            for node in &nodes {
                self.tick += 1;
                let (sender, epoch, tick) = (self.config.id, self.epoch, self.tick);
                let beacon = Beacon { sender, port: port as u8, epoch, tick, node: node.clone() };
                socket.say(&beacon.encode(&self.means.keys));
            }
        }
    }

    fn hear(&mut self, now: Duration) {
        let mut buf = [0; BEACON_MAX + 1];
        for (port, socket) in self.sockets.iter().enumerate() {
            for _ in 0..BURST {
                let Some((bytes, from)) = socket.hear(&mut buf) else { break };
                match Beacon::decode(bytes, &self.means.keys) {
                    _ if self.mute => {}
                    Ok(beacon) => {
                        self.shared.known().database.take(self.config.id, port as u8, beacon, now);
                    }
                    // Datagrams without our key are believed nothing, but the user may want to know of them.
                    Err(_) => {
                        let Some(name) = Beacon::claimed_name(bytes) else { continue };
                        let interface = self.ports[port].port.name.clone();
                        let line = format!(
                            "mesh: LS1426 a host at {from} on {interface} has another cluster key and is left out; put the same \
                             key into LINKSPAN_PSK_FILE on every host"
                        );
                        warn_seldom(&self.config.log, &format!("mesh {interface}"), &line);
                        let mut known = self.shared.known();
                        known.foreign.retain(|other| other.interface != interface);
                        known.foreign.push(ForeignHost { interface, from, name, heard: now });
                    }
                }
            }
        }
    }

    fn answer(&mut self) {
        let (mut server, mut listens) = (std::mem::take(&mut self.server), std::mem::take(&mut self.listens));
        server.pump(self);
        server.admit(&mut listens, self);
        (self.server, self.listens) = (server, listens);
    }
}

#[cfg(test)]
mod tests;
