//! The calls. Numbers and layouts: include/uapi/linux/userfaultfd.h.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// `UFFD_USER_MODE_ONLY`.
const USER_MODE_ONLY: libc::c_int = 1;

/// `UFFD_API`.
const API: u64 = 0xAA;

/// `UFFD_FEATURE_PAGEFAULT_FLAG_WP`, `_EVENT_REMAP`, `_EVENT_REMOVE`, `_EVENT_UNMAP`.
const FEATURES: u64 = 1 | 1 << 2 | 1 << 3 | 1 << 6;

/// `UFFDIO_API` and `UFFDIO_REGISTER`: _IOWR(0xAA, 0x3F, 24 bytes) and _IOWR(0xAA, 0, 32 bytes).
const UFFDIO_API: u32 = 0xc018_aa3f;
const UFFDIO_REGISTER: u32 = 0xc020_aa00;

/// `UFFDIO_WRITEPROTECT`: _IOWR(0xAA, 6, 24 bytes).
const UFFDIO_WRITEPROTECT: u32 = 0xc018_aa06;

/// `UFFDIO_REGISTER_MODE_WP`.
const MODE_WP: u64 = 2;

/// Bytes of a `struct uffd_msg`, and its kinds: `UFFD_EVENT_REMAP`, `_REMOVE`, `_UNMAP`.
const MESSAGE: usize = 32;
const REMAP: u8 = 0x14;
const REMOVE: u8 = 0x15;
const UNMAP: u8 = 0x16;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

pub(crate) fn open() -> io::Result<OwnedFd> {
    // SAFETY: the call takes flags and makes a descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, USER_MODE_ONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, for us alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) };
    let mut api = Api { api: API, features: FEATURES, ioctls: 0 };
    // SAFETY: the request's argument is this structure, which outlives the call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API as _, &mut api) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
}

/// Watches the pages from `start` to `end`.
pub(crate) fn register(fd: &OwnedFd, start: u64, end: u64) -> io::Result<()> {
    let mut range = Register { start, len: end - start, mode: MODE_WP, ioctls: 0 };
    // SAFETY: the request's argument is this structure, which outlives the call; what it names is checked by the kernel, and with
    // nothing write-protected no access to it changes its meaning.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_REGISTER as _, &mut range) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// How a page in `/proc/self/pagemap` is marked that is of a file or shared: Documentation/admin-guide/mm/pagemap.rst.
const FILE_OR_SHARED: u64 = 1 << 61;

/// Whether the page that holds `addr` is of a file or shared. It must have been touched; private pages of a file count from when they are read to
/// when they are written.
pub(crate) fn is_file_or_shared(pagemap: &File, addr: u64, page: u64) -> io::Result<bool> {
    let mut entry = [0; 8];
    pagemap.read_exact_at(&mut entry, addr / page * 8)?;
    Ok(u64::from_ne_bytes(entry) & FILE_OR_SHARED != 0)
}

/// Whether the process has half of the mappings that it may have.
pub(crate) fn has_many_mappings() -> bool {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|n| n.trim().parse().ok());
    let Ok(mut maps) = File::open("/proc/self/maps") else { return false };
    let (mut lines, mut buf) = (0, [0; 4096]);
    while let Ok(n @ 1..) = maps.read(&mut buf) {
        lines += buf[..n].iter().filter(|&&byte| byte == b'\n').count();
    }
    lines >= most.unwrap_or(MAPPINGS) / 2
}

/// `DEFAULT_MAX_MAP_COUNT`: include/linux/mm.h.
const MAPPINGS: usize = 65530;

/// Whether a change of watched memory has begun whose event was not read yet.
///
/// `UFFDIO_WRITEPROTECT` answers `EAGAIN` then, since it exists (Linux 5.7) before it looks at its argument. This one names no memory, and is refused
/// otherwise: one with a page takes the lock of the memory map too, which other threads' unmappings hold.
pub(crate) fn is_changing(fd: &OwnedFd) -> bool {
    let mut nothing = [0u64; 3];
    // SAFETY: the request's argument is a structure of this size, which outlives the call; an empty range is refused.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_WRITEPROTECT as _, &mut nothing) };
    done < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
}

/// Sleeps until there is an event; false when there will never be one.
pub(crate) fn wait(file: &File) -> bool {
    let mut fd = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, ours.
    let n = unsafe { libc::poll(&mut fd, 1, -1) };
    n == 1 && fd.revents & libc::POLLIN != 0 || n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
}

/// The next range that has gone; `None` when no event waits.
pub(crate) fn read(mut file: &File) -> Option<(u64, u64)> {
    loop {
        let mut message = [0; MESSAGE];
        match file.read(&mut message) {
            Ok(MESSAGE) => {}
            _ => return None,
        }
        let word = |n: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&message[8 * n..8 * n + 8]);
            u64::from_ne_bytes(bytes)
        };
        match message[0] {
            REMOVE | UNMAP => return Some((word(1), word(2))),
            // From, to, length.
            REMAP => return Some((word(1), word(1).saturating_add(word(3)))),
            _ => {}
        }
    }
}
