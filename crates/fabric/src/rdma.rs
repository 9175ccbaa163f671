//! RDMA devices of this machine: which port is on which network interface, and the memory registered with them.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use linkspan_tcp::Stream;
use linkspan_topology::IfFilter;
use linkspan_transport::MemSlice;
use linkspan_verbs::{Config as RailConfig, Domain, Setup};
use linkspan_verbs_sys::hw::{HwNic, devices};
use linkspan_verbs_sys::{AnyNic, Limits, LinkLayer, Nic};

use crate::config::PathChoice;
use crate::{Config, chain};

/// Settings of RDMA paths.
#[derive(Clone, Debug)]
pub struct RdmaConfig {
    /// Devices that may be used, by name.
    pub devices: Option<IfFilter>,
    /// GID table entry; `None`: of the interface that reaches the peer.
    pub gid_index: Option<u8>,
    /// Queue pairs for each pair of interfaces, 1 to 7.
    pub queue_pairs: usize,
    /// Wait for an acknowledgement, as a code: 4.096 us * 2^timeout.
    pub timeout: u8,
    /// Sends again after that, 0 to 7.
    pub retry: u8,
    /// Service level, InfiniBand.
    pub service_level: u8,
    /// Partition table entry.
    pub pkey_index: u16,
}

impl Default for RdmaConfig {
    fn default() -> RdmaConfig {
        let rail = RailConfig::default();
        RdmaConfig {
            devices: None,
            gid_index: None,
            queue_pairs: 1,
            timeout: rail.timeout,
            retry: rail.retry,
            service_level: rail.service_level,
            pkey_index: rail.pkey_index,
        }
    }
}

/// An RDMA port as connections find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaPort {
    /// Device and port, as in `mlx5_0/1`.
    pub name: String,
    /// Indices of the network interfaces that its GIDs belong to.
    pub interfaces: Vec<u32>,
    /// Why connections cannot go through it; `None` where they can.
    pub why_not: Option<String>,
    /// What its device can do, where it says.
    pub limits: Option<Limits>,
}

/// The devices, opened when they are first asked for.
#[derive(Default)]
pub(crate) struct Rdma {
    /// Given by the caller in place of the machine's own.
    given: Option<Vec<AnyNic>>,
    found: OnceLock<Found>,
}

#[derive(Default)]
struct Found {
    domains: Vec<Domain<AnyNic>>,
    /// Devices that cannot be used, with the reason; with an empty name, all.
    refused: Vec<(String, String)>,
}

impl std::fmt::Debug for Rdma {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rdma")
    }
}

/// A port on the interface of a stream.
pub(crate) struct Berth {
    domain: Domain<AnyNic>,
    port: u8,
    ifindex: u32,
}

impl Rdma {
    pub(crate) fn given(nics: Vec<AnyNic>) -> Rdma {
        Rdma { given: Some(nics), found: OnceLock::new() }
    }

    fn found(&self, config: &Config) -> &Found {
        self.found.get_or_init(|| match &self.given {
            Some(nics) => Found { domains: nics.iter().cloned().map(Domain::new).collect(), refused: Vec::new() },
            None => open(config),
        })
    }

    /// Opens the devices where connections may want them: not in the middle of a login, which has a deadline.
    pub(crate) fn open(&self, config: &Config) {
        if matches!(config.path, PathChoice::Auto | PathChoice::Verbs) && !config.encrypts() {
            self.found(config);
        }
    }

    /// Every port, and reasons that concern no port. Opens the devices.
    pub(crate) fn ports(&self, config: &Config) -> (Vec<RdmaPort>, Vec<String>) {
        let found = self.found(config);
        let list = found.domains.iter().flat_map(|domain| {
            let nic = domain.nic();
            let ports = nic.limits().map_or(1, |l| l.ports.max(1));
            (1..=ports).map(move |port| {
                let gids = nic.gids(port).unwrap_or_default();
                let mut interfaces: Vec<u32> = gids.iter().map(|g| g.ifindex).filter(|&i| i != 0).collect();
                interfaces.sort_unstable();
                interfaces.dedup();
                let name = format!("{}/{port}", nic.name());
                RdmaPort { name, interfaces, why_not: usable(nic, port).err(), limits: nic.limits().ok() }
            })
        });
        let refused = found.refused.iter();
        (
            list.collect(),
            refused.map(|(n, why)| if n.is_empty() { why.clone() } else { format!("{n}: {why}") }).collect(),
        )
    }

    /// Regions registered so far.
    pub(crate) fn registrations(&self) -> u64 {
        self.found.get().map_or(0, |found| found.domains.iter().map(Domain::registrations).sum())
    }

    /// The port that a stream's own end is on. `Err` with an empty text: there is none, and nothing to say about it.
    pub(crate) fn berth(&self, config: &Config, stream: &Stream) -> Result<Berth, String> {
        match config.path {
            PathChoice::Auto | PathChoice::Verbs => {}
            PathChoice::Tcp | PathChoice::Shm | PathChoice::Devmem => return Err(String::new()),
        }
        if config.encrypts() {
            return Err(String::new());
        }
        let found = self.found(config);
        if found.domains.is_empty() {
            let forced = config.path == PathChoice::Verbs;
            return Err(found.refused.first().filter(|_| forced).map_or_else(String::new, |r| r.1.clone()));
        }
        let local = stream.local_addr();
        let scope = match local {
            std::net::SocketAddr::V6(v6) => v6.scope_id(),
            std::net::SocketAddr::V4(_) => 0,
        };
        let interface = linkspan_net::interface_of(local.ip().to_canonical(), scope).ok().flatten();
        let Some(interface) = interface else { return Err(String::new()) };
        let mut why = String::new();
        for domain in &found.domains {
            let nic = domain.nic();
            for port in 1..=nic.limits().map_or(1, |l| l.ports.max(1)) {
                if !nic.gids(port).unwrap_or_default().iter().any(|g| g.ifindex == interface.index) {
                    continue;
                }
                match usable(nic, port) {
                    Ok(()) => return Ok(Berth { domain: domain.clone(), port, ifindex: interface.index }),
                    Err(no) => why = format!("{}/{port} on {}: {no}", nic.name(), interface.name),
                }
            }
        }
        Err(why)
    }
}

fn open(config: &Config) -> Found {
    let names = match devices() {
        Ok(names) if names.is_empty() => {
            return Found {
                refused: vec![(String::new(), "this machine has no RDMA device".into())],
                ..Found::default()
            };
        }
        Ok(names) => names,
        Err(why) => return Found { refused: vec![(String::new(), chain(&why))], ..Found::default() },
    };
    let mut found = Found::default();
    for name in names {
        match &config.rdma.devices {
            Some(filter) if !filter.allows(&name) => {
                let why = format!("left out by {}", filter.shown());
                found.refused.push((name, why));
            }
            _ => match HwNic::open(&name) {
                Ok(nic) => found.domains.push(Domain::new(AnyNic::Hw(nic))),
                Err(why) => found.refused.push((name, chain(&why))),
            },
        }
    }
    found
}

fn usable(nic: &AnyNic, port: u8) -> Result<(), String> {
    let state = nic.port(port).map_err(|e| chain(&e))?;
    if !state.active {
        return Err("the port is not active: check the cable, then `ip link` and `rdma link`".into());
    }
    if state.link == LinkLayer::InfiniBand && state.lid == 0 {
        return Err("no LID: no subnet manager has set the port up; start opensm on one host".into());
    }
    Ok(())
}

impl Berth {
    /// The sides of `n` queue pairs to be, or why there are none.
    pub(crate) fn make(&self, config: &Config, n: usize) -> Result<Vec<Setup<AnyNic>>, String> {
        let rail = RailConfig {
            port: self.port,
            ifindex: self.ifindex,
            gid_index: config.rdma.gid_index,
            pkey_index: config.rdma.pkey_index,
            service_level: config.rdma.service_level,
            traffic_class: config.traffic_class.unwrap_or(0),
            timeout: config.rdma.timeout,
            retry: config.rdma.retry,
            reason: "an RDMA device on the interface that reaches the peer".into(),
            deadline: (config.connect_timeout / 2).min(Duration::from_secs(20)),
            ..RailConfig::default()
        };
        let one = |_| Setup::new(self.domain.clone(), rail.clone()).map_err(|e| chain(&e));
        (0..n).map(one).collect()
    }
}

/// The memory of the devices under a connection: registered here, it costs the connection's operations nothing more.
#[derive(Clone, Default)]
pub struct Memory(Vec<Domain<AnyNic>>, Option<Arc<dyn crate::devmem::Ports>>);

impl Memory {
    pub(crate) fn of<'a>(domains: impl Iterator<Item = &'a Domain<AnyNic>>) -> Memory {
        let mut list: Vec<Domain<AnyNic>> = Vec::new();
        for domain in domains {
            if !list.iter().any(|d| d.is(domain)) {
                list.push(domain.clone());
            }
        }
        Memory(list, None)
    }

    /// The same, with what sends device memory from where it lies.
    pub(crate) fn and_ports(mut self, ports: &Arc<dyn crate::devmem::Ports>) -> Memory {
        self.1 = Some(ports.clone());
        self
    }

    /// Whether the connection has devices that registration means something to.
    pub fn is_registered(&self) -> bool {
        !self.0.is_empty() || self.1.is_some()
    }

    /// Registers host memory with every device: for the peer to write where `target`, else to send from. It stays
    /// registered until the value is dropped, which must be before the memory is unmapped.
    ///
    /// # Errors
    /// A device's word.
    pub fn register(&self, mem: MemSlice, target: bool) -> Result<Registered, String> {
        let made = Registered { mem, domains: self.0.clone().into(), _lent: None };
        for domain in &self.0 {
            domain.register(mem, target).map_err(|e| chain(&e))?;
        }
        Ok(made)
    }
}

impl Memory {
    /// Registers device memory by its dma-buf, `mem.len()` bytes at `offset` of it.
    ///
    /// # Errors
    /// A device cannot, with its reason: the memory is to be staged then.
    pub fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        mem: MemSlice,
        target: bool,
    ) -> Result<Registered, String> {
        let lent = self.1.as_ref().filter(|_| !target).and_then(|ports| ports.register(dmabuf, offset, mem));
        let made = Registered { mem, domains: self.0.clone().into(), _lent: lent };
        for domain in &self.0 {
            domain.register_dmabuf(dmabuf, offset, mem, target).map_err(|e| chain(&e))?;
        }
        Ok(made)
    }
}

/// Memory registered by [`Memory::register`].
pub struct Registered {
    mem: MemSlice,
    domains: Arc<[Domain<AnyNic>]>,
    /// Takes the memory back from cards that send from it.
    _lent: Option<Box<dyn Send + Sync>>,
}

impl Registered {
    /// The memory.
    pub fn mem(&self) -> MemSlice {
        self.mem
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        for domain in self.domains.iter() {
            domain.invalidate(self.mem);
        }
    }
}
