//! Performance tests over a duplex message link: engines, statistics, baselines and reports.
//!
//! The two sides of a test use a small control protocol ([`wire`]) over the very link they measure. The side that
//! asks is a [`Client`], the other one runs [`serve`]. Both drive the link from the calling thread; nothing in the
//! timed loops allocates, locks or formats.
#![deny(unsafe_code)]

pub mod baseline;
pub mod format;
pub mod hist;
pub mod link;
pub mod pattern;
pub mod record;
pub mod spec;
pub mod units;
pub mod wire;

mod clock;
mod connect;
mod ctrl;
mod error;
mod gate;
mod idle;
mod interrupt;
mod multi;
mod offer;
mod phase;
mod pump;
mod session;
mod turn;

pub use clock::thread_cpu_ns;
pub use connect::{Connects, connects};
pub use error::PerfError;
pub use interrupt::Interrupt;
pub use link::{Leftovers, Link, LinkDesc, LinkError, Ticket};
pub use linkspan_net::{Quota, Share};
pub use multi::{Streams, multi};
pub use offer::Offers;
pub use session::{Client, Limits, Outcome, serve, serve_until, serve_with};
pub use spec::{Direction, Spec, Stop, Test, WaitMode};

#[cfg(test)]
mod mock;
