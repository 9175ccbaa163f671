//! Layer 0: every byte that crosses a cable, and the state machines above it.
//!
//! Nothing here does I/O or reads a clock: bytes and time come in as arguments, actions go out through
//! [`conn::Engine::next_action`]. The crate forbids `unsafe` and is total over arbitrary input.
#![forbid(unsafe_code)]

mod buf;
pub mod conn;
pub mod greeting;
pub mod handle;
pub mod head;
pub mod login;
pub mod mesh;
pub mod plan;

pub use buf::Buf;
pub use head::{Head, Kind};
