//! What the targets share: a way to read decisions off an input, memory that knows who may touch it, frames that are
//! almost right, and a peer that logs in like an honest one.

pub mod arena;
pub mod frames;
pub mod input;
pub mod peer;

pub use input::Input;
