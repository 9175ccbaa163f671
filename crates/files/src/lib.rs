//! Files over linkspan: one engine for every way of moving them. The side that has a file writes it into slots that the
//! receiver exposed; the receiver checks each chunk, writes it and gives the file its name when all of it is on the disk.
//!
//! The engines ([`source`], [`sink`]) do no network I/O and know no clock but that of the file system, which is a trait
//! ([`fs`]): the same code runs over the real one and over a simulated one that forgets what was not synced.
#![forbid(unsafe_code)]

pub mod client;
pub mod engine;
mod error;
pub mod fs;
pub mod hash;
pub mod journal;
mod link;
pub mod name;
mod ops;
pub mod pipe;
pub mod serve;
#[cfg(feature = "sim")]
pub mod sim;
pub mod sink;
pub mod source;
mod sweep;
mod transfer;
pub mod wire;

pub use error::Error;
pub use transfer::Outcome;
