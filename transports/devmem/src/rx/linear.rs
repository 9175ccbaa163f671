//! Buffers of calls: what the kernel copies to the host, until the GPU has read it.

use std::sync::Arc;

use linkspan_gpu::{Gpu, GpuError, Pinned};
use linkspan_transport::{Buf, HostBuf, MemSlice};

/// Buffers.
pub(super) const LINEARS: usize = 4;

/// Bytes of each, and so most bytes of a call: of a size that a core's caches hold while the next is filled.
pub(super) const LINEAR: usize = 256 << 10;

/// What keeps the memory.
enum LinearMemory {
    Host(HostBuf),
    Pinned(Pinned),
}

pub(super) struct Linears {
    memory: LinearMemory,
    /// Runs that read each.
    held: [u32; LINEARS],
}

impl Linears {
    /// Of host memory, for rails that know no device. One: whatever comes is copied at once.
    pub(super) fn on_host() -> Linears {
        Linears { memory: LinearMemory::Host(HostBuf::new(LINEAR)), held: [0; LINEARS] }
    }

    /// Of pinned memory.
    pub(super) fn pinned(gpu: &Arc<dyn Gpu>) -> Result<Linears, GpuError> {
        Ok(Linears { memory: LinearMemory::Pinned(Pinned::new(gpu, LINEARS * LINEAR)?), held: [0; LINEARS] })
    }

    /// A buffer that is never read.
    pub(super) fn free(&self) -> Option<(usize, MemSlice)> {
        #[allow(unsafe_code)]
        // SAFETY: calls copy to it before they return; runs that read it are waited for before this is dropped.
        let (all, count) = unsafe {
            match &self.memory {
                LinearMemory::Host(buf) => (buf.slice(), 1),
                LinearMemory::Pinned(buf) => (buf.slice(), LINEARS),
            }
        };
        let slot = self.held[..count].iter().position(|&n| n == 0)?;
        Some((slot, all.sub((slot * LINEAR) as u64, LINEAR as u64)?))
    }

    /// The run with these buffers reads this one too.
    pub(super) fn hold(&mut self, slot: usize, of: &mut u32) {
        if *of & (1 << slot) == 0 {
            *of |= 1 << slot;
            self.held[slot] += 1;
        }
    }

    /// The run reads none of them any more.
    pub(super) fn release(&mut self, of: &mut u32) {
        for (slot, held) in self.held.iter_mut().enumerate() {
            if *of & (1 << slot) != 0 {
                *held -= 1;
            }
        }
        *of = 0;
    }
}
