//! Reports which watched memory of this process was unmapped, moved or given back: code that has registered it with a device must not
//! use that registration for what is mapped there next.
//!
//! The kernel says so through a userfaultfd(2) with the events UNMAP, REMAP and REMOVE, which ask for no privilege and, opened with
//! `UFFD_USER_MODE_ONLY` (Linux 5.11), not for the setting `vm.unprivileged_userfaultfd` either. Ranges are registered for write
//! protection of which none is ever set, so no access ever faults. A thread that unmaps such memory waits in the kernel
//! until the event has been read. One thread of ours does nothing but that: it allocates and frees nothing and takes no lock
//! that others hold while they do, so it cannot be part of a deadlock.
//!
//! What it reads it tells to [`gone`], where those who have registered memory look. The addresses of an unmapping are free a moment before its event
//! can be read, so that another thread may have memory there already: [`Unmaps::settle`] waits for that event, and whoever looks calls it first.

mod kernel;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use linkspan_mem::gone;
use linkspan_transport::{Buf, MemSlice};

/// The watch over this process's memory. There is one, for the kernel lets a range be watched by one only.
#[derive(Debug)]
pub struct Unmaps {
    fd: OwnedFd,
    page: u64,
    pagemap: Option<File>,
    /// Ranges so far, and whether the process had too many mappings when it was last looked.
    ranges: AtomicU64,
    crowded: AtomicBool,
}

/// How many ranges lie between two looks at the number of mappings: each may add two.
const LOOK: u64 = 1024;

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
        let fd = kernel::open()?;
        let file = File::from(fd.try_clone()?);
        // Also at the end of the process, for as long as memory may be unmapped: it is never joined. Its stack is not
        // made smaller: glibc takes out of it what libraries keep for each thread.
        std::thread::Builder::new().name("linkspan unmaps".into()).spawn(move || {
            linkspan_thread::block_signals();
            while kernel::wait(&file) {
                gone::hear(|| kernel::read(&file));
            }
        })?;
        let (ranges, crowded) = (AtomicU64::new(0), AtomicBool::new(false));
        let pagemap = File::open("/proc/self/pagemap").ok();
        Ok(Unmaps { fd, page: linkspan_mem::page_size() as u64, pagemap, ranges, crowded })
    }

    /// Watches the pages of `mem`. Watching them again is no error.
    ///
    /// Memory of a file (a memfd and `/dev/shm` too) is not watched, for the file can lose its pages while they are mapped, of which no event tells:
    /// by ftruncate(2), or a hole. Nor is any other shared memory, which the kernel keeps in such files. The first and the last page are looked at.
    ///
    /// # Errors
    /// `EINVAL`: memory of a file or a device, shared memory, or it cannot be told which as there is no `/proc`. `EBUSY`: another userfaultfd watches
    /// it. `ENOMEM`: the process has half of the mappings that it may have (`vm.max_map_count`); each range that is watched apart costs two.
    pub fn watch(&self, mem: MemSlice) -> io::Result<()> {
        if mem.is_empty() {
            return Ok(());
        }
        let from = mem.as_ptr() as u64;
        let last = from + mem.len() as u64 - 1;
        for addr in [from, last] {
            let touched = mem.read(addr - from, &mut [0]);
            let pagemap = self.pagemap.as_ref().filter(|_| touched);
            if pagemap.is_none_or(|map| kernel::is_file_or_shared(map, addr, self.page).unwrap_or(true)) {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
        }
        if self.ranges.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK) {
            self.crowded.store(kernel::has_many_mappings(), Ordering::Relaxed);
        }
        if self.crowded.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        let to = (last + 1).next_multiple_of(self.page);
        kernel::register(&self.fd, from / self.page * self.page, to)
    }

    /// Returns once the thread has heard of all watched memory that had been unmapped, moved or given back when this was called, also by calls
    /// that have not returned: [`gone::epoch`] is another number then, or odd. A system call of 0.25 us, without a lock, where nothing
    /// is under way.
    ///
    /// Before Linux 5.15 the kernel keeps no count: of calls at the same time the end of one hides the others, so it may return too early.
    pub fn settle(&self) {
        while kernel::is_changing(&self.fd) {
            std::thread::yield_now();
        }
        // The number is looked at after the kernel was asked.
        fence(Ordering::Acquire);
    }
}
