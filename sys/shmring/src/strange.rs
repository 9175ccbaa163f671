//! Memory that cross-memory attach cannot reach, for tests of what happens then. Never given back: handles on it stay
//! valid for the life of the process.

use std::io;

use linkspan_transport::MemSlice;
use rustix::mm::{MapFlags, ProtFlags};

/// `len` bytes that this process can use and the kernel will not touch on behalf of another: memfd_secret(2).
/// Driver mappings behave in the same way.
///
/// # Errors
/// The error of `memfd_secret(2)`: `ENOSYS` before Linux 5.14 or where it is switched off.
pub fn secret(len: usize) -> io::Result<MemSlice> {
    use std::os::fd::{FromRawFd, OwnedFd};
    // SAFETY: makes a descriptor and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_secret, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that is ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    rustix::fs::ftruncate(&fd, len as u64)?;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let base = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0)?
    };
    // SAFETY: mapped for good.
    Ok(unsafe { MemSlice::new(base.cast(), len) })
}

/// `len` bytes that cannot be read or written: a broken promise, as after an early unmap. Only system calls may be
/// pointed at it; reading it directly is a SIGSEGV.
///
/// # Safety
/// Nothing but system calls uses the handle.
///
/// # Errors
/// The error of `mmap(2)`.
pub unsafe fn forbidden(len: usize) -> io::Result<MemSlice> {
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE)? };
    // SAFETY: mapped for good; that it cannot be read is what its user is here to find out, by system calls alone.
    Ok(unsafe { MemSlice::new(base.cast(), len) })
}
