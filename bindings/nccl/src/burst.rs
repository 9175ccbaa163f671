//! Small sends that leave together.
//!
//! NCCL's proxy posts at most one send of each operation in a pass and then tests the oldest, so a send that leaves at its first
//! test never meets another one, and each costs a system call. One that is posted back to back with the one before waits
//! therefore, and so does the first after such, which may begin another window: until a test of its comm that no post came
//! before, until [`TOGETHER`] bytes are there, or until the plugin was tested [`PATIENCE`] times for whatever request. A caller
//! that waits for something else makes these too, so no send waits for a test of its own. All other small ones leave at once.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

/// Sends are back to back when their thread has made at most so many tests between them, the one before still has to report...
const NEAR: u32 = 16;

/// ... or at most so many where it has: a pass of NCCL's proxy makes one. Within a round trip a thread makes more, the shortest (TCP on
/// one host) not many.
const NEXT: u32 = 2;

/// Tests after which all that waits leaves.
const PATIENCE: u32 = 32;

/// Bytes that wait on a comm at most, without heads.
const TOGETHER: usize = 16 << 10;

/// Comms whose sends wait at a time; those of more leave at once.
const COMMS: usize = 16;

thread_local! {
    /// Tests that this thread has made of any request.
    static TESTS: Cell<u32> = const { Cell::new(0) };
}

/// When a send that is posted leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// At once, and what waits with it.
    Now,
    /// With the first test: a large one beside others, whose copies go to the kernel together.
    Soon,
    /// With others, as above.
    Together,
}

/// What a send comm knows of its posts and tests.
pub(crate) struct Burst {
    /// Tests of the thread when the last send was posted.
    posted_at: u32,
    /// When the last send was posted, all before it had reported.
    alone: bool,
    /// A send was posted that waits for others, and nothing was tested since.
    posted: bool,
    bytes: usize,
    /// It is among the comms of [`Bursts`].
    listed: bool,
}

impl Burst {
    pub(crate) fn new() -> Burst {
        Burst { posted_at: TESTS.get().wrapping_sub(NEAR + 1), alone: true, posted: false, bytes: 0, listed: false }
    }

    /// A send of `len` bytes is about to be posted on `comm`; it is `alone` where all before it have reported.
    #[inline]
    pub(crate) fn posts(&mut self, len: usize, alone: bool, comm: usize, bursts: &Bursts) -> Leave {
        let tests = TESTS.get();
        let near = if alone { NEXT } else { NEAR };
        let was_alone = std::mem::replace(&mut self.alone, alone);
        let near = alone && !was_alone || tests.wrapping_sub(self.posted_at) <= near;
        self.posted_at = tests;
        let bytes = self.bytes.saturating_add(len);
        let small = len <= TOGETHER;
        self.posted = small && near && bytes <= TOGETHER && self.listed(comm, bursts);
        self.bytes = if self.posted { bytes } else { 0 };
        if self.posted {
            Leave::Together
        } else if small || alone && was_alone || !self.listed(comm, bursts) {
            Leave::Now
        } else {
            Leave::Soon
        }
    }

    fn listed(&mut self, comm: usize, bursts: &Bursts) -> bool {
        self.listed = self.listed || bursts.add(comm);
        self.listed
    }

    /// A send is tested. Returns whether what waits goes on waiting.
    #[inline]
    pub(crate) fn tests(&mut self) -> bool {
        let posted = std::mem::take(&mut self.posted);
        if !posted {
            self.bytes = 0;
        }
        posted
    }

    /// What waited has left, and the comm is listed no more.
    pub(crate) fn left(&mut self) {
        (self.posted, self.bytes, self.listed) = (false, 0, false);
    }
}

/// The comms of a plugin that have sends which wait.
pub(crate) struct Bursts {
    /// Tests until they leave; 0: none wait. Threads may overwrite each other's count: it is a bound, and not exact.
    tests: AtomicU32,
    comms: Mutex<[usize; COMMS]>,
}

impl Bursts {
    pub(crate) const fn new() -> Bursts {
        Bursts { tests: AtomicU32::new(0), comms: Mutex::new([0; COMMS]) }
    }

    /// False where there is no place, or another thread is at it: nobody waits for a lock to post.
    #[cold]
    fn add(&self, comm: usize) -> bool {
        let Ok(mut comms) = self.comms.try_lock() else { return false };
        let Some(place) = comms.iter_mut().find(|place| **place == 0) else { return false };
        *place = comm;
        if self.tests.load(Ordering::Relaxed) == 0 {
            self.tests.store(PATIENCE, Ordering::Relaxed);
        }
        true
    }

    /// Before a comm is closed: no other thread uses it for its burst from then on.
    pub(crate) fn remove(&self, comm: usize) {
        let mut comms = self.comms.lock().unwrap_or_else(PoisonError::into_inner);
        comms.iter_mut().filter(|place| **place == comm).for_each(|place| *place = 0);
    }

    /// A request is tested. Calls `leave` for each comm when it is time; none of them is removed meanwhile.
    #[inline]
    pub(crate) fn tested(&self, leave: impl FnMut(usize)) {
        TESTS.set(TESTS.get().wrapping_add(1));
        let tests = self.tests.load(Ordering::Relaxed);
        if tests > 0 {
            self.tests.store(tests - 1, Ordering::Relaxed);
            if tests == 1 {
                self.leave(leave);
            }
        }
    }

    #[cold]
    fn leave(&self, leave: impl FnMut(usize)) {
        let mut comms = match self.comms.try_lock() {
            Ok(comms) => comms,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // With the next test.
                self.tests.store(1, Ordering::Relaxed);
                return;
            }
        };
        self.tests.store(0, Ordering::Relaxed);
        std::mem::replace(&mut *comms, [0; COMMS]).into_iter().filter(|comm| *comm != 0).for_each(leave);
    }
}

#[cfg(test)]
mod tests;
