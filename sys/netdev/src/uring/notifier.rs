//! A descriptor that wakes a thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An eventfd(2): readable from when it is signaled until it is drained. Any thread may do either.
#[derive(Debug)]
pub struct Notifier(OwnedFd);

impl Notifier {
    /// One that is silent; `waits`: [`Notifier::wait`] sleeps until it is signaled, and without it says at once whether it was.
    ///
    /// # Errors
    /// The error of `eventfd(2)`: EMFILE or ENFILE when no descriptor is left.
    pub fn new(waits: bool) -> io::Result<Notifier> {
        let flags = libc::EFD_CLOEXEC | if waits { 0 } else { libc::EFD_NONBLOCK };
        // SAFETY: takes no memory of ours.
        let fd = unsafe { libc::eventfd(0, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made for us.
        Ok(Notifier(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Signals it. A counter that is full, after 2^64 times, is ignored: the reader is woken anyway.
    pub fn signal(&self) {
        let one = 1u64;
        // SAFETY: reads the eight bytes of a number of ours.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Drains it. True: it had been signaled; false: not, or a signal came.
    pub fn wait(&self) -> bool {
        let mut count = 0u64;
        // SAFETY: writes the eight bytes of a number of ours.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) == 8 }
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
