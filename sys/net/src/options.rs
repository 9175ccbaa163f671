//! Socket options that `socket2` does not have.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub(crate) fn set_int(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option's value is one int, alive during the call.
    let rc = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Leaves the choice of the local port to connect (IP_BIND_ADDRESS_NO_PORT, ip(7)), so that outgoing connections
/// bound to one address are limited by pairs of ports and not by ports. For IPv4 and IPv6 sockets alike.
///
/// # Errors
/// The error of `setsockopt(IP_BIND_ADDRESS_NO_PORT)`: ENOPROTOOPT before Linux 4.2.
pub fn bind_late_port(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_int(fd, libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Resets a TCP connection (connect(2) with AF_UNSPEC): bytes that were not sent are thrown away, whoever else has the socket.
///
/// # Errors
/// The error of `connect(2)`: EBUSY where another thread waits in a call on the socket.
pub fn disconnect(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::connect_unspec(fd)?)
}

/// User and process at the other end of a local socket (SO_PEERCRED, unix(7)); process 0: its pid namespace cannot be seen from ours.
///
/// # Errors
/// The error of `getsockopt(SO_PEERCRED)`.
pub fn peer_of(fd: BorrowedFd<'_>) -> io::Result<(u32, i32)> {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `who` is such a structure and `len` its length, both ours to write.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &raw mut len)
    };
    if rc == 0 { Ok((who.uid, who.pid)) } else { Err(io::Error::last_os_error()) }
}
