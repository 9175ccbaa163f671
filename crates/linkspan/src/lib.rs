//! linkspan: writes into and reads from the memory of another process, over the best path there is between the two.
//!
//! A [`Transport`] talks to one peer. It carries one-sided operations (the peer's program takes no part in them) and tagged
//! messages, over shared memory on one host and RDMA, a Thunderbolt cable or TCP between hosts, and says which and why
//! ([`Transport::path`]). An [`Endpoint`] has any number of peers by their names, and a transport for each.
//!
//! ```
//! use std::time::Duration;
//! use linkspan::{Access, Memory, Notify, Transport};
//!
//! # fn main() -> Result<(), linkspan::Error> {
//! // The side that is written to. It gives its URL and the remote buffer to the other one by any way.
//! let target = Transport::new()?;
//! let url = target.bind()?;
//! let inbox = Memory::host(1 << 20);
//! let remote = target.expose(&inbox.view(), Access::Write)?.remote();
//!
//! // The side that writes, usually another process.
//! let source = Transport::new()?;
//! source.connect_blocking(&url, Duration::from_secs(10))?;
//! let weights = Memory::copy_of(b"some bytes");
//! source.write_blocking(&weights.view(), &remote, Some(Notify::value(7)), None)?;
//!
//! // The notification comes after the bytes.
//! assert_eq!(target.wait_for_write_blocking(None)?, 7);
//! assert_eq!(&inbox.to_vec()[..10], b"some bytes");
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod acceptor;
mod context;
mod endpoint;
mod engine;
mod error;
pub mod hello;
mod listener;
mod memory;
mod op;
mod ops;
mod pages;
mod paired;
mod regions;
mod remote;
mod shared;
mod state;
mod stats;
mod transport;
mod url;
mod wakers;

pub use context::{Context, Support};
pub use endpoint::{Endpoint, Event};
pub use error::Error;
pub use linkspan_fabric::{Access, Config, ForeignStream, Gpu, GpuError, Level, Log, MemSlice, OpError, PathChoice};
pub use listener::Listener;
pub use memory::{Memory, MemoryKind, MutableView, View};
pub use op::Op;
pub use ops::Notify;
pub use pages::{MutablePages, PageShape, Pages, RemotePages};
pub use regions::Exposed;
pub use remote::{REMOTE_BUFFER_LEN, RemoteBuffer};
pub use stats::TransportStats;
pub use transport::{Read, Transport, Write};
pub use url::{Url, UrlError, UrlKind};

use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_fabric::Pointer;

/// When a call must be over that may take so long: in a year at the latest, which stands for no limit, for clocks have an end.
fn deadline(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(Duration::from_secs(365 * 24 * 3600))
}

/// Opens a GPU of this machine by its name: `cuda:0`, `hip:1`. The same one each time; its driver's library is loaded now.
///
/// # Errors
/// [`Error::Gpu`]: no such name, no such GPU, or no driver.
pub fn gpu(name: &str) -> Result<Arc<dyn Gpu>, Error> {
    let no_gpu = || GpuError::Name { name: name.to_owned() };
    Ok(linkspan_fabric::gpus::open(name.parse()?)?.ok_or_else(no_gpu)?)
}

/// The GPU that owns the memory at an address.
///
/// # Errors
/// [`Error::Gpu`]: no driver knows the address as memory of a GPU.
pub fn gpu_of(address: u64) -> Result<Arc<dyn Gpu>, Error> {
    Ok(linkspan_fabric::gpus::owner(address)?)
}

/// Asks the driver whether `len` bytes at `address` are memory of `gpu`, or managed memory that it reaches.
///
/// # Errors
/// [`Error::Gpu`]: the first or the last byte is of the host, of another GPU, or of no known allocation. The bytes
/// between are not looked up.
pub fn check_on_gpu(gpu: &Arc<dyn Gpu>, address: u64, len: usize) -> Result<(), Error> {
    let refused = |why| GpuError::Range { device: gpu.info().id(), addr: address, len, why };
    let Some(last) = (len as u64).checked_sub(1) else { return Ok(()) };
    let last = address.checked_add(last).ok_or_else(|| refused("it reaches beyond all addresses"))?;
    for at in [address, last] {
        match gpu.pointer(at)? {
            Pointer::Device { ordinal, .. } if ordinal == gpu.info().ordinal => {}
            Pointer::Managed => {}
            Pointer::Device { .. } => Err(refused("it is memory of another GPU"))?,
            Pointer::Host | Pointer::Pinned => Err(refused("it is host memory, or not allocated"))?,
        }
    }
    Ok(())
}
