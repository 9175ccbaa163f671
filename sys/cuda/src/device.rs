//! One device.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Weak};

use linkspan_gpu::driver::{Bounce, Shell};
use linkspan_gpu::unpack::KERNEL_NAME;
use linkspan_gpu::{
    Ability, DmaBuf, Event, ForeignStream, Gpu, GpuError, GpuInfo, Kind, LAUNCH_THREADS, Pointer, Stream, Unified,
    UnpackJob, launch_shape, numa_of,
};
use linkspan_transport::{Buf, DeviceMemory, MemSlice, MemoryDomain, register_device};

use crate::api::{self, Api, Copy2d, Handle, attr};

/// Most bytes of the host that the driver's plain copy puts into the queue of the engine that runs kernels. Where processes share a GPU they wait
/// there for their process's turn: 274 us in place of 10, and 28 KiB go by a copy engine (H100, driver 580.159; bench/records/2026-11-27-gpu.md). Two
/// rows go by a copy engine whatever their length.
const IN_QUEUE: usize = 24 << 10;

/// An NVIDIA GPU.
#[derive(Debug)]
pub struct Cuda {
    api: Arc<Api>,
    context: usize,
    info: GpuInfo,
    shell: Shell,
    /// For copies of ordinary memory, which are waited for.
    bounce: Option<Bounce>,
}

/// The driver's answer as a result.
pub(crate) fn checked(api: &Api, device: &str, call: &'static str, code: c_int) -> Result<(), GpuError> {
    if code == api::SUCCESS {
        return Ok(());
    }
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: writes a pointer to a text that is never freed, or leaves null where it does not know the code.
    let text = unsafe {
        (api.cuGetErrorString)(code, &raw mut text);
        if text.is_null() { "unknown error".into() } else { CStr::from_ptr(text).to_string_lossy() }
    };
    Err(GpuError::Call { call, device: device.to_owned(), code, text: text.into_owned() })
}

/// The calling thread may make any call while this lives. While the program captures a graph, most calls of threads whose mode is the default
/// one fail, and end the capture too: but ours are no part of it, for no stream of ours is captured.
pub(crate) struct Relaxed<'a>(&'a Api, c_int);

impl Relaxed<'_> {
    #[inline]
    pub(crate) fn new(api: &Api) -> Relaxed<'_> {
        let mut mode = api::CAPTURE_RELAXED;
        // SAFETY: takes one number, and writes the one before.
        unsafe { (api.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        Relaxed(api, mode)
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // SAFETY: as above; a mode that the driver gave.
        unsafe { (self.0.cuThreadExchangeStreamCaptureMode)(&raw mut self.1) };
    }
}

/// The calling thread has the device's context while this lives, and may make any call.
struct Current<'a>(Relaxed<'a>);

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut context: Handle = null_mut();
        // SAFETY: pops what `Cuda::current` pushed.
        unsafe { (self.0.0.cuCtxPopCurrent_v2)(&raw mut context) };
    }
}

impl Cuda {
    pub(crate) fn new(api: Arc<Api>, version: i32, ordinal: usize) -> Result<Arc<Cuda>, GpuError> {
        let id = format!("cuda:{ordinal}");
        let (device, info) = describe(&api, &id, version, ordinal)?;
        let mut context: Handle = null_mut();
        // SAFETY: writes one pointer. The context is never released: the process uses it to its end.
        let code = unsafe { (api.cuDevicePrimaryCtxRetain)(&raw mut context, device) };
        checked(&api, &id, "cuDevicePrimaryCtxRetain", code)?;
        let mut gpu = Cuda { api, context: context as usize, info, shell: Shell::new(id), bounce: None };
        gpu.bounce = Some(Bounce::new(&gpu)?);
        let mut place = None;
        let gpu = Arc::new_cyclic(|me: &Weak<Cuda>| {
            place = register_device(me.clone());
            gpu.shell.put(place.unwrap_or(MemoryDomain::HOST));
            gpu
        });
        place.ok_or_else(|| gpu.shell.exhausted("places"))?;
        Ok(gpu)
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), GpuError> {
        checked(&self.api, self.shell.id(), call, code)
    }

    fn current(&self) -> Result<Current<'_>, GpuError> {
        let relaxed = Relaxed::new(&self.api);
        // SAFETY: the primary context, which is never released.
        self.check("cuCtxPushCurrent", unsafe { (self.api.cuCtxPushCurrent_v2)(self.context as Handle) })?;
        Ok(Current(relaxed))
    }

    /// Loads the kernel from its PTX, which the driver compiles for this device (and keeps in its own cache).
    fn load_kernel(&self) -> Result<usize, String> {
        let (Some(load), Some(find)) = (self.api.cuModuleLoadData, self.api.cuModuleGetFunction) else {
            return Err("the driver loads no modules".into());
        };
        let ptx = CString::new(linkspan_gpu::unpack::PTX).map_err(|e| e.to_string())?;
        let _current = self.current().map_err(|e| e.to_string())?;
        let (mut module, mut kernel): (Handle, Handle) = (null_mut(), null_mut());
        // SAFETY: a zero-terminated text; writes one handle. The module is never unloaded.
        let code = unsafe { load(&raw mut module, ptx.as_ptr().cast()) };
        self.check("cuModuleLoadData", code).map_err(|e| e.to_string())?;
        // SAFETY: the module just loaded and a zero-terminated name; writes one handle.
        let code = unsafe { find(&raw mut kernel, module, KERNEL_NAME.as_ptr()) };
        self.check("cuModuleGetFunction", code).map_err(|e| e.to_string()).map(|()| kernel as usize)
    }

    fn new_stream(&self) -> Result<usize, GpuError> {
        let _current = self.current()?;
        let mut stream: Handle = null_mut();
        // SAFETY: writes one handle, which is never destroyed.
        let code = unsafe { (self.api.cuStreamCreate)(&raw mut stream, api::STREAM_NON_BLOCKING) };
        self.check("cuStreamCreate", code).map(|()| stream as usize)
    }
}

/// Our number for the driver's device.
pub(crate) fn ordinal_of(api: &Api, wanted: c_int, devices: usize) -> Result<usize, GpuError> {
    for ordinal in 0..devices {
        let mut device: c_int = 0;
        // SAFETY: writes one integer.
        checked(api, "cuda", "cuDeviceGet", unsafe { (api.cuDeviceGet)(&raw mut device, ordinal as c_int) })?;
        if device == wanted {
            return Ok(ordinal);
        }
    }
    Err(GpuError::NoDevice { wanted: format!("cuda device {wanted}"), found: devices })
}

/// The driver's number for the device, and what it is.
fn describe(api: &Api, id: &str, version: i32, ordinal: usize) -> Result<(c_int, GpuInfo), GpuError> {
    let call = |call, code| checked(api, id, call, code);
    let mut device: c_int = 0;
    // SAFETY: writes one integer.
    call("cuDeviceGet", unsafe { (api.cuDeviceGet)(&raw mut device, ordinal as c_int) })?;
    let text = |get: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int, name| {
        let mut bytes = [0 as c_char; 256];
        // SAFETY: writes a zero-terminated text of at most this many bytes.
        call(name, unsafe { get(bytes.as_mut_ptr(), bytes.len() as c_int, device) })?;
        let bytes: Vec<u8> = bytes.iter().map(|&b| b as u8).take_while(|&b| b != 0).collect();
        Ok::<String, GpuError>(String::from_utf8_lossy(&bytes).into_owned())
    };
    // An attribute that an older driver does not know is one that it does not have.
    let attribute = |which| {
        let mut value: c_int = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (api.cuDeviceGetAttribute)(&raw mut value, which, device) };
        if code == api::SUCCESS { value } else { 0 }
    };
    let ability = |which, name: &str| match attribute(which) {
        0 => Ability::No(format!("the driver says no ({name} is 0)")),
        _ => Ability::Yes,
    };
    let mut memory = 0usize;
    // SAFETY: writes one size.
    call("cuDeviceTotalMem", unsafe { (api.cuDeviceTotalMem_v2)(&raw mut memory, device) })?;
    let name = text(api.cuDeviceGetName, "cuDeviceGetName")?;
    let pci = text(api.cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId").ok().map(|p| p.to_lowercase());
    let dma_buf = match api.cuMemGetHandleForAddressRange {
        None => Ability::No("the driver is older than 11.7".into()),
        Some(_) => ability(attr::DMA_BUF, "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED"),
    };
    let info = GpuInfo {
        kind: Kind::Cuda,
        ordinal,
        name,
        arch: format!("sm_{}{}", attribute(attr::CAPABILITY_MAJOR), attribute(attr::CAPABILITY_MINOR)),
        numa: pci.as_deref().and_then(numa_of),
        pci,
        memory: memory as u64,
        driver: format!("{}.{}", version / 1000, version % 1000 / 10),
        unified: Unified {
            integrated: attribute(attr::INTEGRATED) != 0,
            pageable: attribute(attr::PAGEABLE_ACCESS) != 0,
            host_reads: attribute(attr::HOST_PAGE_TABLES) != 0,
        },
        dma_buf,
        direct: ability(attr::GPU_DIRECT_RDMA, "CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED"),
    };
    Ok((device, info))
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if let Some(bounce) = self.bounce.take() {
            bounce.end(self);
        }
    }
}

// SAFETY: the copy is over when the call returns, and no handle is kept.
unsafe impl DeviceMemory for Cuda {
    fn write(&self, to: MemSlice, bytes: &[u8]) -> bool {
        self.bounce.as_ref().is_some_and(|bounce| bounce.write(self, to, bytes).is_ok())
    }

    fn read(&self, from: MemSlice, out: &mut [u8]) -> bool {
        self.bounce.as_ref().is_some_and(|bounce| bounce.read(self, from, out).is_ok())
    }
}

// SAFETY: copies run in the order of their streams, and no handle is kept beside them.
unsafe impl Gpu for Cuda {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn place(&self) -> MemoryDomain {
        self.shell.place()
    }

    fn alloc(&self, len: usize) -> Result<MemSlice, GpuError> {
        let addr = self.shell.alloc(len, |size| {
            let _current = self.current()?;
            let mut addr = 0u64;
            // SAFETY: writes one address.
            self.check("cuMemAlloc", unsafe { (self.api.cuMemAlloc_v2)(&raw mut addr, size) })?;
            Ok(addr)
        })?;
        // SAFETY: an allocation of at least this length, which stays until it has come back.
        Ok(unsafe { MemSlice::on_device(self.shell.place(), addr, len) })
    }

    unsafe fn free(&self, mem: MemSlice) {
        self.shell.free(mem);
    }

    fn give_back(&self) {
        let Ok(_current) = self.current() else { return };
        for addr in self.shell.spare() {
            // SAFETY: an allocation of ours that nobody uses. At the end of the process the driver may be gone before us, and says so.
            unsafe { (self.api.cuMemFree_v2)(addr) };
        }
    }

    fn pin(&self, mem: MemSlice) -> Result<(), GpuError> {
        self.shell.pinnable(mem)?;
        let _current = self.current()?;
        // SAFETY: host memory that stays mapped, as the maker of the handle promised.
        let code = unsafe { (self.api.cuMemHostRegister_v2)(mem.as_ptr().cast(), mem.len(), api::REGISTER_FLAGS) };
        self.check("cuMemHostRegister", code)
    }

    fn unpin(&self, mem: MemSlice) {
        if let Ok(_current) = self.current() {
            // SAFETY: an address; one that was not registered is refused. At the end of the process the driver may be gone
            // before us, and says so.
            unsafe { (self.api.cuMemHostUnregister)(mem.as_ptr().cast()) };
        }
    }

    fn device_address(&self, pinned: MemSlice) -> Result<u64, GpuError> {
        let _current = self.current()?;
        let mut addr = 0u64;
        // SAFETY: writes one address. The host address is only looked up; flags 0.
        let code = unsafe { (self.api.cuMemHostGetDevicePointer_v2)(&raw mut addr, pinned.as_ptr().cast(), 0) };
        self.check("cuMemHostGetDevicePointer", code).map(|()| addr)
    }

    fn stream(&self) -> Result<Stream, GpuError> {
        self.shell.stream(|| self.new_stream())
    }

    fn retire_stream(&self, stream: Stream) {
        self.shell.retire_stream(stream);
    }

    fn native(&self, stream: Stream) -> Result<u64, GpuError> {
        Ok(self.shell.stream_of(stream)? as u64)
    }

    fn finish(&self, stream: ForeignStream) -> Result<(), GpuError> {
        let _current = self.current()?;
        // SAFETY: a default stream, or one that is alive by the promise of `ForeignStream::new`.
        let code = unsafe { (self.api.cuStreamSynchronize)(stream.handle() as Handle) };
        self.check("cuStreamSynchronize", code)
    }

    fn event(&self) -> Result<Event, GpuError> {
        self.shell.event(|| {
            let _current = self.current()?;
            let mut event: Handle = null_mut();
            // SAFETY: writes one handle, which is never destroyed.
            let code = unsafe { (self.api.cuEventCreate)(&raw mut event, api::EVENT_DISABLE_TIMING) };
            self.check("cuEventCreate", code).map(|()| event as usize)
        })
    }

    fn retire_event(&self, event: Event) {
        self.shell.retire_event(event);
    }

    fn copy(&self, on: Stream, dst: MemSlice, src: MemSlice) -> Result<(), GpuError> {
        self.shell.same_length(dst, src)?;
        let (stream, to, from) = (self.shell.stream_of(on)? as Handle, dst.as_ptr() as u64, src.as_ptr() as u64);
        let _current = self.current()?;
        let len = dst.len();
        if src.is_host() && (2..=IN_QUEUE).contains(&len) {
            self.two_rows(stream, to, from, len / 2)?;
            // Of an odd number the last byte, with the one before it.
            return if len.is_multiple_of(2) {
                Ok(())
            } else {
                self.two_rows(stream, to + len as u64 - 2, from + len as u64 - 2, 1)
            };
        }
        // By unified addressing the driver knows from the addresses which way it goes.
        // SAFETY: both ranges are as long as their MemSlice, whose maker promised that they stay; the stream is ours.
        self.check("cuMemcpyAsync", unsafe { (self.api.cuMemcpyAsync)(to, from, len, stream) })
    }

    fn record(&self, event: Event, on: Stream) -> Result<(), GpuError> {
        let (event, stream) = (self.shell.event_of(event)? as Handle, self.shell.stream_of(on)? as Handle);
        let _current = self.current()?;
        // SAFETY: handles of ours.
        self.check("cuEventRecord", unsafe { (self.api.cuEventRecord)(event, stream) })
    }

    fn done(&self, event: Event) -> Result<bool, GpuError> {
        let _relaxed = Relaxed::new(&self.api);
        // SAFETY: a handle of ours; needs no context.
        match unsafe { (self.api.cuEventQuery)(self.shell.event_of(event)? as Handle) } {
            api::NOT_READY => Ok(false),
            code => self.check("cuEventQuery", code).map(|()| true),
        }
    }

    fn after(&self, on: Stream, event: Event) -> Result<(), GpuError> {
        let (event, stream) = (self.shell.event_of(event)? as Handle, self.shell.stream_of(on)? as Handle);
        let _current = self.current()?;
        // SAFETY: handles of ours; flags 0.
        self.check("cuStreamWaitEvent", unsafe { (self.api.cuStreamWaitEvent)(stream, event, 0) })
    }

    fn kernel(&self) -> Ability {
        self.shell.kernel(|| self.load_kernel())
    }

    fn unpack(&self, on: Stream, job: &UnpackJob) -> Result<(), GpuError> {
        let (stream, kernel) = (self.shell.stream_of(on)? as Handle, self.shell.launchable(job)? as Handle);
        let no = || self.shell.unsupported("run the unpack kernel", "the driver launches nothing".to_owned());
        let launch = self.api.cuLaunchKernel.ok_or_else(no)?;
        let (x, y) = launch_shape(job);
        let (mut pool, mut out, mut pieces) = (job.pool.as_ptr(), job.dst.as_ptr(), job.pieces.as_ptr());
        let mut count = job.count;
        let mut args: [*mut c_void; 4] =
            [(&raw mut pool).cast(), (&raw mut out).cast(), (&raw mut pieces).cast(), (&raw mut count).cast()];
        let args = args.as_mut_ptr();
        let _current = self.current()?;
        // SAFETY: the kernel of `load_kernel` with its four arguments, which the call copies. The descriptors were checked
        // against the lengths of pool and target when they were collected.
        let code = unsafe { launch(kernel, x, y, 1, LAUNCH_THREADS, 1, 1, 0, stream, args, null_mut()) };
        self.check("cuLaunchKernel", code)
    }

    fn flush_writes(&self) -> Result<(), GpuError> {
        let why = "the driver is older than 11.3".to_owned();
        let unsupported = || self.shell.unsupported("flush network writes", why);
        let flush = self.api.cuFlushGPUDirectRDMAWrites.ok_or_else(unsupported)?;
        let _current = self.current()?;
        // SAFETY: the driver's function with its type.
        self.check("cuFlushGPUDirectRDMAWrites", unsafe { flush(api::FLUSH_CURRENT_CTX, api::FLUSH_TO_OWNER) })
    }

    fn pointer(&self, addr: u64) -> Result<Pointer, GpuError> {
        use api::pointer::{DEVICE, DEVICE_ORDINAL, HOST, IS_MANAGED, MEMORY_TYPE};
        let (mut kind, mut managed, mut ordinal): (c_uint, c_uint, c_int) = (0, 0, 0);
        let mut which = [MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL];
        let mut out: [*mut c_void; 3] = [(&raw mut kind).cast(), (&raw mut managed).cast(), (&raw mut ordinal).cast()];
        let _current = self.current()?;
        // SAFETY: writes one value of 4 bytes (1 for the flag) to each of three places. The address is only looked up.
        let code = unsafe { (self.api.cuPointerGetAttributes)(3, which.as_mut_ptr(), out.as_mut_ptr(), addr) };
        if code == api::INVALID_VALUE {
            return Ok(Pointer::Host);
        }
        self.check("cuPointerGetAttributes", code)?;
        match kind {
            _ if managed & 0xff != 0 => Ok(Pointer::Managed),
            DEVICE => self.shell.device_pointer(ordinal, self.allocation(addr)),
            HOST => Ok(Pointer::Pinned),
            _ => Ok(Pointer::Host),
        }
    }

    fn export(&self, mem: MemSlice) -> Result<DmaBuf, GpuError> {
        let no = |why: String| self.shell.unsupported("export memory as dma-buf", why);
        let export = match (&self.info.dma_buf, self.api.cuMemGetHandleForAddressRange) {
            (Ability::Yes, Some(export)) => export,
            (Ability::No(why), _) => return Err(no(why.clone())),
            _ => return Err(no("the driver has no such call".into())),
        };
        let addr = mem.as_ptr() as u64;
        let pages = self.shell.exportable(mem, |addr| self.allocation(addr))?;
        let _current = self.current()?;
        let mut fd: c_int = -1;
        // SAFETY: writes one descriptor; the range is page-aligned and inside of one allocation.
        let code = unsafe { export((&raw mut fd).cast(), pages.start, pages.len, api::HANDLE_DMA_BUF_FD, 0) };
        self.check("cuMemGetHandleForAddressRange", code)?;
        if fd < 0 {
            return Err(no("the driver gave no descriptor".into()));
        }
        // SAFETY: a fresh descriptor, which the driver has made over to us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(DmaBuf { fd, offset: addr - pages.start, len: pages.len })
    }
}

impl Cuda {
    /// Starts the copy of two rows of `width` bytes, one behind the other.
    fn two_rows(&self, stream: Handle, to: u64, from: u64, width: usize) -> Result<(), GpuError> {
        let width = width as u64;
        let rows: Copy2d = [0, 0, api::UNIFIED, 0, from, 0, width, 0, 0, api::UNIFIED, 0, to, 0, width, width, 2];
        // SAFETY: both ranges have twice the width, and their makers promised that they stay; the call reads the description, the stream is ours.
        self.check("cuMemcpy2DAsync", unsafe { (self.api.cuMemcpy2DAsync_v2)(&raw const rows, stream) })
    }

    /// The allocation around an address.
    fn allocation(&self, addr: u64) -> Result<(u64, usize), GpuError> {
        let _current = self.current()?;
        let (mut base, mut len) = (0u64, 0usize);
        // SAFETY: writes an address and a size. The address is only looked up.
        let code = unsafe { (self.api.cuMemGetAddressRange_v2)(&raw mut base, &raw mut len, addr) };
        self.check("cuMemGetAddressRange", code).map(|()| (base, len))
    }
}
