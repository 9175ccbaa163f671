//! The peer process: which process it is, and whether it is alive.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

#[cfg(test)]
mod tests;

/// `SO_PEERPIDFD` of Linux 6.5 (include/uapi/asm-generic/socket.h, the same number on x86-64 and AArch64).
const SO_PEERPIDFD: libc::c_int = 77;

/// Process and user at the other end of a Unix socket, as the kernel noted them when it connected or began to listen.
/// The process is 0 where our pid namespace does not show it.
///
/// # Errors
/// The error of `getsockopt(SO_PEERCRED)`, for a socket that is not a Unix socket.
pub fn credentials(socket: impl AsFd) -> io::Result<(i32, u32)> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    option(socket, libc::SO_PEERCRED, &mut cred)?;
    Ok((cred.pid, cred.uid))
}

/// Reads a socket option that is exactly a `T`.
fn option<T: Copy>(socket: impl AsFd, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: writes at most `len` bytes, the size of a `T`; the callers' `T`s are plain integers.
    let rc = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, name, (&raw mut *value).cast(), &raw mut len)
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A pidfd of the process at the other end of a Unix socket, straight from the socket: no number that could have
/// been reused in between. Also works where the peer is in another pid namespace.
///
/// # Errors
/// The error of `getsockopt(SO_PEERPIDFD)`: `ENOPROTOOPT` before Linux 6.5.
pub fn of_socket(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    option(socket, SO_PEERPIDFD, &mut fd)?;
    if fd < 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: a fresh descriptor that the kernel has just made for us (close-on-exec, as every pidfd).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A pidfd of the process with this number now.
///
/// # Errors
/// The error of `pidfd_open(2)`: `ESRCH` where there is no such process, `ENOSYS` before Linux 5.3.
pub fn of_pid(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Whether the process behind a pidfd has ended: all its threads, so that no call of it is under way any more.
pub fn ended(pidfd: impl AsFd) -> bool {
    ends_within(pidfd, 0)
}

/// The same, within so many seconds.
pub fn ends_within(pidfd: impl AsFd, tv_sec: i64) -> bool {
    let fd = pidfd.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    matches!(rustix::event::poll(&mut fds, Some(&Timespec { tv_sec, tv_nsec: 0 })), Ok(1))
}

/// Number of the calling thread as `/proc` shows it. Remembered per thread; wrong in a child of fork, where no rail
/// works anyway.
pub fn this_thread() -> u64 {
    thread_local!(static TID: Cell<u64> = const { Cell::new(0) });
    TID.with(|t| {
        if t.get() == 0 {
            t.set(rustix::thread::gettid().as_raw_nonzero().get() as u64);
        }
        t.get()
    })
}
