//! The NCCL plugin, source by source, but for the machine that it sees: every interface has a network card in software that puts
//! payload into pages of GPU memory. `tests/plugin-host` plays NCCL's kernels on it. The released plugin has nothing of this.
#![deny(unsafe_code)]

mod machine;
#[path = "../../../bindings/nccl/src/memory.rs"]
mod memory;
#[path = "../../../bindings/nccl/src/path.rs"]
mod path;
#[path = "../../../bindings/nccl/src/plugin.rs"]
mod plugin;
#[path = "../../../bindings/nccl/src/setup.rs"]
mod setup;

pub use plugin::Plugin;

#[allow(unsafe_code, reason = "the exported symbols are no_mangle")]
mod symbols {
    linkspan_ncclnet::export_net_plugin!(crate::plugin::Plugin);
}
