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
use std::sync::atomic::{Ordering, fence};

use linkspan_mem::gone;
use linkspan_transport::{Buf, MemSlice};

/// The watch over this process's memory. There is one, for the kernel lets a range be watched by one only.
#[derive(Debug)]
pub struct Unmaps {
    fd: OwnedFd,
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
        Ok(Unmaps { fd, page: linkspan_mem::page_size() as u64 })
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
