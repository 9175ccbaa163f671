//! The fabric with the settings of the environment and of the command line.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use linkspan_fabric::keys::Keyring;
use linkspan_fabric::{Config, Error, Fabric, Gpu, Level, Log, MemoryName, PathChoice, chain, gpus};
use linkspan_service::rendezvous;
use linkspan_topology::IfFilter;

use crate::cli::PathArg;
use crate::exit::{Exit, Failure};
use crate::peer_lines;

/// Who the other side must prove to be, in every connection of this process.
static LOGIN: OnceLock<Login> = OnceLock::new();

enum Login {
    To(rendezvous::Peer),
    From(Arc<Keyring>),
}

/// Connections go to this peer, which proves who it is.
pub(crate) fn connect_to(peer: rendezvous::Peer) {
    let _ = LOGIN.set(Login::To(peer));
}

/// Connections are taken from paired peers alone.
pub(crate) fn accept_paired(ring: Arc<Keyring>) {
    let _ = LOGIN.set(Login::From(ring));
}

/// Warnings of this process.
static WARNED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Most that are kept: cables may come and go for hours.
const MOST: usize = 256;

fn warned() -> MutexGuard<'static, Vec<String>> {
    WARNED.lock().unwrap_or_else(|e| e.into_inner())
}

/// What has made a path slower than this machine could give, and rails that were lost.
pub(crate) fn downgrades() -> Vec<String> {
    let loss = |line: &String| line.starts_with("rail lost: ").then(|| line.clone());
    warned()
        .iter()
        .filter_map(|line| line.strip_prefix("downgrade: ").map(String::from).or_else(|| loss(line)))
        .collect()
}

/// Standard error; keeps warnings for [`downgrades`]. Those in `told` are dropped.
fn log(told: Vec<String>) -> Log {
    let log = Log::stderr();
    Log::to(move |level, line| match level {
        Level::Info => log.info(line),
        Level::Warn if told.iter().any(|old| old == line) => {}
        Level::Warn => {
            let mut warned = warned();
            if warned.len() < MOST {
                warned.push(line.to_owned());
            }
            drop(warned);
            log.warn(line);
        }
    })
}

/// The fabric of one side of a test between processes or hosts.
pub(crate) fn open(path: PathArg, memory: MemoryName) -> Result<Fabric, Failure> {
    Ok(Fabric::new(config(path, memory)?, log(Vec::new()), false, linkspan_transports::all())?)
}

/// That of the machine, to be shown; inside, why there is none where no interface is usable.
pub(crate) fn shown() -> Result<Result<Fabric, Failure>, Failure> {
    let config = config(PathArg::AUTO, MemoryName::Host)?;
    match Fabric::new(config, log(Vec::new()), false, linkspan_transports::all()) {
        Err(error @ Error::NoInterface { .. }) => Ok(Err(error.into())),
        made => Ok(Ok(made?)),
    }
}

/// The same for a side that anybody may connect to.
pub(crate) fn serving(path: PathArg, memory: MemoryName) -> Result<Fabric, Failure> {
    Ok(Fabric::new(config(path, memory)?, peer_lines::log(), false, linkspan_transports::all())?)
}

/// The fabric where both sides are on this host: loopback serves where the environment does not choose. `child`: the
/// other side's, whose parent has said already what is to be said of the environment.
pub(crate) fn local(path: PathArg, memory: MemoryName, child: bool) -> Result<Fabric, Failure> {
    let mut config = here(path, memory)?;
    for warning in config.warnings.drain(..).filter(|_| !child) {
        Log::stderr().warn(&warning);
    }
    // That loopback reaches this host only is no news here; what comes later is.
    let (quiet, log) = (Arc::new(AtomicBool::new(true)), log(Vec::new()));
    let silent = Arc::clone(&quiet);
    let log = Log::to(move |level, line| match level {
        _ if silent.load(Ordering::Relaxed) => {}
        Level::Warn => log.warn(line),
        Level::Info => log.info(line),
    });
    let fabric = Fabric::new(config, log, false, linkspan_transports::all())?;
    quiet.store(false, Ordering::Relaxed);
    Ok(fabric)
}

/// The same for one-sided tests: the library's own view. What its fabric has to warn of was said by the one above already, unless
/// it happens later.
pub(crate) fn one_sided(path: PathArg, local: bool) -> Result<linkspan::Context, Failure> {
    let mut config = if local { here(path, MemoryName::Host)? } else { config(path, MemoryName::Host)? };
    config.warnings.clear();
    let (log, told) = (log(warned().clone()), Arc::new(AtomicBool::new(false)));
    let loud = Arc::clone(&told);
    let log = Log::to(move |level, line| {
        if level == Level::Warn && loud.load(Ordering::Relaxed) {
            log.warn(line);
        }
    });
    let context = linkspan::Context::new(config, log)?;
    told.store(true, Ordering::Relaxed);
    Ok(context)
}

fn here(path: PathArg, memory: MemoryName) -> Result<Config, Failure> {
    let mut config = config(path, memory)?;
    // Loopback has no RDMA device.
    if config.interfaces.is_none() && !config.path.is("verbs") {
        config.interfaces = IfFilter::parse("a test on this host, as with LINKSPAN_IFNAME", "=lo").ok();
    }
    Ok(config)
}

/// The settings of the environment, with a path and a congestion control that there are.
pub(crate) fn settings() -> Result<Config, Error> {
    let config = Config::from_env()?;
    config.check_path(&linkspan_transports::all())?;
    config.check_congestion()?;
    Ok(config)
}

/// Whether LINKSPAN_CMA lets other processes of this user copy our memory.
pub(crate) fn cma() -> Result<bool, Failure> {
    Ok(Config::from_env()?.cma)
}

/// The GPU of this name; `None` for host memory.
pub(crate) fn gpu(memory: MemoryName) -> Result<Option<Arc<dyn Gpu>>, Failure> {
    gpus::open(memory).map_err(|error| Failure::new(Exit::NoPeer, chain(&error)))
}

fn config(path: PathArg, memory: MemoryName) -> Result<Config, Failure> {
    let mut config = Config::from_env()?;
    config.stage |= memory != MemoryName::Host;
    match LOGIN.get() {
        Some(Login::To(peer)) => peer.secure(&mut config)?,
        Some(Login::From(ring)) => config.use_keys(ring.clone(), None),
        None => {}
    }
    if path != PathArg::AUTO {
        config.path = PathChoice::named(path.name());
    }
    Ok(config)
}
