//! A page of counters in a file: one process writes and holds the file's lock, others read it while it runs.
//!
//! The lock (flock(2)) says whether the writer lives: the kernel frees it with the last descriptor, whichever namespace the process is in.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags};

/// A file of 64-bit words, mapped and locked. The words are atomics in the machine's byte order; a page is read on the machine
/// that writes it. May be used from any thread. A child made by fork(2) without exec(2) shares the lock.
#[derive(Debug)]
pub struct Page {
    /// Holds the lock.
    _file: File,
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the value until it is dropped, and atomics may be used from any thread.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Makes a new file of `words` zero words, mode 0644, and takes its lock: the folder says who may read it. An existing file is an error.
    ///
    /// # Errors
    /// The error of `open(2)`, `flock(2)`, `ftruncate(2)`, `fallocate(2)` or `mmap(2)`, as EEXIST, EACCES or ENOSPC. EEXIST also where
    /// another process of this user looked at the file before it was locked: take another name.
    pub fn create(path: &Path, words: usize) -> io::Result<Page> {
        // Nobody else can open it before it is locked, so nobody else can hold the lock.
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::AlreadyExists.into()),
            other => other?,
        }
        if file.metadata()?.nlink() == 0 {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let made = Page::fill(file, words);
        if made.is_err() {
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn fill(file: File, words: usize) -> io::Result<Page> {
        // Allocated, not only sized: a full file system is an error now and not a SIGBUS later.
        rustix::fs::ftruncate(&file, words as u64 * 8)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, words as u64 * 8)?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        Page::map(file, words)
    }

    fn map(file: File, words: usize) -> io::Result<Page> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), words * 8, prot, MapFlags::SHARED, &file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Page { _file: file, base, words })
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

/// What a page holds at one moment. Copied, not mapped: another user's file may be cut at any time.
#[derive(Clone, Debug)]
pub struct PageCopy {
    /// The words, in the machine's byte order.
    pub words: Vec<u64>,
    /// Whether a process holds the lock, so lives.
    pub held: bool,
    /// User that owns the file.
    pub owner: u32,
}

/// Copies at most `most` words of a file.
///
/// # Errors
/// The error of `open(2)` or `pread(2)`, as ENOENT or EACCES; `InvalidData` where it is not a regular file of whole words, or has more than
/// one name: hard links would make many pages of one.
pub fn copy(path: &Path, most: usize) -> io::Result<PageCopy> {
    let file = look(path)?;
    let meta = file.metadata()?;
    let mut bytes = vec![0; (meta.len() / 8).min(most as u64) as usize * 8];
    if !meta.is_file() || bytes.is_empty() || meta.nlink() > 1 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    file.read_exact_at(&mut bytes, 0)?;
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    Ok(PageCopy { words, held, owner: meta.uid() })
}

/// Removes a file of this user whose lock nobody holds. Says whether it did.
///
/// # Errors
/// The error of `open(2)`, `flock(2)` or `unlink(2)`.
pub fn sweep(path: &Path) -> io::Result<bool> {
    let file = look(path)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(false),
        other => other?,
    }
    // With the lock held and a name left, the name is still this file's: whoever removes it takes the lock first.
    let meta = file.metadata()?;
    if !meta.is_file() || meta.nlink() == 0 {
        return Ok(false);
    }
    std::fs::remove_file(path)?;
    Ok(true)
}

fn look(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::sync::Mutex;
    use std::sync::atomic::Ordering::Relaxed;

    /// A child shares the locks of the files that were open when it was forked, for as long as it lives.
    pub(crate) static NO_FORK: Mutex<()> = Mutex::new(());

    /// Starts a program, so that it never shares them.
    pub(crate) fn spawn(command: &mut Command) -> Child {
        let _alone = NO_FORK.lock();
        command.spawn().unwrap()
    }

    #[test]
    fn a_reader_sees_what_is_written_and_whether_the_writer_lives() {
        let _alone = NO_FORK.lock();
        let path = std::env::temp_dir().join(format!("linkspan-page-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let page = Page::create(&path, 100).unwrap();
        assert!(Page::create(&path, 100).is_err(), "an existing file is not taken over");
        page.word(99).store(7, Relaxed);
        let seen = copy(&path, 1000).unwrap();
        assert_eq!((seen.words.len(), seen.words[99], seen.held), (100, 7, true));
        let link = path.with_extension("link");
        std::fs::hard_link(&path, &link).unwrap();
        assert_eq!(copy(&path, 1000).unwrap_err().kind(), io::ErrorKind::InvalidData, "one page with two names");
        std::fs::remove_file(link).unwrap();
        assert!(!sweep(&path).unwrap(), "the lock is held");
        drop(page);
        assert!(!copy(&path, 1000).unwrap().held);
        assert!(sweep(&path).unwrap());
        assert_eq!(copy(&path, 1000).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(copy(Path::new("/dev/zero"), 8).is_err(), "devices are refused");
    }
}
