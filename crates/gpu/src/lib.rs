//! GPU memory: what a device offers ([`Gpu`]), a simulated one (`SimGpu`, feature `sim`), and how its bytes get onto paths that reach
//! host memory only ([`StagedRail`]).
//!
//! Above the contract of the transports and below the drivers: `sys/cuda` and `sys/hip` implement [`Gpu`], code that moves
//! bytes uses it, and no transport needs to know of it.
#![deny(unsafe_code)]

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod devmem;
pub mod driver;
mod memory;
mod name;
pub mod offload;
mod pages;
#[cfg(feature = "sim")]
mod sim;
mod stage;
pub mod unpack;

pub use linkspan_transport::gpu::{
    Ability, DmaBuf, Event, ForeignStream, Gpu, GpuError, GpuInfo, Kind, LAUNCH_THREADS, Pointer, Stream, Unified,
    UnpackJob, launch_shape,
};
pub use memory::{GpuBuf, Pinned};
pub use name::MemoryName;
pub use pages::{numa_of, pages_around};
#[cfg(feature = "sim")]
pub use sim::{SimConfig, SimGpu};
#[cfg(feature = "planted")]
pub use stage::planted::{Bug as PlantedBug, plant};
pub use stage::{CHUNK, Share, StageMemory, StagedRail, Staging};
