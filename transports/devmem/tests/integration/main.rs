//! The tests of this crate through its public items, as one program.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

mod common;
mod conformance;
mod ends;
mod kernel;
mod nowhere;
mod offload;
#[cfg(feature = "planted")]
mod planted;
mod words;
