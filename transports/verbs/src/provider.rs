//! RDMA devices of this machine: which port is on which network interface.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linkspan_topology::{IfFilter, LinkLayer as Layer, Machine, Roots};
use linkspan_transport::{BoxRail, DirectBy, Offer, Provider, Refusal, Relay, Relayer, Role, Setup, Site, chain};
use linkspan_verbs_sys::hw::{HwNic, devices};
use linkspan_verbs_sys::{Limits, LinkLayer, Nic};

use crate::endpoint::NAME;
use crate::{Config, Domain, Pairs, VerbsRail};

/// Settings of RDMA paths.
#[derive(Clone, Debug)]
pub(crate) struct RdmaConfig {
    /// Devices that may be used, by name.
    devices: Option<IfFilter>,
    /// GID table entry; `None`: of the address or the interface that reaches the peer.
    gid_index: Option<u8>,
    /// Queue pairs for each pair of interfaces, 1 to 7.
    queue_pairs: usize,
    /// Wait for an acknowledgement, as a code: 4.096 us * 2^timeout.
    timeout: u8,
    /// Sends again after that, 0 to 7.
    retry: u8,
    /// Service level, InfiniBand.
    service_level: u8,
    /// Partition table entry.
    pkey_index: u16,
}

impl Default for RdmaConfig {
    fn default() -> RdmaConfig {
        let rail = Config::default();
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
    /// How it could reach memory of GPUs, or why it cannot: such memory is staged then.
    pub gpu_direct: Result<DirectBy, String>,
}

/// How long what does not answer is left alone before it is opened anew: it may have gone for good, and connections that take no
/// queue pair would open every device each.
const LEFT_ALONE: Duration = Duration::from_secs(5);

/// Opens devices.
type Open<N> = dyn Fn(&RdmaConfig) -> Found<N> + Send + Sync;

/// The devices, opened when they are first asked for.
pub struct Rdma<N: Nic = HwNic> {
    config: RdmaConfig,
    open: Box<Open<N>>,
    found: Mutex<Option<Arc<Found<N>>>>,
    /// [`LEFT_ALONE`], but in tests.
    left_alone: Duration,
    /// Memory that was posted is watched, for callers that need not say when they unmap it.
    watch: bool,
}

struct Found<N: Nic> {
    opened: Instant,
    domains: Vec<Domain<N>>,
    /// Device, port, and the interface over it where its GIDs belong to none: IPoIB.
    over: Vec<(String, u8, String)>,
    /// Device, port, and an interface that a GID belonged to when it was opened: for ports that answer no more.
    on: Vec<(String, u8, u32)>,
    /// Devices that cannot be used, with the reason; with an empty name, all.
    refused: Vec<(String, String)>,
    /// Those of them that could not be opened, and the interfaces that they are on.
    failed: Vec<(String, Vec<String>)>,
}

impl<N: Nic> Found<N> {
    fn new(domains: Vec<Domain<N>>) -> Found<N> {
        let (over, on, refused, failed) = Default::default();
        Found { opened: Instant::now(), domains, over, on, refused, failed }
    }

    /// Whether another look may find more: where devices do not answer or could not be opened, or there is none yet.
    fn lacks(&self) -> bool {
        self.domains.is_empty() || !self.failed.is_empty() || self.domains.iter().any(Domain::is_silent)
    }

    /// Why the device on this interface could not be opened.
    fn why_failed(&self, interface: &str) -> Option<String> {
        let (name, _) = self.failed.iter().find(|(_, on)| on.iter().any(|name| name == interface))?;
        let (_, why) = self.refused.iter().find(|(device, _)| device == name)?;
        Some(format!("{name} on {interface}: {why}"))
    }
}

impl<N: Nic> std::fmt::Debug for Rdma<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rdma")
    }
}

impl RdmaConfig {
    fn read(setting: &dyn Fn(&str) -> Option<String>) -> Result<RdmaConfig, Refusal> {
        let devices = "LINKSPAN_IB_HCA";
        let byte = |name: &str| setting(name).and_then(|n| n.parse::<u8>().ok());
        let default = RdmaConfig::default();
        Ok(RdmaConfig {
            devices: setting(devices).map(|list| IfFilter::parse(devices, &list)).transpose()?,
            gid_index: byte("LINKSPAN_GID_INDEX"),
            queue_pairs: byte("LINKSPAN_QPS").map_or(default.queue_pairs, usize::from),
            timeout: byte("LINKSPAN_IB_TIMEOUT").unwrap_or(default.timeout),
            retry: byte("LINKSPAN_IB_RETRY_CNT").unwrap_or(default.retry),
            service_level: byte("LINKSPAN_IB_SL").unwrap_or(default.service_level),
            pkey_index: setting("LINKSPAN_IB_PKEY").and_then(|n| n.parse().ok()).unwrap_or(default.pkey_index),
        })
    }
}

/// Those of this machine.
impl Default for Rdma {
    fn default() -> Rdma {
        Rdma::opened_by(open)
    }
}

impl<N: Nic> Rdma<N> {
    fn opened_by(open: impl Fn(&RdmaConfig) -> Found<N> + Send + Sync + 'static) -> Rdma<N> {
        Rdma {
            config: RdmaConfig::default(),
            open: Box::new(open),
            found: Mutex::new(None),
            left_alone: LEFT_ALONE,
            watch: false,
        }
    }

    /// These in place of the machine's own.
    pub fn given(nics: Vec<N>) -> Rdma<N> {
        Rdma::opened_by(move |_| Found::new(nics.iter().cloned().map(Domain::new).collect()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Found<N>>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(&self) -> Arc<Found<N>> {
        self.lock().get_or_insert_with(|| Arc::new(self.opened())).clone()
    }

    fn opened(&self) -> Found<N> {
        let mut found = (self.open)(&self.config);
        if self.watch {
            found.domains = found.domains.into_iter().map(Domain::watching).collect();
            if let Some(Err(why)) = found.domains.first().map(Domain::watches) {
                found.refused.push((String::new(), format!("memory that was sent from or received into must not be unmapped while its connection is up: {why}")));
            }
        }
        let ports = found.domains.iter().flat_map(|domain| ports(domain.nic()).map(move |port| (domain.nic(), port)));
        let tables = ports.map(|(nic, port)| (nic.name(), port, nic.gids(port).unwrap_or_default()));
        let on = tables.flat_map(|(name, port, table)| table.into_iter().map(move |g| (name.into(), port, g.ifindex)));
        found.on = on.collect();
        found
    }

    /// The same with the devices opened anew that do not answer (after a reset, what was opened before never will), and those that have
    /// come or could not be opened then.
    fn opened_anew(&self, found: &Found<N>) -> Arc<Found<N>> {
        let mut fresh = self.opened();
        let again = |old: &Domain<N>| {
            let new = fresh.domains.iter().find(|new| old.is_silent() && new.nic().name() == old.nic().name());
            new.unwrap_or(old).clone()
        };
        let known = |new: &&Domain<N>| !found.domains.iter().any(|old| old.nic().name() == new.nic().name());
        let came = fresh.domains.iter().filter(known);
        fresh.domains = found.domains.iter().map(again).chain(came.cloned()).collect();
        fresh.on.extend_from_slice(&found.on);
        fresh.on.sort_unstable();
        fresh.on.dedup();
        self.lock().insert(Arc::new(fresh)).clone()
    }

    /// Every port, and reasons that concern no port. Opens the devices.
    pub fn ports(&self) -> (Vec<RdmaPort>, Vec<String>) {
        let found = self.found();
        let peer_memory = peer_memory();
        let list = found.domains.iter().flat_map(|domain| {
            let nic = domain.nic();
            ports(nic).map(move |port| {
                let gids = nic.gids(port).unwrap_or_default();
                let mut interfaces: Vec<u32> = gids.iter().map(|g| g.ifindex).filter(|&i| i != 0).collect();
                interfaces.sort_unstable();
                interfaces.dedup();
                let name = format!("{}/{port}", nic.name());
                let gpu_direct = gpu_direct(nic, peer_memory);
                RdmaPort { name, interfaces, why_not: usable(nic, port).err(), limits: nic.limits().ok(), gpu_direct }
            })
        });
        let refused = found.refused.iter();
        (
            list.collect(),
            refused.map(|(n, why)| if n.is_empty() { why.clone() } else { format!("{n}: {why}") }).collect(),
        )
    }

    /// Regions registered so far.
    pub fn registrations(&self) -> u64 {
        self.lock().as_ref().map_or(0, |found| found.domains.iter().map(Domain::registrations).sum())
    }

    /// Queue pairs on the port that our end of a stream is on.
    ///
    /// # Errors
    /// Why there are none, as [`Provider::offer`] has it.
    pub fn pairs(&self, site: &Site<'_>) -> Result<Pairs<N>, String> {
        let found = self.found();
        match self.pairs_of(&found, site) {
            Err(_) if found.opened.elapsed() >= self.left_alone && found.lacks() => {
                self.pairs_of(&self.opened_anew(&found), site)
            }
            done => done,
        }
    }

    fn pairs_of(&self, found: &Found<N>, site: &Site<'_>) -> Result<Pairs<N>, String> {
        let (local, config) = (site.local, &self.config);
        if found.domains.is_empty() && found.failed.is_empty() {
            return Err(found.refused.first().filter(|_| site.forced).map_or_else(String::new, |r| r.1.clone()));
        }
        let scope = match local {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let interface = linkspan_net::interface_of(local.ip().to_canonical(), scope).ok().flatten();
        let Some(interface) = interface else { return Err(String::new()) };
        let mut why = String::new();
        for domain in &found.domains {
            let nic = domain.nic();
            for port in ports(nic) {
                let over = found.over.iter().any(|o| (&*o.0, o.1, &*o.2) == (nic.name(), port, &*interface.name));
                let here = match nic.gids(port) {
                    Ok(table) => table.iter().any(|g| g.ifindex == interface.index),
                    Err(_) => found.on.iter().any(|o| (&*o.0, o.1, o.2) == (nic.name(), port, interface.index)),
                };
                if !here && !over {
                    continue;
                }
                match usable(nic, port) {
                    Ok(()) => {
                        let rail = Config {
                            port,
                            ifindex: interface.index,
                            address: Some(local.ip().to_canonical()),
                            interface: interface.name,
                            gid_index: config.gid_index,
                            pkey_index: config.pkey_index,
                            service_level: config.service_level,
                            traffic_class: site.class,
                            timeout: config.timeout,
                            retry: config.retry,
                            reason: "an RDMA device on the interface that reaches the peer".into(),
                            deadline: site.limit,
                            ..Config::default()
                        };
                        let pairs = Pairs::new(domain.clone(), rail, config.queue_pairs);
                        return Ok(match site.relayed {
                            Some(reason) => pairs.relayed(reason.to_owned()),
                            None => pairs,
                        });
                    }
                    Err(no) => why = format!("{}/{port} on {}: {no}", nic.name(), interface.name),
                }
            }
        }
        if why.is_empty() {
            why = found.why_failed(&interface.name).unwrap_or_default();
        }
        Err(why)
    }
}

impl<N: Nic> Provider for Rdma<N> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "RDMA"
    }

    fn configure(&mut self, setting: &dyn Fn(&str) -> Option<String>, watch: bool) -> Result<(), Refusal> {
        (self.config, self.watch) = (RdmaConfig::read(setting)?, watch);
        Ok(())
    }

    fn is_present(&self) -> bool {
        !self.found().domains.is_empty()
    }

    fn relayer(&self) -> Option<&dyn Relayer> {
        Some(self)
    }

    fn open(&self) {
        self.found();
    }

    fn support(&self) -> Result<String, String> {
        let (ports, reasons) = self.ports();
        let usable: Vec<&str> = ports.iter().filter(|p| p.why_not.is_none()).map(|p| p.name.as_str()).collect();
        if !usable.is_empty() {
            return Ok(format!("over {}", usable.join(", ")));
        }
        let why = ports.iter().filter_map(|p| Some(format!("{}: {}", p.name, p.why_not.as_ref()?)));
        Err(why.chain(reasons).collect::<Vec<_>>().join("; "))
    }

    fn offer(&self, site: &Site<'_>) -> Result<Box<dyn Offer>, String> {
        Ok(Box::new(self.pairs(site)?))
    }
}

impl<N: Nic> Relayer for Rdma<N> {
    fn hop(&self, site: &Site<'_>) -> Result<Box<dyn Offer>, String> {
        Ok(Box::new(Hop(self.pairs(site)?)))
    }

    fn join(&self, rails: [BoxRail; 2]) -> Result<Box<dyn Relay>, String> {
        let ours = |rail: BoxRail| rail.into_any().and_then(|any| any.downcast::<VerbsRail<N>>().ok());
        let [Some(a), Some(b)] = rails.map(ours) else { return Err("they are no queue pairs".to_owned()) };
        Ok(Box::new(crate::Relay::new(*a, *b)))
    }
}

/// A port on which one queue pair is made at a time: the hosts on both sides of a relay are strangers to the jobs of this one.
struct Hop<N: Nic>(Pairs<N>);

impl<N: Nic> Offer for Hop<N> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn wanted(&self) -> usize {
        1
    }

    fn make(&self, n: usize, role: Role) -> Result<Vec<Box<dyn Setup>>, String> {
        if n != 1 {
            return Err(format!("{n} queue pairs for one stream, a relay takes one"));
        }
        self.0.isolated().map_err(|e| chain(&e))?.make(n, role)
    }
}

fn open(config: &RdmaConfig) -> Found<HwNic> {
    let mut found = Found::new(Vec::new());
    let names = match devices() {
        Ok(names) if names.is_empty() => Err("this machine has no RDMA device".into()),
        names => names.map_err(|why| chain(&why)),
    };
    let names = names.unwrap_or_else(|why| {
        found.refused.push((String::new(), why));
        Vec::new()
    });
    for name in names {
        match &config.devices {
            Some(filter) if !filter.allows(&name) => {
                let why = format!("left out by {}", filter.shown());
                found.refused.push((name, why));
            }
            _ => match HwNic::open(&name) {
                Ok(nic) => found.domains.push(Domain::new(nic)),
                Err(why) => {
                    found.refused.push((name.clone(), chain(&why)));
                    found.failed.push((name, Vec::new()));
                }
            },
        }
    }
    if !found.domains.is_empty() || !found.failed.is_empty() {
        let machine = Machine::read(&Roots::default());
        found.over = over(&machine);
        found.failed.iter_mut().for_each(|(name, on)| *on = interfaces(&machine, name));
    }
    found
}

/// The interfaces that a device's ports are on.
fn interfaces(machine: &Machine, device: &str) -> Vec<String> {
    let ports = machine.rdma.iter().filter(|d| d.name == device).flat_map(|d| &d.ports);
    ports.filter_map(|port| port.interface.clone()).collect()
}

/// The ports of InfiniBand devices that have a network interface over them.
fn over(machine: &Machine) -> Vec<(String, u8, String)> {
    let mut over = Vec::new();
    for device in &machine.rdma {
        let ports = device.ports.iter().filter(|p| p.link_layer == Layer::Infiniband);
        over.extend(
            ports.filter_map(|p| Some((device.name.clone(), u8::try_from(p.number).ok()?, p.interface.clone()?))),
        );
    }
    over
}

/// Whether the drivers of GPUs offer their memory to RDMA by address.
fn peer_memory() -> bool {
    let modules = ["/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem"];
    modules.iter().any(|path| std::path::Path::new(path).exists())
}

/// How a card reaches memory of GPUs, or why it does not.
fn gpu_direct(nic: &impl Nic, peer_memory: bool) -> Result<DirectBy, String> {
    let Err(why) = nic.takes_dmabuf() else { return Ok(DirectBy::DmaBuf) };
    if peer_memory {
        return Ok(DirectBy::PeerMemory);
    }
    Err(format!("{}; and nvidia_peermem is not loaded (`modprobe nvidia_peermem`)", chain(&why)))
}

fn ports(nic: &impl Nic) -> RangeInclusive<u8> {
    1..=nic.limits().map_or(1, |l| l.ports.max(1))
}

fn usable(nic: &impl Nic, port: u8) -> Result<(), String> {
    let state = nic.port(port).map_err(|e| chain(&e))?;
    if !state.active {
        return Err("the port is not active: check the cable, then `ip link` and `rdma link`".into());
    }
    if state.link == LinkLayer::InfiniBand && state.lid == 0 {
        return Err("no LID: no subnet manager has set the port up; start opensm on one host".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
