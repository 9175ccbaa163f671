//! RDMA verbs, as much as a reliable connection needs.
//!
//! [`Nic`] is the trait; three things stand behind it:
//!
//! * [`hw::HwNic`]: a real device (or soft-RoCE) through libibverbs, which is opened at run time and need not be
//!   there. No headers, no C compiler, no libclang at build time; `abi` is our own binding and a test holds it
//!   against the installed headers.
//! * `soft::SoftNic` (feature `sim`): a NIC in software, written without `unsafe`: packets with sequence numbers, keys, bounds,
//!   access rights, retries, receiver-not-ready, queue-pair states, asynchronous events, and a wire that loses,
//!   delays and doubles packets from a seed.
//! * `mock::MockNic` (feature `sim`): any of them with scripted faults in front.
//!
//! What a NIC may touch is what was registered ([`Nic::register`]), and only ranges wrapped in a
//! [`linkspan_transport::MemSlice`] can be; so posting work is safe: a wrong key is refused by the device.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod abi;
mod error;
#[allow(unsafe_code)]
pub mod hw;
#[cfg(feature = "sim")]
pub mod mock;
mod nic;
#[cfg(feature = "sim")]
pub mod soft;
mod types;

pub use error::{Error, PostError};
pub use nic::{Cq, Mr, Nic, Qp};
pub use types::{
    Access, Address, AsyncEvent, Completion, Gid, GidEntry, GidKind, InitAttr, Keys, Limits, LinkLayer, MAX_SGE, Mtu,
    Port, QpCaps, QpState, RecvWr, RtrAttr, RtsAttr, SendOp, SendWr, Sge, Status, What,
};
