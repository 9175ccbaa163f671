//! The Thunderbolt and USB4 transport: a cable between two hosts, by our own ring driver (tier 1) or by the kernel's byte stream
//! (tier 2). Tier 3, TCP over `thunderbolt_net`, is the TCP transport on that cable's interface.
//!
//! [`find`] tells what cables this host has, [`Setup`] is the handshake (bytes in, bytes out) in which both sides choose one
//! and prove that it joins them; it ends with the rail. `soft` (feature `sim`) has both devices in software, for tests
//! on machines without a cable. `README.md` beside this crate has the messages.
#![deny(unsafe_code)]

mod cache;
mod device;
mod end;
mod error;
pub mod find;
mod offer;
mod provider;
mod rail;
mod ring;
mod setup;
#[cfg(feature = "sim")]
pub mod soft;
mod stream;
mod tier;
pub mod up;

pub use device::{Registrar, RingDevice};
pub use error::Error;
pub use linkspan_tbring::{Pair, PairState};
pub use provider::Cables;
pub use ring::RingRail;
#[doc(hidden)]
pub use setup::is_handshake;
pub use setup::{Config, OFFER_LEN, Role, Setup, join};
#[doc(hidden)]
pub use stream::{is_segment, reads_any_bytes};
pub use tier::{Cable, CableAddress, Ports, Tier};
