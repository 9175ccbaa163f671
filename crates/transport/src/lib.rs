//! Layer 1: the contract between the fabric and its transports.
//!
//! A transport (TCP, shared memory, verbs, ...) offers [`Rail`]s: connections that carry small ordered control messages
//! and chunks of payload. [`Conn`] runs the one protocol of `linkspan-proto` over one or several rails and is what
//! callers drive: `post_send`, `post_recv`, `progress`, `test`.
#![deny(unsafe_code)]

#[cfg(feature = "conformance")]
pub mod conformance;
mod conn;
mod domain;
mod end;
pub mod gpu;
mod host;
mod memory;
mod rail;
mod regions;
mod registrar;
mod setup;
#[cfg(doctest)]
mod unsound;

pub use conn::{Conn, Error, RailLost};
pub use domain::{DeviceMemory, MemoryDomain, register_device};
pub use end::{End, peer_gone};
pub use host::HostBuf;
#[cfg(any(test, feature = "conformance"))]
pub use host::StaticBuf;
pub use linkspan_proto::conn::{
    Access, Cancel, MAX_GROUP, MAX_RAILS, MAX_WAITING, OpError, RemoteSlice, Ticket, Traffic,
};
pub use linkspan_proto::{Buf, Head, Kind};
pub use memory::MemSlice;
pub use rail::{BoxRail, Busy, Caps, DeviceReach, Down, Health, Poll, Rail, RailInfo, Sink, Violation, WaitFd};
pub use regions::Regions;
pub use registrar::{DirectBy, Refusal, Registrar, Registration};
pub use setup::{Offer, Provider, Relay, Relayer, Role, Setup, Site};

/// An error with its causes on one line, for logs.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
