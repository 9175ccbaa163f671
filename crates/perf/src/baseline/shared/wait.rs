//! How a side of [`super::Shared`] waits for the other one.

use std::fmt;
use std::hint::spin_loop;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use linkspan_shmring::{Map, Side};
use rustix::thread::futex;

use crate::spec::{SPIN, WaitMode};

/// Asked now and then by a side that waits; an error ends the wait.
pub type Watch = Box<dyn Fn() -> io::Result<()> + Send>;

/// Turns of a spinning side between two questions to its watch; one turn is a few nanoseconds.
const ASK: u32 = 1 << 14;

/// Turns between two looks at the clock.
const LOOK: u32 = 64;

/// Longest sleep before the watch is asked again.
const NAP: Duration = Duration::from_millis(100);

pub(super) struct Waiter {
    map: Arc<Map>,
    me: Side,
    watch: Watch,
    pub(super) wait: WaitMode,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("me", &self.me).field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl Waiter {
    pub(super) fn new(map: &Arc<Map>, me: Side, watch: Watch) -> Waiter {
        Waiter { map: map.clone(), me, watch, wait: WaitMode::Spin }
    }

    /// Waits until it is so.
    pub(super) fn until(&self, ready: impl Fn() -> bool) -> io::Result<()> {
        let (mut turns, mut since) = (0u32, None);
        while !ready() {
            turns = turns.wrapping_add(1);
            let sleep = match self.wait {
                WaitMode::Spin => false,
                WaitMode::Sleep => true,
                WaitMode::Adaptive => {
                    turns.is_multiple_of(LOOK) && since.get_or_insert_with(Instant::now).elapsed() >= SPIN
                }
            };
            if sleep {
                if self.sleep(&ready) {
                    self.ask()?;
                }
            } else {
                spin_loop();
                if turns.is_multiple_of(ASK) {
                    self.ask()?;
                }
            }
        }
        Ok(())
    }

    fn ask(&self) -> io::Result<()> {
        if self.map.closed(self.me.other()).load(Ordering::Acquire) != 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        (self.watch)()
    }

    /// Sleeps until the other side wakes us or the nap is over. True: it was over.
    fn sleep(&self, ready: &impl Fn() -> bool) -> bool {
        let word = self.map.nap(self.me);
        word.store(1, Ordering::Relaxed);
        // Either the other side's fence comes first, then we see what it stored; or ours, then it sees that we sleep.
        fence(Ordering::SeqCst);
        if ready() {
            word.store(0, Ordering::Relaxed);
            return false;
        }
        let nap = futex::Timespec { tv_sec: 0, tv_nsec: NAP.subsec_nanos().into() };
        let woken = futex::wait(word, futex::Flags::empty(), 1, Some(&nap));
        word.store(0, Ordering::Relaxed);
        woken == Err(rustix::io::Errno::TIMEDOUT)
    }

    /// After a store that the other side may be asleep for.
    pub(super) fn wake(&self) {
        if self.wait == WaitMode::Spin {
            return;
        }
        let word: &AtomicU32 = self.map.nap(self.me.other());
        fence(Ordering::SeqCst);
        if word.swap(0, Ordering::Relaxed) != 0 {
            // That there is no sleeper is no error: it woke by itself.
            let _ = futex::wake(word, futex::Flags::empty(), 1);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.map.closed(self.me).store(1, Ordering::Release);
    }
}
