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

use std::sync::Arc;

use crate::{Error, abi};
use library::Library;

/// An opened device; closes when its last user is gone.
struct Context {
    library: &'static Library,
    raw: *mut abi::IbvContext,
    name: String,
}

// SAFETY: libibverbs may be called from any thread on the same context and what is made on it (ibv_open_device(3),
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
        // SAFETY: made by this library, and everything made on it holds this context and is gone.
        unsafe { (self.library.close_device)(self.raw) };
    }
}

/// A protection domain: its queue pairs reach its regions and no others.
struct ProtectionDomain {
    context: Arc<Context>,
    raw: *mut abi::IbvPd,
}

// SAFETY: see `Context`.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    fn new(context: Arc<Context>) -> Result<Arc<ProtectionDomain>, Error> {
        // SAFETY: an open context.
        let raw = unsafe { (context.library.alloc_pd)(context.raw) };
        if raw.is_null() {
            Err(context.failed("ibv_alloc_pd"))
        } else {
            Ok(Arc::new(ProtectionDomain { context, raw }))
        }
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: made by this library, and every region and queue pair made in it holds it and is gone.
        unsafe { (self.context.library.dealloc_pd)(self.raw) };
    }
}

#[cfg(test)]
mod tests;
