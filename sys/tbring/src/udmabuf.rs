//! Memory of a process as a dma-buf, by the kernel's udmabuf (`linux/udmabuf.h`): what stands for a GPU's memory in tests of
//! this driver. Needs `/dev/udmabuf`.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use linkspan_transport::{MemSlice, MemoryDomain};

/// Bytes of a page here, of which dma-bufs are made.
pub const PAGE: usize = 4096;

/// A memfd, mapped here, and the dma-buf of it.
#[derive(Debug)]
pub struct Udmabuf {
    dmabuf: Option<OwnedFd>,
    memfd: Option<File>,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address of a mapping that is never unmapped; all access goes through `MemSlice`.
unsafe impl Send for Udmabuf {}
// SAFETY: as above.
unsafe impl Sync for Udmabuf {}

/// `struct udmabuf_create`.
#[repr(C)]
struct Create {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

/// `UDMABUF_CREATE`: `_IOW('u', 0x42, struct udmabuf_create)`.
const CREATE: u64 = 1 << 30 | 24 << 16 | (b'u' as u64) << 8 | 0x42;

impl Udmabuf {
    /// A dma-buf of `bytes` bytes of host memory, rounded up to whole pages, all zero.
    ///
    /// # Errors
    /// The error of `memfd_create(2)`, of opening `/dev/udmabuf` or of its `ioctl`: ENOENT where the kernel has no
    /// udmabuf, EACCES.
    pub fn new(bytes: usize) -> Result<Udmabuf> {
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        // SAFETY: a zero-terminated name.
        let memfd = unsafe { libc::memfd_create(c"linkspan".as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC) };
        if memfd < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: a fresh descriptor, owned by nothing else.
        let memfd = unsafe { File::from_raw_fd(memfd) };
        memfd.set_len(bytes as u64)?;
        // SAFETY: a call on our descriptor with a number.
        if unsafe { libc::fcntl(memfd.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } < 0 {
            return Err(Error::last_os_error());
        }
        let device = File::options().read(true).write(true).open("/dev/udmabuf")?;
        let create = Create { memfd: memfd.as_raw_fd() as u32, flags: 0, offset: 0, size: bytes as u64 };
        // SAFETY: the driver reads a structure of that layout.
        let fd = unsafe { libc::ioctl(device.as_raw_fd(), CREATE as _, &create) };
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: a fresh descriptor, owned by nothing else.
        let dmabuf = unsafe { OwnedFd::from_raw_fd(fd) };
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, memfd.as_raw_fd(), 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(at) if base != libc::MAP_FAILED => {
                Ok(Udmabuf { dmabuf: Some(dmabuf), memfd: Some(memfd), base: at, bytes })
            }
            _ => Err(Error::last_os_error()),
        }
    }

    /// The dma-buf, until [`Udmabuf::close`].
    pub fn dmabuf(&self) -> Option<BorrowedFd<'_>> {
        self.dmabuf.as_ref().map(AsFd::as_fd)
    }

    /// Its bytes, whole pages. They stay mapped until the process ends, and are zero once this is dropped.
    pub fn slice(&self) -> MemSlice {
        // SAFETY: never unmapped.
        unsafe { MemSlice::new(self.base.as_ptr(), self.bytes) }
    }

    /// The same bytes as memory of a device: only that device's calls and a driver that was given the dma-buf reach them.
    pub fn on_device(&self, place: MemoryDomain) -> MemSlice {
        // SAFETY: as for `slice`.
        unsafe { MemSlice::on_device(place, self.base.as_ptr().expose_provenance() as u64, self.bytes) }
    }

    /// The exporter goes: both descriptors are closed. What has imported it keeps it.
    pub fn close(&mut self) {
        (self.dmabuf, self.memfd) = (None, None);
    }
}

impl Drop for Udmabuf {
    fn drop(&mut self) {
        // The pages go back, the mapping stays: handles may still point there.
        // SAFETY: a range of a mapping of ours, which stays mapped.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_REMOVE) };
    }
}
