//! The machine that the plugin sees. A file of its own, in whose place tests/sim-plugin has one with network cards in software.

use linkspan_fabric::{Config, Error, Fabric, Log};

pub(crate) fn machine(config: Config, log: Log) -> Result<Fabric, Error> {
    Fabric::new(config, log, false)
}
