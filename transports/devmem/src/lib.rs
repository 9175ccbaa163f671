//! The transport of device-memory TCP: payload lands from the network card in GPU memory and is put in place there.
//!
//! A rail is a control rail, which any transport makes, with a second stream beside it that carries payload and nothing else: the
//! card puts whatever comes over that one into device memory, where the processor could not read a head. Chunks' heads and
//! control messages take the control rail; a head says that the next bytes of the second stream are its chunk's.
//! The crate's README has the whole of it.
#![deny(unsafe_code)]

mod endpoint;
mod error;
mod kernel;
mod notices;
mod planted;
mod rx;
#[cfg(feature = "sim")]
pub mod sim;
mod socket;
mod tx;

pub use endpoint::{DevmemRail, RailConfig};
pub use error::Error;
pub use kernel::{Cards, KernelSocket, Owner};
#[cfg(feature = "planted")]
pub use planted::{Bug as PlantedBug, plant};
pub use socket::{Lent, NotLent, Pool, Socket};
