//! NVIDIA GPUs through the CUDA driver library, which is opened at run time; no CUDA toolkit is needed, neither to build
//! nor to run.
//!
//! The driver API and not the runtime: it is what the driver itself brings, and its functions keep their names and types
//! (suffixes `_v2` mark new ones). We use each device's primary context, the one that NCCL, PyTorch and the runtime API
//! use too, and leave the calling thread's context as it was.

mod api;
mod device;

use std::sync::Arc;

use linkspan_dl::Library;
use linkspan_gpu::{Gpu, GpuError};

use api::Api;
pub use device::Cuda;

/// The driver, loaded and initialised.
#[derive(Debug)]
pub struct Driver {
    api: Arc<Api>,
    version: i32,
    devices: usize,
}

impl Driver {
    /// Opens the driver of this machine.
    ///
    /// # Errors
    /// [`GpuError::NoLibrary`] where there is none, the normal case on a machine without such a GPU;
    /// [`GpuError::Symbol`] where it is too old; [`GpuError::Call`].
    pub fn open() -> Result<Driver, GpuError> {
        Driver::open_file("libcuda.so.1")
    }

    /// Opens a driver library by name or path.
    ///
    /// # Errors
    /// As [`Driver::open`].
    pub fn open_file(name: &str) -> Result<Driver, GpuError> {
        const WHAT: &str = "CUDA driver";
        let library = Library::open(name).map_err(|why| GpuError::NoLibrary { what: WHAT, why })?;
        let missing = |symbol| GpuError::Symbol { library: name.to_owned(), symbol, wanted: "11.4" };
        let api = Arc::new(Api::load(&library).map_err(missing)?);
        let call = |call, code| device::checked(&api, "cuda", call, code);
        let (mut version, mut devices) = (0, 0);
        // SAFETY: the driver's functions with their types; cuInit comes first and takes 0.
        let code = unsafe { (api.cuInit)(0) };
        if code == api::NO_DEVICE {
            return Ok(Driver { api, version: 0, devices: 0 });
        }
        call("cuInit", code)?;
        // SAFETY: as above; both write one integer.
        call("cuDriverGetVersion", unsafe { (api.cuDriverGetVersion)(&raw mut version) })?;
        // SAFETY: as above.
        call("cuDeviceGetCount", unsafe { (api.cuDeviceGetCount)(&raw mut devices) })?;
        Ok(Driver { api, version, devices: usize::try_from(devices).unwrap_or(0) })
    }

    /// Devices there are.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// Device number `ordinal`.
    ///
    /// # Errors
    /// [`GpuError::NoDevice`] for a number that the driver does not have, [`GpuError::Call`], [`GpuError::Exhausted`].
    pub fn device(&self, ordinal: usize) -> Result<Arc<dyn Gpu>, GpuError> {
        if ordinal >= self.devices {
            return Err(GpuError::NoDevice { wanted: format!("cuda:{ordinal}"), found: self.devices });
        }
        let _relaxed = device::Relaxed::new(&self.api);
        Ok(Cuda::new(self.api.clone(), self.version, ordinal)?)
    }

    /// The device that the calling thread works with; `None` where it has none.
    ///
    /// # Errors
    /// [`GpuError::Call`]: `cuCtxGetDevice` failed.
    pub fn current(&self) -> Result<Option<usize>, GpuError> {
        let mut device = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (self.api.cuCtxGetDevice)(&raw mut device) };
        if code == api::INVALID_CONTEXT {
            return Ok(None);
        }
        device::checked(&self.api, "cuda", "cuCtxGetDevice", code)?;
        device::ordinal_of(&self.api, device, self.devices).map(Some)
    }

    /// The device that owns the memory at an address; `None` where it is no device memory. Asks in the calling thread's
    /// context, so that no device is taken into use for the question.
    ///
    /// # Errors
    /// [`GpuError::Call`]: `cuPointerGetAttributes` failed, as when the thread has no context.
    pub fn owner(&self, addr: u64) -> Result<Option<usize>, GpuError> {
        use api::pointer::{DEVICE, DEVICE_ORDINAL, MEMORY_TYPE};
        let (mut kind, mut ordinal): (u32, i32) = (0, 0);
        let mut which = [MEMORY_TYPE, DEVICE_ORDINAL];
        let mut out: [*mut std::ffi::c_void; 2] = [(&raw mut kind).cast(), (&raw mut ordinal).cast()];
        // SAFETY: writes one value of 4 bytes to each of two places. The address is only looked up.
        let code = unsafe { (self.api.cuPointerGetAttributes)(2, which.as_mut_ptr(), out.as_mut_ptr(), addr) };
        if code == api::INVALID_VALUE {
            return Ok(None);
        }
        device::checked(&self.api, "cuda", "cuPointerGetAttributes", code)?;
        Ok(usize::try_from(ordinal).ok().filter(|_| kind == DEVICE))
    }
}
