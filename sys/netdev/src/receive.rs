//! Receiving with device memory, and giving its pages back.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use linkspan_gpu::devmem::Run;
use linkspan_transport::{Buf, MemSlice};

/// `MSG_SOCK_DEVMEM`.
const MSG_SOCK_DEVMEM: libc::c_int = 0x200_0000;
/// `SO_DEVMEM_DONTNEED`.
const SO_DEVMEM_DONTNEED: libc::c_int = 80;

/// Bytes of a control buffer: 40 for each fragment, so 64 KiB hold those of 2 MiB in segments of 1448 bytes.
pub const CONTROL_LEN: usize = 64 << 10;

/// What a call has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the stream; 0: its end.
    pub bytes: usize,
    /// Bytes of control messages in the control buffer.
    pub control: usize,
}

/// Receives into host memory: payload in device memory is told in `control` as fragments, the rest is copied to `linear`. One call gives
/// either the one or, without any control message, plain host data. Never blocks; `None`: nothing is there.
///
/// # Errors
/// The error of `recvmsg(2)`, as ECONNRESET; `ETOOSMALL` (525) for a control buffer that holds no fragment.
pub fn receive(fd: BorrowedFd<'_>, linear: MemSlice, control: &mut [u64]) -> io::Result<Option<Received>> {
    loop {
        let mut part = libc::iovec { iov_base: linear.as_ptr().cast(), iov_len: linear.len() };
        // SAFETY: all-zero is a valid msghdr.
        let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
        msg.msg_iov = &raw mut part;
        msg.msg_iovlen = 1;
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = size_of_val(control) as _;
        // SAFETY: a data range, mapped and writable by the promise behind a MemSlice, and a control range that is ours to
        // write, each of the length given.
        let n = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut msg, MSG_SOCK_DEVMEM | libc::MSG_DONTWAIT) };
        if let Ok(bytes) = usize::try_from(n) {
            return Ok(Some(Received { bytes, control: msg.msg_controllen as _ }));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(None),
            _ => return Err(error),
        }
    }
}

/// Gives pages back by their tokens. Returns how many the kernel took, which may be fewer than were given: it takes 1024 in
/// a call, and at most 128 runs.
///
/// # Errors
/// The error of `setsockopt(SO_DEVMEM_DONTNEED)`: `EINVAL` for more runs than 128.
pub fn give_back(fd: BorrowedFd<'_>, runs: &[Run]) -> io::Result<u64> {
    // `struct dmabuf_token`: first token u32, count u32, as a Run has them.
    let len = size_of_val(runs) as libc::socklen_t;
    loop {
        // SAFETY: reads as many bytes as the slice has. Unlike other options this one answers with a number above 0.
        let n = unsafe {
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, SO_DEVMEM_DONTNEED, runs.as_ptr().cast(), len)
        };
        match u64::try_from(n) {
            Ok(taken) => return Ok(taken),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Whether this kernel has Google's own interface for device memory (socket option 97), which linkspan does not use. Upstream
/// kernels know no such option.
pub fn foreign_interface(fd: BorrowedFd<'_>) -> bool {
    const GOOGLE_DONTNEED: libc::c_int = 97;
    // Half a token: that kernel refuses it for its length, and gives nothing back.
    let half: libc::c_int = 0;
    // SAFETY: reads one integer.
    let n = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, GOOGLE_DONTNEED, (&raw const half).cast(), 4) };
    n >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOPROTOOPT)
}
