//! The shared-memory transport: two processes of one user on one host.
//!
//! Control messages and small chunks travel through lock-free rings in a sealed memfd; large chunks are copied by
//! both processes at once, straight from the source to the destination (split cross-memory attach). `README.md` beside
//! this crate explains the set-up, the transfer and why memory is really free when we say so.
//!
//! [`identity`] and [`same_host`] tell whether the transport applies, [`Accepting`] and [`Connecting`] set it up,
//! [`ShmRail`] is the rail.
#![deny(unsafe_code)]

mod batch;
mod caps;
mod endpoint;
mod identity;
mod live;
mod memory;
mod record;
mod recv;
mod regions;
mod send;
mod setup;
mod wire;

pub use caps::Config;
pub use endpoint::ShmRail;
pub use identity::{IDENTITY_LEN, Identity, NotLocal, identity, same_host};
pub use setup::{Accepting, Connecting, SETUP_TIME, SetupError, pair};
