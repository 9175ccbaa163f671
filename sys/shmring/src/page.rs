//! A page of counters in a file: one process writes, any process of the user reads while it runs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::FileType;
use rustix::mm::{MapFlags, ProtFlags};

/// A file of 64-bit words, mapped. The words are atomics in the machine's byte order; a page is read on the machine
/// that writes it. May be used from any thread.
#[derive(Debug)]
pub struct Page {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the value until it is dropped, and atomics may be used from any thread.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Makes a new file of `words` zero words, mode 0600. An existing file is an error.
    ///
    /// # Errors
    /// The error of `open(2)`, `ftruncate(2)`, `fallocate(2)` or `mmap(2)`, as EEXIST, EACCES or ENOSPC.
    pub fn create(path: &Path, words: usize) -> io::Result<Page> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        // Allocated, not only sized: a full file system is an error now and not a SIGBUS later.
        rustix::fs::ftruncate(&file, words as u64 * 8)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, words as u64 * 8)?;
        Page::map(&file, words, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Opens a file for reading: the words are never to be stored to. At most `most` words are mapped.
    ///
    /// # Errors
    /// The error of `open(2)` or `mmap(2)`, as ENOENT or EACCES; `InvalidData` where it is not a regular file of whole
    /// words.
    pub fn open(path: &Path, most: usize) -> io::Result<Page> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
        let stat = rustix::fs::fstat(&file)?;
        let words = (stat.st_size as usize / 8).min(most);
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || words == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Page::map(&file, words, ProtFlags::READ)
    }

    fn map(file: &File, words: usize, prot: ProtFlags) -> io::Result<Page> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), words * 8, prot, MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Page { base, words })
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.words
    }

    /// Whether there are none; never so.
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// The word at `at`.
    ///
    /// # Panics
    /// `at` is not below [`Page::len`].
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.words, "word {at} of {}", self.words);
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned, because mappings begin on pages.
        unsafe { self.base.add(at).as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: our mapping, to which no reference exists any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.words * 8) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_reader_sees_what_is_written() {
        let path = std::env::temp_dir().join(format!("linkspan-page-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let page = Page::create(&path, 100).unwrap();
        assert!(Page::create(&path, 100).is_err(), "an existing file is not taken over");
        page.word(99).store(7, Relaxed);
        let reader = Page::open(&path, 1000).unwrap();
        assert_eq!((reader.len(), reader.word(99).load(Relaxed)), (100, 7));
        std::fs::remove_file(&path).unwrap();
        assert!(Page::open(Path::new("/dev/zero"), 8).is_err(), "devices are refused");
    }
}
