//! What is in this machine: network interfaces, Thunderbolt, RDMA devices, GPUs; the cables between it and others, and
//! which of them may carry linkspan traffic and why.
//!
//! Everything is read from sysfs and procfs below a root that tests replace ([`Roots`]); addresses are handed in,
//! for only the kernel's own call lists them reliably. Nothing here is on a data path: every function may allocate
//! and reads files. All types are plain data and may be used from any thread.
#![forbid(unsafe_code)]

mod cable;
mod default_route;
mod filter;
mod gpu;
mod host;
mod iface;
mod kind;
mod look;
mod machine;
pub mod mesh;
mod neighbour;
mod pci;
mod rdma;
mod sysfs;
mod thunderbolt;
mod verdict;

pub use cable::{Cable, CablePath, Means, Medium, NEIGHBOURS_SHOWN, Peer, cables};
pub use default_route::default_routes;
pub use filter::{BadFilter, IfFilter};
pub use gpu::Gpu;
pub use host::{Host, NumaNode};
pub use iface::{AddrEntry, IfAddr, Interface, interfaces, is_link_local};
pub use kind::Kind;
pub use machine::Machine;
pub use neighbour::Neighbour;
pub use pci::{Distance, PciPlace, PcieLink, PcieLinks, distance};
pub use rdma::{Gid, GidKind, LinkLayer, NotReady, RdmaDevice, RdmaPort};
pub use sysfs::Roots;
pub use thunderbolt::{Domain, Lanes, Link, Router, Service, XDomain};
pub use verdict::{FAR_SLOWER, LAST_RESORT, Reason, Verdict, judge};

#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
