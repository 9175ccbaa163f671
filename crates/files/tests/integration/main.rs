//! The tests of this crate through its public items, as one program.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

mod histories;
mod hostile;
mod rights;
mod sessions;
