//! The RDMA transport: reliable-connection queue pairs over RoCE and InfiniBand.
//!
//! Control messages travel as sends into a ring of receives that were posted before the queue pair could receive,
//! inside credits, so that a receiver is never not ready. Chunks are RDMA writes: into a receive whose place the peer
//! has told ahead ([`linkspan_transport::Rail::granted`]), or after asking for the place. A frame behind the write on
//! the same queue pair says that it is there. `README.md` beside this crate has the frames and the set-up.
//!
//! [`Domain`] is a device with its registered memory, [`Setup`] the handshake (bytes in, bytes out), [`VerbsRail`]
//! the rail, [`Relay`] what joins two of them on a host between.
#![deny(unsafe_code)]

mod cache;
mod config;
mod endpoint;
mod error;
mod frame;
mod gid;
mod offer;
mod provider;
mod relay;
mod rx;
mod setup;
mod tx;

pub use cache::{Domain, Hold};
pub use config::Config;
pub use endpoint::{Counts, VerbsRail};
pub use error::Error;
#[doc(hidden)]
pub use frame::is_frame;
pub use gid::choose_gid;
pub use offer::Pairs;
pub use provider::{Rdma, RdmaPort};
pub use relay::{RELAY_CHUNK, Relay, RelayCounts};
pub use setup::{OFFER_LEN, QpOffer, READY_LEN, Setup, join};
