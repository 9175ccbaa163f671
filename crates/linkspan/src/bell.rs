//! An eventfd: what one thread rings to wake another out of poll(2).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use linkspan_fabric::WaitFd;
use rustix::event::{EventfdFlags, eventfd};

use crate::Error;

#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> Result<Bell, Error> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Error::system("eventfd"))?;
        Ok(Bell { fd, rung: AtomicBool::new(false) })
    }

    /// Wakes whoever sleeps on it. One system call, and none while it has not been heard.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            // It can only fail when the counter is full, and then it is heard anyway.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Silences it before the look at what it may have been rung for.
    pub(crate) fn hear(&self) {
        if self.rung.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
    }

    pub(crate) fn wait_fd(&self) -> WaitFd {
        WaitFd { fd: self.fd.as_raw_fd(), read: true, write: false }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
