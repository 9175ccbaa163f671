//! Pages of the system.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;

/// Size of a huge page of x86-64, and of ARM with 4 KiB pages.
const HUGE: usize = 2 << 20;

/// Ranges of this size and more lie on huge pages where the system gives any: few enough that what one of them may waste is
/// less than a half.
const HUGE_FROM: usize = 2 * HUGE;

/// Ranges below this come from the allocator, as a process may have 65530 mappings only (`vm.max_map_count`), in whole multiples
/// of a page.
const MAPPED_FROM: usize = 64 << 10;

/// Zeroed, readable and writable pages of this process. Dropping them gives them back: from 64 KiB on, them and their addresses to
/// the system, smaller ones to the allocator.
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a range of addresses; what is done with it is up to `as_ptr`'s users.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least `len` bytes, in whole pages. From 4 MiB on they are backed by memory at once, on huge pages where there are any.
    ///
    /// # Errors
    /// The error of `mmap(2)`: ENOMEM.
    pub fn new(len: usize) -> io::Result<Pages> {
        let len = len.max(1).checked_next_multiple_of(page_size()).ok_or(io::ErrorKind::OutOfMemory)?;
        if !is_mapped(len) {
            let layout = Layout::from_size_align(len, page_size()).map_err(|_| io::ErrorKind::OutOfMemory)?;
            // SAFETY: the layout has a size above zero.
            let base = NonNull::new(unsafe { alloc_zeroed(layout) });
            return base.map(|base| Pages { base, len }).ok_or_else(|| io::ErrorKind::OutOfMemory.into());
        }
        if len < HUGE_FROM {
            return Pages::map(len);
        }
        // More than asked for, to cut the ends off: huge pages begin at multiples of their size.
        let whole = Pages::map(len.checked_add(HUGE).ok_or(io::ErrorKind::OutOfMemory)?)?;
        let skip = whole.base.as_ptr().align_offset(HUGE).min(HUGE);
        let base = whole.base;
        let spare = whole.len - skip - len;
        std::mem::forget(whole);
        // SAFETY: inside of the mapping, which is HUGE longer than `len`.
        let pages = Pages { base: unsafe { base.add(skip) }, len };
        // SAFETY: the two ends, whole pages of our own mapping that nothing knows of.
        unsafe {
            unmap(base.as_ptr(), skip);
            unmap(base.as_ptr().add(skip + len), spare);
        }
        // SAFETY: our own pages, of which neither advice changes a byte. A refusal leaves small pages, or pages that come when
        // they are touched.
        unsafe {
            libc::madvise(pages.base.as_ptr().cast(), len, libc::MADV_HUGEPAGE);
            libc::madvise(pages.base.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE);
        }
        Ok(pages)
    }

    fn map(len: usize) -> io::Result<Pages> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(base.cast()).map(|base| Pages { base, len }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Address of the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes in them.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none, which is never so.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let from = self.base.as_ptr() as u64;
        crate::gone::tell((from, from + self.len as u64));
        if is_mapped(self.len) {
            // SAFETY: our own mapping, whole, which nothing uses any more.
            unsafe { unmap(self.base.as_ptr(), self.len) };
        } else if let Ok(layout) = Layout::from_size_align(self.len, page_size()) {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.base.as_ptr(), layout) };
        }
    }
}

/// Miri maps no part of a range.
fn is_mapped(len: usize) -> bool {
    len >= MAPPED_FROM && !cfg!(miri)
}

/// # Safety
/// Whole pages of a mapping that is ours, which nothing uses any more.
unsafe fn unmap(base: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: the caller's promise.
        let unmapped = unsafe { libc::munmap(base.cast(), len) };
        debug_assert_eq!(unmapped, 0);
    }
}

/// Bytes of a page of this system.
pub fn page_size() -> usize {
    // SAFETY: asks for a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(64 << 10)
}

#[cfg(test)]
mod tests;
