//! Sending many ranges with one call.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use linkspan_transport::{Buf, MemSlice};

use crate::retry;

/// Most ranges in one [`Gather`]. The kernel allows 1024 (IOV_MAX); 64 fit the stack and fill a system call.
pub const GATHER_MAX: usize = 64;

/// A list of ranges, sent in order. Lives on the stack.
pub struct Gather<'a> {
    iov: [MaybeUninit<libc::iovec>; GATHER_MAX],
    count: usize,
    bytes: usize,
    borrowed: PhantomData<&'a [u8]>,
}

impl Default for Gather<'_> {
    fn default() -> Self {
        Gather::new()
    }
}

impl<'a> Gather<'a> {
    /// The empty list.
    pub fn new() -> Gather<'a> {
        Gather { iov: [const { MaybeUninit::uninit() }; GATHER_MAX], count: 0, bytes: 0, borrowed: PhantomData }
    }

    /// Ranges that still fit.
    pub fn capacity(&self) -> usize {
        GATHER_MAX - self.count
    }

    /// Bytes in all ranges.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends borrowed bytes. Returns false where the list is full. Empty ranges are left out.
    pub fn push(&mut self, bytes: &'a [u8]) -> bool {
        self.push_raw(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// Appends memory that the caller keeps mapped, see [`MemSlice::new`]. Otherwise as [`Gather::push`].
    pub fn push_mem(&mut self, mem: MemSlice) -> bool {
        self.push_raw(mem.as_ptr(), mem.len())
    }

    fn push_raw(&mut self, at: *mut u8, len: usize) -> bool {
        if len == 0 {
            return true;
        }
        let Some(slot) = self.iov.get_mut(self.count) else {
            return false;
        };
        slot.write(libc::iovec { iov_base: at.cast(), iov_len: len });
        self.count += 1;
        self.bytes += len;
        true
    }

    /// Sends what the socket takes at once. `None`: nothing at the moment.
    ///
    /// # Errors
    /// The error of `sendmsg(2)`, as EPIPE, ECONNRESET or EFAULT.
    pub fn send(&self, fd: BorrowedFd<'_>) -> io::Result<Option<usize>> {
        self.send_with(fd, 0)
    }

    /// As [`Gather::send`], and tells the kernel that more follows at once (MSG_MORE), so that a short range does
    /// not leave as a packet of its own.
    ///
    /// # Errors
    /// The error of `sendmsg(2)`, as EPIPE, ECONNRESET or EFAULT.
    pub fn send_more(&self, fd: BorrowedFd<'_>) -> io::Result<Option<usize>> {
        self.send_with(fd, libc::MSG_MORE)
    }

    /// As [`Gather::send`], with MSG_ZEROCOPY: the kernel reads the ranges until the notice of this call comes, see
    /// [`crate::sent_notice`]. The pages stay pinned; what changes in them before the notice may change on the wire.
    ///
    /// # Errors
    /// The error of `sendmsg(2)`, as EPIPE or ECONNRESET; ENOBUFS where the socket may pin no more memory.
    pub fn send_zerocopy(&self, fd: BorrowedFd<'_>) -> io::Result<Option<usize>> {
        self.send_with(fd, libc::MSG_ZEROCOPY)
    }

    fn send_with(&self, fd: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<Option<usize>> {
        // SAFETY: all-zero is a valid msghdr: null pointers with zero lengths.
        let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
        msg.msg_iov = self.iov.as_ptr().cast_mut().cast();
        msg.msg_iovlen = self.count as _;
        let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the first `count` entries were written by `push_raw`; each range is readable: borrowed for 'a, or
        // mapped by the promise behind a MemSlice. sendmsg does not write through the vector.
        retry(|| unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const msg, flags) })
    }
}
