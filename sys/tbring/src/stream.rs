//! `/dev/tbstreamN`, the kernel's own byte stream over a cable (`CONFIG_USB4_STREAM`, since Linux 7.2).
//!
//! The device loses what it had not sent when it is closed in a hurry, and its reader may wait forever; its user
//! needs acknowledgements and an end mark of its own.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use linkspan_transport::{Buf, MemSlice};

use crate::error::{Error, Result};

/// Most pieces of one [`Stream::write`].
pub const PIECES: usize = 4;

/// An open stream device, non-blocking and locked against other programs that lock it.
#[derive(Debug)]
pub struct Stream {
    file: File,
}

impl Stream {
    /// Opens and locks the device at `path`. The first open of a device starts its rings and its path.
    ///
    /// # Errors
    /// [`Error::Open`], also where another program has locked it.
    pub fn open(path: &Path) -> Result<Stream> {
        let fail = |source: io::Error| {
            let hint = match source.raw_os_error() {
                Some(libc::ENOENT) => "; is thunderbolt_stream loaded and the stream configured? (`lspan link up`)",
                Some(libc::EACCES) => "; the kernel makes it for root alone: `chgrp linkspan` and `chmod 660` it",
                Some(libc::EWOULDBLOCK) => "; another connection has it",
                _ => "",
            };
            Error::Open { path: path.to_owned(), source, hint }
        };
        let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(fail)?;
        // SAFETY: a call on our own descriptor with numbers.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } < 0 {
            return Err(fail(io::Error::last_os_error()));
        }
        Ok(Stream { file })
    }

    /// Reads into `place` and, behind that, into `tail`. `Some(0)`: the other side has closed, or the cable is gone. `None`:
    /// nothing has come.
    ///
    /// # Errors
    /// The error of `readv(2)`, as EIO; EAGAIN is none.
    ///
    /// # Panics
    /// In builds with assertions, `place` is not on the host.
    pub fn read(&mut self, place: MemSlice, tail: &mut [u8]) -> io::Result<Option<usize>> {
        debug_assert!(place.is_host());
        let parts = [
            libc::iovec { iov_base: place.as_ptr().cast(), iov_len: place.len() },
            libc::iovec { iov_base: tail.as_mut_ptr().cast(), iov_len: tail.len() },
        ];
        let first = usize::from(place.is_empty());
        let parts = &parts[first..];
        // SAFETY: `tail` is ours; `place` is mapped and writable by the promise of its handle.
        let n = unsafe { libc::readv(self.file.as_raw_fd(), parts.as_ptr(), parts.len() as i32) };
        answer(n)
    }

    /// Writes pieces one behind the other, as many bytes as the device takes. `None`: it is full.
    ///
    /// # Errors
    /// The error of `writev(2)`: `ENXIO` when the cable is gone or the other side has closed.
    pub fn write(&mut self, pieces: &[MemSlice]) -> io::Result<Option<usize>> {
        let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES];
        let used = pieces.len().min(PIECES);
        for (part, piece) in parts.iter_mut().zip(pieces) {
            *part = libc::iovec { iov_base: piece.as_ptr().cast(), iov_len: piece.len() };
        }
        // SAFETY: every piece is mapped and readable by the promise of its handle; the kernel writes none of them.
        let n = unsafe { libc::writev(self.file.as_raw_fd(), parts.as_ptr(), used as i32) };
        answer(n)
    }
}

fn answer(n: isize) -> io::Result<Option<usize>> {
    if n >= 0 {
        return Ok(Some(n as usize));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

/// For `poll`.
impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests;
