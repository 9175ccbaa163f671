//! One device.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Weak};

use linkspan_dl::Library;
use linkspan_gpu::driver::{Bounce, Shell};
use linkspan_gpu::unpack::KERNEL_NAME;
use linkspan_gpu::{
    Ability, DmaBuf, Event, ForeignStream, Gpu, GpuError, GpuInfo, Kind, LAUNCH_THREADS, Pointer, Stream, Unified,
    UnpackJob, launch_shape, numa_of,
};
use linkspan_transport::{Buf, DeviceMemory, MemSlice, MemoryDomain, register_device};

use crate::api::{self, Api, Handle, Hsa, MemoryType, PointerAttribute, attr};

/// An AMD GPU.
#[derive(Debug)]
pub struct Hip {
    api: Arc<Api>,
    library: Arc<Library>,
    hsa: Option<Arc<Hsa>>,
    version: c_int,
    info: GpuInfo,
    shell: Shell,
    /// For copies of ordinary memory, which are waited for.
    bounce: Option<Bounce>,
}

/// The driver's answer as a result.
pub(crate) fn checked(api: &Api, device: &str, call: &'static str, code: c_int) -> Result<(), GpuError> {
    if api.took(code) == api::SUCCESS {
        return Ok(());
    }
    // SAFETY: a text that is never freed, or null.
    let text = unsafe {
        let text = (api.hipGetErrorString)(code);
        if text.is_null() { "unknown error".into() } else { CStr::from_ptr(text).to_string_lossy() }
    };
    Err(GpuError::Call { call, device: device.to_owned(), code, text: text.into_owned() })
}

/// A version as people write it, from ten million times major and a hundred thousand times minor.
pub(crate) fn version(number: c_int) -> String {
    format!("{}.{}", number / 10_000_000, number / 100_000 % 100)
}

/// The calling thread may make any call while this lives. While the program captures a graph, most calls of threads whose mode is the default
/// one fail, and end the capture too: but ours are no part of it, for no stream of ours is captured.
pub(crate) struct Relaxed<'a>(&'a Api, c_int);

impl Relaxed<'_> {
    #[inline]
    pub(crate) fn new(api: &Api) -> Relaxed<'_> {
        let mut mode = api::CAPTURE_RELAXED;
        // SAFETY: takes one number, and writes the one before.
        unsafe { (api.hipThreadExchangeStreamCaptureMode)(&raw mut mode) };
        Relaxed(api, mode)
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // SAFETY: as above; a mode that the runtime gave.
        unsafe { (self.0.hipThreadExchangeStreamCaptureMode)(&raw mut self.1) };
    }
}

/// The device is the calling thread's while this lives, and the thread may make any call.
struct Current<'a>(Relaxed<'a>, Option<c_int>);

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.1 {
            // SAFETY: a number that the runtime gave.
            unsafe { (self.0.0.hipSetDevice)(before) };
        }
    }
}

impl Hip {
    pub(crate) fn new(
        (library, api): (Arc<Library>, Arc<Api>),
        hsa: Option<Arc<Hsa>>,
        version: c_int,
        ordinal: usize,
    ) -> Result<Arc<Hip>, GpuError> {
        let id = format!("hip:{ordinal}");
        let info = describe(&api, hsa.is_some(), &id, version, ordinal)?;
        let mut gpu = Hip { api, library, hsa, version, info, shell: Shell::new(id), bounce: None };
        gpu.bounce = Some(Bounce::new(&gpu)?);
        let mut place = None;
        let gpu = Arc::new_cyclic(|me: &Weak<Hip>| {
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
        let (mut before, ours) = (0, self.info.ordinal as c_int);
        // SAFETY: writes one integer.
        self.check("hipGetDevice", unsafe { (self.api.hipGetDevice)(&raw mut before) })?;
        if before == ours {
            return Ok(Current(relaxed, None));
        }
        // SAFETY: a number below the count.
        self.check("hipSetDevice", unsafe { (self.api.hipSetDevice)(ours) })?;
        Ok(Current(relaxed, Some(before)))
    }

    /// Compiles the kernel for this device and loads it.
    fn load_kernel(&self) -> Result<usize, String> {
        let (Some(load), Some(find)) = (self.api.hipModuleLoadData, self.api.hipModuleGetFunction) else {
            return Err("the runtime loads no modules".into());
        };
        let _current = self.current().map_err(|e| e.to_string())?;
        // Without an option for the architecture the compiler takes that of the current device.
        let code = crate::rtc::compile_with(&self.library, linkspan_gpu::unpack::KERNEL, &[])?;
        let (mut module, mut kernel): (Handle, Handle) = (null_mut(), null_mut());
        // SAFETY: a code object of the compiler; writes one handle. The module is never unloaded.
        let loaded = unsafe { load(&raw mut module, code.as_ptr().cast()) };
        self.check("hipModuleLoadData", loaded).map_err(|e| e.to_string())?;
        // SAFETY: the module just loaded and a zero-terminated name; writes one handle.
        let found = unsafe { find(&raw mut kernel, module, KERNEL_NAME.as_ptr()) };
        self.check("hipModuleGetFunction", found).map_err(|e| e.to_string()).map(|()| kernel as usize)
    }

    fn new_stream(&self) -> Result<usize, GpuError> {
        let _current = self.current()?;
        let mut stream: Handle = null_mut();
        // SAFETY: writes one handle, which is never destroyed.
        let code = unsafe { (self.api.hipStreamCreateWithFlags)(&raw mut stream, api::STREAM_NON_BLOCKING) };
        self.check("hipStreamCreateWithFlags", code).map(|()| stream as usize)
    }
}

/// What the device is.
fn describe(api: &Api, hsa: bool, id: &str, runtime: c_int, ordinal: usize) -> Result<GpuInfo, GpuError> {
    let call = |call, code| checked(api, id, call, code);
    let device = ordinal as c_int;
    let text = |get: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int, name| {
        let mut bytes = [0 as c_char; 256];
        // SAFETY: writes a zero-terminated text of at most this many bytes.
        call(name, unsafe { get(bytes.as_mut_ptr(), bytes.len() as c_int, device) })?;
        let bytes: Vec<u8> = bytes.iter().map(|&b| b as u8).take_while(|&b| b != 0).collect();
        Ok::<String, GpuError>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let attribute = |which| {
        let mut value: c_int = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (api.hipDeviceGetAttribute)(&raw mut value, which, device) };
        if api.took(code) == api::SUCCESS { value } else { 0 }
    };
    let mut memory = 0usize;
    // SAFETY: writes one size.
    call("hipDeviceTotalMem", unsafe { (api.hipDeviceTotalMem)(&raw mut memory, device) })?;
    let name = text(api.hipDeviceGetName, "hipDeviceGetName")?;
    let pci = text(api.hipDeviceGetPCIBusId, "hipDeviceGetPCIBusId").ok().map(|p| p.to_lowercase());
    let dma_buf = if api.hipMemGetHandleForAddressRange.is_some() || hsa {
        Ability::Yes
    } else {
        Ability::No("neither HIP (since 7.0) nor HSA (since 5.6) of this machine exports memory".into())
    };
    // Network adapters reach AMD memory by dma-buf, or through the older hook of the kernel driver.
    let hook = std::path::Path::new("/sys/kernel/mm/memory_peers/amdkfd").exists();
    let direct = if hook { Ability::Yes } else { dma_buf.clone() };
    let integrated = attribute(attr::INTEGRATED) != 0;
    Ok(GpuInfo {
        kind: Kind::Hip,
        ordinal,
        name,
        arch: format!("gfx {}.{}", attribute(attr::CAPABILITY_MAJOR), attribute(attr::CAPABILITY_MINOR)),
        numa: pci.as_deref().and_then(numa_of),
        pci,
        memory: memory as u64,
        driver: version(runtime),
        unified: Unified {
            integrated,
            pageable: attribute(attr::PAGEABLE_ACCESS) != 0,
            host_reads: host_reads(api, device),
        },
        dma_buf,
        direct,
    })
}

/// Whether the runtime gives a host address for device memory: asked of a small allocation.
fn host_reads(api: &Api, device: c_int) -> bool {
    let (mut before, mut addr): (c_int, *mut c_void) = (0, null_mut());
    // SAFETY: writes one integer, sets the device for the probe, allocates and looks the address up. The allocation is
    // kept: one page, once per device.
    unsafe {
        let done = |code| api.took(code) == api::SUCCESS;
        if !done((api.hipGetDevice)(&raw mut before)) || !done((api.hipSetDevice)(device)) {
            return false;
        }
        let mut found = PointerAttribute::EMPTY;
        let reads = done((api.hipMalloc)(&raw mut addr, 4096))
            && done((api.hipPointerGetAttributes)(&raw mut found, addr))
            && !found.host_pointer.is_null();
        (api.hipSetDevice)(before);
        reads
    }
}

impl Drop for Hip {
    fn drop(&mut self) {
        if let Some(bounce) = self.bounce.take() {
            bounce.end(self);
        }
    }
}

// SAFETY: the copy is over when the call returns, and no handle is kept.
unsafe impl DeviceMemory for Hip {
    fn write(&self, to: MemSlice, bytes: &[u8]) -> bool {
        self.bounce.as_ref().is_some_and(|bounce| bounce.write(self, to, bytes).is_ok())
    }

    fn read(&self, from: MemSlice, out: &mut [u8]) -> bool {
        self.bounce.as_ref().is_some_and(|bounce| bounce.read(self, from, out).is_ok())
    }
}

// SAFETY: copies run in the order of their streams, and no handle is kept beside them.
unsafe impl Gpu for Hip {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn place(&self) -> MemoryDomain {
        self.shell.place()
    }

    fn alloc(&self, len: usize) -> Result<MemSlice, GpuError> {
        let addr = self.shell.alloc(len, |size| {
            let _current = self.current()?;
            let mut addr: *mut c_void = null_mut();
            // SAFETY: writes one address.
            self.check("hipMalloc", unsafe { (self.api.hipMalloc)(&raw mut addr, size) })?;
            Ok(addr as u64)
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
            // SAFETY: an allocation of ours that nobody uses. At the end of the process the runtime may be gone before us, and says so.
            self.api.took(unsafe { (self.api.hipFree)(addr as *mut c_void) });
        }
    }

    fn pin(&self, mem: MemSlice) -> Result<(), GpuError> {
        self.shell.pinnable(mem)?;
        let _current = self.current()?;
        // SAFETY: host memory that stays mapped, as the maker of the handle promised.
        let code = unsafe { (self.api.hipHostRegister)(mem.as_ptr().cast(), mem.len(), api::REGISTER_FLAGS) };
        self.check("hipHostRegister", code)
    }

    fn unpin(&self, mem: MemSlice) {
        if let Ok(_current) = self.current() {
            // SAFETY: an address; one that was not registered is refused. At the end of the process the driver may be gone
            // before us, and says so.
            self.api.took(unsafe { (self.api.hipHostUnregister)(mem.as_ptr().cast()) });
        }
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
        // The name 1 for the shared default stream is younger than 0.
        let handle = if stream == ForeignStream::LEGACY { 0 } else { stream.handle() };
        // SAFETY: a default stream, or one that is alive by the promise of `ForeignStream::new`.
        self.check("hipStreamSynchronize", unsafe { (self.api.hipStreamSynchronize)(handle as Handle) })
    }

    fn event(&self) -> Result<Event, GpuError> {
        self.shell.event(|| {
            let _current = self.current()?;
            let mut event: Handle = null_mut();
            // SAFETY: writes one handle, which is never destroyed.
            let code = unsafe { (self.api.hipEventCreateWithFlags)(&raw mut event, api::EVENT_DISABLE_TIMING) };
            self.check("hipEventCreateWithFlags", code).map(|()| event as usize)
        })
    }

    fn retire_event(&self, event: Event) {
        self.shell.retire_event(event);
    }

    fn copy(&self, on: Stream, dst: MemSlice, src: MemSlice) -> Result<(), GpuError> {
        self.shell.same_length(dst, src)?;
        let (stream, to, from) = (self.shell.stream_of(on)? as Handle, dst.as_ptr() as Handle, src.as_ptr() as Handle);
        let _current = self.current()?;
        // The runtime knows from the addresses which way it goes.
        // SAFETY: both ranges are as long as their MemSlice, whose maker promised that they stay; the stream is ours.
        let code = unsafe { (self.api.hipMemcpyAsync)(to, from, dst.len(), api::COPY_DEFAULT, stream) };
        self.check("hipMemcpyAsync", code)
    }

    fn record(&self, event: Event, on: Stream) -> Result<(), GpuError> {
        let (event, stream) = (self.shell.event_of(event)? as Handle, self.shell.stream_of(on)? as Handle);
        let _current = self.current()?;
        // SAFETY: handles of ours.
        self.check("hipEventRecord", unsafe { (self.api.hipEventRecord)(event, stream) })
    }

    fn done(&self, event: Event) -> Result<bool, GpuError> {
        let _relaxed = Relaxed::new(&self.api);
        // SAFETY: a handle of ours.
        match self.api.took(unsafe { (self.api.hipEventQuery)(self.shell.event_of(event)? as Handle) }) {
            // Some versions refuse queries in every mode, until the capture ends.
            api::NOT_READY | api::CAPTURE_UNSUPPORTED => Ok(false),
            code => self.check("hipEventQuery", code).map(|()| true),
        }
    }

    fn after(&self, on: Stream, event: Event) -> Result<(), GpuError> {
        let (event, stream) = (self.shell.event_of(event)? as Handle, self.shell.stream_of(on)? as Handle);
        let _current = self.current()?;
        // SAFETY: handles of ours; flags 0.
        self.check("hipStreamWaitEvent", unsafe { (self.api.hipStreamWaitEvent)(stream, event, 0) })
    }

    fn kernel(&self) -> Ability {
        self.shell.kernel(|| self.load_kernel())
    }

    fn unpack(&self, on: Stream, job: &UnpackJob) -> Result<(), GpuError> {
        let (stream, kernel) = (self.shell.stream_of(on)? as Handle, self.shell.launchable(job)? as Handle);
        let no = || self.shell.unsupported("run the unpack kernel", "the driver launches nothing".to_owned());
        let launch = self.api.hipModuleLaunchKernel.ok_or_else(no)?;
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
        self.check("hipModuleLaunchKernel", code)
    }

    fn flush_writes(&self) -> Result<(), GpuError> {
        let why = "HIP has no call for it";
        Err(self.shell.unsupported("flush network writes", why.to_owned()))
    }

    fn pointer(&self, addr: u64) -> Result<Pointer, GpuError> {
        let mut found = PointerAttribute::EMPTY;
        let _current = self.current()?;
        // SAFETY: fills the structure, which has more space than any version needs. The address is only looked up.
        let code = self.api.took(unsafe { (self.api.hipPointerGetAttributes)(&raw mut found, addr as Handle) });
        if code == api::INVALID_VALUE {
            return Ok(Pointer::Host);
        }
        self.check("hipPointerGetAttributes", code)?;
        match MemoryType::read(found.kind, self.version) {
            _ if found.managed != 0 => Ok(Pointer::Managed),
            MemoryType::Managed => Ok(Pointer::Managed),
            MemoryType::Host => Ok(Pointer::Pinned),
            MemoryType::Unregistered => Ok(Pointer::Host),
            MemoryType::Device => self.shell.device_pointer(found.device, self.allocation(addr)),
        }
    }

    fn export(&self, mem: MemSlice) -> Result<DmaBuf, GpuError> {
        let no = |why: String| self.shell.unsupported("export memory as dma-buf", why);
        let addr = mem.as_ptr() as u64;
        let pages = self.shell.exportable(mem, |addr| self.allocation(addr))?;
        let _current = self.current()?;
        let (mut fd, mut into): (c_int, u64) = (-1, 0);
        match (self.api.hipMemGetHandleForAddressRange, &self.hsa) {
            (Some(export), _) => {
                let at = pages.start as Handle;
                // SAFETY: writes one descriptor; the range is page-aligned and inside of one allocation.
                let code = unsafe { export((&raw mut fd).cast(), at, pages.len, api::HANDLE_DMA_BUF_FD, 0) };
                self.check("hipMemGetHandleForAddressRange", code)?;
            }
            (None, Some(hsa)) => {
                let at = pages.start as Handle;
                // SAFETY: writes one descriptor and where in it the range begins; the range as above.
                let code = unsafe { (hsa.hsa_amd_portable_export_dmabuf)(at, pages.len, &raw mut fd, &raw mut into) };
                if code != 0 {
                    return Err(no(format!("hsa_amd_portable_export_dmabuf answers {code:#x}")));
                }
            }
            (None, None) => return Err(no("neither HIP (since 7.0) nor HSA (since 5.6) exports memory".into())),
        }
        if fd < 0 {
            return Err(no("the runtime gave no descriptor".into()));
        }
        // SAFETY: a fresh descriptor, which the runtime has made over to us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(DmaBuf { fd, offset: into + (addr - pages.start), len: pages.len })
    }
}

impl Hip {
    /// The allocation around an address.
    fn allocation(&self, addr: u64) -> Result<(u64, usize), GpuError> {
        let _current = self.current()?;
        let (mut base, mut len): (*mut c_void, usize) = (null_mut(), 0);
        // SAFETY: writes an address and a size. The address is only looked up.
        let code = unsafe { (self.api.hipMemGetAddressRange)(&raw mut base, &raw mut len, addr as Handle) };
        self.check("hipMemGetAddressRange", code).map(|()| (base as u64, len))
    }
}
