//! Layer 4: which path a connection takes, and why.
//!
//! A [`Fabric`] is a process's view of its machine: devices made of interfaces. [`Fabric::listen`] gives a secret
//! 128-byte handle; a process that has it connects with [`Fabric::connect`]; both get a [`Channel`]. Every connection says
//! in one INFO line which path it took and why, every downgrade is one WARN line, and in strict mode an error.
#![deny(unsafe_code)]

mod channel;
mod config;
mod connect;
mod deferred;
mod device;
pub mod devmem;
mod error;
pub mod gpus;
mod helpers;
pub mod keys;
mod listener;
mod local;
mod memory;
mod meter;
mod missing;
pub mod params;
mod reconnect;
mod route;
mod stream_rail;
mod stream_setup;
mod zerocopy;

pub use channel::{Channel, PeerLiveness, PeerState, SwapError, wait_any};
pub use config::{Config, GpuWish, PathChoice, paths};
pub use connect::Connecting;
pub use device::{Device, DeviceInterface, devices, survey};
pub use error::Error;
pub use helpers::Wish as HelperWish;
pub use linkspan_gpu::offload::{HANDLE_LEN as OFFLOAD_HANDLE, Queue as OffloadQueue, SLOTS as OFFLOAD_SLOTS};
pub use linkspan_gpu::{Ability, ForeignStream, Gpu, GpuBuf, GpuError, GpuInfo, MemoryName, Pointer};
pub use linkspan_mesh::{EdgeSpeed, Error as MeshError, ForeignHost, Prober};
pub use linkspan_proto::handle::{HANDLE_LEN, SCRATCH_AT as HANDLE_USED};
pub use linkspan_setup::log::{Level, Log, warn_seldom};
pub use linkspan_setup::stats;
pub use linkspan_stream::SILENCE;
pub use linkspan_transport::{
    Access, Buf, Cancel, DirectBy, Down, Error as ChannelError, HostBuf, MAX_GROUP, MAX_WAITING, MemSlice,
    MemoryDomain, OpError, Poll, Provider, RailInfo, RemoteSlice, Ticket, WaitFd, chain,
};
pub use listener::Listener;
pub use memory::{ConnMemory, Registered};
pub use zerocopy::ZeroCopy;

use std::any::Any;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use config::OWN;
use helpers::Helpers;
use linkspan_gpu::{StageMemory, StagedRail};
use linkspan_mesh::Mesh;
use linkspan_proto::handle::host_hash;
use linkspan_setup::log::counting;
use linkspan_setup::secured::Secured;
use linkspan_stream::Options;
use linkspan_tcp::RailConfig;
use linkspan_transport::{BoxRail, Rail};
use stats::Stats;
use stream_rail::StreamRail;

use linkspan_proto::login::Guard;
use linkspan_topology::mesh::Graph;
use linkspan_topology::{Host, Interface, LAST_RESORT, Roots, Verdict};

/// A process's view of its machine. Cloning is cheap; may be used from any thread.
#[derive(Clone)]
pub struct Fabric(Arc<Inner>);

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fabric")
    }
}

struct Inner {
    config: Config,
    log: Log,
    survey: Vec<(Interface, Verdict)>,
    devices: RwLock<Vec<Device>>,
    host: u64,
    acked: bool,
    stats: Arc<Stats>,
    helpers: Option<Arc<Helpers>>,
    staging: StageMemory,
    /// Whose rails come up beside a stream, best first.
    transports: Vec<Arc<dyn Provider>>,
    devmem: Arc<dyn devmem::Ports>,
    mesh: Arc<MeshMembership>,
    _alive: Alive,
}

/// Counts the fabrics of this process, whose closed streams are kept in one place.
struct Alive;

static FABRICS: AtomicUsize = AtomicUsize::new(0);

impl Alive {
    fn new() -> Alive {
        FABRICS.fetch_add(1, Ordering::Relaxed);
        Alive
    }
}

/// The process's part in the mesh, joined by the first listen or connect.
#[derive(Debug, Default)]
struct MeshMembership {
    lock: Mutex<()>,
    mesh: OnceLock<Mesh>,
}

/// How long a process that is done with its last fabric waits for what its closed connections have sent to be acknowledged: a
/// round trip where the peer is alive; a dead one must not delay the end.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl Drop for Alive {
    fn drop(&mut self) {
        if FABRICS.fetch_sub(1, Ordering::Relaxed) == 1 {
            linkspan_stream::closing::settle(LAST_WORDS);
        }
    }
}

impl Fabric {
    /// Looks at the machine. `acked`: connections report operations when the peer has acknowledged them, and carry
    /// one-sided operations; must be the same on both sides (the NCCL plugin uses `false`, the library `true`). `transports`: whose
    /// rails may come up beside a stream, best first.
    ///
    /// # Errors
    /// [`Error::NoInterface`]: the machine has no interface to use, not even loopback. [`Error::Interfaces`]: they
    /// cannot be listed. [`Error::Param`]: no such path or congestion control; encryption without a key. [`Error::Setting`]: a transport refuses a setting.
    pub fn new(config: Config, log: Log, acked: bool, transports: Vec<Box<dyn Provider>>) -> Result<Fabric, Error> {
        let devmem = devmem::of_this_machine(&config);
        Fabric::build(config, log, acked, transports, devmem, this_host())
    }

    /// The same as a host of its own, which shares no memory with others; for tests with devices in software.
    ///
    /// # Errors
    /// As [`Fabric::new`]; also [`Error::Login`] where the OS gives no random numbers.
    pub fn apart(config: Config, log: Log, acked: bool, transports: Vec<Box<dyn Provider>>) -> Result<Fabric, Error> {
        let devmem = devmem::of_this_machine(&config);
        Fabric::build(config, log, acked, transports, devmem, another_host()?)
    }

    /// The same with these ports of device-memory TCP in place of the machine's own, and no other transports; for tests with
    /// simulated cards.
    ///
    /// # Errors
    /// As [`Fabric::apart`].
    pub fn with_ports(config: Config, log: Log, acked: bool, ports: Arc<dyn devmem::Ports>) -> Result<Fabric, Error> {
        Fabric::build(config, log, acked, Vec::new(), ports, another_host()?)
    }

    fn build(
        config: Config,
        log: Log,
        acked: bool,
        mut transports: Vec<Box<dyn Provider>>,
        devmem: Arc<dyn devmem::Ports>,
        host: u64,
    ) -> Result<Fabric, Error> {
        config.check()?;
        config.check_path(&transports)?;
        config.check_congestion()?;
        // The library lets its callers unmap what no operation uses (what the kernel does not watch, as files, is not kept registered);
        // NCCL says when, and may unload the plugin.
        for transport in &mut transports {
            let configured = transport.configure(&|name| config.settings.get(name).cloned(), acked);
            configured.map_err(|why| Error::Setting { transport: transport.name(), why })?;
        }
        for warning in &config.warnings {
            log.warn(warning);
        }
        let survey = survey(&config)?;
        let devices = devices(&config, &survey)?;
        let asked =
            |d: &Device| config.interfaces.as_ref().is_some_and(|f| d.ports.iter().any(|p| f.asks_for(&p.name)));
        if devices.iter().all(|d| d.loopback && !asked(d)) {
            log.warn("no network interface is usable, only processes on this host can be reached: see `lspan status`");
        }
        if let Some(filter) = &config.interfaces {
            let names: Vec<&str> = survey.iter().map(|(i, _)| i.name.as_str()).collect();
            let how = if filter.is_exact() { "is" } else { "is or begins with" };
            for name in filter.unmatched(&names) {
                log.warn(&format!("{}: no interface has a name that {how} {name}", filter.shown()));
            }
        }
        if let Some((name, ..)) = &config.devmem.queues
            && survey.iter().all(|(interface, _)| interface.name != *name)
        {
            log.warn(&format!("LINKSPAN_DEVMEM_QUEUES: no interface is called {name}"));
        }
        let stats = Arc::new(Stats::new(config.stats_dir.as_deref(), &config.job).unwrap_or_else(|why| {
            // Where nobody named a directory, a machine may well have none.
            let named = config.settings.contains_key(params::STATS_DIR.name);
            if named {
                log.warn(&why)
            } else {
                log.info(&why)
            }
            Stats::default()
        }));
        let log = counting(log, stats.clone());
        if let Some(what) = last_resort(&survey) {
            log.warn(&format!("downgrade: {what}"));
        }
        let helpers = Helpers::new(config.helpers, Roots::default()).map(Arc::new);
        let staging = StageMemory::new(config.stage_memory);
        Ok(Fabric(Arc::new(Inner {
            config,
            log,
            survey,
            devices: RwLock::new(devices),
            host,
            acked,
            stats,
            helpers,
            staging,
            transports: transports.into_iter().map(Arc::from).collect(),
            devmem,
            mesh: Arc::default(),
            _alive: Alive::new(),
        })))
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.0.log
    }

    /// All interfaces with the verdict on each.
    pub fn survey(&self) -> &[(Interface, Verdict)] {
        &self.0.survey
    }

    /// What is lost where other hosts are reached over an interface that would be left out if there was another.
    pub fn last_resort(&self) -> Option<String> {
        last_resort(&self.0.survey)
    }

    /// A transport of the list by its type, for what it alone can tell.
    pub fn transport<T: Provider>(&self) -> Option<&T> {
        self.0.transports.iter().find_map(|transport| (&**transport as &dyn Any).downcast_ref())
    }

    /// Which paths this machine and these settings have, by name: over what, or why not. Opens the devices.
    pub fn supported(&self) -> Vec<(&'static str, Result<String, String>)> {
        let forced = self.config().path.forced();
        let unless = |name: &'static str, ask: &dyn Fn() -> Result<String, String>| match forced {
            Some(path) if path != name => (name, Err(format!("LINKSPAN_PATH={path} forbids it"))),
            _ => (name, ask()),
        };
        let [(tcp, _), (shm, _), (devmem, _)] = OWN;
        let over = || self.devices().into_iter().map(|device| device.name).collect::<Vec<_>>().join(", ");
        let mut all = vec![
            unless(tcp, &|| Ok(format!("over {}", over()))),
            unless(shm, &|| Ok("with processes on this host".to_owned())),
        ];
        all.extend(self.0.transports.iter().map(|transport| unless(transport.name(), &|| transport.support())));
        all.push(unless(devmem, &|| devmem::support(self)));
        all
    }

    /// What people call a path of this transport.
    pub fn title(&self, transport: &str) -> &'static str {
        let own = OWN.iter().find(|own| own.0 == transport).map(|own| own.1);
        let listed = || self.0.transports.iter().find(|listed| listed.name() == transport).map(|listed| listed.title());
        own.or_else(listed).unwrap_or("another path")
    }

    /// The transports whose rails come up beside a stream and that the settings allow, best first.
    pub(crate) fn providers(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        self.0.transports.iter().filter(|provider| self.config().allows_beside(provider.name()))
    }

    /// The one of this name, where the settings allow it.
    pub(crate) fn provider(&self, name: &str) -> Option<&dyn Provider> {
        self.providers().find(|provider| provider.name() == name).map(|provider| &**provider)
    }

    /// The one whose rails are taken or nothing: that of `LINKSPAN_PATH`, else one whose own settings ask for that.
    pub(crate) fn forced(&self) -> Option<&dyn Provider> {
        let wanted = |provider: &&Arc<dyn Provider>| match self.config().path.forced() {
            Some(path) => provider.name() == path,
            None => provider.insists(),
        };
        self.0.transports.iter().find(wanted).map(|provider| &**provider)
    }

    /// What streams stand in for where no rails come up beside them, as in `RDMA or a cable`.
    pub(crate) fn instead(&self) -> String {
        self.0.transports.iter().map(|transport| transport.title()).collect::<Vec<_>>().join(" or ")
    }

    pub(crate) fn devmem(&self) -> &Arc<dyn devmem::Ports> {
        &self.0.devmem
    }

    pub(crate) fn stage_memory(&self) -> StageMemory {
        self.0.staging.clone()
    }

    /// The devices.
    pub fn devices(&self) -> Vec<Device> {
        self.0.devices.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Makes a device that has the interfaces of all `members`; returns its index.
    ///
    /// # Errors
    /// [`Error::NoDevice`]: one of them does not exist.
    pub fn merge(&self, members: &[usize]) -> Result<usize, Error> {
        let parts: Vec<Device> = members.iter().map(|&n| self.device(n)).collect::<Result<_, _>>()?;
        let merged = Device::merged(&parts, members)?;
        let mut devices = self.0.devices.write().unwrap_or_else(|e| e.into_inner());
        if let Some(at) = devices.iter().position(|d| d.name == merged.name) {
            return Ok(at);
        }
        devices.push(merged);
        Ok(devices.len() - 1)
    }

    /// The same fabric with another IP traffic class, unless the settings name one.
    #[must_use]
    pub fn with_traffic_class(&self, class: u8) -> Fabric {
        if self.config().traffic_class.is_some() {
            return self.clone();
        }
        let config = Config { traffic_class: Some(class), ..self.config().clone() };
        Fabric(Arc::new(Inner {
            config,
            log: self.0.log.clone(),
            survey: self.0.survey.clone(),
            devices: RwLock::new(self.devices()),
            host: self.0.host,
            acked: self.0.acked,
            stats: self.0.stats.clone(),
            helpers: self.0.helpers.clone(),
            staging: self.0.staging.clone(),
            transports: self.0.transports.clone(),
            devmem: self.0.devmem.clone(),
            mesh: self.0.mesh.clone(),
            _alive: Alive::new(),
        }))
    }

    /// Listens on all interfaces of a device.
    ///
    /// # Errors
    /// [`Error::NoDevice`]; [`Error::Tcp`] where the OS refuses a socket; [`Error::Login`] where it gives no random
    /// numbers; those of [`Fabric::mesh_graph`].
    pub fn listen(&self, device: usize) -> Result<Listener, Error> {
        self.mesh()?;
        Listener::new(self, device)
    }

    /// Begins to connect to the listener that made `handle`, through a device of ours.
    ///
    /// # Errors
    /// [`Error::Handle`]: the handle cannot be used. [`Error::NoDevice`]. Failures that come later are told by
    /// [`Connecting::poll`].
    pub fn connect(&self, device: usize, handle: &[u8; HANDLE_LEN]) -> Result<Connecting, Error> {
        Connecting::new(self, device, handle)
    }

    /// What is known of the mesh at the moment; joins it if this process has not yet. News of far nodes takes a second or
    /// two to come. `None`: the settings ask for no mesh.
    ///
    /// # Errors
    /// [`Error::Mesh`]: why this process cannot take part in it.
    pub fn mesh_graph(&self) -> Result<Option<Graph>, Error> {
        Ok(self.mesh()?.map(Mesh::graph))
    }

    /// Hosts on our cables that have another cluster key; empty where the settings ask for no mesh.
    ///
    /// # Errors
    /// As [`Fabric::mesh_graph`].
    pub fn mesh_foreign(&self) -> Result<Vec<ForeignHost>, Error> {
        Ok(self.mesh()?.map(Mesh::foreign).unwrap_or_default())
    }

    /// Measures cables of the mesh. `None`: the settings ask for no mesh.
    ///
    /// # Errors
    /// As [`Fabric::mesh_graph`].
    pub fn mesh_prober(&self) -> Result<Option<Prober<'_>>, Error> {
        Ok(self.mesh()?.map(Prober::new))
    }

    /// The number of this host in the mesh and in its handles.
    pub fn mesh_id(&self) -> u64 {
        self.0.host
    }

    /// Joins a mesh that a test has made, before any other.
    #[cfg(test)]
    pub(crate) fn join(&self, mesh: Mesh) {
        self.0.mesh.mesh.set(mesh).unwrap();
    }

    /// This process's part in the mesh, where the settings ask for one.
    pub(crate) fn mesh(&self) -> Result<Option<&Mesh>, Error> {
        let config = self.config();
        let (true, Guard::Psk { psk, .. }) = (config.meshes(), &config.guard) else { return Ok(None) };
        let membership = &self.0.mesh;
        let _one = membership.lock.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(mesh) = membership.mesh.get() {
            return Ok(Some(mesh));
        }
        let mesh = Mesh::start(linkspan_mesh::Config {
            id: self.host_hash(),
            psk: psk.clone(),
            port: config.mesh_port,
            file: config.mesh_file.clone(),
            filter: config.interfaces.clone(),
            log: self.0.log.clone(),
            stats: self.0.stats.clone(),
            options: self.tcp_options(),
            providers: self.providers().cloned().collect(),
            site: config.site((Ipv4Addr::UNSPECIFIED, 0).into()),
        })?;
        Ok(Some(membership.mesh.get_or_init(|| mesh)))
    }

    pub(crate) fn device(&self, index: usize) -> Result<Device, Error> {
        let devices = self.0.devices.read().unwrap_or_else(|e| e.into_inner());
        devices.get(index).cloned().ok_or(Error::NoDevice { index, count: devices.len() })
    }

    pub(crate) fn host_hash(&self) -> u64 {
        self.0.host
    }

    /// Counts an event into this process's statistics.
    pub fn count(&self, event: stats::Event) {
        self.0.stats.count(event);
    }

    pub(crate) fn stats(&self) -> &Arc<Stats> {
        &self.0.stats
    }

    pub(crate) fn acked(&self) -> bool {
        self.0.acked
    }

    /// A rail as a connection has it: with staging before it where that may be needed.
    pub(crate) fn staged(&self, rail: BoxRail) -> BoxRail {
        let stage = self.config().stage || self.reaches_device_memory();
        if stage && !rail.info().caps.device_memory {
            return Box::new(StagedRail::<dyn Rail + Send>::late(rail, self.0.staging.clone()));
        }
        rail
    }

    /// Whether some interface is set up for device-memory TCP and connections may take it: device memory is then welcome on
    /// every connection, staged where this one's path does not reach it.
    pub fn reaches_device_memory(&self) -> bool {
        self.survey().iter().any(|(i, _)| devmem::ready(self, &i.name).is_ok())
    }

    /// Whether every interface of every device is set up for device-memory TCP, and no other unpack was asked for: then
    /// NCCL may be told that its own kernels unpack. Connections that come up otherwise say so one by one.
    pub fn offers_unpack(&self) -> bool {
        let devices = self.devices();
        let mut ports = devices.iter().flat_map(|device| &device.ports);
        // Where there are devices that reach many hosts, connections take them.
        let forced = self.config().path.is("devmem");
        let taken = forced || self.0.transports.iter().all(|transport| !transport.is_present());
        self.config().unpack.is_none()
            && taken
            && !devices.is_empty()
            && ports.all(|p| devmem::ready(self, &p.name).is_ok())
    }

    /// Each interface, and whether connections over it may take device-memory TCP; an empty reason where it is not set up.
    pub fn devmem_interfaces(&self) -> Vec<(String, Result<(), String>)> {
        self.survey().iter().map(|(i, _)| (i.name.clone(), devmem::ready(self, &i.name))).collect()
    }

    /// TCP streams over an interface of this speed.
    fn streams_for(&self, mbps: u32) -> usize {
        match (self.config().streams, mbps) {
            (0, ..=25_000) => 1,
            (0, ..=100_000) => 2,
            (0, _) => 4,
            (n, _) => n,
        }
    }

    pub(crate) fn tcp_options(&self) -> Options {
        Options {
            congestion: self.config().congestion.clone(),
            traffic_class: self.config().traffic_class,
            ..Options::default()
        }
    }

    /// A path is slower than it could be: a warning, or in strict mode the end of the connection.
    pub(crate) fn downgrade(&self, what: String) -> Result<(), Error> {
        if self.config().strict {
            return Err(Error::Strict { what });
        }
        self.log().warn(&format!("downgrade: {what}"));
        Ok(())
    }

    /// The same, counted each time, with a line a minute at most: who connects may cause it as often as it likes.
    pub(crate) fn downgrade_seldom(&self, what: String) -> Result<(), Error> {
        if self.config().strict {
            return Err(Error::Strict { what });
        }
        let line = format!("downgrade: {what}");
        // What is written is counted by the log.
        if !warn_seldom(self.log(), &line, &line) {
            self.stats().downgraded(&what);
        }
        Ok(())
    }

    /// The stream as a rail behind those of a transport, and which hosts relay it.
    pub(crate) fn standby(&self, stream: Secured, relayed: Option<String>, behind: &str) -> Result<BoxRail, Error> {
        let relayed = relayed.map(|over| over + "; ").unwrap_or_default();
        let reason = format!("{relayed}on standby behind {}", self.title(behind));
        let config = RailConfig { reason, standby: true, ..RailConfig::default() };
        Ok(StreamRail::new(stream, config, self.config().encrypts())?.into_rail())
    }

    pub(crate) fn tcp_rail(&self, stream: Secured, why: &str, speed: Option<u64>) -> Result<BoxRail, Error> {
        let congestion = stream.stream.congestion();
        let (zero_copy, zerocopy) = match self.config().encrypts() || stream.stream.is_local() {
            true => Default::default(),
            false => self.config().zerocopy.on(self.survey(), &stream.stream.interface()),
        };
        let config = RailConfig {
            reason: format!("{why}; {} {}{zerocopy}", congestion.name, congestion.reason),
            speed: speed.unwrap_or(0),
            zero_copy,
            ..RailConfig::default()
        };
        Ok(match (StreamRail::new(stream, config, self.config().encrypts())?, &self.0.helpers) {
            (StreamRail::Plain(rail), Some(helpers)) => helpers.help(*rail, self.survey()),
            (rail, _) => rail.into_rail(),
        })
    }
}

fn last_resort(survey: &[(Interface, Verdict)]) -> Option<String> {
    let (i, _) = survey.iter().find(|(_, verdict)| *verdict == Verdict::LastResort)?;
    Some(format!("LS0517 {} ({}) is used to reach other hosts, {LAST_RESORT}", i.name, i.kind))
}

/// A host that is no other, for tests.
fn another_host() -> Result<u64, Error> {
    let mut host = [0; 8];
    getrandom::fill(&mut host).map_err(|_| linkspan_proto::login::LoginError::Random)?;
    Ok(u64::from_le_bytes(host))
}

/// A number for "this host, this network namespace": equal numbers mean that a connection between the two processes
/// never leaves the machine.
fn this_host() -> u64 {
    let boot = Host::read(&Roots::default()).boot_id.unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    host_hash(format!("{boot} {}", namespace.display()).as_bytes())
}
