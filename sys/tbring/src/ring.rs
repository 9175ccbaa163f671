//! An open device: queues, registered memory, channels.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use linkspan_transport::{Buf, MemSlice};

use crate::abi::{self, Sqe};
use crate::device::{self, Info, call};
use crate::error::{Error, Result};
use crate::queue::Queues;

#[cfg(test)]
mod tests;

/// Longest time that the driver takes for [`Options::thread`], us.
const MOST_IDLE: u64 = abi::POLL_IDLE_MAX_US as u64;

/// How a device is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Entries of the submission queue: a power of two from 8 to 4096.
    pub submissions: u32,
    /// Entries of the completion queue, the same; at most as many operations are under way.
    pub completions: u32,
    /// How long to wait for the link to come up.
    pub wait: Duration,
    /// Asks that a thread of the kernel polls for this ring, and sleeps after so long with nothing to do (1 us to 1 s). The driver of
    /// today has no such threads and takes the wish without effect.
    pub thread: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options { submissions: 256, completions: 512, wait: Duration::from_secs(5), thread: None }
    }
}

/// What a region is registered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is sent from.
    Send,
    /// It is received into.
    Receive,
    /// Both.
    Both,
}

impl Access {
    fn flags(self) -> u32 {
        match self {
            Access::Send => abi::REGION_READ,
            Access::Receive => abi::REGION_WRITE,
            Access::Both => abi::REGION_READ | abi::REGION_WRITE,
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A send: its bytes may be used again.
    Send,
    /// A receive: its bytes are there.
    Receive,
}

/// A finished operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What it was.
    pub operation: Operation,
    /// The number that was given with it.
    pub cookie: u64,
    /// Its channel.
    pub channel: u32,
    /// Bytes of the message. Where a receive was too short for it (`Err(EMSGSIZE)`) also that: the message waits.
    pub length: u64,
    /// What came of it; an error is an error number: `EPIPE` the other side has closed the channel, `ECANCELED` this side
    /// has, `ENODEV` the link was lost, `EBADF` the channel is not open here, others mean a wrong entry.
    pub result: std::result::Result<(), i32>,
}

/// A mapping, unmapped at the end.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    bytes: usize,
    /// The process that has it; a child of fork() has none of a device, and may have other memory there.
    owner: Option<u32>,
}

// SAFETY: an address; what may be done with it is settled by the queues over it.
unsafe impl Send for Map {}

impl Map {
    /// Memory of its own, all zeros.
    pub(crate) fn anonymous(bytes: usize) -> Result<Map> {
        Map::new(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, None)
    }

    fn new(bytes: usize, flags: i32, fd: i32, owner: Option<u32>) -> Result<Map> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Map { base, bytes, owner }),
            _ => Err(Error::call("mapping memory")),
        }
    }

    /// Its first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.owner.is_some_and(|owner| owner != std::process::id()) {
            return;
        }
        // SAFETY: our own mapping; what was built over it goes with the one that holds both.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(unmapped, 0);
    }
}

/// The open device, as the regions of a ring and who registers them know it: closed with the ring, which waits for a call of theirs.
type Shared = Arc<RwLock<Option<OwnedFd>>>;

/// Closes the device when it is dropped, whoever else knows of it: an open device goes on receiving.
#[derive(Debug)]
struct Device {
    fd: BorrowedFd<'static>,
    shared: Shared,
}

impl Device {
    fn new(fd: OwnedFd) -> Device {
        // SAFETY: it is closed by the drop of this, not before.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) };
        Device { fd: borrowed, shared: Arc::new(RwLock::new(Some(fd))) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        *self.shared.write().unwrap_or_else(|e| e.into_inner()) = None;
    }
}

/// A call on the device, as long as its ring is open: else its error is `ENODEV`.
fn shared_call<T: Copy>(shared: &Shared, number: u32, argument: &mut T) -> std::io::Result<()> {
    match &*shared.read().unwrap_or_else(|e| e.into_inner()) {
        Some(fd) => call(fd.as_fd(), number, argument).map_err(|()| std::io::Error::last_os_error()),
        None => Err(std::io::Error::from_raw_os_error(libc::ENODEV)),
    }
}

/// Memory that the device may send from and receive into. Dropping it lets the memory go; with operations on it, that
/// happens when the device is closed, with its [`Ring`].
#[derive(Debug)]
pub struct RingMr {
    device: Shared,
    id: u32,
    length: u64,
    registered: bool,
}

impl RingMr {
    /// Lets the memory go: from then on the device does not touch it. `Some` is the region itself, where operations on it are
    /// under way; it stays registered then.
    pub fn release(mut self) -> Option<RingMr> {
        self.registered = self.in_use();
        self.registered.then_some(self)
    }

    /// Tries to let it go; whether operations on it keep it.
    fn in_use(&self) -> bool {
        // Whatever else the device says, it has no such region any more: that of a link that was lost is released already.
        shared_call(&self.device, abi::IOC_UNREGISTER, &mut abi::Id { id: self.id, reserved: 0 })
            .is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Never: a region has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Drop for RingMr {
    fn drop(&mut self) {
        if self.registered {
            // In use: the device lets it go when it is closed.
            self.in_use();
        }
    }
}

/// An open device whose link is up. One thread at a time.
///
/// Dropping it closes the device, though regions and [`Registrar`]s are still there, and returns when no transfer touches memory any more; their
/// calls wait as long. In a child of fork() it is of no use: the queues are not mapped there, so that what uses them (put, take,
/// the doorbell) ends the child with SIGSEGV, and what asks the driver fails with [`Error::Gone`]. The parent's goes on.
#[derive(Debug)]
pub struct Ring {
    queues: Queues,
    _map: Map,
    device: Device,
    threaded: bool,
}

impl Ring {
    /// Opens the device at `path` (`/dev/linkspan/0`) and waits for its link.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::Version`], [`Error::NotUp`], [`Error::Gone`]; [`Error::Refused`].
    pub fn open(path: &Path, options: Options) -> Result<Ring> {
        let fd = device::open(path)?;
        let mut hello = abi::Hello {
            version: abi::VERSION,
            timeout_ms: u32::try_from(options.wait.as_millis()).unwrap_or(u32::MAX),
            sq_entries: options.submissions,
            cq_entries: options.completions,
            flags: if options.thread.is_some() { abi::HELLO_POLL } else { 0 },
            idle_us: options.thread.map_or(0, |idle| (idle.as_micros() as u64).clamp(1, MOST_IDLE) as u32),
            ..abi::Hello::default()
        };
        if call(fd.as_fd(), abi::IOC_HELLO, &mut hello).is_err() {
            return Err(match Error::call("opening the queues") {
                Error::Refused { source, .. } if source.raw_os_error() == Some(libc::EPROTO) => {
                    Error::Version { theirs: hello.version, ours: abi::VERSION }
                }
                Error::Refused { source, .. } if source.raw_os_error() == Some(libc::ENOTCONN) => {
                    let state = device::info_of(fd.as_fd())?.state;
                    Error::NotUp { state: state.name(), hint: state.hint() }
                }
                other => other,
            });
        }
        let bytes =
            usize::try_from(hello.map_bytes).map_err(|_| Error::Queues { what: "a map larger than the memory" })?;
        let map = Map::new(bytes, libc::MAP_SHARED, fd.as_raw_fd(), Some(std::process::id()))?;
        // SAFETY: the map is held beside the queues and dropped after them, by the order of the fields.
        let queues = unsafe { Queues::new(map.base, hello.map_bytes, &hello)? };
        Ok(Ring { queues, _map: map, device: Device::new(fd), threaded: options.thread.is_some() })
    }

    /// What the device says about its link.
    ///
    /// # Errors
    /// [`Error::Refused`]: the driver refuses the question.
    pub fn info(&self) -> Result<Info> {
        device::info_of(self.device.fd)
    }

    /// Registers host memory: its pages are pinned and count against the limit of locked memory. Unaligned memory works; the
    /// first and last partial page of what is received are copied.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::Refused`], with `ENOMEM` at the limit and `EFAULT` for memory that cannot be pinned.
    pub fn register(&self, memory: MemSlice, access: Access) -> Result<RingMr> {
        self.register_at(memory.as_ptr().expose_provenance() as u64, memory.len() as u64, access)
    }

    /// See [`Registrar::register_dmabuf`].
    ///
    /// # Errors
    /// As [`Ring::register`].
    pub fn register_dmabuf(&self, fd: BorrowedFd<'_>, offset: u64, length: u64, access: Access) -> Result<RingMr> {
        self.registrar().register_dmabuf(fd, offset, length, access)
    }

    pub(crate) fn register_at(&self, addr: u64, length: u64, access: Access) -> Result<RingMr> {
        self.add(abi::Register { addr, length, flags: access.flags(), ..Default::default() })
    }

    /// A handle that registers memory with this open device. Any thread may use it.
    pub fn registrar(&self) -> Registrar {
        Registrar(self.device.shared.clone())
    }

    fn add(&self, argument: abi::Register) -> Result<RingMr> {
        add(&self.device.shared, argument)
    }

    /// Opens a channel (0 to 255); what is sent waits until the other host opens it too.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::Refused`] with `EBUSY` where another program has it.
    pub fn open_channel(&self, channel: u32) -> Result<()> {
        call(self.device.fd, abi::IOC_OPEN, &mut abi::Id { id: channel, reserved: 0 })
            .map_err(|()| Error::call("opening a channel"))
    }

    /// Closes a channel: operations that have not begun end with `ECANCELED`, those of the other host with `EPIPE`.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::Refused`] with `EBADF` where it is not open in this ring.
    pub fn close_channel(&self, channel: u32) -> Result<()> {
        call(self.device.fd, abi::IOC_CLOSE, &mut abi::Id { id: channel, reserved: 0 })
            .map_err(|()| Error::call("closing a channel"))
    }

    /// Puts a send of one message into the queue; `false` where the queue is full: ring the doorbell.
    ///
    /// # Errors
    /// [`Error::Range`], [`Error::Gone`], [`Error::Queues`].
    #[inline]
    pub fn send(&mut self, channel: u32, region: &RingMr, offset: u64, length: u64, cookie: u64) -> Result<bool> {
        self.put(abi::OP_SEND, channel, region, offset, length, cookie)
    }

    /// Puts a receive of one message of at most `length` bytes into the queue; `false` where the queue is full.
    ///
    /// # Errors
    /// As [`Ring::send`].
    #[inline]
    pub fn receive(&mut self, channel: u32, region: &RingMr, offset: u64, length: u64, cookie: u64) -> Result<bool> {
        self.put(abi::OP_RECV, channel, region, offset, length, cookie)
    }

    #[inline]
    fn put(
        &mut self,
        opcode: u32,
        channel: u32,
        region: &RingMr,
        offset: u64,
        length: u64,
        cookie: u64,
    ) -> Result<bool> {
        if offset > region.length || length > region.length - offset {
            return Err(Error::Range { offset, length, region: region.length });
        }
        if self.queues.dead() {
            return Err(Error::Gone);
        }
        self.queues.push(Sqe { opcode, channel, cookie, region: region.id, offset, length, ..Sqe::default() })
    }

    /// Puts an entry as it is, wrong ones too: for tests of the driver.
    #[doc(hidden)]
    pub fn put_raw(&mut self, sqe: Sqe) -> Result<bool> {
        self.queues.push(sqe)
    }

    /// Hands over what was put, then waits until `completions` completions are there, or for `wait`. With `poll` the waiting
    /// spins on the rings instead of sleeping until an interrupt. Entries that were taken.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::Refused`] with `EINTR` for a signal while waiting.
    #[inline]
    pub fn doorbell(&mut self, completions: u32, wait: Duration, poll: bool) -> Result<u32> {
        let mut notifier = abi::Doorbell {
            flags: if poll { abi::DOORBELL_POLL } else { 0 },
            min_complete: completions,
            timeout_us: u32::try_from(wait.as_micros()).unwrap_or(u32::MAX),
            submitted: 0,
        };
        call(self.device.fd, abi::IOC_DOORBELL, &mut notifier).map_err(|()| Error::call("ringing the doorbell"))?;
        Ok(notifier.submitted)
    }

    /// Hands over what was put, and does not wait: a doorbell, which is a system call. With entries that were not taken for lack of space for their completions ([`Ring::waiting`]), call it again
    /// when some were taken.
    ///
    /// # Errors
    /// [`Error::Gone`]: the link was lost. [`Error::Refused`]: the driver refuses the doorbell.
    #[inline]
    pub fn submit(&mut self) -> Result<()> {
        if self.threaded && !self.queues.asleep() {
            return if self.queues.dead() { Err(Error::Gone) } else { Ok(()) };
        }
        self.doorbell(0, Duration::ZERO, false).map(drop)
    }

    /// Takes a completion. No system call.
    ///
    /// # Errors
    /// [`Error::Queues`]; [`Error::Gone`] when the link was lost and all completions were taken.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<Completion>> {
        let dead = self.queues.dead();
        match self.queues.pop()? {
            None if dead => Err(Error::Gone),
            None => Ok(None),
            Some(cqe) => Ok(Some(Completion {
                operation: if cqe.opcode == abi::OP_SEND { Operation::Send } else { Operation::Receive },
                cookie: cqe.cookie,
                channel: cqe.channel,
                length: cqe.length,
                result: if cqe.result < 0 { Err(-cqe.result) } else { Ok(()) },
            })),
        }
    }

    /// Entries that were put and not handed over, or not taken for lack of space for their completions.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.queues.waiting()
    }

    /// Has an eventfd signalled with every completion and when the link is lost; `None` ends that.
    ///
    /// # Errors
    /// [`Error::Refused`]: the descriptor is no eventfd.
    pub fn set_eventfd(&self, event: Option<BorrowedFd<'_>>) -> Result<()> {
        let mut argument = abi::Event { fd: event.map_or(-1, |fd| fd.as_raw_fd()), reserved: 0 };
        call(self.device.fd, abi::IOC_EVENTFD, &mut argument).map_err(|()| Error::call("setting an eventfd"))
    }
}

fn add(device: &Shared, mut argument: abi::Register) -> Result<RingMr> {
    shared_call(device, abi::IOC_REGISTER, &mut argument).map_err(|e| Error::of("registering memory", e))?;
    Ok(RingMr { device: device.clone(), id: argument.region, length: argument.length, registered: true })
}

/// Registers memory with an open device; may be used from any thread. When the [`Ring`] is gone it registers nothing: [`Error::Gone`].
#[derive(Clone, Debug)]
pub struct Registrar(Shared);

impl Registrar {
    /// Registers `length` bytes at `offset` (a multiple of the page size) of a dma-buf. The region keeps the dma-buf, whatever
    /// becomes of the descriptor.
    ///
    /// # Errors
    /// As [`Ring::register`]; `ERANGE` beyond its end; `EINVAL` for an offset inside a page; `EOPNOTSUPP` where the device
    /// cannot reach it or the kernel cannot look at it.
    pub fn register_dmabuf(&self, fd: BorrowedFd<'_>, offset: u64, length: u64, access: Access) -> Result<RingMr> {
        let flags = access.flags() | abi::REGION_DMABUF;
        add(&self.0, abi::Register { addr: offset, length, flags, fd: fd.as_raw_fd(), ..Default::default() })
    }
}

/// For `poll`: readable when completions are there, hung up when the link was lost.
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.fd
    }
}
