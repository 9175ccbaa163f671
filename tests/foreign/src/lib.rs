//! A transport that linkspan does not know: rails over Unix sockets, for two processes of one host. Written against public items
//! only. This crate is the transport, the list that has it, and a plugin for NCCL over that list.
#![deny(unsafe_code)]

mod depth;
mod provider;
mod rail;

use linkspan_fabric::{Fabric, Provider};

pub use rail::UnixRail;

/// Its name.
pub const NAME: &str = "afunix";

/// The list of transports.
pub fn all() -> Vec<Box<dyn Provider>> {
    vec![Box::new(provider::AfUnix)]
}

linkspan_plugin::export!(|config, log| Fabric::new(config, log, false, all()));
