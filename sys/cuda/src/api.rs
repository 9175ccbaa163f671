//! The driver's functions that we use, and its numbers, after NVIDIA's documentation of the CUDA driver API (cuda.h).

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `CUcontext`, `CUstream`, `CUevent`: pointers to what only the driver knows.
pub(crate) type Handle = *mut c_void;

/// `CUDA_SUCCESS`.
pub(crate) const SUCCESS: c_int = 0;
/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) const INVALID_VALUE: c_int = 1;
/// `CUDA_ERROR_NO_DEVICE`.
pub(crate) const NO_DEVICE: c_int = 100;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub(crate) const INVALID_CONTEXT: c_int = 201;
/// `CUDA_ERROR_NOT_READY`.
pub(crate) const NOT_READY: c_int = 600;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(crate) const CAPTURE_RELAXED: c_int = 2;

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
pub(crate) const REGISTER_FLAGS: c_uint = 1 | 2;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
pub(crate) const HANDLE_DMA_BUF_FD: c_int = 1;
/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX`.
pub(crate) const FLUSH_CURRENT_CTX: c_int = 0;
/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER`.
pub(crate) const FLUSH_TO_OWNER: c_int = 100;

/// `CU_MEMORYTYPE_UNIFIED`.
pub(crate) const UNIFIED: u64 = 4;

/// `CUDA_MEMCPY2D`, of 64 bits each: x, y, kind of memory, host address, device address, array and pitch of the source, the same of the
/// target, width and height.
pub(crate) type Copy2d = [u64; 16];

/// `CUdevice_attribute`.
pub(crate) mod attr {
    use std::ffi::c_int;
    pub(crate) const INTEGRATED: c_int = 18;
    pub(crate) const CAPABILITY_MAJOR: c_int = 75;
    pub(crate) const CAPABILITY_MINOR: c_int = 76;
    pub(crate) const PAGEABLE_ACCESS: c_int = 88;
    pub(crate) const HOST_PAGE_TABLES: c_int = 100;
    pub(crate) const GPU_DIRECT_RDMA: c_int = 116;
    pub(crate) const DMA_BUF: c_int = 124;
}

/// `CUpointer_attribute`.
pub(crate) mod pointer {
    use std::ffi::c_int;
    pub(crate) const MEMORY_TYPE: c_int = 2;
    pub(crate) const IS_MANAGED: c_int = 8;
    pub(crate) const DEVICE_ORDINAL: c_int = 9;
    /// `CU_MEMORYTYPE_HOST`.
    pub(crate) const HOST: c_uint = 1;
    /// `CU_MEMORYTYPE_DEVICE`.
    pub(crate) const DEVICE: c_uint = 2;
    use std::ffi::c_uint;
}

linkspan_dl::api! {
    /// The table.
    struct Api;
    fn cuInit(c_uint) -> c_int;
    fn cuDriverGetVersion(*mut c_int) -> c_int;
    fn cuDeviceGetCount(*mut c_int) -> c_int;
    fn cuDeviceGet(*mut c_int, c_int) -> c_int;
    fn cuDeviceGetName(*mut c_char, c_int, c_int) -> c_int;
    fn cuDeviceTotalMem_v2(*mut usize, c_int) -> c_int;
    fn cuDeviceGetAttribute(*mut c_int, c_int, c_int) -> c_int;
    fn cuDeviceGetPCIBusId(*mut c_char, c_int, c_int) -> c_int;
    fn cuDevicePrimaryCtxRetain(*mut Handle, c_int) -> c_int;
    fn cuCtxPushCurrent_v2(Handle) -> c_int;
    fn cuCtxPopCurrent_v2(*mut Handle) -> c_int;
    fn cuCtxGetDevice(*mut c_int) -> c_int;
    fn cuThreadExchangeStreamCaptureMode(*mut c_int) -> c_int;
    fn cuGetErrorString(c_int, *mut *const c_char) -> c_int;
    fn cuMemAlloc_v2(*mut u64, usize) -> c_int;
    fn cuMemFree_v2(u64) -> c_int;
    fn cuMemHostRegister_v2(*mut c_void, usize, c_uint) -> c_int;
    fn cuMemHostUnregister(*mut c_void) -> c_int;
    fn cuMemHostGetDevicePointer_v2(*mut u64, *mut c_void, c_uint) -> c_int;
    fn cuMemGetAddressRange_v2(*mut u64, *mut usize, u64) -> c_int;
    fn cuPointerGetAttributes(c_uint, *mut c_int, *mut *mut c_void, u64) -> c_int;
    fn cuMemcpyAsync(u64, u64, usize, Handle) -> c_int;
    fn cuMemcpy2DAsync_v2(*const Copy2d, Handle) -> c_int;
    fn cuStreamCreate(*mut Handle, c_uint) -> c_int;
    fn cuStreamSynchronize(Handle) -> c_int;
    fn cuStreamWaitEvent(Handle, Handle, c_uint) -> c_int;
    fn cuEventCreate(*mut Handle, c_uint) -> c_int;
    fn cuEventRecord(Handle, Handle) -> c_int;
    fn cuEventQuery(Handle) -> c_int;
    optional;
    // Since 11.3 and 11.7.
    fn cuFlushGPUDirectRDMAWrites(c_int, c_int) -> c_int;
    fn cuMemGetHandleForAddressRange(*mut c_void, u64, usize, c_int, u64) -> c_int;
    fn cuModuleLoadData(*mut Handle, *const c_void) -> c_int;
    fn cuModuleGetFunction(*mut Handle, Handle, *const c_char) -> c_int;
    fn cuLaunchKernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void,
    ) -> c_int;
}
