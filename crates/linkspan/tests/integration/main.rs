//! The tests of this crate through its public items, as one program.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

mod behaviours;
mod chunks;
mod common;
mod concurrency;
mod device;
mod endpoint;
mod examples;
mod half_made;
mod hostile;
mod idle;
mod paired;
mod processes;
mod proxied;
