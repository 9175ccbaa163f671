//! What a GPU offers to code that moves bytes. Its memory is moved by rails: by those that reach it, and by others through
//! the staging of `linkspan_gpu`.

mod device;
mod error;
mod foreign;

pub use device::{
    Ability, DeviceQueue, DmaBuf, Event, Gpu, GpuInfo, Kind, LAUNCH_THREADS, Pointer, Stream, Unified, UnpackJob,
    launch_shape,
};
pub use error::GpuError;
pub use foreign::ForeignStream;
