//! The C side as it is in memory: `#[repr(C)]` types, one file each, and the numbers.
//!
//! Facts are those of NCCL 2.13 (interface 6, July 2022) to 2.32 (interface 12, 2026) and the RCCL releases that
//! follow them; `layout.rs` asserts every size and offset at compile time, for 64-bit targets.

mod attr;
mod call;
mod consts;
mod layout;
mod props;
mod table;
mod tuner;

pub use attr::{CommAttr, Config, DeviceHandle, NetAttr, VDevice4, VDevice8};
pub use call::*;
pub use consts::*;
pub use props::{PropsV6, PropsV7, PropsV8, PropsV9, PropsV11, PropsV12};
pub use table::{NetV6, NetV7, NetV8, NetV9, NetV10, NetV11, NetV12};
pub use tuner::*;
