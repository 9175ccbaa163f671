//! Receiving and sending without a vector.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use linkspan_transport::{Buf, MemSlice};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::retry;

/// Reads what is there into `buf`: `Some(0)` is the end of the stream, `None` that nothing has come.
///
/// recv(2) is the cheapest way to find a socket empty: read(2), readv(2) and recvmsg(2) were 5 %, 50 % and 30 %
/// slower on Linux 6.18. It is called without the C library, whose recv is a place where threads can be cancelled: two locked
/// instructions for each call, which is most of what a look into an empty socket does outside the kernel.
///
/// # Errors
/// The error of `recv(2)`, as ECONNRESET or ETIMEDOUT.
#[inline]
pub fn recv(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::net::recv(fd, &mut *buf, RecvFlags::DONTWAIT) {
            Ok((_, n)) => return Ok(Some(n)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Bytes that wait in the socket to be read (FIONREAD, tcp(7)). Ends and errors do not show: 0.
///
/// # Errors
/// The error of `ioctl(FIONREAD)`.
pub fn queued(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which is there during the call.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut bytes) } {
        0 => Ok(usize::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends what the socket takes of `buf`. `None`: nothing at the moment.
///
/// # Errors
/// The error of `send(2)`, as EPIPE or ECONNRESET.
#[inline]
pub fn send(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::net::send(fd, buf, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(n) => return Ok(Some(n)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// As [`recv`], into memory that the caller keeps mapped.
///
/// # Errors
/// The error of `recv(2)`, as ECONNRESET; EFAULT for memory that is not mapped.
pub fn recv_mem(fd: BorrowedFd<'_>, mem: MemSlice) -> io::Result<Option<usize>> {
    // SAFETY: mapped and writable for its whole length by the promise behind a MemSlice.
    retry(|| unsafe { libc::recv(fd.as_raw_fd(), mem.as_ptr().cast(), mem.len(), libc::MSG_DONTWAIT) })
}

/// As [`send`], from memory that the caller keeps mapped.
///
/// # Errors
/// The error of `send(2)`, as EPIPE or ECONNRESET; EFAULT for memory that is not mapped.
pub fn send_mem(fd: BorrowedFd<'_>, mem: MemSlice) -> io::Result<Option<usize>> {
    const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: mapped for its whole length by the promise behind a MemSlice.
    retry(|| unsafe { libc::send(fd.as_raw_fd(), mem.as_ptr().cast(), mem.len(), FLAGS) })
}

/// Most ranges of one [`recv_row`]: as many as a [`crate::Gather`] has.
const ROW: usize = crate::GATHER_MAX;

/// Reads into `first` and, once that is full, on into `then`: the rest of a payload straight into place, and the
/// next headers into scratch, with one call. Returns the bytes of both together, as [`recv`] does.
///
/// # Errors
/// The error of `recvmsg(2)`, as ECONNRESET; EFAULT for memory that is not mapped.
pub fn recv_two(fd: BorrowedFd<'_>, first: MemSlice, then: &mut [u8]) -> io::Result<Option<usize>> {
    let mut iov = [
        libc::iovec { iov_base: first.as_ptr().cast(), iov_len: first.len() },
        libc::iovec { iov_base: then.as_mut_ptr().cast(), iov_len: then.len() },
    ];
    // SAFETY: all-zero is a valid msghdr: null pointers with zero lengths, on every libc (some have padding).
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = iov.as_mut_ptr();
    msg.msg_iovlen = iov.len() as _;
    // SAFETY: the message holds two ranges: `first`, mapped and writable by the promise behind a MemSlice, and
    // `then`, ours to write; both for their whole length during the call.
    retry(|| unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut msg, libc::MSG_DONTWAIT) })
}

/// As [`recv_two`], with further places between the two: the payloads of a row. Only the first 62 of `more` are filled.
///
/// # Errors
/// The error of `recvmsg(2)`, as ECONNRESET; EFAULT for memory that is not mapped.
pub fn recv_row(fd: BorrowedFd<'_>, first: MemSlice, more: &[MemSlice], then: &mut [u8]) -> io::Result<Option<usize>> {
    let range = |mem: &MemSlice| libc::iovec { iov_base: mem.as_ptr().cast(), iov_len: mem.len() };
    let mut iov = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; ROW];
    iov[0] = range(&first);
    let more = &more[..more.len().min(ROW - 2)];
    for (slot, mem) in iov[1..].iter_mut().zip(more) {
        *slot = range(mem);
    }
    iov[1 + more.len()] = libc::iovec { iov_base: then.as_mut_ptr().cast(), iov_len: then.len() };
    // SAFETY: all-zero is a valid msghdr: null pointers with zero lengths, on every libc (some have padding).
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = iov.as_mut_ptr();
    msg.msg_iovlen = (more.len() + 2) as _;
    // SAFETY: the message holds `more.len() + 2` ranges of `iov`: memory mapped and writable by the promise behind a
    // MemSlice, and `then`, ours to write; all for their whole length during the call.
    retry(|| unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut msg, libc::MSG_DONTWAIT) })
}

#[cfg(test)]
mod tests;
