//! TCP streams before they are rails: what the fabric signals over, and what transports that use streams are given.
//!
//! [`Dial`] and [`Listen`] make a [`Stream`]; the login runs over it. Then it is given to a transport, or
//! kept as the [`Keepalive`] connection of a peer. Nothing here blocks and nothing starts a thread.
#![forbid(unsafe_code)]

pub mod closing;
mod congestion;
mod dial;
mod error;
pub mod health;
mod keepalive;
mod listen;
mod options;
mod stream;

pub use congestion::Congestion;
pub use dial::Dial;
pub use error::Error;
pub use keepalive::{Ended, Keepalive, SILENCE};
pub use linkspan_net::TcpInfo;
pub use listen::Listen;
pub use options::Options;
pub use stream::Stream;
