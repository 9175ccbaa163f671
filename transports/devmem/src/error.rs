//! What can go wrong with device memory under a stream.

use std::io;

use linkspan_gpu::GpuError;
use linkspan_gpu::devmem::BadControl;

/// Why a stream does not reach device memory, or no longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Device memory cannot be bound to the card for receiving.
    #[error("LS1340 payload from {path} cannot be received into memory of {device}: {why}")]
    NotBound {
        /// The stream.
        path: String,
        /// The GPU.
        device: String,
        /// Why not.
        why: String,
    },
    /// Device memory cannot be sent from where it lies.
    #[error("LS1341 memory of {device} cannot be sent over {path} without a copy: {why}")]
    NotLent {
        /// The stream.
        path: String,
        /// The GPU.
        device: String,
        /// Why not.
        why: String,
        /// As [`crate::NotLent::lasting`].
        lasting: bool,
    },
    /// The GPU failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The kernel's control messages cannot be read.
    #[error(transparent)]
    Control(#[from] BadControl),
    /// A fragment that is not of our memory.
    #[error(
        "LS1342 the kernel names bytes at {offset:#x} of binding {dmabuf}, which is not in the memory bound as {ours}"
    )]
    Fragment {
        /// Its offset.
        offset: u64,
        /// Its binding.
        dmabuf: u32,
        /// Our binding.
        ours: u32,
    },
    /// The kernel does not take pages back.
    #[error("LS1343 the kernel takes none of {tokens} pages back, which it gave out")]
    Tokens {
        /// How many.
        tokens: u64,
    },
    /// A system call.
    #[error("LS1344 {call} failed")]
    System {
        /// Which.
        call: &'static str,
        /// The OS error.
        #[source]
        source: io::Error,
    },
}
