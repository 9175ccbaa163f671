//! The NCCL and RCCL network plugin as a library. A `cdylib` that says [`export!`] is a plugin that NCCL loads; which machine it
//! sees is what it says with it. The released one is `bindings/libnccl-net`.
//!
//! Thin on purpose: `plugin` says what there is, `setup` brings connections up, `path` carries messages, `memory` knows whose they are. All of it
//! is the fabric seen through `linkspan-ncclnet`, which owns everything whose address NCCL holds.
#![deny(unsafe_code)]

mod memory;
mod path;
mod plugin;
mod setup;
#[cfg(test)]
mod tests;
mod tuner;

pub use plugin::{Machine, Plugin};

#[doc(hidden)]
pub use linkspan_fabric::{Config, Error, Fabric, Log};
#[doc(hidden)]
pub use linkspan_ncclnet as ncclnet;

/// Exports everything that NCCL and RCCL look up, for a function that makes the plugin's fabric of the settings in the environment and
/// a log. Once per library.
///
/// ```ignore
/// linkspan_plugin::export!(|config, log| Fabric::new(config, log, false, linkspan_transports::all()));
/// ```
#[macro_export]
macro_rules! export {
    ($fabric:expr) => {
        #[allow(unsafe_code, reason = "the exported symbols are no_mangle")]
        mod symbols {
            use super::*;

            /// What the plugin sees.
            struct Seen;

            impl $crate::Machine for Seen {
                fn fabric(config: $crate::Config, log: $crate::Log) -> Result<$crate::Fabric, $crate::Error> {
                    ($fabric)(config, log)
                }

                fn global() -> &'static $crate::ncclnet::Global<$crate::Plugin<Seen>> {
                    static GLOBAL: $crate::ncclnet::Global<$crate::Plugin<Seen>> = $crate::ncclnet::Global::new();
                    &GLOBAL
                }
            }

            $crate::ncclnet::export_net_plugin!(@symbols $crate::Plugin<Seen>);
            $crate::ncclnet::export_tuner!($crate::Plugin<Seen>);
        }
    };
}
