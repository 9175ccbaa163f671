//! The peer process: which process it is, whether it is alive, and whether one of its threads can still be inside a copy.

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
    let fd = pidfd.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    matches!(rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
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

/// CPU time after which a thread cannot be in the copy any more that it might have been in: 100 ms; the copy of one
/// slice, at most 1 MiB, takes less than one.
const COPY_CPU_NS: u64 = 100_000_000;

/// A thread of the peer that may be inside a copy.
#[derive(Debug)]
pub struct Task {
    dir: String,
    start: Option<u64>,
}

impl Task {
    /// The thread `tid` of process `pid`.
    pub fn new(pid: i32, tid: u64) -> Task {
        let mut task = Task { dir: format!("/proc/{pid}/task/{tid}"), start: None };
        task.start = task.cpu_ns();
        task
    }

    fn read(&self, name: &str) -> io::Result<String> {
        std::fs::read_to_string(format!("{}/{name}", self.dir))
    }

    /// Nanoseconds on a processor so far.
    fn cpu_ns(&self) -> Option<u64> {
        self.read("schedstat").ok()?.split(' ').next()?.parse().ok()
    }

    /// State letter of proc_pid_stat(5). The name before it may hold anything, so it is found from the end.
    fn state(&self) -> io::Result<char> {
        let stat = self.read("stat")?;
        let after = stat.rsplit_once(") ").map(|(_, rest)| rest);
        after.and_then(|r| r.chars().next()).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Whether [`Task::outside`] works on this system.
    ///
    /// # Errors
    /// The error of reading `/proc/PID/stat`: `/proc` is not mounted, or hides the peer.
    pub fn visible(&self) -> io::Result<()> {
        self.state().map(drop)
    }

    /// Whether the thread is certainly not inside a copy that it began before this was called: it has ended, stands
    /// in a signal or debugger stop (which begin and end at the border of the kernel, never within a call), sleeps
    /// in another call or none, or has run for longer than any copy since [`Task::new`].
    pub fn outside(&self) -> bool {
        match self.state() {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => return true,
            // T: stopped, t: traced, Z, X: ended.
            Ok('T' | 't' | 'Z' | 'X') => return true,
            _ => {}
        }
        if let Ok(line) = self.read("syscall") {
            // "running", or the number of the call it sleeps in (-1: none) and more.
            let number = line.split_whitespace().next().and_then(|w| w.parse::<i64>().ok());
            if number.is_some_and(|n| n != libc::SYS_process_vm_writev && n != libc::SYS_process_vm_readv) {
                return true;
            }
        }
        matches!((self.start, self.cpu_ns()), (Some(start), Some(now)) if now.saturating_sub(start) > COPY_CPU_NS)
    }
}
