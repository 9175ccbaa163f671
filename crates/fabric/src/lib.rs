//! Floor 4: which path a connection takes, and why. The only user of all rooms.
//!
//! A [`Fabric`] is a process's view of its machine: devices made of interfaces. [`Fabric::listen`] gives a secret
//! 128-byte handle; whoever holds it connects with [`Fabric::connect`]; both get a [`Channel`]. Every connection says
//! in one INFO line which path it took and why, every downgrade is one WARN line, and in strict mode an error.
#![forbid(unsafe_code)]

mod channel;
mod clock;
mod config;
mod connect;
mod device;
mod error;
mod helpers;
mod later;
mod lending;
mod listener;
mod local;
mod log;
mod logins;
mod meter;
pub mod params;
mod redial;
mod room;
mod secured;
pub mod stats;

pub use channel::{Channel, Fate, Witness, wait_any};
pub use config::{Config, PathChoice};
pub use connect::Connecting;
pub use device::{Device, Port, devices, survey};
pub use error::{Error, chain};
pub use helpers::Wish as HelperWish;
pub use lending::Lending;
pub use linkspan_proto::handle::{HANDLE_LEN, SCRATCH_AT as HANDLE_USED};
pub use linkspan_transport::{
    Access, Buf, Error as ChannelError, HostBuf, MAX_GROUP, MemSlice, OpError, Poll, RailInfo, RemoteSlice, Ticket,
    WaitFd,
};
pub use listener::Listener;
pub use log::{Level, Log};
pub use room::AnyRail;

use std::sync::{Arc, RwLock};
use std::time::Duration;

use helpers::Helpers;
use linkspan_proto::handle::host_hash;
use linkspan_tcp::{Options, RailConfig};
use secured::Secured;
use stats::Stats;

use linkspan_topology::{Host, Interface, Roots, Verdict};

/// A process's view of its machine. Cloning is cheap; may be used from any thread.
#[derive(Clone, Debug)]
pub struct Fabric(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    log: Log,
    survey: Vec<(Interface, Verdict)>,
    devices: RwLock<Vec<Device>>,
    host: u64,
    acked: bool,
    stats: Arc<Stats>,
    helpers: Option<Arc<Helpers>>,
}

/// How long a process that is done with a fabric waits for what its closed connections have sent to be acknowledged: a
/// round trip where the peer lives; a dead one must not hold up the end.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl Drop for Inner {
    fn drop(&mut self) {
        linkspan_tcp::linger::settle(LAST_WORDS);
    }
}

impl Fabric {
    /// Looks at the machine. `acked`: connections report operations when the peer has acknowledged them, and carry
    /// one-sided operations; must be the same on both sides (the NCCL plugin uses `false`, the library `true`).
    ///
    /// # Errors
    /// The machine has no interface to use, not even loopback.
    pub fn new(config: Config, log: Log, acked: bool) -> Result<Fabric, Error> {
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
            for name in filter.unmatched(&names) {
                log.warn(&format!("{}: there is no interface called {name} (or beginning so)", filter.shown()));
            }
        }
        let stats = Stats::new(config.stats_dir.as_deref()).unwrap_or_else(|why| {
            log.info(&why);
            Stats::default()
        });
        let helpers = Helpers::new(config.helpers, Roots::default()).map(Arc::new);
        Ok(Fabric(Arc::new(Inner {
            config,
            log,
            survey,
            devices: RwLock::new(devices),
            host: this_host(),
            acked,
            stats: Arc::new(stats),
            helpers,
        })))
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Where lines go.
    pub fn log(&self) -> &Log {
        &self.0.log
    }

    /// All interfaces with the verdict on each.
    pub fn survey(&self) -> &[(Interface, Verdict)] {
        &self.0.survey
    }

    /// The devices.
    pub fn devices(&self) -> Vec<Device> {
        self.0.devices.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Makes one more device of several; returns its index.
    ///
    /// # Errors
    /// One of them does not exist.
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
        }))
    }

    /// Listens on all interfaces of a device.
    ///
    /// # Errors
    /// There is no such device, or the system refuses.
    pub fn listen(&self, device: usize) -> Result<Listener, Error> {
        Listener::new(self, device)
    }

    /// Begins to connect to the listener that made `handle`, through a device of ours.
    ///
    /// # Errors
    /// The handle cannot be used, or there is no such device.
    pub fn connect(&self, device: usize, handle: &[u8; HANDLE_LEN]) -> Result<Connecting, Error> {
        Connecting::new(self, device, handle)
    }

    pub(crate) fn device(&self, index: usize) -> Result<Device, Error> {
        let devices = self.0.devices.read().unwrap_or_else(|e| e.into_inner());
        devices.get(index).cloned().ok_or(Error::NoDevice { index, count: devices.len() })
    }

    pub(crate) fn host_hash(&self) -> u64 {
        self.0.host
    }

    pub(crate) fn stats(&self) -> &Arc<Stats> {
        &self.0.stats
    }

    pub(crate) fn acked(&self) -> bool {
        self.0.acked
    }

    /// TCP streams per pair of interfaces.
    pub(crate) fn streams(&self, device: &Device) -> usize {
        match (self.config().streams, device.mbps) {
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

    pub(crate) fn tcp_rail(&self, stream: Secured, why: &str, speed: Option<u64>) -> Result<AnyRail, Error> {
        let congestion = stream.stream.congestion();
        let (lend, lending) = match self.config().encrypts() {
            true => Default::default(),
            false => self.config().lending.on(self.survey(), &stream.stream.interface()),
        };
        let config = RailConfig {
            reason: format!("{why}; {} {}{lending}", congestion.name, congestion.reason),
            speed: speed.unwrap_or(0),
            lend,
            ..RailConfig::default()
        };
        Ok(match (stream.into_rail(config, self.config().encrypts())?, &self.0.helpers) {
            (AnyRail::Tcp(rail), Some(helpers)) => helpers.help(rail, self.survey()),
            (rail, _) => rail,
        })
    }
}

/// A number for "this host, this network namespace": equal numbers mean that a connection between the two processes
/// never leaves the machine.
fn this_host() -> u64 {
    let boot = Host::read(&Roots::default()).boot_id.unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    host_hash(format!("{boot} {}", namespace.display()).as_bytes())
}
