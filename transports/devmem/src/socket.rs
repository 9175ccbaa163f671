//! A stream whose payload may land in device memory, and leave from it.

use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linkspan_gpu::Gpu;
use linkspan_gpu::devmem::Run;
use linkspan_net::Sent;
use linkspan_netdev::Received;
use linkspan_transport::{Buf, MemSlice};

use crate::Error;

/// Device memory that a card fills with what arrives.
#[derive(Debug)]
pub struct Pool {
    /// The memory; fragments' offsets count from its first byte.
    pub mem: MemSlice,
    /// The kernel's number for it.
    pub id: u32,
    /// Pages of it that NCCL's kernels have, over all streams that share it.
    pub lent: Arc<AtomicU64>,
    /// Pieces of it that the kernel has given out and not got back, over all streams that share it.
    pub held: Arc<AtomicU64>,
    /// What keeps it bound and this stream steered to it, and the pages that the stream has brought as they are.
    pub guard: Box<dyn Any + Send>,
}

/// Device memory that a card sends from.
#[derive(Clone, Debug)]
pub struct Lent {
    /// The memory.
    pub mem: MemSlice,
    /// The kernel's number for it.
    pub id: u32,
    /// Where in the binding it begins, bytes.
    pub offset: u64,
    /// False once its owner takes it back.
    pub alive: Arc<AtomicBool>,
}

/// Why a card does not send from device memory.
#[derive(Clone, Debug)]
pub struct NotLent {
    /// The reason, for people.
    pub why: String,
    /// The card, the driver or the kernel cannot at all; else other memory, or another time, may do.
    pub lasting: bool,
}

impl Lent {
    /// Where in the binding these bytes are. `None`: not all of them are in it, or it was taken back.
    pub(crate) fn at(&self, mem: MemSlice) -> Option<u64> {
        let (ours, theirs) = (self.mem.as_ptr() as u64, mem.as_ptr() as u64);
        let at = theirs.checked_sub(ours).filter(|_| mem.place() == self.mem.place())?;
        let inside = at.checked_add(mem.len() as u64).is_some_and(|end| end <= self.mem.len() as u64);
        (inside && self.alive.load(Ordering::Acquire)).then(|| self.offset + at)
    }
}

/// The stream. [`crate::KernelSocket`] is the one of the kernel; tests have another.
///
/// Nothing here blocks; the calls of the data path neither allocate nor lock.
///
/// # Safety
/// An implementation touches memory that a call names within the call; memory that it bound or lends, no longer than the value
/// lives that stands for it, and sends that were accepted until their notice has come.
#[allow(unsafe_code)]
pub unsafe trait Socket: Send + fmt::Debug {
    /// The stream's descriptor.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Receives at most as many bytes as `linear` has, which is host memory. What lies in device memory, and what was copied
    /// to `linear`, is told in `control` as the kernel tells it; without any such message all is in `linear`. `None`: nothing
    /// is there; 0 bytes: the end.
    ///
    /// # Errors
    /// The error of `recvmsg(2)`, as ECONNRESET.
    fn receive(&mut self, linear: MemSlice, control: &mut [u64]) -> io::Result<Option<Received>>;

    /// Gives pages back by their tokens, at most 128 runs. Returns how many were taken, the first of those given: 1024 at most.
    ///
    /// # Errors
    /// The error of `setsockopt(SO_DEVMEM_DONTNEED)`, as EINVAL.
    fn give_back(&mut self, runs: &[Run]) -> io::Result<u64>;

    /// Sends what the stream takes of host memory.
    ///
    /// # Errors
    /// The error of `sendmsg(2)`, as EPIPE or ECONNRESET.
    fn send(&mut self, mem: MemSlice) -> io::Result<Option<usize>>;

    /// Sends what the stream takes of `len` bytes at `offset` of a binding; they are read until the call's notice has come.
    /// Calls that took bytes are numbered from 0, modulo 2^32.
    ///
    /// # Errors
    /// The error of `sendmsg(2)`: `EINVAL` for a binding that does not exist, `EFAULT` for bytes outside of it, EPIPE
    /// or ECONNRESET when the stream ended.
    fn send_lent(&mut self, binding: u32, offset: u64, len: usize) -> io::Result<Option<usize>>;

    /// The next notice of [`Socket::send_lent`].
    ///
    /// # Errors
    /// The error of `recvmsg(MSG_ERRQUEUE)`.
    fn notice(&mut self) -> io::Result<Option<Sent>>;

    /// Has what arrives land in memory of this GPU from now on: what is under way may still come to the host.
    ///
    /// # Errors
    /// [`Error::NotBound`] and others that say why not; the stream goes on as it was.
    fn bind(&mut self, gpu: &Arc<dyn Gpu>) -> Result<Pool, Error>;

    /// Has the card send from this device memory. Set-up: may take long.
    ///
    /// # Errors
    /// [`Error::NotLent`] and others that say why not.
    fn lend(&mut self, gpu: &Arc<dyn Gpu>, mem: MemSlice) -> Result<Lent, Error>;

    /// Resets this stream: what was not sent is dropped, and the kernel reads no memory of it once its notices have come.
    fn cut(&mut self);

    /// The stream for people, as in `eth0 10.0.0.1:4000 -> 10.0.0.2:5000`.
    fn path(&self) -> &str;
}
