//! What is in this machine, and which of its network interfaces may carry linkspan traffic and why.
//!
//! Everything is read from sysfs and procfs below a root that tests replace ([`Roots`]); addresses are handed in,
//! for only the kernel's own call lists them reliably. Nothing here is on a data path: every function may allocate
//! and reads files. All types are plain data and may be used from any thread.
#![forbid(unsafe_code)]

mod filter;
mod host;
mod iface;
mod kind;
mod sysfs;
mod verdict;

pub use filter::{BadFilter, IfFilter};
pub use host::{Host, NumaNode};
pub use iface::{AddrEntry, IfAddr, Interface, interfaces};
pub use kind::Kind;
pub use sysfs::Roots;
pub use verdict::{FAR_SLOWER, Reason, Verdict, judge};

#[cfg(test)]
mod fixture;
