//! Numbers of the interface.

use std::ffi::{c_int, c_ulong};

/// Result: done.
pub const SUCCESS: c_int = 0;
/// Result: a CUDA or HIP call failed.
pub const UNHANDLED_CUDA_ERROR: c_int = 1;
/// Result: a call to the local system failed.
pub const SYSTEM_ERROR: c_int = 2;
/// Result: a defect in the library.
pub const INTERNAL_ERROR: c_int = 3;
/// Result: an argument is invalid.
pub const INVALID_ARGUMENT: c_int = 4;
/// Result: a call at the wrong time.
pub const INVALID_USAGE: c_int = 5;
/// Result: the peer is lost.
pub const REMOTE_ERROR: c_int = 6;

/// Bytes of a listen handle (`NCCL_NET_HANDLE_MAXSIZE`, since 2.12).
pub const HANDLE_MAXSIZE: usize = 128;
/// Requests NCCL keeps in flight per comm and receive (`NCCL_NET_MAX_REQUESTS`, since 2.19).
pub const MAX_REQUESTS: usize = 32;
/// Largest size NCCL may announce (`NCCL_MAX_NET_SIZE_BYTES`): 1 TiB.
pub const MAX_NET_SIZE_BYTES: usize = 1 << 40;

/// Pointer type: host memory.
pub const PTR_HOST: c_int = 0x1;
/// Pointer type: CUDA or HIP device memory.
pub const PTR_CUDA: c_int = 0x2;
/// Pointer support: dma-buf descriptors.
pub const PTR_DMABUF: c_int = 0x4;

/// Passed in `*request` of irecv (since v9): the receive may complete without a completion event.
pub const OPTIONAL_RECV_COMPLETION: usize = 0x1;
/// Passed in `*request` (since v11): one of several requests that NCCL treats as one.
pub const MULTI_REQUEST: usize = 0x2;

/// Traffic class that was not set (NCCL's undefined int); every negative number is read like it.
pub const TRAFFIC_CLASS_UNDEF: c_int = c_int::MIN;
/// Rail or plane that is unknown.
pub const ID_UNDEF: i16 = -1;

/// Net device type: plain host proxy.
pub const DEVICE_HOST: c_int = 0;
/// Net device type: device unpacks (TCPX).
pub const DEVICE_UNPACK: c_int = 1;
/// Version of the unpack device queue.
pub const DEVICE_UNPACK_VERSION: c_int = 0x7;
/// Version a host device reports.
pub const DEVICE_INVALID_VERSION: c_int = 0;

/// Log level: errors and downgrades.
pub const LOG_WARN: c_int = 2;
/// Log level: shown with `NCCL_DEBUG=INFO`.
pub const LOG_INFO: c_int = 3;
/// Log level: shown with `NCCL_DEBUG=TRACE`.
pub const LOG_TRACE: c_int = 5;

/// Log subsystem: set-up.
pub const SUBSYS_INIT: c_ulong = 0x1;
/// Log subsystem: network.
pub const SUBSYS_NET: c_ulong = 0x10;
/// Log subsystem: all.
pub const SUBSYS_ALL: c_ulong = !0;
