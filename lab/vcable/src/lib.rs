//! A virtual Thunderbolt/USB4 cable.
//!
//! The core is a [`World`](world::World): host interfaces with their registers and descriptor rings, host routers with
//! their configuration spaces, links, and cables between them, in virtual time and without I/O. Tests drive it directly;
//! the program `vcable` serves it to virtual machines over vfio-user, where unmodified drivers bind to it.
//!
//! What drivers may depend on is modelled: descriptor write-back, interrupt masks and throttling, SOF and EOF masks,
//! credits per path and from end to end, buffers that are finite, overflow and damage told in the right bits. What it
//! is not: a model of a vendor's silicon, or of speed.
//!
//! ```
//! use linkspan_vcable::topology::Topology;
//! use linkspan_vcable::world::{Options, World};
//!
//! let topology = Topology::parse("host a\npeer p\ncable ap a:1 p:1").unwrap();
//! let mut world = World::new(&topology, Options::default());
//! // The driver of host a reads how many rings there are.
//! assert_eq!(world.bar_read(0, 0x39640) & 0x7ff, 32);
//! ```

#![forbid(unsafe_code)]

pub mod control;
mod crc;
pub mod error;
pub mod failure;
pub mod fault;
pub mod link;
pub mod memory;
pub mod nhi;
pub mod pci;
pub mod peer;
pub mod rng;
pub mod router;
#[cfg(feature = "serve")]
pub mod serve;
pub mod time;
pub mod topology;
pub mod trace;
pub mod world;
pub mod xdomain;
