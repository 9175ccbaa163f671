//! A ring that receives one stream into an area of device memory.
//!
//! The kernel wants one thread to make all requests of such a ring and to run what it has put off for it
//! (`IORING_SETUP_SINGLE_ISSUER`, `DEFER_TASKRUN`): that is [`Issuer`]. Completions and the refill ring are memory that any one
//! thread may read and write: [`Harvest`].

use std::ffi::{c_long, c_uint, c_void};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use linkspan_gpu::devmem::{Completion, MOST_REFILLS};
use linkspan_transport::{Buf, MemSlice};

use super::abi::*;
use super::map::Map;
use super::notifier::Notifier;

/// Requests that may be written before the kernel is entered.
const REQUESTS: u32 = 8;

/// Where payload comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A receive queue of a card, which is stopped and started by it.
    Queue {
        /// The interface's number.
        interface: u32,
        /// The queue's.
        queue: u32,
    },
    /// Any stream; the kernel copies it into the area: a mode for tests (Linux 7.1).
    Anywhere,
}

/// Where payload goes.
#[derive(Clone, Copy, Debug)]
pub enum Area<'a> {
    /// So many bytes of a dma-buf, from its begin on: whole pages (Linux 6.16).
    DmaBuf(BorrowedFd<'a>, u64),
    /// Host memory: whole pages.
    Host(MemSlice),
}

/// A step of the set-up that failed.
#[derive(Debug, thiserror::Error)]
#[error("LS1335 {call} failed")]
pub struct UringError {
    /// The step.
    pub call: &'static str,
    /// The OS error.
    #[source]
    pub source: io::Error,
}

/// What both halves use.
#[derive(Debug)]
struct Shared {
    // The ring ends before the memory that it uses.
    ring: OwnedFd,
    sq: Map,
    sqes: Map,
    cq: Map,
    refills: Map,
    params: Offsets,
}

#[derive(Clone, Copy, Debug)]
struct Offsets {
    sq_tail: u32,
    sq_mask: u32,
    sq_array: u32,
    cq_head: u32,
    cq_tail: u32,
    cq_mask: u32,
    cqes: u32,
    rq_head: u32,
    rq_tail: u32,
    rqes: u32,
    rq_entries: u32,
}

/// The half of the thread that made the ring. It cannot go to another.
#[derive(Debug)]
pub struct Issuer {
    shared: Arc<Shared>,
    notifier: Arc<Notifier>,
    id: u32,
    unsent: u32,
    _here: PhantomData<*const ()>,
}

/// The half that takes completions. One at a time.
#[derive(Debug)]
pub struct Harvest {
    shared: Arc<Shared>,
    head: u32,
    token: u64,
    id: u32,
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> UringError {
    move |source| UringError { call, source }
}

fn register<T>(ring: &OwnedFd, what: c_uint, arg: *mut T, count: c_uint) -> io::Result<c_long> {
    let arg: *mut c_void = arg.cast();
    // SAFETY: each caller's argument is the structure that the operation reads and writes.
    let n = unsafe { libc::syscall(libc::SYS_io_uring_register, ring.as_raw_fd(), what, arg, count) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n) }
}

/// Makes a ring in the calling thread, with space for `completions` and `refills` (powers of two), and registers the
/// area. `notifier` is signaled when the kernel has put work off for the thread. Needs CAP_NET_ADMIN.
///
/// # Errors
/// [`UringError`] with the call that failed and its error: `EPERM`; `EINVAL` from kernels without zero-copy receive;
/// `EOPNOTSUPP` from drivers that cannot; `EEXIST` for a queue in use.
pub fn zero_copy(
    source: Source,
    area: Area<'_>,
    (completions, refills): (u32, u32),
    notifier: &Arc<Notifier>,
) -> Result<(Issuer, Harvest), UringError> {
    let mut params = Params {
        flags: SETUP_CQE32 | SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN | SETUP_CQSIZE,
        cq_entries: completions,
        ..Params::default()
    };
    // SAFETY: reads and writes `struct io_uring_params`.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, REQUESTS, &raw mut params) };
    if fd < 0 {
        return Err(failed("io_uring_setup")(io::Error::last_os_error()));
    }
    // SAFETY: a descriptor that was just made for us.
    let ring = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let map = |offset: i64, len: usize| Map::new(Some((ring.as_fd(), offset)), len).map_err(failed("mmap of io_uring"));
    let sq = map(OFF_SQ_RING, params.sq.array as usize + params.sq_entries as usize * 4)?;
    let sqes = map(OFF_SQES, params.sq_entries as usize * size_of::<Sqe>())?;
    let cq = map(OFF_CQ_RING, params.cq.cqes as usize + params.cq_entries as usize * size_of::<Cqe>())?;

    let entries = refills.next_power_of_two().min(MOST_REFILLS);
    let page = 4096;
    let size = (page + entries as usize * size_of::<Rqe>()).next_multiple_of(page);
    let refills = Map::new(None, size).map_err(failed("mmap of the refill ring"))?;
    let mut region = Region { user_addr: refills.addr(), size: size as u64, flags: REGION_USER, ..Region::default() };
    let mut reg_area = match area {
        Area::DmaBuf(fd, len) => {
            AreaReg { len, flags: AREA_DMABUF, dmabuf_fd: fd.as_raw_fd() as u32, ..AreaReg::default() }
        }
        Area::Host(mem) => AreaReg { addr: mem.as_ptr() as u64, len: mem.len() as u64, ..AreaReg::default() },
    };
    let (interface, queue, flags) = match source {
        Source::Queue { interface, queue } => (interface, queue, 0),
        Source::Anywhere => (0, 0, REG_NODEV),
    };
    let mut ifq = IfqReg {
        interface,
        queue,
        flags,
        rq_entries: entries,
        area_ptr: (&raw mut reg_area).expose_provenance() as u64,
        region_ptr: (&raw mut region).expose_provenance() as u64,
        ..IfqReg::default()
    };
    register(&ring, REGISTER_ZCRX_IFQ, &raw mut ifq, 1).map_err(failed("IORING_REGISTER_ZCRX_IFQ"))?;
    let mut wakes = notifier.as_fd().as_raw_fd();
    register(&ring, REGISTER_EVENTFD, &raw mut wakes, 1).map_err(failed("IORING_REGISTER_EVENTFD"))?;

    let params = Offsets {
        sq_tail: params.sq.tail,
        sq_mask: params.sq_entries.wrapping_sub(1),
        sq_array: params.sq.array,
        cq_head: params.cq.head,
        cq_tail: params.cq.tail,
        cq_mask: params.cq_entries.wrapping_sub(1),
        cqes: params.cq.cqes,
        rq_head: ifq.offsets.head,
        rq_tail: ifq.offsets.tail,
        rqes: ifq.offsets.rqes,
        rq_entries: ifq.rq_entries,
    };
    let inside = sq.holds::<u32>(params.sq_tail, 1)
        && cq.holds::<u32>(params.cq_head, 1)
        && cq.holds::<u32>(params.cq_tail, 1)
        && refills.holds::<u32>(params.rq_head, 1)
        && refills.holds::<u32>(params.rq_tail, 1)
        && refills.holds::<Rqe>(params.rqes, params.rq_entries)
        && params.rq_entries.is_power_of_two();
    if !inside {
        let odd = io::Error::new(io::ErrorKind::InvalidData, "offsets outside of its rings");
        return Err(failed("io_uring_setup")(odd));
    }
    let shared = Arc::new(Shared { ring, sq, sqes, cq, refills, params });
    let harvest = Harvest { shared: shared.clone(), head: 0, token: reg_area.token, id: ifq.id };
    Ok((Issuer { shared, notifier: notifier.clone(), id: ifq.id, unsent: 0, _here: PhantomData }, harvest))
}

impl Issuer {
    /// Writes a request to receive at most `len` bytes, not 0, of a connected TCP stream, in as many completions as it takes.
    /// [`Issuer::enter`] hands it to the kernel. False: too many were written since.
    pub fn receive(&mut self, stream: BorrowedFd<'_>, len: u32, user_data: u64) -> bool {
        if self.unsent == REQUESTS {
            return false;
        }
        let Shared { sq, sqes, params, .. } = &*self.shared;
        let tail = sq.number(params.sq_tail).load(Relaxed);
        let slot = tail & params.sq_mask;
        let sqe = Sqe {
            opcode: OP_RECV_ZC,
            ioprio: RECV_MULTISHOT,
            fd: stream.as_raw_fd(),
            len,
            user_data,
            zcrx_ifq_idx: self.id,
            ..Sqe::default()
        };
        sqes.write(0, slot, sqe);
        sq.write(params.sq_array, slot, slot);
        sq.number(params.sq_tail).store(tail.wrapping_add(1), Release);
        self.unsent += 1;
        true
    }

    /// Hands requests to the kernel and runs what it has put off. Never waits.
    ///
    /// # Errors
    /// The error of `io_uring_enter(2)`.
    pub fn enter(&mut self) -> io::Result<()> {
        loop {
            let fd = self.shared.ring.as_raw_fd();
            // SAFETY: no signal mask, no memory beyond the rings.
            let n = unsafe {
                libc::syscall(
                    libc::SYS_io_uring_enter,
                    fd,
                    self.unsent,
                    0 as c_uint,
                    ENTER_GETEVENTS,
                    std::ptr::null::<c_void>(),
                    0usize,
                )
            };
            match u32::try_from(n) {
                Ok(sent) => {
                    self.unsent -= sent.min(self.unsent);
                    if self.unsent == 0 {
                        return Ok(());
                    }
                }
                Err(_) => match io::Error::last_os_error() {
                    e if e.kind() == io::ErrorKind::Interrupted => {}
                    // Completions wait to be taken: the next signal comes when they were.
                    e if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => return Ok(()),
                    e => return Err(e),
                },
            }
        }
    }

    /// Has the kernel take what stands in the refill ring, which it otherwise does when a card asks for pages (Linux 6.19).
    ///
    /// # Errors
    /// The error of `io_uring_register(2)`.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut ctrl = Ctrl { id: self.id, op: CTRL_FLUSH_RQ, ..Ctrl::default() };
        register(&self.shared.ring, REGISTER_ZCRX_CTRL, &raw mut ctrl, 0).map(drop)
    }

    /// Ends every request: when this returns the kernel writes nothing into the area on their behalf any more, and does not hold the
    /// stream.
    pub fn cancel(&mut self) {
        let mut all = SyncCancel { fd: -1, flags: CANCEL_EVERYTHING, seconds: 5, ..SyncCancel::default() };
        // Nothing to cancel is an answer like any other.
        let _ = register(&self.shared.ring, REGISTER_SYNC_CANCEL, &raw mut all, 1);
        let _ = self.enter();
    }

    /// Completions that the kernel has posted so far, modulo 2^32.
    pub fn posted(&self) -> u32 {
        self.shared.cq.number(self.shared.params.cq_tail).load(Acquire)
    }

    /// Sleeps until the eventfd is signalled, by the kernel or by another thread.
    pub fn wait(&self) {
        self.notifier.wait();
    }
}

impl Harvest {
    /// The bits that the kernel adds to offsets to name the area.
    pub fn area(&self) -> u64 {
        self.token
    }

    /// The kernel's number of the receive queue.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The next completion.
    #[expect(clippy::should_implement_trait, reason = "more may come after none")]
    pub fn next(&mut self) -> Option<Completion> {
        let Shared { cq, params, .. } = &*self.shared;
        if cq.number(params.cq_tail).load(Acquire) == self.head {
            return None;
        }
        let cqe: Cqe = cq.read(params.cqes, self.head & params.cq_mask);
        self.head = self.head.wrapping_add(1);
        cq.number(params.cq_head).store(self.head, Release);
        Some(Completion { user_data: cqe.user_data, res: cqe.res, flags: cqe.flags, off: cqe.off })
    }

    /// Entries of the refill ring.
    pub fn refills(&self) -> u32 {
        self.shared.params.rq_entries
    }

    /// Entries of the refill ring that the kernel has taken so far, modulo 2^32.
    pub fn taken(&self) -> u32 {
        self.shared.refills.number(self.shared.params.rq_head).load(Acquire)
    }

    /// Writes an entry: the page that begins at `offset` of the area goes back.
    pub fn refill(&mut self, slot: u32, offset: u64, len: u32) {
        let Shared { refills, params, .. } = &*self.shared;
        let rqe = Rqe { off: self.token | offset, len, pad: 0 };
        refills.write(params.rqes, slot & (params.rq_entries - 1), rqe);
    }

    /// Publishes the tail of the refill ring: the kernel may take entries before it.
    pub fn refilled(&mut self, tail: u32) {
        self.shared.refills.number(self.shared.params.rq_tail).store(tail, Release);
    }
}
