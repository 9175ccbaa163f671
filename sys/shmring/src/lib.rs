//! What the shared-memory transport needs of the machine: lock-free rings and transfer slots in a sealed memfd,
//! cross-memory attach, and the proof that a peer's copies have ended.
//!
//! The map is shared with a process that may write anything to it. Everything in it is an atomic or is moved by raw
//! copies; no Rust reference to plain data in it is ever made, each index is read once and bounds-checked, and what
//! is decided upon is decided on private copies.
//!
//! The protocols proper ([`ring`], [`slot`], [`region`], [`doorbell`], [`revoke`]) are written over traits, so that `--cfg loom` can model
//! them: `RUSTFLAGS="--cfg loom" cargo test -p linkspan-shmring --lib --release`.

pub mod doorbell;
pub mod region;
pub mod revoke;
pub mod ring;
pub mod slot;
mod sync;

#[cfg(not(loom))]
pub mod cma;
#[cfg(not(loom))]
pub mod layout;
#[cfg(not(loom))]
pub mod map;
#[cfg(not(loom))]
pub mod page;
#[cfg(not(loom))]
pub mod pages;
#[cfg(not(loom))]
pub mod peer;

#[cfg(feature = "sim")]
#[cfg(not(loom))]
#[doc(hidden)]
pub mod strange;

#[cfg(not(loom))]
pub use layout::{SLOTS, Side};
#[cfg(not(loom))]
pub use map::{Map, RingView, Slots};
