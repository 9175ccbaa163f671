//! What a user does with peers: tests, transfers, mirrors, shares. `lspan` parses what is asked for and prints what comes of it, and the user's
//! service does it for programs, as tasks.
#![deny(unsafe_code)]

mod connect;
mod error;
pub mod keys;
pub mod link;
pub mod mirror;
pub mod mirrors;
pub mod mount;
pub mod place;
mod replace;
pub mod serve;
pub mod shares;
pub mod suite;
pub mod task;
pub mod transfer;
pub mod work;

pub use connect::{Dialer, finder};
pub use error::Error;
pub use replace::replace;
