//! Cross-memory attach through a guard page that its owner can close: process_vm_readv(2) and process_vm_writev(2), whose
//! first remote element is eight bytes of that page. Why, says [`crate::revoke`].

use std::io;

use linkspan_transport::{Buf, MemSlice};

use crate::map::whole;
pub use crate::revoke::AccessGuard;
use crate::revoke::NONCE_AT;
use crate::slot::MAX_SLICES;

#[cfg(test)]
mod tests;

/// The memory of the peer process, behind its guard page.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    pid: libc::pid_t,
    guard: u64,
}

/// Bytes that a copy moves at the guard page.
const GUARD_TOUCHED: usize = 8;

/// What one call copies: ranges of ours, each with its place in the peer. Neighbours become one range, on either side by
/// itself: the kernel pins each range of the peer by itself, for which it takes as long as for copying 4 KiB.
#[derive(Debug)]
pub struct Ranges {
    local: List,
    remote: List,
    bytes: usize,
}

#[derive(Debug)]
struct List {
    /// The first is the guard page's.
    entries: [libc::iovec; MAX_SLICES as usize + 1],
    used: usize,
}

impl List {
    const EMPTY: List = List {
        entries: [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_SLICES as usize + 1],
        used: 1,
    };

    fn add(&mut self, base: u64, len: usize) {
        let (before, rest) = self.entries.split_at_mut(self.used);
        match before.last_mut() {
            Some(last) if self.used > 1 && (last.iov_base as u64).checked_add(last.iov_len as u64) == Some(base) => {
                last.iov_len += len;
            }
            _ => {
                if let Some(next) = rest.first_mut() {
                    *next = iov(base, len);
                    self.used += 1;
                }
            }
        }
    }

    fn behind(&mut self, base: u64) -> &[libc::iovec] {
        self.entries[0] = iov(base, GUARD_TOUCHED);
        &self.entries[..self.used]
    }
}

impl Ranges {
    /// None yet.
    pub fn new() -> Ranges {
        Ranges { local: List::EMPTY, remote: List::EMPTY, bytes: 0 }
    }

    fn of(ours: MemSlice, address: u64) -> Ranges {
        let mut ranges = Ranges::new();
        let _ = ranges.add(ours, address);
        ranges
    }

    /// One more: `ours` and the same number of bytes at `address` in the peer. At most [`MAX_SLICES`]; false beyond.
    #[must_use]
    pub fn add(&mut self, ours: MemSlice, address: u64) -> bool {
        let space = self.local.used.max(self.remote.used) <= MAX_SLICES as usize;
        if space {
            self.local.add(ours.as_ptr() as u64, ours.len());
            self.remote.add(address, ours.len());
            self.bytes += ours.len();
        }
        space
    }

    /// Whether there is nothing to copy.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    fn behind(&mut self, word: u64, guard: u64) -> (&[libc::iovec], &[libc::iovec]) {
        (self.local.behind(word), self.remote.behind(guard))
    }
}

impl Default for Ranges {
    fn default() -> Ranges {
        Ranges::new()
    }
}

fn iov(base: u64, len: usize) -> libc::iovec {
    libc::iovec { iov_base: base as *mut libc::c_void, iov_len: len }
}

impl Remote {
    /// The process `pid`, whose guard page is at `guard`. The number is the process's until it has ended and was waited for;
    /// then another one may have it. The caller holds a pidfd, which tells the end, and looks at it before it copies. That
    /// narrows the time in which a copy may go to another process (of the same user, with a guard page and memory at the
    /// same addresses) to the few instructions in between; it cannot close it, for the calls take numbers only.
    pub fn new(pid: i32, guard: u64) -> Remote {
        Remote { pid, guard }
    }

    /// Reads what is at `address` in the peer into `dst`.
    ///
    /// # Errors
    /// As [`Remote::pull_all`].
    pub fn pull(self, address: u64, dst: MemSlice) -> io::Result<()> {
        self.pull_all(&mut Ranges::of(dst, address))
    }

    /// Writes `src` to `address` in the peer, who has granted it.
    ///
    /// # Errors
    /// As [`Remote::pull_all`].
    pub fn push(self, src: MemSlice, address: u64) -> io::Result<()> {
        self.push_all(&mut Ranges::of(src, address))
    }

    /// Reads the peer's side of `ranges` into ours.
    ///
    /// # Errors
    /// `EFAULT`: one of the ranges cannot be reached this way, or the guard page is closed. `EPERM`, `ENOSYS`: forbidden.
    /// `ESRCH`: the process ended.
    pub fn pull_all(self, ranges: &mut Ranges) -> io::Result<()> {
        let mut word = 0u64;
        let (local, remote) = ranges.behind(&raw mut word as u64, self.guard);
        let (locals, remotes) = (local.len() as libc::c_ulong, remote.len() as libc::c_ulong);
        // SAFETY: writes to `word` and to the local ranges, which are writable by the promise of `MemSlice::new`.
        let n = unsafe { libc::process_vm_readv(self.pid, local.as_ptr(), locals, remote.as_ptr(), remotes, 0) };
        whole(n, GUARD_TOUCHED + ranges.bytes)
    }

    /// Writes our side of `ranges` to the peer's, who has granted it. (Where the peer is this very process, as in a
    /// pair, the grant was made by our own other end.)
    ///
    /// # Errors
    /// As [`Remote::pull_all`].
    pub fn push_all(self, ranges: &mut Ranges) -> io::Result<()> {
        let word = 0u64;
        let (local, remote) = ranges.behind(&raw const word as u64, self.guard);
        let (locals, remotes) = (local.len() as libc::c_ulong, remote.len() as libc::c_ulong);
        // SAFETY: reads `word` and the local ranges, which are readable by the promise of `MemSlice::new`; what it
        // writes is the peer's, at the addresses that it published for this.
        let n = unsafe { libc::process_vm_writev(self.pid, local.as_ptr(), locals, remote.as_ptr(), remotes, 0) };
        whole(n, GUARD_TOUCHED + ranges.bytes)
    }

    /// Whether this process may read the peer's memory, and whether the peer is who it says: the nonce at its guard page.
    ///
    /// # Errors
    /// `EPERM`, `ENOSYS`: the OS forbids access to the process. `InvalidData`: the number belongs to another process,
    /// or the peer gave a wrong address.
    pub fn probe(self, nonce: [u64; 2]) -> io::Result<()> {
        let mut found = [0u64; 2];
        let local = [iov(found.as_mut_ptr() as u64, 16)];
        let remote = [iov(self.guard.wrapping_add(NONCE_AT as u64), 16)];
        // SAFETY: writes to `found` alone.
        let n = unsafe { libc::process_vm_readv(self.pid, local.as_ptr(), 1, remote.as_ptr(), 1, 0) };
        whole(n, 16)?;
        if found == nonce { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}
