//! AMD GPUs through the HIP runtime library, which is opened at run time; no ROCm is needed, neither to build nor to run.
//!
//! Versions 5 to 7 of the library are known. Its functions keep their types over them, but the numbers of
//! `hipMemoryType` changed with 6.0, so [`Driver`] reads them by the version that the runtime says it has.

mod api;
mod device;
mod rtc;

use std::sync::Arc;

use linkspan_dl::Library;
use linkspan_gpu::{Gpu, GpuError};

use api::{Api, Hsa};
pub use device::Hip;
pub use rtc::compile;

/// Names of the library, newest first: the number is its ABI's and the first of ROCm's version.
const NAMES: [&str; 3] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];

/// The runtime, loaded and initialised.
#[derive(Debug)]
pub struct Driver {
    api: Arc<Api>,
    hsa: Option<Arc<Hsa>>,
    version: i32,
    devices: usize,
    library: Arc<Library>,
}

impl Driver {
    /// Opens the runtime of this machine.
    ///
    /// # Errors
    /// [`GpuError::NoLibrary`] where there is none, the normal case on a machine without such a GPU;
    /// [`GpuError::Symbol`] where it is too old; [`GpuError::Call`].
    pub fn open() -> Result<Driver, GpuError> {
        Driver::open_files(&NAMES)
    }

    /// Opens the first of these libraries that the process has, as with torch, whose memory and streams another runtime does not know; else the first that
    /// is there. By name or path.
    ///
    /// # Errors
    /// As [`Driver::open`].
    pub fn open_files(names: &[&str]) -> Result<Driver, GpuError> {
        const WHAT: &str = "HIP runtime";
        let library = Library::loaded_or_first(names).map_err(|why| GpuError::NoLibrary { what: WHAT, why })?;
        let missing = |symbol| GpuError::Symbol { library: library.name().to_owned(), symbol, wanted: "5.2" };
        let api = Arc::new(Api::load(&library).map_err(missing)?);
        let hsa = Library::open("libhsa-runtime64.so.1").ok().and_then(|l| Hsa::load(&l).ok()).map(Arc::new);
        let library = Arc::new(library);
        let (mut version, mut devices) = (0, 0);
        // SAFETY: writes one integer; needs no device.
        let code = unsafe { (api.hipRuntimeGetVersion)(&raw mut version) };
        device::checked(&api, "hip", "hipRuntimeGetVersion", code)?;
        // SAFETY: as above.
        let code = api.took(unsafe { (api.hipGetDeviceCount)(&raw mut devices) });
        if code != api::NO_DEVICE {
            device::checked(&api, "hip", "hipGetDeviceCount", code)?;
        }
        let devices = usize::try_from(devices).unwrap_or(0) * usize::from(code == api::SUCCESS);
        Ok(Driver { api, hsa, version, devices, library })
    }

    /// Devices there are.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// The library's name and the runtime's version, as in `libamdhip64.so.6 6.2`.
    pub fn version(&self) -> String {
        format!("{} {}", self.library.name(), device::version(self.version))
    }

    /// Device number `ordinal`.
    ///
    /// # Errors
    /// [`GpuError::NoDevice`] for a number that the driver does not have, [`GpuError::Call`], [`GpuError::Exhausted`].
    pub fn device(&self, ordinal: usize) -> Result<Arc<dyn Gpu>, GpuError> {
        if ordinal >= self.devices {
            return Err(GpuError::NoDevice { wanted: format!("hip:{ordinal}"), found: self.devices });
        }
        let _relaxed = device::Relaxed::new(&self.api);
        Ok(Hip::new((self.library.clone(), self.api.clone()), self.hsa.clone(), self.version, ordinal)?)
    }

    /// The device that owns the memory at an address; `None` where it is no device memory.
    ///
    /// # Errors
    /// [`GpuError::Call`]: `hipPointerGetAttributes` failed.
    pub fn owner(&self, addr: u64) -> Result<Option<usize>, GpuError> {
        let mut found = api::PointerAttribute::EMPTY;
        // SAFETY: fills the structure, which has more space than any version needs. The address is only looked up.
        let code = self.api.took(unsafe { (self.api.hipPointerGetAttributes)(&raw mut found, addr as api::Handle) });
        if code == api::INVALID_VALUE {
            return Ok(None);
        }
        device::checked(&self.api, "hip", "hipPointerGetAttributes", code)?;
        let ours = api::MemoryType::read(found.kind, self.version) == api::MemoryType::Device;
        Ok(usize::try_from(found.device).ok().filter(|_| ours))
    }
}
