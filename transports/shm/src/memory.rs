//! What we may do with the peer's memory and the peer with ours, and how ours becomes ours alone again.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_shmring::cma::{AccessGuard, Ranges, Remote};
use linkspan_shmring::map::SlotWords;
use linkspan_shmring::peer::{self, Task, this_thread};
use linkspan_shmring::{Map, Side, slot};

use crate::live::LOOK_EVERY;

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
    /// Nothing could prove that a late writer is gone: then only this process writes its memory.
    pull_only: bool,
    between: Option<fn()>,
}

/// How long a copy that is under way is simply waited for before the guard page is closed: several slices' worth.
const GRACE: Duration = Duration::from_micros(200);

impl PeerMemory {
    /// `remote` is `None` where the ring carries all.
    pub(crate) fn new(
        map: &Arc<Map>,
        side: Side,
        (pid, pidfd): (i32, Option<Arc<OwnedFd>>),
        remote: Option<Remote>,
        guard: AccessGuard,
        between: Option<fn()>,
    ) -> PeerMemory {
        let pull_only = remote.is_some() && Task::new(pid, pid as u64).visible().is_err();
        let looked = Cell::new(Instant::now());
        PeerMemory { map: map.clone(), side, pid, pidfd, looked, remote, guard, pull_only, between }
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

    /// Reads claimed slices.
    pub(crate) fn pull(&self, w: &SlotWords<'_>, generation: u32, ranges: &mut Ranges) -> Copied {
        self.copy(w, generation, |remote| remote.pull_all(ranges))
    }

    /// Writes claimed slices.
    pub(crate) fn push(&self, w: &SlotWords<'_>, generation: u32, ranges: &mut Ranges) -> Copied {
        self.copy(w, generation, |remote| remote.push_all(ranges))
    }

    fn copy(&self, w: &SlotWords<'_>, generation: u32, copy: impl FnOnce(Remote) -> io::Result<()>) -> Copied {
        let Some(remote) = self.remote else {
            return Copied::Stopped;
        };
        let inside = self.map.inside(self.side);
        let result = if slot::enter(inside, this_thread(), w, generation) {
            if let Some(between) = self.between {
                between();
            }
            match self.is_there().then(|| copy(remote)) {
                Some(Ok(())) => Copied::Whole,
                Some(Err(_)) => Copied::Refused,
                None => Copied::Stopped,
            }
        } else {
            Copied::Stopped
        };
        slot::leave(inside);
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
    ///
    /// A peer that is between [`slot::enter`] and [`slot::leave`] is given [`GRACE`]; then the guard page closes, and from
    /// there on only a copy that was inside the kernel already can move bytes. It is over when the peer says so, has
    /// ended, or its thread is seen outside. A peer that reports a wrong thread ends the wait early, and could have written
    /// our memory in any case: the wait protects against correct peers only.
    pub(crate) fn quiesce(&mut self, ended: impl Fn() -> bool) {
        if self.remote.is_none() {
            return;
        }
        let map = self.map.clone();
        let inside = map.inside(self.side.other());
        let start = Instant::now();
        while slot::all_out(inside) != 0 {
            if start.elapsed() > GRACE {
                self.shut_out(inside, ended);
                return;
            }
            std::hint::spin_loop();
        }
    }

    fn shut_out(&mut self, inside: &std::sync::atomic::AtomicU64, ended: impl Fn() -> bool) {
        // A guard page that cannot be closed (no memory for it) leaves the other two ways to know.
        let closed = self.guard.close();
        let who = slot::all_out(inside);
        let task = Task::new(self.pid, who);
        loop {
            if slot::all_out(inside) == 0 || ended() {
                self.guard.reopenable();
                return;
            }
            if closed.is_ok() && task.outside() {
                // It may come late and must find the guard page closed: the address stays taken.
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

#[cfg(test)]
mod tests;
