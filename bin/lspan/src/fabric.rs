//! The fabric with the settings of the environment and of the command line.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linkspan_fabric::{Config, Fabric, Level, Log, PathChoice};
use linkspan_topology::IfFilter;

use crate::cli::PathArg;
use crate::exit::Failure;

/// The fabric of one side of a test between processes or hosts.
pub(crate) fn open(path: PathArg) -> Result<Fabric, Failure> {
    Ok(Fabric::new(config(path)?, Log::stderr(), false)?)
}

/// The fabric where both sides are on this host: loopback serves where the environment does not choose. `child`: the
/// other side's, whose parent has said already what is to be said of the environment.
pub(crate) fn local(path: PathArg, child: bool) -> Result<Fabric, Failure> {
    let mut config = here(path)?;
    for warning in config.warnings.drain(..).filter(|_| !child) {
        Log::stderr().warn(&warning);
    }
    // That loopback reaches this host only is no news here; what comes later is.
    let (quiet, log) = (Arc::new(AtomicBool::new(true)), Log::stderr());
    let silent = Arc::clone(&quiet);
    let log = Log::to(move |level, line| match level {
        _ if silent.load(Ordering::Relaxed) => {}
        Level::Warn => log.warn(line),
        Level::Info => log.info(line),
    });
    let fabric = Fabric::new(config, log, false)?;
    quiet.store(false, Ordering::Relaxed);
    Ok(fabric)
}

/// The same for one-sided tests: the library's own view. Both sides have said by their fabric what is to be said of the
/// environment.
pub(crate) fn one_sided(path: PathArg, local: bool) -> Result<linkspan::Context, Failure> {
    let mut config = if local { here(path)? } else { config(path)? };
    config.warnings.clear();
    Ok(linkspan::Context::new(config, Log::to(|_, _| {}))?)
}

fn here(path: PathArg) -> Result<Config, Failure> {
    let mut config = config(path)?;
    if config.interfaces.is_none() {
        config.interfaces = IfFilter::parse("lspan", "=lo").ok();
    }
    Ok(config)
}

/// Whether LINKSPAN_CMA lets other processes of this user copy our memory.
pub(crate) fn cma() -> Result<bool, Failure> {
    Ok(Config::from_env()?.cma)
}

fn config(path: PathArg) -> Result<Config, Failure> {
    let mut config = Config::from_env()?;
    match path {
        PathArg::Auto => {}
        PathArg::Tcp => config.path = PathChoice::Tcp,
        PathArg::Shm => config.path = PathChoice::Shm,
    }
    Ok(config)
}
