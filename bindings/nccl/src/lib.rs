//! The NCCL and RCCL network plugin as a library. A `cdylib` that says [`export!`] is a plugin that NCCL loads; which machine it
//! sees is what it says with it. The released one is `bindings/libnccl-net`.
//!
//! NCCL's side: `abi` has its tables, versions 6 to 12, and `interface` the newest of them as traits without pointers. `shim` makes
//! the tables of what implements these: it checks what NCCL passes in, owns every object whose address NCCL holds, keeps panics inside,
//! and gives each request its place without allocating. `README.md` beside tells what holds when.
//!
//! Our side is the fabric seen through these traits: `plugin` says what there is, `setup` brings connections up, `path` carries
//! messages, `memory` knows whose they are.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod abi;
#[allow(unsafe_code)]
mod arena;
mod burst;
mod comm;
mod fail;
#[allow(unsafe_code)]
mod global;
#[allow(unsafe_code)]
mod interface;
#[allow(unsafe_code)]
pub mod loader;
#[allow(unsafe_code)]
mod logger;
#[allow(unsafe_code)]
mod mem;
mod memory;
mod path;
mod plugin;
mod props;
#[allow(unsafe_code)]
mod requests;
mod setup;
#[allow(unsafe_code)]
pub mod shim;
#[allow(unsafe_code)]
mod spin;
#[allow(unsafe_code)]
pub mod tuner;

pub use fail::{Fail, Misuse};
pub use global::{Exported, Global};
pub use interface::{
    Connecting, DeviceQueue, HANDLE_LEN, Init, ListenComm, MAX_RECVS, NetPlugin, Opened, OpenedRecv, OpenedSend,
    RecvComm, SendComm,
};
pub use linkspan_transport::MemSlice;
pub use logger::Logger;
pub use mem::{DeviceRange, Mem, MemKind, Part, RecvHints, RegisterRange};
pub use plugin::{Machine, Plugin};
pub use props::Props;
pub use requests::REQUESTS;

#[doc(hidden)]
pub use linkspan_fabric::{Config, Error, Fabric, Log};

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

                fn global() -> &'static $crate::Global<$crate::Plugin<Seen>> {
                    static GLOBAL: $crate::Global<$crate::Plugin<Seen>> = $crate::Global::new();
                    &GLOBAL
                }
            }

            $crate::export_net_plugin!(@symbols $crate::Plugin<Seen>);
            $crate::export_tuner!($crate::Plugin<Seen>);
        }
    };
}
