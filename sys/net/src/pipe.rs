//! Sending payload through a pipe: the kernel refers to its pages instead of copying them (vmsplice(2), splice(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use linkspan_transport::{Buf, MemSlice};

use crate::retry;

/// A pipe that pages pass through on their way to a socket.
///
/// Unlike MSG_ZEROCOPY this spares the copy on loopback too, and there is no notice when the kernel no longer uses the
/// memory: what changes in it before the peer has read it may change for the peer. Not for more than one thread at a
/// time.
#[derive(Debug)]
pub struct Pipe {
    out: OwnedFd,
    inn: OwnedFd,
    held: usize,
}

impl Pipe {
    /// A pipe with space for `bytes`, or for as many as the system gives (fs.pipe-max-size, fs.pipe-user-pages-soft).
    ///
    /// # Errors
    /// The error of `pipe2(2)`: EMFILE or ENFILE when no descriptor is left.
    pub fn new(bytes: usize) -> io::Result<Pipe> {
        let mut fds: [RawFd; 2] = [-1; 2];
        // SAFETY: the kernel writes two descriptors into an array of two.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were made by the call above, and owned by nothing else.
        let (out, inn) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
        // A page more: `bytes` that begin within a page.
        let size = libc::c_int::try_from(bytes + 4096).unwrap_or(libc::c_int::MAX);
        // SAFETY: no memory is passed. A refusal leaves the pipe as it is.
        unsafe { libc::fcntl(inn.as_raw_fd(), libc::F_SETPIPE_SZ, size) };
        Ok(Pipe { out, inn, held: 0 })
    }

    /// Bytes in the pipe.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Puts the pages of `mem` into the pipe, as many as have space.
    ///
    /// # Errors
    /// The error of `vmsplice(2)`: EFAULT where memory has no pages of its own, EAGAIN where the pipe is full.
    pub fn fill(&mut self, mem: MemSlice) -> io::Result<()> {
        let part = libc::iovec { iov_base: mem.as_ptr().cast(), iov_len: mem.len() };
        // SAFETY: one range, mapped for its whole length by the promise behind a MemSlice.
        unsafe { self.fill_from(&raw const part, 1) }
    }

    /// [`Pipe::fill`] with `count` ranges.
    ///
    /// # Safety
    /// There are so many at `parts`, and each is readable.
    pub(crate) unsafe fn fill_from(&mut self, parts: *const libc::iovec, count: usize) -> io::Result<()> {
        // SAFETY: by the caller's promise; the kernel only reads.
        let call = || unsafe { libc::vmsplice(self.inn.as_raw_fd(), parts, count, libc::SPLICE_F_NONBLOCK) };
        let n = retry(call)?.ok_or(io::ErrorKind::WouldBlock)?;
        self.held += n;
        Ok(())
    }

    /// Hands what is in the pipe to the socket, which must not block (O_NONBLOCK). Returns how many bytes it took; `None`: nothing
    /// at the moment.
    ///
    /// # Errors
    /// The error of `splice(2)`, as EPIPE or ECONNRESET.
    pub fn drain(&mut self, fd: BorrowedFd<'_>) -> io::Result<Option<usize>> {
        let (from, to, null) = (self.out.as_raw_fd(), fd.as_raw_fd(), std::ptr::null_mut());
        let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
        // SAFETY: both descriptors are open during the call, and null asks for no offset.
        let n = without_sigpipe(|| retry(|| unsafe { libc::splice(from, null, to, null, self.held, flags) }))?;
        self.held -= n.unwrap_or(0);
        Ok(n)
    }
}

/// splice(2) has no MSG_NOSIGNAL: a peer that is gone would end a process which does not ignore SIGPIPE. The signal is meant for
/// the calling thread, so it is kept from it during the call and taken back where the call brought one.
fn without_sigpipe<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // SAFETY: an all-zero set is a value of the type; each is overwritten before it is read.
    let [mut pipe, mut old, mut pending]: [libc::sigset_t; 3] = unsafe { std::mem::zeroed() };
    // SAFETY: the sets are ours and live during the calls, which fail on bad arguments only.
    unsafe {
        libc::sigemptyset(&raw mut pipe);
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut old);
        libc::sigpending(&raw mut pending);
    }
    let result = call();
    // SAFETY: as above; the time is ours, and no information about the signal is asked for.
    unsafe {
        let before = libc::sigismember(&raw const pending, libc::SIGPIPE) == 1;
        if !before && result.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EPIPE)) {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&raw const pipe, std::ptr::null_mut(), &raw const now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut());
    }
    result
}

#[cfg(test)]
mod tests;
