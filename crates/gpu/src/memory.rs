//! Owners of device memory and of pinned host memory.

use linkspan_transport::{HostBuf, MemSlice};

use crate::GpuError;
use crate::device::AnyGpu;

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
    pub fn slice(&self) -> MemSlice {
        self.mem
    }
}

impl Drop for GpuBuf {
    fn drop(&mut self) {
        self.gpu.free(self.mem);
    }
}

/// Host memory that a device copies from and to beside the processor.
///
/// Ordinary page-aligned memory that the driver has pinned, and not an allocation of the driver's: so a handle that
/// lived too long leads to memory that is never unmapped.
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
        gpu.pin(buf.slice())?;
        Ok(Pinned { gpu: gpu.clone(), buf })
    }

    /// A handle on the whole of it.
    pub fn slice(&self) -> MemSlice {
        self.buf.slice()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.gpu.unpin(self.buf.slice());
    }
}
