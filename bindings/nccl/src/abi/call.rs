//! The functions of the tables. Where a shape changed, the name carries the first version that had it.

use std::ffi::{c_char, c_int, c_ulong, c_void};

use super::{Config, DeviceHandle, NetAttr};

/// NCCL's logger; thread-safe. `fmt` is a printf format.
pub type LogFn =
    unsafe extern "C" fn(level: c_int, flags: c_ulong, file: *const c_char, line: c_int, fmt: *const c_char, ...);
/// NCCL's profiler callback (since v10); linkspan reports no events.
pub(crate) type ProfilerFn = unsafe extern "C" fn(
    event: *mut *mut c_void,
    kind: c_int,
    phandle: *mut c_void,
    plugin_id: i64,
    data: *mut c_void,
) -> c_int;

/// init, v6 to v9.
pub(crate) type InitV6 = unsafe extern "C" fn(log: Option<LogFn>) -> c_int;
/// init, v10.
pub(crate) type InitV10 = unsafe extern "C" fn(log: Option<LogFn>, profiler: Option<ProfilerFn>) -> c_int;
/// init, since v11: once per communicator.
pub(crate) type InitV11 = unsafe extern "C" fn(
    ctx: *mut *mut c_void,
    comm_id: u64,
    config: *const Config,
    log: Option<LogFn>,
    profiler: Option<ProfilerFn>,
) -> c_int;
/// devices.
pub(crate) type Devices = unsafe extern "C" fn(ndev: *mut c_int) -> c_int;
/// getProperties.
pub(crate) type GetProperties<T> = unsafe extern "C" fn(dev: c_int, props: *mut T) -> c_int;
/// listen, v6 to v10.
pub(crate) type ListenV6 = unsafe extern "C" fn(dev: c_int, handle: *mut c_void, comm: *mut *mut c_void) -> c_int;
/// listen, since v11.
pub(crate) type ListenV11 =
    unsafe extern "C" fn(ctx: *mut c_void, dev: c_int, handle: *mut c_void, comm: *mut *mut c_void) -> c_int;
/// connect, v6.
pub(crate) type ConnectV6 = unsafe extern "C" fn(dev: c_int, handle: *mut c_void, comm: *mut *mut c_void) -> c_int;
/// connect, v7 to v9.
pub(crate) type ConnectV7 = unsafe extern "C" fn(
    dev: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
    device: *mut *mut DeviceHandle,
) -> c_int;
/// connect, v10.
pub(crate) type ConnectV10 = unsafe extern "C" fn(
    dev: c_int,
    config: *const Config,
    handle: *mut c_void,
    comm: *mut *mut c_void,
    device: *mut *mut DeviceHandle,
) -> c_int;
/// connect, since v11.
pub(crate) type ConnectV11 = unsafe extern "C" fn(
    ctx: *mut c_void,
    dev: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
    device: *mut *mut DeviceHandle,
) -> c_int;
/// accept, v6.
pub(crate) type AcceptV6 = unsafe extern "C" fn(listen: *mut c_void, comm: *mut *mut c_void) -> c_int;
/// accept, since v7.
pub(crate) type AcceptV7 =
    unsafe extern "C" fn(listen: *mut c_void, comm: *mut *mut c_void, device: *mut *mut DeviceHandle) -> c_int;
/// regMr, v6 and v7.
pub(crate) type RegMrV6 =
    unsafe extern "C" fn(comm: *mut c_void, data: *mut c_void, size: c_int, kind: c_int, mr: *mut *mut c_void) -> c_int;
/// regMr, since v8.
pub(crate) type RegMrV8 =
    unsafe extern "C" fn(comm: *mut c_void, data: *mut c_void, size: usize, kind: c_int, mr: *mut *mut c_void) -> c_int;
/// regMrDmaBuf.
pub(crate) type RegMrDmaBuf = unsafe extern "C" fn(
    comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    kind: c_int,
    offset: u64,
    fd: c_int,
    mr: *mut *mut c_void,
) -> c_int;
/// deregMr.
pub(crate) type DeregMr = unsafe extern "C" fn(comm: *mut c_void, mr: *mut c_void) -> c_int;
/// isend, v6 to v8.
pub(crate) type IsendV6 = unsafe extern "C" fn(
    comm: *mut c_void,
    data: *mut c_void,
    size: c_int,
    tag: c_int,
    mr: *mut c_void,
    request: *mut *mut c_void,
) -> c_int;
/// isend, v9.
pub(crate) type IsendV9 = unsafe extern "C" fn(
    comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    mr: *mut c_void,
    request: *mut *mut c_void,
) -> c_int;
/// isend, since v10.
pub(crate) type IsendV10 = unsafe extern "C" fn(
    comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    mr: *mut c_void,
    phandle: *mut c_void,
    request: *mut *mut c_void,
) -> c_int;
/// irecv, v6 to v8.
pub(crate) type IrecvV6 = unsafe extern "C" fn(
    comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    tags: *mut c_int,
    mrs: *mut *mut c_void,
    request: *mut *mut c_void,
) -> c_int;
/// irecv, v9.
pub(crate) type IrecvV9 = unsafe extern "C" fn(
    comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    tags: *mut c_int,
    mrs: *mut *mut c_void,
    request: *mut *mut c_void,
) -> c_int;
/// irecv, since v10.
pub(crate) type IrecvV10 = unsafe extern "C" fn(
    comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    tags: *mut c_int,
    mrs: *mut *mut c_void,
    phandles: *mut *mut c_void,
    request: *mut *mut c_void,
) -> c_int;
/// iflush.
pub(crate) type Iflush = unsafe extern "C" fn(
    comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    mrs: *mut *mut c_void,
    request: *mut *mut c_void,
) -> c_int;
/// test.
pub(crate) type Test = unsafe extern "C" fn(request: *mut c_void, done: *mut c_int, sizes: *mut c_int) -> c_int;
/// closeSend, closeRecv, closeListen; finalize since v11.
pub(crate) type Close = unsafe extern "C" fn(object: *mut c_void) -> c_int;
/// getDeviceMr, since v7; only called on devices with offload.
pub(crate) type GetDeviceMr =
    unsafe extern "C" fn(comm: *mut c_void, mr: *mut c_void, device_mr: *mut *mut c_void) -> c_int;
/// irecvConsumed, since v7; called for every receive of a plugin that has it, once NCCL's kernel has read the buffer.
pub(crate) type IrecvConsumed = unsafe extern "C" fn(comm: *mut c_void, n: c_int, request: *mut c_void) -> c_int;
/// makeVDevice, since v9.
pub(crate) type MakeVDevice<T> = unsafe extern "C" fn(dev: *mut c_int, props: *mut T) -> c_int;
/// setNetAttr, since v11.
pub(crate) type SetNetAttr = unsafe extern "C" fn(ctx: *mut c_void, attr: *const NetAttr) -> c_int;
