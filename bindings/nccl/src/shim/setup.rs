//! init, devices, listen, connect, accept, close, finalize.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::time::Instant;

use super::border::{call, device, given, out, set_up};
use crate::abi::{Config, DeviceHandle, HANDLE_MAXSIZE, LogFn, NetAttr, ProfilerFn, VDevice4, VDevice8};
use crate::burst::Burst;
use crate::comm::{CommBody, CtxBody, ListenBody, Path};
use crate::fail::Refused;
use crate::requests::Requests;
use crate::spin::SpinCell;
use crate::{Connecting, Exported, HANDLE_LEN, Init, ListenComm, Logger, Misuse, OpenedSend, RecvComm, abi};

pub(super) unsafe extern "C" fn init_v6<P: Exported, const VERSION: u32>(log: Option<LogFn>) -> c_int {
    // SAFETY: NCCL passes its logger, or null.
    let log = unsafe { Logger::new(log) };
    set_up::<P>("init", || P::global().init_shared(log, VERSION))
}

pub(super) unsafe extern "C" fn init_v10<P: Exported>(log: Option<LogFn>, _profiler: Option<ProfilerFn>) -> c_int {
    // SAFETY: NCCL passes its logger, or null.
    let log = unsafe { Logger::new(log) };
    set_up::<P>("init", || P::global().init_shared(log, 10))
}

pub(super) unsafe extern "C" fn init_v11<P: Exported, const VERSION: u32>(
    ctx: *mut *mut c_void,
    comm_id: u64,
    config: *const Config,
    log: Option<LogFn>,
    _profiler: Option<ProfilerFn>,
) -> c_int {
    set_up::<P>("init", || {
        given(ctx, "ctx")?;
        // SAFETY: NCCL passes a config, or null.
        let traffic_class = unsafe { traffic_class(config) };
        let init = Init { comm_id: Some(comm_id), traffic_class, version: VERSION };
        // SAFETY: NCCL passes its logger, or null.
        let address = P::global().init(unsafe { Logger::new(log) }, init)?;
        // SAFETY: not null, and NCCL's variable.
        unsafe { ctx.write(address) };
        Ok(())
    })
}

/// # Safety
/// `config` is null or points to a config.
unsafe fn traffic_class(config: *const Config) -> Option<u8> {
    // SAFETY: by the caller's promise.
    let config = unsafe { config.as_ref() }?;
    u8::try_from(config.traffic_class).ok()
}

pub(super) unsafe extern "C" fn devices<P: Exported>(ndev: *mut c_int) -> c_int {
    call::<P>("devices", || {
        let count = P::global().plugin("devices")?.devices();
        // SAFETY: NCCL's variable.
        Ok(unsafe { out(ndev, "ndev", c_int::try_from(count).unwrap_or(c_int::MAX)) }?)
    })
}

/// # Safety
/// `ctx` is a context of this plugin that stays open during `f`.
unsafe fn with_ctx<P: Exported, R>(
    ctx: *mut c_void,
    f: impl FnOnce(&CtxBody<P>) -> Result<R, Refused>,
) -> Result<R, Refused> {
    let cell = P::global().ctxs.find(ctx)?;
    // SAFETY: live, and stays so by the caller's promise.
    let body = unsafe { cell.body() }.ok_or(Misuse::Stranger("context", ctx as usize))?;
    f(body)
}

/// # Safety
/// As [`with_ctx`]; `handle` has 128 bytes and `comm` one pointer, or they are null.
unsafe fn listen<P: Exported>(
    ctx: *mut c_void,
    dev: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
) -> Result<(), Refused> {
    given(handle, "handle")?;
    given(comm, "listenComm")?;
    // SAFETY: by the caller's promise.
    unsafe { comm.write(null_mut()) };
    let mut bytes = [0; HANDLE_LEN];
    // SAFETY: by the caller's promise.
    let body = unsafe {
        with_ctx::<P, _>(ctx, |ctx| {
            let dev = device(dev, ctx.plugin.devices())?;
            let listen = ctx.plugin.listen(&ctx.ctx, dev, &mut bytes)?;
            Ok(ListenBody::<P> { listen: SpinCell::new(listen), ctx: ctx.serial })
        })
    }?;
    let mut whole = [0u8; HANDLE_MAXSIZE];
    whole[..HANDLE_LEN].copy_from_slice(&bytes);
    // SAFETY: not null; 128 bytes and one pointer by the caller's promise.
    unsafe {
        handle.cast::<[u8; HANDLE_MAXSIZE]>().write_unaligned(whole);
        comm.write(P::global().listens.insert(|_| body));
    }
    Ok(())
}

pub(super) unsafe extern "C" fn listen_v6<P: Exported>(
    dev: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL's promise.
    set_up::<P>("listen", || unsafe { listen::<P>(P::global().shared_ctx("listen")?, dev, handle, comm) })
}

pub(super) unsafe extern "C" fn listen_v11<P: Exported>(
    ctx: *mut c_void,
    dev: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL's promise.
    set_up::<P>("listen", || unsafe { listen::<P>(ctx, dev, handle, comm) })
}

/// # Safety
/// As [`listen`]; the handle is the same memory each time until the comm is there.
unsafe fn connect<P: Exported>(
    ctx: *mut c_void,
    dev: c_int,
    class: Option<u8>,
    handle: *mut c_void,
    comm: *mut *mut c_void,
) -> Result<(), Refused> {
    given(handle, "handle")?;
    given(comm, "sendComm")?;
    // SAFETY: by the caller's promise.
    let whole = unsafe {
        comm.write(null_mut());
        handle.cast::<[u8; HANDLE_MAXSIZE]>().read_unaligned()
    };
    let mut bytes = [0; HANDLE_LEN];
    bytes.copy_from_slice(&whole[..HANDLE_LEN]);
    let mut tail = [0; HANDLE_MAXSIZE - HANDLE_LEN];
    tail.copy_from_slice(&whole[HANDLE_LEN..]);
    // SAFETY: by the caller's promise.
    let (ticket, opened) =
        unsafe { with_ctx::<P, _>(ctx, |ctx| step(ctx, dev, class, &bytes, u64::from_ne_bytes(tail))) }?;
    // SAFETY: 128 bytes by the caller's promise.
    unsafe { handle.cast::<u8>().add(HANDLE_LEN).cast::<u64>().write_unaligned(ticket) };
    let Some((opened, serial)) = opened else {
        return Ok(());
    };
    let address = P::global().sends.insert(|cell| {
        cell.extra.hang(std::ptr::from_ref(cell) as usize, crate::arena::Kind::Send);
        let requests = Requests::new(&cell.extra);
        let spin = SpinCell::new(Path { path: opened.path, requests, burst: Burst::new() });
        CommBody { spin, domain: opened.domain, ctx: serial }
    });
    // SAFETY: not null; one pointer by the caller's promise.
    unsafe { comm.write(address) };
    Ok(())
}

type Step<P> = (u64, Option<(OpenedSend<P>, u64)>);

/// Begins or goes on with a connect; returns what the end of the handle has to be.
fn step<P: Exported>(
    ctx: &CtxBody<P>,
    dev: c_int,
    class: Option<u8>,
    handle: &[u8; HANDLE_LEN],
    ticket: u64,
) -> Result<Step<P>, Refused> {
    let now = Instant::now();
    let (ticket, mut connecting) = if let Some(connecting) = ctx.pending.take(ticket, now) {
        (ticket, connecting)
    } else {
        let dev = device(dev, ctx.plugin.devices())?;
        let connecting = ctx.plugin.connect(&ctx.ctx, dev, class.or(ctx.traffic_class), handle)?;
        (crate::Global::<P>::ticket(), connecting)
    };
    if let Some(opened) = connecting.poll()? {
        return Ok((0, Some((opened, ctx.serial))));
    }
    ctx.pending.put(ticket, connecting, now);
    Ok((ticket, None))
}

pub(super) unsafe extern "C" fn connect_v6<P: Exported>(
    dev: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL's promise.
    set_up::<P>("connect", || unsafe { connect::<P>(P::global().shared_ctx("connect")?, dev, None, handle, comm) })
}

pub(super) unsafe extern "C" fn connect_v7<P: Exported>(
    dev: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
    device: *mut *mut DeviceHandle,
) -> c_int {
    // SAFETY: NCCL's promise.
    unsafe {
        no_device(device);
        connect_v6::<P>(dev, handle, comm)
    }
}

pub(super) unsafe extern "C" fn connect_v10<P: Exported>(
    dev: c_int,
    config: *const Config,
    handle: *mut c_void,
    comm: *mut *mut c_void,
    device: *mut *mut DeviceHandle,
) -> c_int {
    // SAFETY: NCCL's promise.
    set_up::<P>("connect", || unsafe {
        no_device(device);
        connect::<P>(P::global().shared_ctx("connect")?, dev, traffic_class(config), handle, comm)
    })
}

pub(super) unsafe extern "C" fn connect_v11<P: Exported>(
    ctx: *mut c_void,
    dev: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
    device: *mut *mut DeviceHandle,
) -> c_int {
    // SAFETY: NCCL's promise.
    set_up::<P>("connect", || unsafe {
        no_device(device);
        connect::<P>(ctx, dev, None, handle, comm)
    })
}

/// Says that there is no device offload.
///
/// # Safety
/// `device` is null or NCCL's variable.
unsafe fn no_device(device: *mut *mut DeviceHandle) {
    if !device.is_null() {
        // SAFETY: not null, and NCCL's variable.
        unsafe { device.write(null_mut()) };
    }
}

/// The next connection of a listen comm. `device`: the structure that NCCL wants filled in where its kernels are to unpack.
///
/// # Safety
/// `comm` is null or NCCL's variable; `device` is null, or NCCL's variable, which is null or points to a structure of its own.
unsafe fn accept<P: Exported>(
    listen: *mut c_void,
    comm: *mut *mut c_void,
    device: *mut *mut DeviceHandle,
) -> Result<(), Refused> {
    given(comm, "recvComm")?;
    // SAFETY: not null, and NCCL's variable.
    unsafe { comm.write(null_mut()) };
    let cell = P::global().listens.find(listen)?;
    // SAFETY: live; NCCL closes it from this thread only.
    let body = unsafe { cell.body() }.ok_or(Misuse::Stranger("listen comm", listen as usize))?;
    // SAFETY: by the caller's promise. What such a device's NCCL passes it has allocated and named before.
    let asked = body.listen.with(|listen| listen.unpacks())? && unsafe { asks_unpack(device) };
    if !asked {
        // SAFETY: by the caller's promise.
        unsafe { no_device(device) };
    }
    let Some(mut opened) = body.listen.with(ListenComm::accept)?? else {
        return Ok(());
    };
    if asked {
        let told = match opened.path.unpack_queue() {
            Some(queue) => DeviceHandle {
                device_type: abi::DEVICE_UNPACK,
                version: abi::DEVICE_UNPACK_VERSION,
                handle: queue.address as *mut c_void,
                size: queue.len,
                needs_proxy_progress: 1,
            },
            None => DeviceHandle {
                device_type: abi::DEVICE_HOST,
                version: abi::DEVICE_INVALID_VERSION,
                handle: null_mut(),
                size: 0,
                needs_proxy_progress: 1,
            },
        };
        // SAFETY: `asks_unpack` found a structure there.
        unsafe { device.read().write(told) };
    }
    let address = P::global().recvs.insert(|cell| {
        cell.extra.hang(std::ptr::from_ref(cell) as usize, crate::arena::Kind::Recv);
        let requests = Requests::new(&cell.extra);
        let spin = SpinCell::new(Path { path: opened.path, requests, burst: Burst::new() });
        CommBody { spin, domain: opened.domain, ctx: body.ctx }
    });
    // SAFETY: not null, and NCCL's variable.
    unsafe { comm.write(address) };
    Ok(())
}

/// Whether NCCL wants its kernels to unpack: it has then put a structure there that says so.
///
/// # Safety
/// As for [`accept`].
unsafe fn asks_unpack(device: *mut *mut DeviceHandle) -> bool {
    if device.is_null() {
        return false;
    }
    // SAFETY: by the caller's promise.
    let wanted = unsafe { device.read().as_ref() };
    wanted.is_some_and(|d| d.device_type == abi::DEVICE_UNPACK && d.version == abi::DEVICE_UNPACK_VERSION)
}

pub(super) unsafe extern "C" fn accept_v6<P: Exported>(listen: *mut c_void, comm: *mut *mut c_void) -> c_int {
    // SAFETY: NCCL's promise.
    set_up::<P>("accept", || unsafe { accept::<P>(listen, comm, null_mut()) })
}

pub(super) unsafe extern "C" fn accept_v7<P: Exported>(
    listen: *mut c_void,
    comm: *mut *mut c_void,
    device: *mut *mut DeviceHandle,
) -> c_int {
    // SAFETY: NCCL's promise.
    set_up::<P>("accept", || unsafe { accept::<P>(listen, comm, device) })
}

pub(super) unsafe extern "C" fn close_send<P: Exported>(comm: *mut c_void) -> c_int {
    call::<P>("closeSend", || P::global().close_send(comm))
}

pub(super) unsafe extern "C" fn close_recv<P: Exported>(comm: *mut c_void) -> c_int {
    call::<P>("closeRecv", || P::global().close_recv(comm))
}

pub(super) unsafe extern "C" fn close_listen<P: Exported>(comm: *mut c_void) -> c_int {
    set_up::<P>("closeListen", || {
        drop(P::global().listens.remove(comm)?);
        Ok(())
    })
}

pub(super) unsafe extern "C" fn finalize<P: Exported>(ctx: *mut c_void) -> c_int {
    call::<P>("finalize", || P::global().finalize(ctx))
}

pub(super) unsafe extern "C" fn set_net_attr<P: Exported>(ctx: *mut c_void, attr: *const NetAttr) -> c_int {
    set_up::<P>("setNetAttr", || {
        given(attr, "attr")?;
        // SAFETY: not null, and NCCL's structure.
        let attr = unsafe { attr.read() };
        // SAFETY: NCCL's promise.
        unsafe { with_ctx::<P, _>(ctx, |ctx| Ok(ctx.plugin.attributes(&ctx.ctx, attr)?)) }
    })
}

fn merge<P: Exported>(ndevs: c_int, devs: &[c_int]) -> Result<c_int, Refused> {
    let plugin = P::global().plugin("makeVDevice")?;
    let n = usize::try_from(ndevs).ok().filter(|n| (1..=devs.len()).contains(n));
    let n = n.ok_or(Misuse::Count(ndevs))?;
    let count = plugin.devices();
    let members = devs[..n].iter().map(|&d| device(d, count)).collect::<Result<Vec<_>, _>>()?;
    let new = plugin.merge(&members)?;
    P::global().merged(members);
    Ok(c_int::try_from(new).unwrap_or(c_int::MAX))
}

macro_rules! make_vdevice {
    ($name:ident, $ty:ty) => {
        pub(super) unsafe extern "C" fn $name<P: Exported>(dev: *mut c_int, props: *mut $ty) -> c_int {
            call::<P>("makeVDevice", || {
                given(props, "props")?;
                given(dev, "d")?;
                // SAFETY: not null, and NCCL's structure.
                let props = unsafe { props.read() };
                let new = merge::<P>(props.ndevs, &props.devs)?;
                // SAFETY: not null, and NCCL's variable.
                unsafe { dev.write(new) };
                Ok(())
            })
        }
    };
}
make_vdevice!(make_vdevice4, VDevice4);
make_vdevice!(make_vdevice8, VDevice8);
