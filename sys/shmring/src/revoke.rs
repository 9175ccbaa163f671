//! When our memory is ours again: the gate, the flag, and the proof that no copy of the peer is under way.
//!
//! Both processes copy with process_vm_readv(2) and process_vm_writev(2), which name the other's memory by address. A thread that has
//! decided to copy can be stopped before it enters the kernel and go on hours later; no check that it makes in user space prevents
//! that. We may reuse our memory when no copy that the peer began can move a byte of it any more. Three things show it:
//!
//! 1. *The gate.* The first remote element of every copy is eight bytes of a page of ours ([`AccessGuard`]). The kernel works through
//!    the elements in order and ends at the first that it cannot reach (process_vm_readv(2)). Once the page has lost its rights
//!    (`mprotect`), a copy that enters the kernel moves nothing. Our kernel enforces that over our address space.
//! 2. *The flag.* Before a copy a thread of the peer writes its number to its side's word in the map, fences, and looks whether the
//!    transfer is stopped, or the region no longer in the table ([`enter`]); afterwards it clears the word ([`leave`]). We stop every
//!    transfer, withdraw every region, fence, and read the word ([`inside`]): Dekker's handshake. Zero: no thread is inside, and none will
//!    enter. (Where one region is taken back and the connection goes on, that is the whole proof; the word is looked at again until it was
//!    zero.)
//! 3. *The border.* The word names a thread, the gate is closed, and then the kernel says that this thread is not in a copy. Since a
//!    thread can copy only by entering the kernel, where it finds the gate closed, it never will. The kernel says so (`thread::Thread`)
//!    of a thread that does not exist any more, is stopped or traced (`/proc/PID/task/TID/stat`: both begin and end where a
//!    thread returns to user space or is about to begin a call, never within one), or sleeps in another system call or in none
//!    (`.../syscall`). Also enough is the death of the process (pidfd): it ends all its threads, and with them their calls.
//!
//! `revoke` goes through them, the cheapest first, and returns with the one that held. It has no other way out: in particular
//! no time, neither the clock's nor the thread's, ends it, for a thread may stay in a copy as long as a page of its memory is missing
//! (userfaultfd, a file system that hangs). What remains is a thread that runs. A correct one is then at most a call away from the end of
//! its copy, so it is waited for; one that is frozen at the end of that call (cgroups) until it thaws or is killed. A process in which the kernel
//! shows none of this ([`provable`]) must not be given a place to write to from the start: its connection is read by the receiver alone.
//!
//! PTRACE_SEIZE and PTRACE_INTERRUPT would bring a running thread to its border and need the right that the copy needs. They
//! are no plainer: a thread has one tracer, so under a debugger they fail; nobody may trace a thread of the own process, where both ends of a
//! connection may be; the stop is told to *our* process by SIGCHLD and taken by any waitpid(-1) of the program that loaded
//! us; and calls of the peer's thread return EINTR. All that they add is the thread that runs without end between the flag and the call.
//!
//! A peer that writes a wrong number to the flag ends the wait early or makes it long. It could have written our memory in any
//! case: the kernel allows it. All of this protects against the lateness of correct peers. `revoke/model.rs` has the three parts and a kernel
//! under loom.

use crate::sync::{AtomicU64, Ordering, fence};

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub(crate) use system::NONCE_AT;
#[cfg(not(loom))]
pub use system::{AccessGuard, PATIENCE, provable};

/// Announces that this thread is about to touch the peer's memory, and asks whether it still may: whether the transfer goes on
/// ([`runs`](crate::slot::runs)), the region is there ([`find`](crate::region::Entry::find)). `flag` is this side's own; it is cleared by
/// [`leave`] in either case.
#[must_use]
pub fn enter(flag: &AtomicU64, who: u64, may: impl FnOnce() -> bool) -> bool {
    flag.store(who, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    may()
}

/// Ends the copy that began with [`enter`].
pub fn leave(flag: &AtomicU64) {
    flag.store(0, Ordering::Release);
}

/// After [`stop`](crate::slot::stop) of every transfer, and [`withdraw`](crate::region::Entry::withdraw) of every region: which thread of the
/// peer may still be copying (0: none, and none will).
#[must_use]
pub fn inside(flag: &AtomicU64) -> u64 {
    fence(Ordering::SeqCst);
    flag.load(Ordering::Acquire)
}

/// What we can do against the peer's copies, and ask the kernel about them.
pub(crate) trait Kernel {
    /// Whether a copy under way is simply waited for.
    fn patient(&mut self) -> bool;
    /// Closes the gate. False: it cannot be closed.
    fn close(&mut self) -> bool;
    /// Whether the process has ended.
    fn ended(&mut self) -> bool;
    /// Whether this thread is not in a copy at a moment within this call.
    fn at_border(&mut self, who: u64) -> bool;
    /// Between two looks.
    fn pause(&mut self);
}

/// What shows that no copy of the peer moves a byte of our memory any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The peer says so.
    Flag,
    /// Its process has ended.
    Death,
    /// The kernel says so of its thread, which may come late and must find the gate closed.
    Border,
}

/// Returns when the proof is there. Every transfer has been stopped before; `flag` is the peer's.
pub(crate) fn revoke(flag: &AtomicU64, kernel: &mut impl Kernel) -> Proof {
    while kernel.patient() {
        if inside(flag) == 0 {
            return Proof::Flag;
        }
        std::hint::spin_loop();
    }
    // A gate that cannot be closed leaves the other two.
    let closed = kernel.close();
    loop {
        let who = inside(flag);
        if who == 0 {
            return Proof::Flag;
        }
        if kernel.ended() {
            return Proof::Death;
        }
        if closed && kernel.at_border(who) {
            return Proof::Border;
        }
        kernel.pause();
    }
}

#[cfg(not(loom))]
mod system {
    use std::io;
    use std::ptr::NonNull;
    use std::time::{Duration, Instant};

    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

    use super::{AtomicU64, Kernel, Proof, revoke};
    use crate::peer::this_thread;

    /// Bytes of the guard page mapping: the largest page size Linux runs on (64 KiB on some ARM kernels).
    const GUARD_BYTES: usize = 64 << 10;

    /// Where in the guard page the rail's nonce lies, for the peer's probe.
    pub(crate) const NONCE_AT: usize = 64;

    /// How long a copy under way is waited for before the gate closes: several slices' worth.
    pub const PATIENCE: Duration = Duration::from_micros(200);

    /// A page of this process that a peer's copies pass first.
    #[derive(Debug)]
    pub struct AccessGuard {
        page: NonNull<u8>,
        keep: bool,
    }

    // SAFETY: the page is ours, is never read by us after set-up, and lives as long as the value.
    unsafe impl Send for AccessGuard {}

    impl AccessGuard {
        /// An accessible guard page that holds `nonce`.
        ///
        /// # Errors
        /// The error of `mmap(2)`: ENOMEM.
        pub fn new(nonce: [u64; 2]) -> io::Result<AccessGuard> {
            // SAFETY: a fresh private mapping at an address of the kernel's choice.
            let page = unsafe {
                rustix::mm::mmap_anonymous(
                    std::ptr::null_mut(),
                    GUARD_BYTES,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE,
                )?
            };
            let page: NonNull<u8> = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
            // SAFETY: inside the fresh mapping, aligned, and not shared yet.
            unsafe { page.add(NONCE_AT).cast::<[u64; 2]>().write(nonce) };
            Ok(AccessGuard { page, keep: false })
        }

        /// The page's address, to be sent to the peer.
        pub fn address(&self) -> u64 {
            self.page.as_ptr() as u64
        }

        /// Returns when no thread of the peer `pid` touches our memory behind this page, nor ever will, see the module. Every transfer has
        /// been stopped before. `flag` is the peer's word, `ended` tells whether its process has.
        pub fn revoke(&mut self, flag: &AtomicU64, pid: i32, ended: impl FnMut() -> bool) {
            // A late copy must find the page closed: then the address stays taken for the life of this process.
            self.keep = revoke(flag, &mut Peer::new(pid, self, ended)) == Proof::Border;
        }

        /// Closes it: no copy that enters the kernel from now on moves a byte. Its address stays taken.
        ///
        /// # Errors
        /// The error of `mprotect(2)`: ENOMEM where the process has too many mappings.
        pub fn close(&mut self) -> io::Result<()> {
            self.keep = true;
            // SAFETY: our own mapping, of which no reference exists.
            unsafe { rustix::mm::mprotect(self.page.as_ptr().cast(), GUARD_BYTES, MprotectFlags::empty())? };
            Ok(())
        }
    }

    impl Drop for AccessGuard {
        fn drop(&mut self) {
            if !self.keep {
                // SAFETY: our own mapping, of which no reference exists.
                let unmapped = unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), GUARD_BYTES) };
                debug_assert!(unmapped.is_ok());
            }
        }
    }

    /// A thread of the peer that may be inside a copy.
    #[derive(Debug)]
    pub(super) struct Thread(pub(super) String);

    impl Thread {
        /// The thread `tid` of process `pid`.
        pub(super) fn new(pid: i32, tid: u64) -> Thread {
            Thread(format!("/proc/{pid}/task/{tid}"))
        }

        fn read(&self, name: &str) -> io::Result<String> {
            std::fs::read_to_string(format!("{}/{name}", self.0))
        }

        /// State letter of proc_pid_stat(5). The name before it may hold anything, so it is found from the end.
        pub(super) fn state(&self) -> io::Result<char> {
            let stat = self.read("stat")?;
            let after = stat.rsplit_once(") ").map(|(_, rest)| rest);
            after.and_then(|r| r.chars().next()).ok_or_else(|| io::ErrorKind::InvalidData.into())
        }

        /// The system call that it sleeps in (-1: none), as proc_pid_syscall(5) tells. `None`: it runs, or is about to.
        pub(super) fn call(&self) -> io::Result<Option<i64>> {
            let line = self.read("syscall")?;
            Ok(line.split_whitespace().next().and_then(|word| word.parse().ok()))
        }

        /// Whether the thread is certainly not inside a copy, at a moment within this call.
        pub(super) fn at_border(&self) -> bool {
            match self.state() {
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => return ours(),
                // T: stopped, t: traced, Z, X: ended.
                Ok('T' | 't' | 'Z' | 'X') => return true,
                _ => {}
            }
            let other = |n| n != libc::SYS_process_vm_writev && n != libc::SYS_process_vm_readv;
            self.call().ok().flatten().is_some_and(other)
        }
    }

    /// Whether the numbers in `/proc` are those of this process's namespace, and there are any.
    fn ours() -> bool {
        std::fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
    }

    /// Whether the kernel shows this process whether threads of `pid` are at their border.
    ///
    /// # Errors
    /// The error of reading `/proc/PID/task/TID/stat` or `syscall`: `/proc` is not mounted, hides the peer or lacks the file;
    /// `NotFound`: it is that of another pid namespace.
    pub fn provable(pid: i32) -> io::Result<()> {
        if !ours() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let main = Thread::new(pid, pid as u64);
        main.state()?;
        main.call().map(drop)
    }

    /// A process of this system, behind the guard page that its copies pass.
    #[derive(Debug)]
    pub(super) struct Peer<'a, E> {
        pid: i32,
        guard: &'a mut AccessGuard,
        ended: E,
        since: Instant,
    }

    impl<'a, E: FnMut() -> bool> Peer<'a, E> {
        /// `ended` tells whether the process has.
        pub(super) fn new(pid: i32, guard: &'a mut AccessGuard, ended: E) -> Peer<'a, E> {
            Peer { pid, guard, ended, since: Instant::now() }
        }
    }

    impl<E: FnMut() -> bool> Kernel for Peer<'_, E> {
        fn patient(&mut self) -> bool {
            self.since.elapsed() <= PATIENCE
        }

        fn close(&mut self) -> bool {
            self.guard.close().is_ok()
        }

        fn ended(&mut self) -> bool {
            (self.ended)()
        }

        fn at_border(&mut self, who: u64) -> bool {
            // Where both ends are in this process, its flag may name us, who are in no copy.
            let us = self.pid as u32 == std::process::id() && who == this_thread();
            us || Thread::new(self.pid, who).at_border()
        }

        fn pause(&mut self) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
