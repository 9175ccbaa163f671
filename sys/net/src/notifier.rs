//! An eventfd that one thread rings to wake another out of poll(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use linkspan_transport::WaitFd;
use rustix::event::{EventfdFlags, eventfd};

/// An eventfd: readable from a signal until it is drained. Any thread may signal or drain it.
#[derive(Debug)]
pub struct Notifier {
    fd: OwnedFd,
    signaled: AtomicBool,
}

impl Notifier {
    /// An eventfd that is not signalled.
    ///
    /// # Errors
    /// The error of `eventfd(2)`: EMFILE or ENFILE when no descriptor is left.
    pub fn new() -> io::Result<Notifier> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Notifier { fd, signaled: AtomicBool::new(false) })
    }

    /// Wakes the threads that sleep on it. One system call, and none while an earlier signal was not read.
    pub fn signal(&self) {
        if !self.signaled.swap(true, Ordering::SeqCst) {
            // It can only fail when the counter is full, and then the descriptor is readable anyway.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Drains it before the look at what it may have been signaled for.
    ///
    /// Between the two halves of a signal there is nothing to read yet. Then it stays signaled: were it not, what is written next would
    /// never be read, and its sleepers would stay awake permanently.
    pub fn drain(&self) {
        if self.signaled.load(Ordering::SeqCst) && rustix::io::read(&self.fd, &mut [0; 8]).is_ok() {
            // Not a store: it has to see what was done before the rings that it takes back.
            self.signaled.swap(false, Ordering::SeqCst);
        }
    }

    /// The descriptor to sleep on: readable while it is signalled.
    pub fn wait_fd(&self) -> WaitFd {
        WaitFd { fd: self.fd.as_raw_fd(), read: true, write: false }
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
