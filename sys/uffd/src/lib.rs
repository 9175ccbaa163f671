//! Reports which watched memory of this process was unmapped, moved or given back: code that has registered it with a device must not
//! use that registration for what is mapped there next.
//!
//! The kernel says so through a userfaultfd(2) with the events UNMAP, REMAP and REMOVE, which ask for no privilege and, opened with
//! `UFFD_USER_MODE_ONLY` (Linux 5.11), not for the setting `vm.unprivileged_userfaultfd` either. Ranges are registered for write
//! protection of which none is ever set, so no access ever faults. A thread that unmaps such memory waits in the kernel
//! until the event has been read. One thread of ours does nothing but that: it allocates and frees nothing and takes no lock
//! that others hold while they do, so it cannot be part of a deadlock.
//!
//! [`Unmaps::epoch`] is odd while events are being read. It turns odd before any unmapping can return, so a reader that checks it
//! behind that and finds the number it knew, and even, has missed nothing.

mod kernel;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use linkspan_transport::{Buf, MemSlice};

/// Ranges remembered: a reader that is further behind is told that all may be gone.
const KEPT: usize = 1024;

/// A range of addresses: from, to.
pub type Range = (u64, u64);

#[derive(Debug)]
struct Log {
    ranges: [Range; KEPT],
    /// Ranges told so far.
    count: u64,
}

#[derive(Debug)]
struct Shared {
    epoch: AtomicU64,
    log: Mutex<Log>,
}

/// The watch over this process's memory. There is one, for the kernel lets a range be watched by one only.
#[derive(Debug)]
pub struct Unmaps {
    fd: Arc<OwnedFd>,
    shared: Arc<Shared>,
    page: u64,
}

impl Unmaps {
    /// The watch of this process; the first call starts its thread.
    ///
    /// # Errors
    /// A text: the kernel has no userfaultfd, or a sandbox forbids it.
    pub fn of_process() -> Result<&'static Unmaps, &'static str> {
        static ONE: OnceLock<Result<Unmaps, String>> = OnceLock::new();
        ONE.get_or_init(|| Unmaps::begin().map_err(|e| format!("userfaultfd: {e}"))).as_ref().map_err(String::as_str)
    }

    fn begin() -> io::Result<Unmaps> {
        let fd = Arc::new(kernel::open()?);
        let log = Mutex::new(Log { ranges: [(0, 0); KEPT], count: 0 });
        let shared = Arc::new(Shared { epoch: AtomicU64::new(0), log });
        let (ours, file) = (shared.clone(), File::from(fd.try_clone()?));
        // Also at the end of the process, for as long as memory may be unmapped: it is never joined. Its stack is not
        // made smaller: glibc takes out of it what libraries keep for each thread.
        std::thread::Builder::new().name("linkspan unmaps".into()).spawn(move || {
            linkspan_thread::block_signals();
            ours.listen(&file);
        })?;
        Ok(Unmaps { fd, shared, page: kernel::page_size() })
    }

    /// Watches the pages of `mem`. Watching them again is no error.
    ///
    /// # Errors
    /// The error of `ioctl(UFFDIO_REGISTER)`: `EINVAL` for memory of a file or a device, `EBUSY` where another
    /// userfaultfd watches it.
    pub fn watch(&self, mem: MemSlice) -> io::Result<()> {
        if mem.is_empty() {
            return Ok(());
        }
        let from = mem.as_ptr() as u64;
        let to = (from + mem.len() as u64).next_multiple_of(self.page);
        kernel::register(&self.fd, from / self.page * self.page, to)
    }

    /// Odd while events are being read; another number when something has gone since.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.shared.epoch.load(Ordering::Acquire)
    }

    /// Waits until the thread is not reading an event, and returns [`Unmaps::epoch`], which is even then. Any thread
    /// may call it.
    pub fn settled(&self) -> u64 {
        loop {
            match self.epoch() {
                epoch if epoch.is_multiple_of(2) => return epoch,
                _ => std::thread::yield_now(),
            }
        }
    }

    /// Calls `f` with each range that has gone since `seen`, which is moved on. From 0: everything so far.
    pub fn gone(&self, seen: &mut u64, mut f: impl FnMut(Range)) {
        loop {
            // Not under the lock: what `f` frees may be unmapped, which waits for our thread, which takes it.
            let range = {
                let log = self.shared.log.lock().unwrap_or_else(|e| e.into_inner());
                if *seen >= log.count {
                    return;
                }
                if log.count - *seen > KEPT as u64 {
                    *seen = log.count;
                    (0, u64::MAX)
                } else {
                    *seen += 1;
                    log.ranges[((*seen - 1) % KEPT as u64) as usize]
                }
            };
            f(range);
        }
    }
}

impl Shared {
    fn listen(&self, file: &File) {
        loop {
            if !kernel::wait(file) {
                return;
            }
            // Odd first: reading an event lets the thread that unmaps return.
            self.epoch.fetch_add(1, Ordering::AcqRel);
            while let Some(range) = kernel::read(file) {
                let mut log = self.log.lock().unwrap_or_else(|e| e.into_inner());
                let at = (log.count % KEPT as u64) as usize;
                log.ranges[at] = range;
                log.count += 1;
            }
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
    }
}
