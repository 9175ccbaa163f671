//! The NCCL and RCCL network plugin interface, versions 6 to 12, for a plugin written in safe Rust.
//!
//! Implement [`NetPlugin`] (newest shape, no pointers), then say `export_net_plugin!(MyPlugin);` in a `cdylib`. The
//! seven tables `ncclNetPlugin_v6` ... `ncclNetPlugin_v12` come out of it. This crate checks what NCCL passes in, owns
//! every object whose address NCCL holds, keeps panics inside, and gives each request its place without allocating.
//! `README.md` beside this file tells what holds when.
pub mod abi;
mod arena;
mod burst;
mod comm;
mod fail;
mod global;
pub mod loader;
mod logger;
mod mem;
mod plugin;
mod props;
mod requests;
pub mod shim;
mod spin;
pub mod tuner;

pub use fail::{Fail, Misuse};
pub use global::{Exported, Global};
pub use linkspan_transport::MemSlice;
pub use logger::Logger;
pub use mem::{DeviceRange, Mem, MemKind, Part, RecvHints, RegisterRange};
pub use plugin::{
    Connecting, DeviceQueue, HANDLE_LEN, Init, ListenComm, MAX_RECVS, NetPlugin, Opened, OpenedRecv, OpenedSend,
    RecvComm, SendComm,
};
pub use props::Props;
pub use requests::REQUESTS;
