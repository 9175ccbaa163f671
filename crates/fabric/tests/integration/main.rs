//! The tests of this crate through its public items, as one program.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

mod added;
mod cable;
mod common;
mod device;
mod devmem;
mod events;
mod helpers;
mod hostile;
mod keys;
mod pair;
mod psk;
mod strangers;
mod verbs;
