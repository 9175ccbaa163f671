//! What a user does with peers: tests, transfers, mirrors, shares. `lspan` parses what is asked for and prints what comes of it.
#![deny(unsafe_code)]

mod connect;
mod error;
pub mod link;
pub mod mirror;
pub mod place;
pub mod serve;
pub mod suite;
pub mod transfer;

pub use connect::finder;
pub use error::Error;
