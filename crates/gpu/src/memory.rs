//! Owners of device memory and of pinned host memory.
#![allow(unsafe_code)]

use std::sync::Arc;

use linkspan_transport::{HostBuf, MemSlice};

use crate::{Gpu, GpuError};

pub(crate) type AnyGpu = Arc<dyn Gpu>;

/// Device memory. Dropping it gives it back to the device while nothing may use it any more.
#[derive(Debug)]
pub struct GpuBuf {
    gpu: AnyGpu,
    mem: MemSlice,
}

impl GpuBuf {
    /// `len` bytes, with undefined contents.
    ///
    /// # Errors
    /// [`GpuError::Call`] where the driver refuses (out of memory), [`GpuError::Exhausted`].
    pub fn new(gpu: &AnyGpu, len: usize) -> Result<GpuBuf, GpuError> {
        Ok(GpuBuf { mem: gpu.alloc(len)?, gpu: gpu.clone() })
    }

    /// A handle on the whole of it.
    ///
    /// # Safety
    /// Nothing uses the handle, a copy or a part of it once this is dropped; see [`MemSlice::on_device`].
    pub unsafe fn slice(&self) -> MemSlice {
        self.mem
    }

    /// The same within this crate, whose owners of device memory wait for the device before they drop it.
    pub(crate) fn mem(&self) -> MemSlice {
        self.mem
    }
}

impl Drop for GpuBuf {
    fn drop(&mut self) {
        // SAFETY: ours since it was allocated, and `slice` asks that nothing uses it now.
        unsafe { self.gpu.free(self.mem) };
    }
}

/// Host memory that a device copies from and to beside the processor.
///
/// Ordinary page-aligned memory that the driver has pinned, and not an allocation of the driver's.
#[derive(Debug)]
pub struct Pinned {
    gpu: AnyGpu,
    buf: HostBuf,
}

impl Pinned {
    /// `len` zero bytes.
    ///
    /// # Errors
    /// [`GpuError::Call`] where the driver refuses, as for the limit on locked memory (`ulimit -l`).
    pub fn new(gpu: &AnyGpu, len: usize) -> Result<Pinned, GpuError> {
        let buf = HostBuf::new(len);
        // SAFETY: unpinned before the buffer is dropped.
        gpu.pin(unsafe { buf.slice() })?;
        Ok(Pinned { gpu: gpu.clone(), buf })
    }

    /// Address of the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.buf.as_ptr()
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Copies `bytes` to `offset`. False, and nothing is written, where they do not fit.
    #[must_use]
    pub fn fill(&self, offset: u64, bytes: &[u8]) -> bool {
        self.buf.fill(offset, bytes)
    }

    /// Copies bytes from `offset` into `out`. False, and nothing is written, where they are not inside.
    #[must_use]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        self.buf.read(offset, out)
    }

    /// A handle on the whole of it.
    ///
    /// # Safety
    /// Nothing, and no copy that the device runs, uses the handle, a copy or a part of it once this is dropped.
    pub unsafe fn slice(&self) -> MemSlice {
        self.mem()
    }

    /// The same within this crate, whose owners of pinned memory wait for the device before they drop it.
    pub(crate) fn mem(&self) -> MemSlice {
        // SAFETY: see above.
        unsafe { self.buf.slice() }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the driver forgets it within the call.
        self.gpu.unpin(unsafe { self.buf.slice() });
    }
}
