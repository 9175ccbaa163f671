//! Device-memory TCP: on which interfaces it may be had, and who binds GPU memory to their cards.
//!
//! A process has the card's queues from `lspan devmem up`, over a local socket ([`client`]), or, with CAP_NET_ADMIN, those that
//! `LINKSPAN_DEVMEM_QUEUES` names. GPU memory is bound when a connection is given its GPU, and each stream is steered to the
//! queues by a rule of its own, so that nothing else of this host lands in device memory.

mod cards;
pub mod client;
mod stream;
pub mod wire;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use linkspan_devmem::{DevmemRail, RailConfig, Socket};
use linkspan_setup::secured::Secured;
use linkspan_stream::Stream;
use linkspan_transport::{BoxRail, MemSlice, Refusal, Registrar, Registration};

use crate::stream_rail::StreamRail;
use crate::{Config, Error, Fabric, GpuWish};
use cards::KernelPorts;

/// Where device-memory TCP may be had. [`Fabric::new`] asks the machine; tests bring their own.
///
/// # Safety
/// An implementation names memory to a card no longer than the value lives that [`Ports::register`] returns.
#[allow(unsafe_code)]
pub unsafe trait Ports: Send + Sync + fmt::Debug {
    /// Whether the card of this interface puts payload into device memory.
    ///
    /// # Errors
    /// A text for the log, which names what this machine or the card lacks; empty where device-memory TCP was not asked for.
    fn ready(&self, interface: &str) -> Result<(), String>;

    /// The payload stream of a rail.
    fn socket(&self, stream: Stream) -> Box<dyn Socket>;

    /// Device memory of which a dma-buf is at hand may be sent from where it lies, for as long as the value returned lives.
    /// `None`: these ports have no use for it.
    fn register(&self, dmabuf: BorrowedFd<'_>, offset: u64, mem: MemSlice) -> Option<Registration> {
        let _ = (dmabuf, offset, mem);
        None
    }
}

/// Settings of device-memory TCP.
#[derive(Clone, Debug)]
pub struct DevmemConfig {
    /// Queues that this process binds itself: interface, first and last.
    pub queues: Option<(String, u32, u32)>,
    /// Bytes of each GPU's pool on each card.
    pub pool: usize,
}

impl DevmemConfig {
    /// `eth0:12-15`, or one queue, `eth0:12`.
    pub(crate) fn queues(text: &str) -> Option<(String, u32, u32)> {
        let (name, range) = text.rsplit_once(':').filter(|(name, _)| !name.is_empty())?;
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last - first < 1024).then(|| (name.to_owned(), first, last))
    }
}

/// The ports of this machine.
pub(crate) fn of_this_machine(config: &Config) -> Arc<dyn Ports> {
    Arc::new(KernelPorts::new(&config.devmem))
}

/// Whether connections through these interfaces may take device-memory TCP.
pub(crate) fn wished(fabric: &Fabric, mut interfaces: impl Iterator<Item = String>) -> bool {
    fabric.config().path.is("devmem") || interfaces.any(|name| ready(fabric, &name).is_ok())
}

/// Whether a connection may take it on this interface. An empty reason is not logged.
pub(crate) fn ready(fabric: &Fabric, interface: &str) -> Result<(), String> {
    let config = fabric.config();
    if !config.path.allows("devmem") {
        return Err(String::new());
    }
    let forced = config.path.is("devmem");
    let only_forced = |why: &str| if forced { why.to_owned() } else { String::new() };
    if config.gpu == GpuWish::Off {
        return Err(only_forced("LINKSPAN_GPU=off forbids device memory"));
    }
    let found = fabric.devmem().ready(interface);
    if config.encrypts() {
        let why = "LINKSPAN_PSK_MODE=encrypt encrypts every byte, and network cards cannot decrypt";
        // The card was set up without effect: the user is told.
        return Err(if found.is_ok() { why.to_owned() } else { only_forced(why) });
    }
    match found {
        Err(why) if why.is_empty() => {
            Err(only_forced(&format!("{interface} is not set up: run `lspan devmem up {interface}`")))
        }
        other => other,
    }
}

/// Over what it may be had here, or why not.
pub(crate) fn support(fabric: &Fabric) -> Result<String, String> {
    let interfaces = fabric.devmem_interfaces();
    let ready: Vec<&str> = interfaces.iter().filter(|i| i.1.is_ok()).map(|i| i.0.as_str()).collect();
    if !ready.is_empty() {
        return Ok(format!("over {}", ready.join(", ")));
    }
    let why = interfaces.into_iter().find_map(|i| i.1.err().filter(|why| !why.is_empty()));
    Err(why.unwrap_or_else(|| "no network card is set up for it: `lspan devmem probe` says which can be".to_owned()))
}

/// Two streams as a rail.
pub(crate) fn rail(fabric: &Fabric, control: Secured, data: Secured, why: &str, speed: u64) -> Result<BoxRail, Error> {
    let config = fabric.config();
    let peer = control.stream.peer_addr();
    let below = linkspan_tcp::RailConfig { reason: why.to_owned(), speed, ..Default::default() };
    let StreamRail::Plain(control) = StreamRail::new(control, below, config.encrypts())? else {
        return Err(Error::Clear { peer });
    };
    let rail = RailConfig {
        reason: format!("{why}; device-memory TCP"),
        unpack: config.unpack,
        memory: fabric.stage_memory(),
        strict: config.strict,
        registrar: Some(Arc::new(Lender(fabric.devmem().clone()))),
    };
    let made = DevmemRail::new(*control, fabric.devmem().socket(data.stream), rail);
    Ok(Box::new(made.map_err(|why| Error::Devmem { peer, why })?))
}

/// The ports of this machine as what takes memory for sending.
struct Lender(Arc<dyn Ports>);

impl Registrar for Lender {
    fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn lends_only(&self) -> bool {
        true
    }

    fn register(&self, _mem: MemSlice, _target: bool) -> Result<Option<Registration>, Refusal> {
        Ok(None)
    }

    fn register_dmabuf(
        &self,
        _dmabuf: BorrowedFd<'_>,
        _offset: u64,
        _mem: MemSlice,
        _target: bool,
    ) -> Result<Option<Registration>, Refusal> {
        Ok(None)
    }

    fn register_peer(&self, _mem: MemSlice, _target: bool) -> Result<Registration, Refusal> {
        Err("network cards take device memory only by its dma-buf".into())
    }

    fn lend(&self, dmabuf: BorrowedFd<'_>, offset: u64, mem: MemSlice) -> Option<Registration> {
        self.0.register(dmabuf, offset, mem)
    }

    fn invalidate(&self, _mem: MemSlice) {}
}
