//! A transport that exists only in one thread: links with latency and bandwidth under a virtual clock, and seeded faults.
//!
//! A [`World`] owns the clock, the random numbers and every link. [`World::link`] gives the two ends of a new link,
//! each a [`SimRail`], to two connections in the same thread. What happens depends on the seed and on the order of
//! calls alone, so a run that failed once fails again.
#![deny(unsafe_code)]

mod fault;
mod link;
mod parse;
mod rail;
mod rng;
mod world;

pub use fault::Fault;
pub use link::{End, LinkConfig, LinkId};
pub use rail::SimRail;
pub use rng::Rng;
pub use world::World;

#[cfg(test)]
mod tests;
