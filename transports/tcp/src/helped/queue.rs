//! What a rail's caller and its helper thread share, and what they say to each other.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64};

use linkspan_net::Notifier;
use linkspan_proto::Head;
use linkspan_shmring::doorbell;
use linkspan_transport::{End, MemSlice, WaitFd};

/// Items and arrivals under way, each. A chunk has at most two arrivals; of small messages more than a credit of the
/// largest number (64 KiB in messages without content) comes in bursts only.
pub(crate) const ITEMS: usize = 1024;

/// Bytes of bodies under way, each way: 32 messages of the largest size, as in the rail itself.
pub(crate) const BYTES: usize = 256 << 10;

/// To the thread.
pub(crate) enum WorkerCommand {
    /// A control message; its body is in the ring of bytes.
    Ctrl(Head),
    /// A chunk; its payload is the thread's until the item is taken.
    Data(Head, MemSlice),
}

/// From the thread.
pub(crate) enum WorkerEvent {
    /// A control message; its text is in the ring of bytes.
    Ctrl(Head),
    /// Where does this chunk go? One answer is owed.
    Ask(Head),
    /// The chunk is in its place.
    Landed(Head),
    /// Nothing comes any more.
    End(End),
}

/// Shared by both.
pub(crate) struct WorkerQueue {
    /// Items that have left for good.
    pub(crate) taken: AtomicU64,
    /// The rail is being dropped.
    pub(crate) stop: AtomicBool,
    /// The thread has let go of everything.
    pub(crate) gone: AtomicBool,
    /// Number of the caller's last call for a look at the socket, and of the last one that was answered.
    pub(crate) look: AtomicU64,
    pub(crate) looked: AtomicU64,
    /// The caller, which the thread wakes.
    pub(crate) caller: Sleeper,
}

impl WorkerQueue {
    pub(crate) fn new() -> io::Result<WorkerQueue> {
        Ok(WorkerQueue {
            taken: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            look: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            caller: Sleeper::new()?,
        })
    }
}

/// One of the two threads of a rail: it sleeps where it has nothing to do, and the other wakes it. No system call while it is awake.
#[derive(Debug)]
pub(crate) struct Sleeper {
    /// See [`doorbell`].
    asleep: AtomicU64,
    notifier: Notifier,
}

impl Sleeper {
    pub(crate) fn new() -> io::Result<Sleeper> {
        Ok(Sleeper { asleep: AtomicU64::new(0), notifier: Notifier::new()? })
    }

    /// By the sleeper: announces sleep. All that could be a reason not to sleep is to be looked at afterwards.
    pub(crate) fn arm(&self) {
        doorbell::arm(&self.asleep);
    }

    /// What it sleeps on.
    pub(crate) fn wait_fd(&self) -> WaitFd {
        self.notifier.wait_fd()
    }

    /// By the sleeper: it sleeps no longer.
    pub(crate) fn awake(&self) {
        doorbell::disarm(&self.asleep);
        self.notifier.drain();
    }

    /// By the other, after it has told something: wakes the sleeper where it sleeps.
    pub(crate) fn notify(&self) {
        if doorbell::should_notify(&self.asleep) {
            self.notifier.signal();
        }
    }
}
