//! MSG_ZEROCOPY: switching it on, and the kernel's notices that it no longer uses memory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::retry;

/// The kernel no longer uses the memory of these zero-copy calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Number of the first call: the socket's zero-copy calls that took bytes are numbered from 0, modulo 2^32.
    pub first: u32,
    /// Number of the last call.
    pub last: u32,
    /// The kernel copied after all (loopback, or a device without scatter-gather), so zero copy only costs here.
    pub copied: bool,
}

/// Lets calls on this socket use MSG_ZEROCOPY (SO_ZEROCOPY, socket(7)).
///
/// # Errors
/// The error of `setsockopt(SO_ZEROCOPY)`: ENOPROTOOPT before Linux 4.14, ENOTSUPP (524) for sockets of another kind.
pub fn enable_zerocopy(fd: BorrowedFd<'_>) -> io::Result<()> {
    crate::options::set_int(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)
}

/// Takes one notice from the socket's error queue. `None`: no notice has come.
///
/// # Errors
/// The error of `recvmsg(MSG_ERRQUEUE)`.
pub fn sent_notice(fd: BorrowedFd<'_>) -> io::Result<Option<Sent>> {
    loop {
        // Space for a sock_extended_err (16 bytes) and the address behind it (at most 28), aligned as cmsghdr wants.
        let mut control = [0u64; 16];
        // SAFETY: all-zero is a valid msghdr.
        let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: no data range, and a control buffer of the length given, ours to write.
        if retry(|| unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut msg, flags) })?.is_none() {
            return Ok(None);
        }
        // SAFETY: `msg` was filled by recvmsg; the macros walk the control buffer within msg_controllen.
        let mut cmsg = unsafe { libc::CMSG_FIRSTHDR(&raw const msg) };
        while !cmsg.is_null() {
            // SAFETY: a header that CMSG_FIRSTHDR or CMSG_NXTHDR returned lies inside the buffer.
            let header = unsafe { cmsg.read_unaligned() };
            let v4 = header.cmsg_level == libc::SOL_IP && header.cmsg_type == libc::IP_RECVERR;
            let v6 = header.cmsg_level == libc::SOL_IPV6 && header.cmsg_type == libc::IPV6_RECVERR;
            // SAFETY: CMSG_LEN is arithmetic.
            let need = unsafe { libc::CMSG_LEN(size_of::<libc::sock_extended_err>() as u32) } as usize;
            if (v4 || v6) && header.cmsg_len as usize >= need {
                // SAFETY: the header says that its data holds at least one sock_extended_err.
                let err: libc::sock_extended_err =
                    unsafe { libc::CMSG_DATA(cmsg).cast::<libc::sock_extended_err>().read_unaligned() };
                if err.ee_errno == 0 && err.ee_origin == SO_EE_ORIGIN_ZEROCOPY {
                    let copied = err.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0;
                    return Ok(Some(Sent { first: err.ee_info, last: err.ee_data, copied }));
                }
            }
            // SAFETY: as for CMSG_FIRSTHDR.
            cmsg = unsafe { libc::CMSG_NXTHDR(&raw const msg, cmsg) };
        }
        // A message of another kind (ICMP): its error also shows on the socket itself. Look at the next.
    }
}

/// linux/errqueue.h, as the next.
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

#[cfg(test)]
mod tests;
