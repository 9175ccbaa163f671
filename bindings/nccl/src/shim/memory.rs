//! regMr, regMrDmaBuf, deregMr: from the service thread, while the data path runs.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

use linkspan_transport::MemSlice;

use super::border::{call, given, out, size};
use crate::comm::{CommBody, MrBody};
use crate::fail::Refused;
use crate::{DeviceRange, Exported, Mem, MemKind, Misuse, RecvComm, RegisterRange, SendComm, abi};

fn kind(kind: c_int) -> Result<MemKind, Misuse> {
    match kind {
        abi::PTR_HOST => Ok(MemKind::Host),
        abi::PTR_CUDA => Ok(MemKind::Device),
        other => Err(Misuse::Kind(other)),
    }
}

/// The range as the plugin sees it.
///
/// # Safety
/// Memory stays where it is as NCCL's interface promises: until each operation on it has reported, its handle is
/// deregistered or its comm is closed.
pub(super) unsafe fn mem(kind: MemKind, data: *mut c_void, len: usize) -> Result<Mem, Misuse> {
    if data.is_null() && len > 0 {
        return Err(Misuse::Null("data"));
    }
    Ok(match kind {
        // SAFETY: by the caller's promise; a null pointer has no bytes.
        MemKind::Host => Mem::Host(unsafe { MemSlice::new(data.cast(), len) }),
        // SAFETY: by the caller's promise.
        MemKind::Device => Mem::Device(unsafe { DeviceRange::new(data as u64, len) }),
    })
}

/// Runs `send` or `recv` on the comm at this address, whichever it is.
fn on_comm<P: Exported, R>(
    comm: *mut c_void,
    send: impl FnOnce(&CommBody<P, P::Send>) -> Result<R, Refused>,
    recv: impl FnOnce(&CommBody<P, P::Recv>) -> Result<R, Refused>,
) -> Result<R, Refused> {
    let global = P::global();
    let stranger = || Misuse::Stranger("comm", comm as usize);
    if let Ok(cell) = global.sends.find(comm) {
        // SAFETY: live; NCCL closes it from this thread only.
        return send(unsafe { cell.body() }.ok_or_else(stranger)?);
    }
    match global.recvs.find(comm) {
        // SAFETY: as above.
        Ok(cell) => recv(unsafe { cell.body() }.ok_or_else(stranger)?),
        Err(Misuse::Null(_)) => Err(Misuse::Null("comm").into()),
        Err(_) => Err(stranger().into()),
    }
}

fn register<P: Exported>(comm: *mut c_void, region: RegisterRange<'_>, out: *mut *mut c_void) -> Result<(), Refused> {
    let kind = match region.mem {
        Mem::Host(_) => MemKind::Host,
        Mem::Device(_) => MemKind::Device,
    };
    let region = std::cell::Cell::new(Some(region));
    let domain = |domain: &P::Domain| match region.take() {
        Some(region) => Ok(P::register(domain, region)?),
        None => Err(Refused::Misuse(Misuse::Null("data"))),
    };
    let mr = on_comm::<P, _>(comm, |b| domain(&b.domain), |b| domain(&b.domain))?;
    let address = P::global().mrs.insert(|_| MrBody { mr, kind, comm: comm as usize });
    // SAFETY: the callers checked that it is not null; NCCL's variable.
    unsafe { out.write(address) };
    Ok(())
}

pub(super) unsafe extern "C" fn reg_mr_v6<P: Exported>(
    comm: *mut c_void,
    data: *mut c_void,
    len: c_int,
    type_: c_int,
    mr: *mut *mut c_void,
) -> c_int {
    call::<P>("regMr", || {
        given(mr, "mhandle")?;
        // SAFETY: not null, and NCCL's variable.
        unsafe { mr.write(null_mut()) };
        // SAFETY: NCCL's promise.
        let mem = unsafe { mem(kind(type_)?, data, size(len)?) }?;
        register::<P>(comm, RegisterRange { mem, dma_buf: None }, mr)
    })
}

pub(super) unsafe extern "C" fn reg_mr_v8<P: Exported>(
    comm: *mut c_void,
    data: *mut c_void,
    len: usize,
    type_: c_int,
    mr: *mut *mut c_void,
) -> c_int {
    call::<P>("regMr", || {
        given(mr, "mhandle")?;
        // SAFETY: not null, and NCCL's variable.
        unsafe { mr.write(null_mut()) };
        // SAFETY: NCCL's promise.
        let mem = unsafe { mem(kind(type_)?, data, len) }?;
        register::<P>(comm, RegisterRange { mem, dma_buf: None }, mr)
    })
}

pub(super) unsafe extern "C" fn reg_mr_dma_buf<P: Exported>(
    comm: *mut c_void,
    data: *mut c_void,
    len: usize,
    type_: c_int,
    offset: u64,
    fd: c_int,
    mr: *mut *mut c_void,
) -> c_int {
    call::<P>("regMrDmaBuf", || {
        given(mr, "mhandle")?;
        // SAFETY: not null, and NCCL's variable.
        unsafe { mr.write(null_mut()) };
        if fd < 0 {
            return Err(Misuse::Size(fd).into());
        }
        // SAFETY: NCCL's promise.
        let mem = unsafe { mem(kind(type_)?, data, len) }?;
        // SAFETY: not -1; NCCL keeps it open during the call.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        register::<P>(comm, RegisterRange { mem, dma_buf: Some((fd, offset)) }, mr)
    })
}

pub(super) unsafe extern "C" fn dereg_mr<P: Exported>(comm: *mut c_void, mr: *mut c_void) -> c_int {
    call::<P>("deregMr", || {
        let address = mr as usize;
        let cell = P::global().mrs.find(mr)?;
        // SAFETY: live; NCCL deregisters from this thread only.
        let body = unsafe { cell.body() }.ok_or(Misuse::Stranger("memory handle", address))?;
        // A request that still uses the memory means an abort: no data-path call of this comm comes any more.
        on_comm::<P, _>(
            comm,
            |b| {
                let revoke = |p: &mut crate::comm::Path<P::Send>| {
                    if p.requests.uses(address) {
                        p.path.revoke(&body.mr);
                    }
                };
                ended(b.spin.with(revoke))
            },
            |b| {
                let revoke = |p: &mut crate::comm::Path<P::Recv>| {
                    if p.requests.uses(address) {
                        p.path.revoke(&body.mr);
                    }
                };
                ended(b.spin.with(revoke))
            },
        )?;
        let Some(body) = P::global().mrs.remove(mr)?.body.take() else {
            return Ok(());
        };
        let mr = std::cell::Cell::new(Some(body.mr));
        let end = |domain: &P::Domain| mr.take().map_or(Ok(()), |mr| Ok(P::deregister(domain, mr)?));
        on_comm::<P, _>(comm, |b| end(&b.domain), |b| end(&b.domain))
    })
}

/// A comm that a panic made unusable has no operation that a call could revoke; its memory is released.
fn ended(result: Result<(), Misuse>) -> Result<(), Refused> {
    match result {
        Ok(()) | Err(Misuse::Poisoned) => Ok(()),
        Err(other) => Err(other.into()),
    }
}

/// What NCCL's kernels know a registration by: of the offload that there is, nothing.
pub(super) unsafe extern "C" fn get_device_mr<P: Exported>(
    _comm: *mut c_void,
    mr: *mut c_void,
    device_mr: *mut *mut c_void,
) -> c_int {
    call::<P>("getDeviceMr", || {
        P::global().mrs.find(mr)?;
        // SAFETY: null, or NCCL's variable.
        Ok(unsafe { out(device_mr, "dptr_mhandle", null_mut()) }?)
    })
}
