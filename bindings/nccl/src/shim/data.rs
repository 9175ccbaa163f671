//! isend, irecv, iflush, test: the data path.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::border::{at, call, given, parts, size};
use super::memory::mem;
use crate::arena::{Cell, Kind};
use crate::burst::Leave;
use crate::comm::{CommCell, MrBody, MrCell, Path};
use crate::fail::Refused;
use crate::requests::through;
use crate::{Exported, MAX_RECVS, MemKind, Misuse, Part, RecvComm, RecvHints, SendComm, abi};

/// # Safety
/// `mr` is null or a memory handle of this plugin that stays registered as long as the result is used.
#[inline]
unsafe fn handle<'a, P: Exported>(mr: *mut c_void) -> Result<Option<&'a MrBody<P>>, Misuse> {
    if mr.is_null() {
        return Ok(None);
    }
    // SAFETY: by the caller's promise.
    let cell: &'a MrCell<P> = unsafe { Cell::from_address(mr, Kind::Mr) }?;
    // SAFETY: live, and stays so by the caller's promise.
    unsafe { cell.body() }.map(Some).ok_or(Misuse::Stranger("memory handle", mr as usize))
}

/// # Safety
/// As [`handle`]; the bytes belong to the operation until it has reported.
#[inline]
unsafe fn part<'a, P: Exported>(
    data: *mut c_void,
    len: usize,
    tag: c_int,
    mr: *mut c_void,
) -> Result<Part<'a, P::Mr>, Misuse> {
    // SAFETY: by the caller's promise.
    let body = unsafe { handle::<P>(mr) }?;
    let kind = body.map_or(MemKind::Host, |b| b.kind);
    // SAFETY: by the caller's promise.
    let mem = unsafe { mem(kind, data, len) }?;
    Ok(Part { mem, tag, mr: body.map(|b| &b.mr) })
}

/// # Safety
/// `comm` is a send comm of this plugin; the bytes belong to the request until it has reported; `request` is NCCL's.
#[inline]
unsafe fn isend<P: Exported>(
    comm: *mut c_void,
    data: *mut c_void,
    len: usize,
    tag: c_int,
    mr: *mut c_void,
    request: *mut *mut c_void,
) -> Result<(), Refused> {
    given(request, "request")?;
    // SAFETY: by the caller's promise.
    let (cell, part) = unsafe {
        request.write(null_mut());
        let cell: &CommCell<P, P::Send> = Cell::from_address(comm, Kind::Send)?;
        (cell, part::<P>(data, len, tag, mr)?)
    };
    // SAFETY: live; NCCL does not close it during the call.
    let body = unsafe { cell.body() }.ok_or(Misuse::Stranger("send comm", comm as usize))?;
    let started = body.spin.with(|p| {
        if !p.requests.has_space() {
            return Ok(null_mut());
        }
        let leave = p.burst.posts(len, p.requests.is_empty(), comm as usize, &P::global().bursts);
        if leave == Leave::Together {
            p.path.hold(true);
        }
        let ticket = p.path.isend(part)?;
        match leave {
            Leave::Now => p.path.flush(),
            // What waited leaves before it.
            Leave::Soon => p.path.hold(false),
            Leave::Together => {}
        }
        Ok::<_, Refused>(ticket.map_or(null_mut(), |t| p.requests.start(t, [mr as usize].into_iter())))
    })??;
    // SAFETY: by the caller's promise.
    unsafe { request.write(started) };
    Ok(())
}

pub(super) unsafe extern "C" fn isend_v6<P: Exported>(
    comm: *mut c_void,
    data: *mut c_void,
    len: c_int,
    tag: c_int,
    mr: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL's promise.
    call::<P>("isend", || unsafe { isend::<P>(comm, data, size(len)?, tag, mr, request) })
}

pub(super) unsafe extern "C" fn isend_v9<P: Exported>(
    comm: *mut c_void,
    data: *mut c_void,
    len: usize,
    tag: c_int,
    mr: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL's promise.
    call::<P>("isend", || unsafe { isend::<P>(comm, data, len, tag, mr, request) })
}

pub(super) unsafe extern "C" fn isend_v10<P: Exported>(
    comm: *mut c_void,
    data: *mut c_void,
    len: usize,
    tag: c_int,
    mr: *mut c_void,
    _phandle: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL's promise.
    call::<P>("isend", || unsafe { isend::<P>(comm, data, len, tag, mr, request) })
}

/// A size as a version passes it.
trait Length: Copy {
    fn bytes(self) -> Result<usize, Misuse>;
}

impl Length for c_int {
    #[inline]
    fn bytes(self) -> Result<usize, Misuse> {
        size(self)
    }
}

impl Length for usize {
    #[inline]
    fn bytes(self) -> Result<usize, Misuse> {
        Ok(self)
    }
}

/// The arrays of a receive or flush.
struct Arrays<L> {
    data: *mut *mut c_void,
    sizes: *mut L,
    tags: *mut c_int,
    mrs: *mut *mut c_void,
}

impl<L: Length> Arrays<L> {
    /// Part `i`, and the address of its memory handle.
    ///
    /// # Safety
    /// The arrays have more than `i` elements; `tags` and `mrs` may be null.
    #[inline]
    unsafe fn part<'a, P: Exported>(&self, i: usize) -> Result<(Part<'a, P::Mr>, usize), Misuse> {
        // SAFETY: by the caller's promise; the elements are those of NCCL's promise.
        unsafe {
            let mr = at(self.mrs, i);
            let tag = if self.tags.is_null() { 0 } else { self.tags.add(i).read() };
            let len = self.sizes.add(i).read().bytes()?;
            Ok((part::<P>(at(self.data, i), len, tag, mr)?, mr as usize))
        }
    }
}

/// Reads the arrays, gives the parts to `f` and makes its ticket a request.
///
/// # Safety
/// As [`isend`], with the arrays of [`Arrays::part`].
#[inline]
unsafe fn grouped<P: Exported, L: Length>(
    comm: *mut c_void,
    n: c_int,
    arrays: &Arrays<L>,
    request: *mut *mut c_void,
    f: impl FnOnce(&mut P::Recv, &[Part<'_, P::Mr>]) -> Result<Option<u64>, crate::Fail>,
) -> Result<(), Refused> {
    let n = parts(n)?;
    given(arrays.data, "data")?;
    given(arrays.sizes, "sizes")?;
    // SAFETY: by the caller's promise.
    let cell: &CommCell<P, P::Recv> = unsafe { Cell::from_address(comm, Kind::Recv) }?;
    // SAFETY: live; NCCL does not close it during the call.
    let body = unsafe { cell.body() }.ok_or(Misuse::Stranger("receive comm", comm as usize))?;
    let start = |p: &mut Path<P::Recv>, parts: &[Part<'_, P::Mr>], mrs: &[usize]| {
        if !p.requests.has_space() {
            return Ok(null_mut());
        }
        let ticket = f(&mut p.path, parts)?;
        Ok::<_, Refused>(ticket.map_or(null_mut(), |t| p.requests.start(t, mrs.iter().copied())))
    };
    // SAFETY: `n` elements by the caller's promise.
    let (first, first_mr) = unsafe { arrays.part::<P>(0) }?;
    let started = if n == 1 {
        body.spin.with(|p| start(p, &[first], &[first_mr]))??
    } else {
        let mut parts = [first; MAX_RECVS];
        let mut mrs = [first_mr; MAX_RECVS];
        for i in 1..n {
            // SAFETY: as above.
            (parts[i], mrs[i]) = unsafe { arrays.part::<P>(i) }?;
        }
        body.spin.with(|p| start(p, &parts[..n], &mrs[..n]))??
    };
    // SAFETY: by the caller's promise.
    unsafe { request.write(started) };
    Ok(())
}

/// Clears `*request` and returns what stood there.
///
/// # Safety
/// `request` is null or NCCL's variable.
#[inline]
unsafe fn clear(request: *mut *mut c_void) -> Result<usize, Misuse> {
    given(request, "request")?;
    // SAFETY: by the caller's promise. NCCL leaves anything in there, perhaps nothing; volatile reads what is.
    unsafe {
        let before = request.cast::<usize>().read_volatile();
        request.write(null_mut());
        Ok(before)
    }
}

fn hints(before: usize) -> RecvHints {
    RecvHints { completion_optional: before == abi::OPTIONAL_RECV_COMPLETION, multi: before == abi::MULTI_REQUEST }
}

pub(super) unsafe extern "C" fn irecv_v6<P: Exported>(
    comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    tags: *mut c_int,
    mrs: *mut *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL's promise.
    call::<P>("irecv", || unsafe {
        clear(request)?;
        given(tags, "tags")?;
        let arrays = Arrays { data, sizes, tags, mrs };
        grouped::<P, _>(comm, n, &arrays, request, |path, parts| path.irecv(parts, RecvHints::default()))
    })
}

pub(super) unsafe extern "C" fn irecv_v9<P: Exported>(
    comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    tags: *mut c_int,
    mrs: *mut *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL's promise.
    call::<P>("irecv", || unsafe {
        let before = clear(request)?;
        given(tags, "tags")?;
        let arrays = Arrays { data, sizes, tags, mrs };
        grouped::<P, _>(comm, n, &arrays, request, |path, parts| path.irecv(parts, hints(before)))
    })
}

pub(super) unsafe extern "C" fn irecv_v10<P: Exported>(
    comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    tags: *mut c_int,
    mrs: *mut *mut c_void,
    _phandles: *mut *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL's promise.
    unsafe { irecv_v9::<P>(comm, n, data, sizes, tags, mrs, request) }
}

pub(super) unsafe extern "C" fn iflush<P: Exported>(
    comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    mrs: *mut *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL's promise.
    call::<P>("iflush", || unsafe {
        clear(request)?;
        let arrays = Arrays { data, sizes, tags: null_mut(), mrs };
        grouped::<P, _>(comm, n, &arrays, request, RecvComm::flush)
    })
}

pub(super) unsafe extern "C" fn test<P: Exported>(request: *mut c_void, done: *mut c_int, sizes: *mut c_int) -> c_int {
    // SAFETY: NCCL's promise.
    call::<P>("test", || unsafe { test_one::<P>(request, done, sizes) })
}

/// # Safety
/// `request` is a request of this plugin; `done` is NCCL's variable; `sizes` is null or has an element per part.
#[inline]
unsafe fn test_one<P: Exported>(request: *mut c_void, done: *mut c_int, sizes: *mut c_int) -> Result<(), Refused> {
    given(done, "done")?;
    // SAFETY: by the caller's promise.
    let way = unsafe {
        done.write(0);
        through(request)
    }?;
    P::global().bursts.tested(leave::<P>);
    let gone = || Misuse::Request(request as usize);
    let mut got = [0usize; MAX_RECVS];
    let finished = if way.is_send {
        // SAFETY: a request slot leads to its comm's cell; live, and NCCL does not close it during the call.
        let body = unsafe {
            let cell: &CommCell<P, P::Send> = Cell::from_address(way.cell, Kind::Send).map_err(|_| gone())?;
            cell.body()
        };
        body.ok_or_else(gone)?.spin.with(|p| {
            let entry = p.requests.get(&way)?;
            if !p.burst.tests() {
                p.path.hold(false);
            }
            let Some(bytes) = p.path.test(entry.ticket)? else {
                return Ok(None);
            };
            got[0] = bytes;
            p.requests.finish(&way);
            Ok::<_, Refused>(Some(1))
        })??
    } else {
        // SAFETY: as above.
        let body = unsafe {
            let cell: &CommCell<P, P::Recv> = Cell::from_address(way.cell, Kind::Recv).map_err(|_| gone())?;
            cell.body()
        };
        body.ok_or_else(gone)?.spin.with(|p| {
            let entry = p.requests.get(&way)?;
            let n = usize::from(entry.parts);
            let ticket = entry.ticket;
            if !p.path.test(ticket, &mut got[..n])? {
                return Ok(None);
            }
            match p.path.waits_for_kernel(ticket) {
                true => p.requests.hand_over(&way),
                false => p.requests.finish(&way),
            }
            Ok::<_, Refused>(Some(n))
        })??
    };
    let Some(n) = finished else { return Ok(()) };
    // SAFETY: by the caller's promise.
    unsafe {
        if !sizes.is_null() {
            for (i, &bytes) in got[..n].iter().enumerate() {
                sizes.add(i).write(c_int::try_from(bytes).unwrap_or(c_int::MAX));
            }
        }
        done.write(1);
    }
    Ok(())
}

/// The sends that wait on this comm leave. It is among the plugin's [`Bursts`](crate::burst::Bursts), which close_send takes it out of
/// first.
#[cold]
fn leave<P: Exported>(comm: usize) {
    // SAFETY: the address of a send comm of this plugin.
    let cell = unsafe { Cell::from_address(comm as *mut c_void, Kind::Send) };
    let Ok(cell): Result<&CommCell<P, P::Send>, _> = cell else { return };
    // SAFETY: it stays live while it is among the bursts, which are locked during this call.
    let Some(body) = (unsafe { cell.body() }) else { return };
    // One that is poisoned tells its caller.
    let _ = body.spin.with(|p| {
        p.burst.left();
        p.path.flush();
    });
}

/// NCCL calls it for every receive of every comm, once its kernel has read the buffer.
pub(super) unsafe extern "C" fn irecv_consumed<P: Exported>(
    comm: *mut c_void,
    _n: c_int,
    request: *mut c_void,
) -> c_int {
    // SAFETY: NCCL's promise.
    call::<P>("irecvConsumed", || unsafe {
        let way = through(request)?;
        if way.cell != comm {
            return Err(Misuse::Stranger("receive comm", comm as usize).into());
        }
        let cell: &CommCell<P, P::Recv> = Cell::from_address(comm, Kind::Recv)?;
        let body = cell.body().ok_or(Misuse::Stranger("receive comm", comm as usize))?;
        body.spin.with(|p| {
            // Most requests ended with the test that said done.
            let Some(ticket) = p.requests.with_kernel(&way) else { return Ok(()) };
            p.requests.finish(&way);
            p.path.consumed(ticket).map_err(Refused::from)
        })?
    })
}
