//! What NCCL sees of this machine.

use std::ffi::CStr;
use std::marker::PhantomData;

use linkspan_fabric::{Config, Device, Error, Fabric, Level, Log, chain};

use crate::memory::{Domain, Mr, takes_device, unpack_since};
use crate::path::{Receiving, Sending};
use crate::setup::{Dialling, Listening};
use crate::tuner::Tuner;
use crate::{Exported, Fail, Global, HANDLE_LEN, Init, Logger, NetPlugin, Props, RegisterRange};

/// Largest piece handed to us at once: NCCL's own default for plugins that name none (since v9).
const MAX_P2P_BYTES: usize = 1 << 30;

/// The machine that a plugin sees, and the one plugin of the library; [`crate::export!`] makes one.
#[doc(hidden)]
pub trait Machine: Sized + 'static {
    /// The fabric of all communicators.
    fn fabric(config: Config, log: Log) -> Result<Fabric, Error>;

    /// The library's static.
    fn global() -> &'static Global<Plugin<Self>>;
}

impl<M: Machine> Exported for Plugin<M> {
    fn global() -> &'static Global<Plugin<M>> {
        M::global()
    }
}

/// The plugin: one per load, shared by all communicators of the process.
pub struct Plugin<M> {
    log: Logger,
    /// Where the settings cannot be used, everything but init fails with this text: an init that failed would make
    /// NCCL take another network silently.
    fabric: Result<Fabric, String>,
    /// Since which version NCCL is told that its own kernels unpack.
    unpack_since: Option<u32>,
    machine: PhantomData<fn() -> M>,
}

impl<M> Plugin<M> {
    /// The fabric, or the reason why there is none, logged each time it is needed.
    fn fabric(&self) -> Result<&Fabric, Fail> {
        self.fabric.as_ref().map_err(|why| {
            self.log.warn(&format!("linkspan cannot be used: {why}"));
            Fail::InvalidUsage
        })
    }

    fn device(&self, dev: usize) -> Result<Device, Fail> {
        self.fabric()?.devices().into_iter().nth(dev).ok_or(Fail::InvalidArgument)
    }
}

/// The result code for an error, after its line was logged.
pub(crate) fn fail(log: Logger, error: &Error) -> Fail {
    log.warn(&format!("linkspan: {}", chain(error)));
    match error {
        Error::Param(_)
        | Error::Filter(_)
        | Error::Strict { .. }
        | Error::Forced { .. }
        | Error::Psk { .. }
        | Error::Refused { .. } => Fail::InvalidUsage,
        Error::Unreachable { .. } | Error::Timeout { .. } | Error::Vanished { .. } | Error::Plan { .. } => Fail::Remote,
        Error::NoDevice { .. } | Error::Handle(_) => Fail::InvalidArgument,
        _ => Fail::System,
    }
}

fn nccl_log(log: Logger) -> Log {
    Log::to(move |level, line| match level {
        Level::Warn => log.warn(&format!("linkspan: {line}")),
        Level::Info => log.info(&format!("linkspan: {line}")),
    })
}

/// The release as `lspan doctor` finds it in the file, without loading it.
static RELEASE: &str = concat!("linkspan-plugin-version=", env!("CARGO_PKG_VERSION"), ";");

/// The release of this plugin.
fn release() -> &'static str {
    // All of the text has to be in the file, not only the part that is printed.
    let text = std::hint::black_box(RELEASE);
    text.split_once('=').map_or(text, |(_, release)| release.trim_end_matches(';'))
}

#[allow(unsafe_code)]
// SAFETY: registrations keep a range no longer than they live.
unsafe impl<M: Machine> NetPlugin for Plugin<M> {
    const NAME: &'static CStr = c"linkspan";
    const MERGES: bool = true;

    /// IP traffic class that NCCL asked for at init.
    type Ctx = Option<u8>;
    type Listen = Listening;
    type Connecting = Dialling;
    type Send = Sending;
    type Recv = Receiving;
    type Domain = Domain;
    type Mr = Mr;

    fn load(log: Logger) -> Result<Plugin<M>, Fail> {
        let fabric = Config::from_env().and_then(|config| M::fabric(config, nccl_log(log)));
        let fabric = fabric.map_err(|error| chain(&error));
        match &fabric {
            Ok(fabric) => {
                let devices: Vec<String> =
                    fabric.devices().iter().map(|d| format!("{} ({} Gb/s)", d.name, f64::from(d.mbps) / 1e3)).collect();
                log.info(&format!("linkspan {}: {}", release(), devices.join(", ")));
                if takes_device(fabric) {
                    log.warn(
                        "linkspan: LINKSPAN_GPU=staged: NCCL passes device memory; with CUDA, work that the program queues behind a collective \
                         can block linkspan's copies, and NCCL hangs (seen on an H100): see docs/GPU.md",
                    );
                } else if fabric.reaches_device_memory() {
                    log.info(
                        "linkspan: device-memory TCP is set up, but NCCL passes host memory: LINKSPAN_GPU=staged \
                         uses device memory; docs/GPU.md says when that hangs",
                    );
                }
            }
            Err(why) => log.warn(&format!("linkspan cannot be used, every connection will fail: {why}")),
        }
        let unpack_since = fabric.as_ref().ok().and_then(|f| unpack_since(f, |name| std::env::var(name).ok()));
        Ok(Plugin { log, fabric, unpack_since, machine: PhantomData })
    }

    fn devices(&self) -> usize {
        self.fabric.as_ref().map_or(1, |f| f.devices().len())
    }

    fn properties(&self, dev: usize) -> Result<Props, Fail> {
        let base =
            Props { max_recvs: 8, max_p2p_bytes: MAX_P2P_BYTES, max_coll_bytes: MAX_P2P_BYTES, ..Props::default() };
        if self.fabric.is_err() {
            return Ok(Props { name: "linkspan-unusable".into(), guid: 1, ..base });
        }
        let device = self.device(dev)?;
        let device_memory = takes_device(self.fabric()?);
        Ok(Props {
            name: device.name,
            pci_path: device.pci_path.map(|p| p.display().to_string()),
            guid: device.guid,
            speed_mbps: device.mbps,
            members: device.members,
            device_memory,
            // Cards and device-memory TCP take it by its dma-buf, which only NCCL can give.
            dma_buf: device_memory,
            unpack_since: self.unpack_since,
            ..base
        })
    }

    fn open(&self, init: Init) -> Result<Option<u8>, Fail> {
        Ok(init.traffic_class)
    }

    fn listen(&self, _ctx: &Option<u8>, dev: usize, handle: &mut [u8; HANDLE_LEN]) -> Result<Listening, Fail> {
        Listening::new(self.log, self.fabric()?, (dev, self.unpack_since.is_some()), handle)
    }

    fn connect(
        &self,
        ctx: &Option<u8>,
        dev: usize,
        traffic_class: Option<u8>,
        handle: &[u8; HANDLE_LEN],
    ) -> Result<Dialling, Fail> {
        Dialling::new(self.log, self.fabric()?, dev, traffic_class.or(*ctx), handle)
    }

    fn register(domain: &Domain, region: RegisterRange<'_>) -> Result<Mr, Fail> {
        domain.register(&region)
    }

    fn merge(&self, members: &[usize]) -> Result<usize, Fail> {
        let fabric = self.fabric()?;
        fabric.merge(members).map_err(|error| fail(self.log, &error))
    }
}

/// Keeps LL128 away from the network. LL128 trusts that the last 8 bytes of a 128-byte line never become visible before the rest. Bytes
/// from a socket are copied by the kernel, which promises no order within a line, so NCCL must not choose LL128 between nodes. The
/// verdict depends on what all ranks know alike, so it is the same on each of them.
impl<M: Machine> Tuner for Plugin<M> {
    const NAME: &'static CStr = c"linkspan";

    fn forbids_ll128(_ranks: usize, nodes: usize) -> bool {
        nodes > 1
    }
}
