//! The tests of this crate through its public items, as one program.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

mod bugreport;
#[path = "../../../../crates/bus/tests/integration/bus.rs"]
mod bus;
mod doctor;
mod events;
mod files;
mod job;
mod keys;
mod matrix;
mod measure;
mod memory;
mod plugin;
mod schema;
mod serve;
mod signals;
mod top;
mod usage;
