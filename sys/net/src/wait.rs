//! poll(2) over the descriptors that rails wait for.

use std::io;
use std::time::Duration;

use linkspan_transport::WaitFd;

/// A set of descriptors to sleep on. Kept and refilled, it allocates only when it grows.
#[derive(Default)]
pub struct WaitSet {
    fds: Vec<libc::pollfd>,
}

impl WaitSet {
    /// The empty set.
    pub fn new() -> WaitSet {
        WaitSet::default()
    }

    /// Forgets all descriptors, keeps the memory.
    pub fn clear(&mut self) {
        self.fds.clear();
    }

    /// Adds a descriptor. Returns its position for [`WaitSet::woke`].
    pub fn add(&mut self, wait: WaitFd) -> usize {
        let read = if wait.read { libc::POLLIN } else { 0 };
        let write = if wait.write { libc::POLLOUT } else { 0 };
        self.fds.push(libc::pollfd { fd: wait.fd, events: read | write, revents: 0 });
        self.fds.len() - 1
    }

    /// Sleeps until a descriptor is ready, has an error or an end, or `timeout` is over (`None`: no limit). Returns
    /// the number of descriptors that woke it; a signal counts as zero.
    ///
    /// # Errors
    /// The error of `ppoll(2)`: EINVAL for more descriptors than the process may have, ENOMEM. A signal is no error: it
    /// returns 0.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let spec = timeout.map(|t| libc::timespec {
            tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: t.subsec_nanos() as _,
        });
        let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = self.fds.len() as libc::nfds_t;
        // SAFETY: `count` entries that are ours to write; the time limit is null or lives during the call; no
        // signal mask. A descriptor that is not open is reported as such (POLLNVAL).
        let n = unsafe { libc::ppoll(self.fds.as_mut_ptr(), count, spec, std::ptr::null()) };
        if let Ok(n) = usize::try_from(n) {
            return Ok(n);
        }
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) }
    }

    /// Whether the descriptor at this position woke the last [`WaitSet::wait`].
    pub fn woke(&self, at: usize) -> bool {
        self.fds.get(at).is_some_and(|fd| fd.revents != 0)
    }
}

#[cfg(test)]
mod tests;
