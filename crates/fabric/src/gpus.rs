//! The GPUs of this machine, opened at the first use. Their drivers' libraries are loaded no earlier.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use linkspan_gpu::{Gpu, GpuError, Kind, MemoryName, Pointer};

static CUDA: OnceLock<Result<linkspan_cuda::Driver, GpuError>> = OnceLock::new();
static HIP: OnceLock<Result<linkspan_hip::Driver, GpuError>> = OnceLock::new();

/// Devices opened so far. They stay open: each holds a place that is never used again.
static OPEN: Mutex<BTreeMap<(bool, usize), Arc<dyn Gpu>>> = Mutex::new(BTreeMap::new());

fn cuda() -> Result<&'static linkspan_cuda::Driver, GpuError> {
    CUDA.get_or_init(linkspan_cuda::Driver::open).as_ref().map_err(Clone::clone)
}

fn hip() -> Result<&'static linkspan_hip::Driver, GpuError> {
    HIP.get_or_init(linkspan_hip::Driver::open).as_ref().map_err(Clone::clone)
}

/// Opens a device by its name; `None` for host memory. The same device each time.
///
/// # Errors
/// [`GpuError::NoLibrary`] and [`GpuError::Symbol`] where the driver is missing or too old, [`GpuError::NoDevice`] for
/// a number that it does not have, [`GpuError::Name`] for a simulated GPU, [`GpuError::Call`] where the driver fails.
pub fn open(name: MemoryName) -> Result<Option<Arc<dyn Gpu>>, GpuError> {
    let MemoryName::Device(kind, ordinal) = name else { return Ok(None) };
    let mut open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
    let key = (kind == Kind::Cuda, ordinal);
    if let Some(gpu) = open.get(&key) {
        return Ok(Some(gpu.clone()));
    }
    let gpu = match kind {
        Kind::Cuda => cuda()?.device(ordinal)?,
        Kind::Hip => hip()?.device(ordinal)?,
        Kind::Sim => return Err(GpuError::Name { name: name.to_string() }),
    };
    open.insert(key, gpu.clone());
    Ok(Some(gpu))
}

/// What each driver says of itself: how many devices, or why none.
pub fn drivers() -> [(Kind, Result<usize, GpuError>); 2] {
    [(Kind::Cuda, cuda().map(|d| d.devices())), (Kind::Hip, hip().map(|d| d.devices()))]
}

/// Whether a CUDA or HIP driver shows at least one device.
pub fn any() -> bool {
    drivers().iter().any(|(_, devices)| devices.as_ref().is_ok_and(|&n| n > 0))
}

/// The NVIDIA device that the calling thread works with, if there is one.
pub fn current_cuda() -> Option<Arc<dyn Gpu>> {
    let ordinal = cuda().and_then(|driver| driver.current()).ok()??;
    open(MemoryName::Device(Kind::Cuda, ordinal)).ok()?
}

/// The device that owns the memory at an address. Where the driver wants it, the calling thread has a context, as
/// threads that work with device memory do, or the device is open already.
///
/// # Errors
/// [`GpuError::NoOwner`]: no driver knows the address as device memory.
pub fn owner(addr: u64) -> Result<Arc<dyn Gpu>, GpuError> {
    let ask = |kind, found: Result<Option<usize>, GpuError>| match found {
        Ok(Some(ordinal)) => open(MemoryName::Device(kind, ordinal)),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    let by_cuda = ask(Kind::Cuda, cuda().and_then(|d| d.owner(addr)));
    if let Ok(Some(gpu)) = by_cuda {
        return Ok(gpu);
    }
    let by_hip = ask(Kind::Hip, hip().and_then(|d| d.owner(addr)));
    if let Ok(Some(gpu)) = by_hip {
        return Ok(gpu);
    }
    // A thread without a context asks through the devices that are in use already.
    let open: Vec<_> = OPEN.lock().unwrap_or_else(|e| e.into_inner()).values().cloned().collect();
    for gpu in open {
        match gpu.pointer(addr) {
            Ok(Pointer::Device { ordinal, .. }) if ordinal == gpu.info().ordinal => return Ok(gpu),
            _ => {}
        }
    }
    let say = |found: Result<_, GpuError>| found.err().map_or_else(|| "not its memory".to_owned(), |e| e.to_string());
    Err(GpuError::NoOwner { addr, cuda: say(by_cuda), hip: say(by_hip) })
}
