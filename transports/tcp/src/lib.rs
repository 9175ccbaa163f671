//! The TCP transport: rails over TCP streams that have logged in.
//!
//! [`TcpRail::new`] takes a stream over, [`SealedRail::new`] one whose bytes are encrypted.
//! Nothing here blocks, and nothing starts a thread but [`Helpers`], which exist where the user asked for them and
//! make a [`HelpedRail`] of a rail. The crate's README has the reasons behind the numbers.
#![deny(unsafe_code)]

mod batch;
mod endpoint;
mod error;
mod frames;
mod helped;
mod rx;
mod sealed;
mod suppressor;
mod tx;
mod zerocopy;

pub use endpoint::{CHUNK, RailConfig, TcpRail};
pub use error::Error;
pub use helped::{HELPERS_MAX, HelpedRail, Helpers};
pub use sealed::{SEALED_CHUNK, SealedRail};
pub use zerocopy::ZeroCopyPolicy;
