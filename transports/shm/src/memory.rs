//! What we may do with the peer's memory and the peer with ours, and how ours becomes ours alone again.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use linkspan_proto::conn::RemoteSlice;
use linkspan_shmring::cma::{Ranges, Remote};
use linkspan_shmring::map::SlotWords;
use linkspan_shmring::peer::{self, this_thread};
use linkspan_shmring::revoke::{self, AccessGuard};
use linkspan_shmring::{Map, Side, slot};
use linkspan_transport::{Buf, MemSlice};

use crate::caps::Config;
use crate::live::LOOK_EVERY;
use crate::regions;

/// What became of one slice.
#[derive(Debug)]
pub(crate) enum Copied {
    /// It is in place.
    Whole,
    /// The peer ended the transfer; nothing was touched.
    Stopped,
    /// The system would not do it; the ring will.
    Refused,
}

/// Both guard pages: the peer's, through which we copy, and ours, through which the peer does.
#[derive(Debug)]
pub(crate) struct PeerMemory {
    map: Arc<Map>,
    side: Side,
    pid: i32,
    pidfd: Option<Arc<OwnedFd>>,
    /// When the pidfd was last looked at.
    looked: Cell<Instant>,
    remote: Option<Remote>,
    guard: AccessGuard,
    /// Nothing could prove that a late writer is gone: so only this process writes its memory.
    pull_only: bool,
    /// Why the last copy was refused that was.
    refused: Cell<Option<i32>>,
    #[cfg(feature = "sim")]
    between: Option<fn()>,
}

impl PeerMemory {
    /// `remote` is `None` where the ring carries all.
    pub(crate) fn new(
        map: &Arc<Map>,
        config: &Config,
        side: Side,
        (pid, pidfd): (i32, Option<Arc<OwnedFd>>),
        remote: Option<Remote>,
        guard: AccessGuard,
    ) -> PeerMemory {
        let pull_only = remote.is_some() && revoke::provable(pid).is_err();
        let looked = Cell::new(Instant::now());
        #[cfg(not(feature = "sim"))]
        let _ = config;
        PeerMemory {
            map: map.clone(),
            side,
            pid,
            pidfd,
            looked,
            remote,
            guard,
            pull_only,
            refused: Cell::new(None),
            #[cfg(feature = "sim")]
            between: config.between,
        }
    }

    pub(crate) fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// Whether chunks can be copied directly at all.
    pub(crate) fn direct(&self) -> bool {
        self.remote.is_some()
    }

    /// Whether the peer must not write our memory.
    pub(crate) fn pull_only(&self) -> bool {
        self.pull_only
    }

    /// As where nothing could prove the end of the peer's copies.
    #[cfg(test)]
    pub(crate) fn prove_nothing(&mut self) {
        self.pull_only = true;
    }

    /// Why a copy was refused, since this was asked.
    pub(crate) fn refused(&self) -> Option<io::Error> {
        self.refused.take().map(io::Error::from_raw_os_error)
    }

    /// Reads claimed slices.
    pub(crate) fn pull(&self, w: &SlotWords<'_>, generation: u32, ranges: &mut Ranges) -> Copied {
        self.copy(|| slot::runs(w, generation), |remote| remote.pull_all(ranges))
    }

    /// Writes claimed slices.
    pub(crate) fn push(&self, w: &SlotWords<'_>, generation: u32, ranges: &mut Ranges) -> Copied {
        self.copy(|| slot::runs(w, generation), |remote| remote.push_all(ranges))
    }

    /// Copies all of `mem` to (`write`) or from a place in a region that the peer exposes.
    pub(crate) fn copy_alone(&self, mem: MemSlice, place: RemoteSlice, write: bool) -> bool {
        let entry = self.map.region(self.side.other(), place.key);
        let address = Cell::new(None);
        let may = || {
            let region = entry.find(place.key);
            address.set(region.and_then(|region| regions::place(region, place.offset, mem.len(), write)));
            address.get().is_some()
        };
        let copy = |remote: Remote| match address.get() {
            Some(there) if write => remote.push(mem, there),
            Some(there) => remote.pull(there, mem),
            None => Ok(()),
        };
        let whole = matches!(self.copy(may, copy), Copied::Whole);
        if whole {
            let count = self.map.copied(self.side)[usize::from(!write)];
            count.store(count.load(Ordering::Relaxed).wrapping_add(mem.len() as u64), Ordering::Relaxed);
        }
        whole
    }

    fn copy(&self, may: impl FnOnce() -> bool, copy: impl FnOnce(Remote) -> io::Result<()>) -> Copied {
        let Some(remote) = self.remote else {
            return Copied::Stopped;
        };
        let inside = self.map.inside(self.side);
        let result = if revoke::enter(inside, this_thread(), may) {
            #[cfg(feature = "sim")]
            if let Some(between) = self.between {
                between();
            }
            match self.is_there().then(|| copy(remote)) {
                Some(Ok(())) => Copied::Whole,
                Some(Err(error)) => {
                    // A process that has ended has no memory to speak of.
                    let ended = rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::SRCH);
                    self.refused.set(error.raw_os_error().filter(|_| !ended));
                    Copied::Refused
                }
                None => Copied::Stopped,
            }
        } else {
            Copied::Stopped
        };
        revoke::leave(inside);
        result
    }

    /// Whether the process number is still the peer's, as of a millisecond ago at most: a thread that was stopped since it
    /// decided to copy must not go on in the memory of a process that has the number by now. Nothing can rule that out
    /// between this and the copy.
    fn is_there(&self) -> bool {
        let now = Instant::now();
        if now.duration_since(self.looked.get()) < LOOK_EVERY {
            return true;
        }
        let ended = self.pidfd.as_ref().is_some_and(peer::ended);
        if !ended {
            self.looked.set(now);
        }
        !ended
    }

    /// Returns when no thread of the peer touches our memory through this rail, nor ever will. Every transfer has
    /// been stopped before. `ended` tells whether the peer process has.
    pub(crate) fn quiesce(&mut self, ended: impl Fn() -> bool) {
        if self.remote.is_none() {
            return;
        }
        if self.pull_only {
            // The peer is given no place to write to. What it still reads it never reports, and with the gate closed it begins nothing;
            // its end could not be proven while it is stopped.
            let _ = self.guard.close();
            return;
        }
        self.guard.revoke(self.map.inside(self.side.other()), self.pid, ended);
    }
}

#[cfg(test)]
mod tests;
