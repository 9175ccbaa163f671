//! A real device, through libibverbs.

mod cq;
mod library;
mod mr;
mod nic;
mod qp;
mod reaper;

pub use cq::HwCq;
pub use mr::HwMr;
pub use nic::{HwNic, devices};
pub use qp::HwQp;

use crate::{Error, abi};
use library::Library;

/// An opened device; closes when its last user is gone.
struct Context {
    library: &'static Library,
    raw: *mut abi::IbvContext,
    pd: *mut abi::IbvPd,
    name: String,
}

// SAFETY: libibverbs may be called from any thread on the same context and protection domain (ibv_open_device(3),
// rdma-core Documentation/libibverbs.md: all verbs are thread-safe).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn failed(&self, call: &'static str) -> Error {
        Error::system(call, &self.name, std::io::Error::last_os_error())
    }

    fn code(&self, call: &'static str, code: i32) -> Result<(), Error> {
        if code == 0 { Ok(()) } else { Err(Error::errno(call, &self.name, code.abs())) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: both were made by this library, and everything made on them holds this context and is gone.
        unsafe {
            (self.library.dealloc_pd)(self.pd);
            (self.library.close_device)(self.raw);
        }
    }
}

#[cfg(test)]
mod tests;
