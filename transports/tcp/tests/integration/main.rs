//! The tests of this crate through its public items, as one program.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

mod common;
mod conformance;
mod device;
mod helped;
mod helped_conformance;
mod hostile;
mod processes;
mod sealed_conformance;
mod sealed_hostile;
mod sealed_traffic;
mod setup;
mod traffic;
