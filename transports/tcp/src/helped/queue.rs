//! What a rail's caller and its helper thread share, and what they say to each other.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64};

use linkspan_proto::Head;
use linkspan_shmring::doorbell;
use linkspan_transport::{End, MemSlice};
use rustix::event::{EventfdFlags, eventfd};

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
    /// The caller sleeps; see [`doorbell`].
    pub(crate) asleep: AtomicU64,
    /// What it sleeps on.
    pub(crate) doorbell: OwnedFd,
}

impl WorkerQueue {
    pub(crate) fn new() -> io::Result<WorkerQueue> {
        Ok(WorkerQueue {
            taken: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            look: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            asleep: AtomicU64::new(0),
            doorbell: new_doorbell()?,
        })
    }

    /// The thread, after it has told something: wakes the caller where it sleeps.
    pub(crate) fn notify(&self) {
        notify(&self.asleep, &self.doorbell);
    }

    /// The caller: it sleeps no longer.
    pub(crate) fn awake(&self) {
        awake(&self.asleep, &self.doorbell);
    }
}

pub(crate) fn new_doorbell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

pub(crate) fn notify(asleep: &AtomicU64, fd: &OwnedFd) {
    if doorbell::should_notify(asleep) {
        // It fails only where 2^64 - 2 rings have not been heard, and then it rings all the same.
        let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
    }
}

pub(crate) fn awake(asleep: &AtomicU64, fd: &OwnedFd) {
    doorbell::disarm(asleep);
    // Nothing to read where it was not signalled.
    let _ = rustix::io::read(fd, &mut [0; 8]);
}
