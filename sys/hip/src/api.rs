//! The runtime's functions that we use, and its numbers, after AMD's documentation of HIP (hip_runtime_api.h) and HSA
//! (hsa_ext_amd.h).

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `hipStream_t`, `hipEvent_t`: pointers to what only the runtime knows.
pub(crate) type Handle = *mut c_void;

/// `hipSuccess`.
pub(crate) const SUCCESS: c_int = 0;
/// `hipErrorInvalidValue`.
pub(crate) const INVALID_VALUE: c_int = 1;
/// `hipErrorNoDevice`.
pub(crate) const NO_DEVICE: c_int = 100;
/// `hipErrorNotReady`.
pub(crate) const NOT_READY: c_int = 600;
/// `hipErrorStreamCaptureUnsupported`.
pub(crate) const CAPTURE_UNSUPPORTED: c_int = 900;

/// `hipStreamCaptureModeRelaxed`.
pub(crate) const CAPTURE_RELAXED: c_int = 2;

/// `hipStreamNonBlocking`.
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// `hipEventDisableTiming`.
pub(crate) const EVENT_DISABLE_TIMING: c_uint = 2;
/// `hipHostRegisterPortable | hipHostRegisterMapped`.
pub(crate) const REGISTER_FLAGS: c_uint = 1 | 2;
/// `hipMemcpyDefault`: the direction by the addresses.
pub(crate) const COPY_DEFAULT: c_int = 4;
/// `hipMemRangeHandleTypeDmaBufFd`.
pub(crate) const HANDLE_DMA_BUF_FD: c_int = 1;

/// `hipDeviceAttribute_t`; the numbers are those of every version since 5.0.
pub(crate) mod attr {
    use std::ffi::c_int;
    pub(crate) const INTEGRATED: c_int = 16;
    pub(crate) const CAPABILITY_MAJOR: c_int = 23;
    pub(crate) const CAPABILITY_MINOR: c_int = 61;
    pub(crate) const PAGEABLE_ACCESS: c_int = 65;
}

/// `hipPointerAttribute_t`. Its first field was called `memoryType` before 6.0 and means other numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointerAttribute {
    pub(crate) kind: c_int,
    pub(crate) device: c_int,
    pub(crate) device_pointer: *mut c_void,
    pub(crate) host_pointer: *mut c_void,
    pub(crate) managed: c_int,
    pub(crate) flags: c_uint,
    /// Space for fields of later versions.
    pub(crate) rest: [u64; 4],
}

impl PointerAttribute {
    /// Nothing known.
    pub(crate) const EMPTY: PointerAttribute = PointerAttribute {
        kind: 0,
        device: 0,
        device_pointer: std::ptr::null_mut(),
        host_pointer: std::ptr::null_mut(),
        managed: 0,
        flags: 0,
        rest: [0; 4],
    };
}

/// `hipMemoryType`, read by the version of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryType {
    Unregistered,
    Host,
    Device,
    Managed,
}

impl MemoryType {
    /// Before 6.0: host 0, device 1, array 2, unified 3, managed 4. Since: unregistered 0, host 1, device 2, managed 3,
    /// array 10, unified 11. Arrays are no memory that we could copy.
    pub(crate) fn read(kind: c_int, version: c_int) -> MemoryType {
        match (version >= 60_000_000, kind) {
            (false, 0) | (true, 1) => MemoryType::Host,
            (false, 1) | (true, 2) => MemoryType::Device,
            (false, 3 | 4) | (true, 3 | 11) => MemoryType::Managed,
            _ => MemoryType::Unregistered,
        }
    }
}

linkspan_dl::api! {
    /// The table.
    struct Api;
    fn hipRuntimeGetVersion(*mut c_int) -> c_int;
    fn hipGetDeviceCount(*mut c_int) -> c_int;
    fn hipGetDevice(*mut c_int) -> c_int;
    fn hipSetDevice(c_int) -> c_int;
    fn hipDeviceGetName(*mut c_char, c_int, c_int) -> c_int;
    fn hipDeviceTotalMem(*mut usize, c_int) -> c_int;
    fn hipDeviceGetAttribute(*mut c_int, c_int, c_int) -> c_int;
    fn hipDeviceGetPCIBusId(*mut c_char, c_int, c_int) -> c_int;
    fn hipThreadExchangeStreamCaptureMode(*mut c_int) -> c_int;
    fn hipGetLastError() -> c_int;
    fn hipGetErrorString(c_int) -> *const c_char;
    fn hipMalloc(*mut *mut c_void, usize) -> c_int;
    fn hipFree(*mut c_void) -> c_int;
    fn hipHostRegister(*mut c_void, usize, c_uint) -> c_int;
    fn hipHostUnregister(*mut c_void) -> c_int;
    fn hipMemGetAddressRange(*mut *mut c_void, *mut usize, *mut c_void) -> c_int;
    fn hipPointerGetAttributes(*mut PointerAttribute, *const c_void) -> c_int;
    fn hipMemcpyAsync(*mut c_void, *const c_void, usize, c_int, Handle) -> c_int;
    fn hipStreamCreateWithFlags(*mut Handle, c_uint) -> c_int;
    fn hipStreamSynchronize(Handle) -> c_int;
    fn hipStreamWaitEvent(Handle, Handle, c_uint) -> c_int;
    fn hipEventCreateWithFlags(*mut Handle, c_uint) -> c_int;
    fn hipEventRecord(Handle, Handle) -> c_int;
    fn hipEventQuery(Handle) -> c_int;
    optional;
    // Since 7.0.
    fn hipMemGetHandleForAddressRange(*mut c_void, *mut c_void, usize, c_int, u64) -> c_int;
    fn hipModuleLoadData(*mut Handle, *const c_void) -> c_int;
    fn hipModuleGetFunction(*mut Handle, Handle, *const c_char) -> c_int;
    fn hipModuleLaunchKernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void,
    ) -> c_int;
}

impl Api {
    /// What a call answered. A failure is ours to know: since 7.0 it stays the thread's last error until somebody asks, and the program would take
    /// it for that of a call of its own.
    #[inline]
    pub(crate) fn took(&self, code: c_int) -> c_int {
        if code != SUCCESS && code != NOT_READY {
            // SAFETY: answers with the thread's last error, and forgets it.
            unsafe { (self.hipGetLastError)() };
        }
        code
    }
}

linkspan_dl::api! {
    /// What we need of HSA, below HIP: the export of memory before HIP had it (ROCm 5.6 and later).
    struct Hsa;
    fn hsa_amd_portable_export_dmabuf(*const c_void, usize, *mut c_int, *mut u64) -> c_int;
    optional;
}

#[cfg(test)]
mod tests {
    use super::MemoryType::{self, Device, Host, Managed, Unregistered};

    #[test]
    fn memory_types_are_read_by_version() {
        let all = |version| [0, 1, 2, 3, 4, 10, 11].map(|kind| MemoryType::read(kind, version));
        let old = [Host, Device, Unregistered, Managed, Managed, Unregistered, Unregistered];
        let new = [Unregistered, Host, Device, Managed, Unregistered, Unregistered, Managed];
        assert_eq!(all(50_221_153), old);
        assert_eq!(all(59_999_999), old);
        assert_eq!(all(60_000_000), new);
        assert_eq!(all(70_051_831), new);
    }
}
