//! Memory shared with the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// A mapping, for as long as it lives.
#[derive(Debug)]
pub(super) struct Map {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: memory that the kernel shares; it is read and written through the methods below, by atomics or by
// volatile copies, and nothing else of the process knows its address.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Of a ring's descriptor; without one, zero bytes of our own. `len` is not 0.
    pub(super) fn new(fd: Option<(BorrowedFd<'_>, i64)>, len: usize) -> io::Result<Map> {
        let (flags, fd, offset) = match fd {
            Some((fd, offset)) => (libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
        };
        // SAFETY: a new mapping at an address of the kernel's choice, which overlaps nothing.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Map { at, len })
    }

    pub(super) fn addr(&self) -> u64 {
        self.at.as_ptr().expose_provenance() as u64
    }

    /// Whether `count` values of a type lie inside from `at` on, aligned.
    pub(super) fn holds<T>(&self, at: u32, count: u32) -> bool {
        let end = (count as usize).checked_mul(size_of::<T>()).and_then(|n| n.checked_add(at as usize));
        (at as usize).is_multiple_of(align_of::<T>()) && end.is_some_and(|end| end <= self.len)
    }

    /// A number that both sides know.
    ///
    /// # Panics
    /// It is not inside: [`Map::holds`] was not asked.
    pub(super) fn number(&self, at: u32) -> &AtomicU32 {
        assert!(self.holds::<u32>(at, 1), "a number outside of its mapping");
        // SAFETY: inside of the mapping and aligned, as just checked; the mapping lives as long as the reference.
        unsafe { AtomicU32::from_ptr(self.at.as_ptr().add(at as usize).cast()) }
    }

    /// A copy of the value number `index` from `at` on; the head and tail of its ring say that it holds still.
    ///
    /// # Panics
    /// As [`Map::number`].
    pub(super) fn read<T: Plain>(&self, at: u32, index: u32) -> T {
        assert!(self.holds::<T>(at, index.saturating_add(1)), "an entry outside of its mapping");
        // SAFETY: inside of the mapping and aligned, as just checked; any bytes are a value of the type.
        unsafe { self.at.as_ptr().add(at as usize).cast::<T>().add(index as usize).read_volatile() }
    }

    /// Writes the value number `index` from `at` on, which the kernel does not read before the tail says so.
    ///
    /// # Panics
    /// As [`Map::number`].
    pub(super) fn write<T: Plain>(&self, at: u32, index: u32, value: T) {
        assert!(self.holds::<T>(at, index.saturating_add(1)), "an entry outside of its mapping");
        // SAFETY: inside of the mapping and aligned, as just checked.
        unsafe { self.at.as_ptr().add(at as usize).cast::<T>().add(index as usize).write_volatile(value) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, and no reference to it exists any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// Types of which any bytes are a value.
///
/// # Safety
/// That must be so.
pub(super) unsafe trait Plain: Copy {}

// SAFETY: numbers only, without padding.
unsafe impl Plain for u32 {}
// SAFETY: numbers only, without padding.
unsafe impl Plain for super::abi::Sqe {}
// SAFETY: numbers only, without padding.
unsafe impl Plain for super::abi::Cqe {}
// SAFETY: numbers only, without padding.
unsafe impl Plain for super::abi::Rqe {}
