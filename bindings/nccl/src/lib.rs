//! The NCCL and RCCL network plugin: `libnccl-net-linkspan.so`, the same file as `librccl-net-linkspan.so`.
//!
//! Thin on purpose: `plugin` says what there is, `setup` brings connections up, `path` carries messages, `memory` knows whose they are. All of it
//! is the fabric seen through `linkspan-ncclnet`, which owns everything whose address NCCL holds.
#![deny(unsafe_code)]

mod machine;
mod memory;
mod path;
mod plugin;
mod setup;
#[cfg(test)]
mod tests;
mod tuner;

pub use plugin::Plugin;

#[allow(unsafe_code, reason = "the exported symbols are no_mangle")]
mod symbols {
    linkspan_ncclnet::export_net_plugin!(crate::plugin::Plugin);
    linkspan_ncclnet::export_tuner!(crate::tuner::LineOrder);
}
