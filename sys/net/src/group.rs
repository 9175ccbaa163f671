//! One descriptor that stands for two, for rails over two streams.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use linkspan_transport::WaitFd;

/// An epoll set of at most two descriptors, which can be waited for itself.
#[derive(Debug)]
pub struct WaitPair {
    set: OwnedFd,
    /// What each stands in the set for.
    members: [Option<WaitFd>; 2],
}

impl WaitPair {
    /// The empty set.
    ///
    /// # Errors
    /// The error of `epoll_create1(2)`: EMFILE or ENFILE when no descriptor is left.
    pub fn new() -> io::Result<WaitPair> {
        // SAFETY: takes no memory of ours.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made for us.
        Ok(WaitPair { set: unsafe { OwnedFd::from_raw_fd(fd) }, members: [None; 2] })
    }

    /// What to wait for until one of the two is ready. A system call for each that is another than the last time.
    ///
    /// # Errors
    /// The error of `epoll_ctl(2)`, as EBADF for a descriptor that is not open.
    pub fn arm(&mut self, wanted: [Option<WaitFd>; 2]) -> io::Result<WaitFd> {
        for (member, want) in self.members.iter_mut().zip(wanted) {
            let same = |a: &WaitFd, b: &WaitFd| (a.fd, a.read, a.write) == (b.fd, b.read, b.write);
            let (call, fd) = match (&member, &want) {
                (None, None) => continue,
                (Some(old), Some(new)) if same(old, new) => continue,
                (Some(old), Some(new)) if old.fd == new.fd => (libc::EPOLL_CTL_MOD, new.fd),
                (None, Some(new)) => (libc::EPOLL_CTL_ADD, new.fd),
                (Some(old), _) => {
                    control(&self.set, libc::EPOLL_CTL_DEL, old)?;
                    *member = None;
                    match &want {
                        Some(new) => (libc::EPOLL_CTL_ADD, new.fd),
                        None => continue,
                    }
                }
            };
            if let Some(want) = want {
                debug_assert_eq!(fd, want.fd);
                control(&self.set, call, &want)?;
            }
            *member = want;
        }
        Ok(WaitFd { fd: self.set.as_raw_fd(), read: true, write: false })
    }
}

fn control(set: &OwnedFd, call: libc::c_int, member: &WaitFd) -> io::Result<()> {
    let events = if member.read { libc::EPOLLIN } else { 0 } | if member.write { libc::EPOLLOUT } else { 0 };
    let mut event = libc::epoll_event { events: events as u32, u64: 0 };
    // SAFETY: reads one event, which lives during the call; descriptors that are not open are refused.
    match unsafe { libc::epoll_ctl(set.as_raw_fd(), call, member.fd, &raw mut event) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
