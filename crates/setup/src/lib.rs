//! What comes before a rail, for the fabric and for the mesh: interfaces and their addresses, logins of streams, messages behind a login, the
//! handshake of rails that come up beside a stream; and where both log and count.
#![forbid(unsafe_code)]

pub mod clock;
pub mod handshake;
pub mod interfaces;
pub mod log;
pub mod logins;
pub mod secured;
pub mod stats;
