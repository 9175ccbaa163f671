//! Sending from device memory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SCM_DEVMEM_DMABUF`.
const SCM_DEVMEM_DMABUF: libc::c_int = 79;

/// A control message that names a binding: `struct cmsghdr` (length u64, level u32, type u32), number u32, padding to 8.
#[repr(C)]
struct Names {
    len: usize,
    level: libc::c_int,
    kind: libc::c_int,
    dmabuf: u32,
    padding: u32,
}

/// Sends `len` bytes that begin at `offset` of the dma-buf bound as `dmabuf`, without copying them: the card reads them
/// until the notice of this call is in the socket's error queue (MSG_ZEROCOPY, which must be on). Returns how many the socket
/// took; never blocks, `None`: none at the moment.
///
/// # Errors
/// The error of `sendmsg(2)`: `EINVAL` for a binding that does not exist or is not of the card that the route leads to,
/// `EFAULT` for bytes outside of it, `EPIPE` or `ECONNRESET` when the stream ended.
pub fn send_bound(fd: BorrowedFd<'_>, dmabuf: u32, offset: u64, len: usize) -> io::Result<Option<usize>> {
    let names = Names {
        // Without the padding, as CMSG_LEN has it.
        len: std::mem::offset_of!(Names, padding),
        level: libc::SOL_SOCKET,
        kind: SCM_DEVMEM_DMABUF,
        dmabuf,
        padding: 0,
    };
    loop {
        // An offset stands where the address would; the kernel never follows it.
        let at = std::ptr::without_provenance_mut(offset as usize);
        let mut part = libc::iovec { iov_base: at, iov_len: len };
        // SAFETY: all-zero is a valid msghdr.
        let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
        msg.msg_iov = &raw mut part;
        msg.msg_iovlen = 1;
        msg.msg_control = (&raw const names).cast_mut().cast();
        msg.msg_controllen = size_of::<Names>() as _;
        let flags = libc::MSG_ZEROCOPY | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the control range lives during the call and is only read. With this control message the kernel takes the
        // vector's address as an offset in the binding; one that does not know the message refuses the call (EINVAL)
        // before it looks at the vector.
        let n = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const msg, flags) };
        if let Ok(bytes) = usize::try_from(n) {
            return Ok(Some(bytes));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(None),
            _ => return Err(error),
        }
    }
}
