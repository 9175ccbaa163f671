//! The TCP transport: rails over TCP streams, and how streams come about.
//!
//! [`Dial`] and [`Listen`] make a [`Stream`]; the login runs over it; [`Stream::into_rail`] makes it a [`TcpRail`],
//! [`Stream::into_sealed_rail`] an encrypted [`SealedRail`].
//! Nothing here blocks, and nothing starts a thread but [`Helpers`], which exist where the user asked for them and
//! make a [`HelpedRail`] of a rail. The crate's README has the reasons behind the numbers.
#![deny(unsafe_code)]

mod async_sink;
mod batch;
pub mod closing;
mod congestion;
mod dial;
mod endpoint;
mod error;
mod frames;
mod health;
mod helped;
mod keepalive;
mod listen;
mod options;
mod rx;
mod sealed;
mod stream;
mod suppressor;
mod tx;
mod zerocopy;

pub use congestion::Congestion;
pub use dial::Dial;
pub use endpoint::{CHUNK, RailConfig, TcpRail};
pub use error::Error;
pub use helped::{HELPERS_MAX, HelpedRail, Helpers};
pub use keepalive::{Ended, Keepalive};
pub use linkspan_net::TcpInfo;
pub use listen::Listen;
pub use options::Options;
pub use sealed::{SEALED_CHUNK, SealedRail};
pub use stream::Stream;
pub use zerocopy::ZeroCopyPolicy;
