//! Files over linkspan: one engine for every way of moving them. The side that has a file writes it into slots that the
//! receiver exposed; the receiver checks each chunk, writes it and gives the file its name when all of it is on the disk.
//!
//! The engines ([`source`], [`sink`]) do no network I/O and know no clock but that of the file system, which is a trait
//! ([`fs`]): the same code runs over the real one and over a simulated one that forgets what was not synced.
#![forbid(unsafe_code)]

pub mod client;
mod edit;
pub mod engine;
mod error;
pub mod fs;
pub mod hash;
pub mod journal;
mod link;
pub mod mirror;
pub mod name;
mod ops;
pub mod pipe;
mod rules;
pub mod serve;
mod side;
#[cfg(feature = "sim")]
pub mod sim;
pub mod sink;
pub mod source;
mod sweep;
mod transfer;
pub mod trash;
pub mod wire;

use std::sync::{Mutex, MutexGuard};

pub use error::Error;
pub use rules::{BadRule, Rules};
pub use side::Side;
pub use transfer::Outcome;

/// The guard of a lock, also after a thread that held it has panicked: what it guards is whole between two calls.
pub fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(|e| e.into_inner())
}
