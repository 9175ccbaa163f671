//! Pages of a descriptor (a file, a memfd, whatever can be mapped), as memory.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use linkspan_mem::gone;
use linkspan_transport::MemSlice;
use rustix::fs::{FileType, SeekFrom};
use rustix::mm::{MapFlags, ProtFlags};

#[cfg(test)]
mod tests;

/// Mapped pages; unmapped when they are dropped.
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is only touched through raw copies of `MemSlice`, from any thread.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

impl Pages {
    /// Maps `len` bytes from `offset` (a multiple of the page size) of `fd`. `shared`: what is written goes to the descriptor's
    /// owner, for which it must be open for reading and writing; otherwise a private copy is made of what is written to.
    ///
    /// A file that is made shorter afterwards ends the process (SIGBUS) at the next touch; a memfd can be sealed against it.
    ///
    /// # Errors
    /// `InvalidInput` where the range is empty or not inside the file; the error of `fstat(2)` or `mmap(2)`.
    pub fn map(fd: BorrowedFd<'_>, offset: u64, len: usize, shared: bool) -> io::Result<Pages> {
        let stat = rustix::fs::fstat(fd)?;
        let size = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or(0),
            // A dma-buf tells its size so: Documentation/driver-api/dma-buf.rst.
            _ => rustix::fs::seek(fd, SeekFrom::End(0)).unwrap_or(u64::MAX),
        };
        if len == 0 || offset.checked_add(len as u64).is_none_or(|end| end > size) {
            return Err(invalid(format!("{len} bytes at {offset} of a file of {size} bytes cannot be mapped")));
        }
        let flags = if shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, fd, offset) };
        let base = NonNull::new(base?.cast()).ok_or_else(|| invalid("mapped at address 0".into()))?;
        let pages = Pages { base, len };
        gone::promise(pages.range());
        Ok(pages)
    }

    fn range(&self) -> gone::Range {
        let from = self.base.as_ptr() as u64;
        (from, from + self.len as u64)
    }

    /// A handle on all of them.
    ///
    /// # Safety
    /// Nothing uses the handle, a copy or a part of it once they are dropped; see [`MemSlice::new`].
    pub unsafe fn slice(&self) -> MemSlice {
        // SAFETY: mapped for reading and writing until they are dropped, see above; sizes were checked when they were mapped.
        unsafe { MemSlice::new(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        gone::tell(self.range());
        // SAFETY: our own mapping, whole, and no handle on it is used any more, as `slice` asks.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
