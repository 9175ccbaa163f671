//! GPU memory: what a device offers ([`Gpu`]), a simulated one (`SimGpu`, feature `sim`), and how its bytes get onto paths that reach
//! host memory only ([`StagedRail`]).
//!
//! Above the contract of the transports and below the drivers: `sys/cuda` and `sys/hip` implement [`Gpu`], code that moves
//! bytes uses it, and no transport needs to know of it.
#![deny(unsafe_code)]

#[cfg(feature = "conformance")]
pub mod conformance;
mod device;
pub mod devmem;
pub mod driver;
mod error;
mod foreign;
mod memory;
mod name;
pub mod offload;
#[cfg(feature = "sim")]
mod sim;
mod stage;
pub mod unpack;

pub use device::{
    Ability, DmaBuf, Event, Gpu, GpuInfo, Kind, LAUNCH_THREADS, Pointer, Stream, Unified, UnpackJob, launch_shape,
    numa_of, pages_around,
};
pub use error::GpuError;
pub use foreign::ForeignStream;
pub use memory::{GpuBuf, Pinned};
pub use name::MemoryName;
#[cfg(feature = "sim")]
pub use sim::{SimConfig, SimGpu};
#[cfg(feature = "planted")]
pub use stage::planted::{Bug as PlantedBug, plant};
pub use stage::{CHUNK, Share, StageMemory, StagedRail, Staging};
