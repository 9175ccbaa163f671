//! A TCP rail on standby behind RDMA ones: up, and without a chunk until it is activated.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use linkspan_net::TcpInfo;
use linkspan_proto::Head;
use linkspan_tcp::TcpRail;
use linkspan_transport::{Busy, Down, MemSlice, Poll, Rail, RailInfo, Sink, WaitFd};

/// A rail on standby.
pub struct Standby {
    rail: TcpRail,
    active: AtomicBool,
}

impl Standby {
    pub(crate) fn new(rail: TcpRail) -> Standby {
        Standby { rail, active: AtomicBool::new(false) }
    }

    /// From now on it carries chunks. Whether it did not before.
    pub(crate) fn activate(&self) -> bool {
        !self.active.swap(true, Ordering::Relaxed)
    }

    /// From now on it carries none. Whether it did before.
    pub(crate) fn deactivate(&self) -> bool {
        self.active.swap(false, Ordering::Relaxed)
    }

    /// Whether it may be given chunks now. What it was given before it is deactivated goes on: with staging before it, that may come late.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    pub(crate) fn tcp_info(&self) -> io::Result<TcpInfo> {
        self.rail.tcp_info()
    }
}

#[allow(unsafe_code)]
// SAFETY: each call goes to the rail inside, which keeps the promise.
unsafe impl Rail for Standby {
    fn info(&self) -> &RailInfo {
        self.rail.info()
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        self.rail.ctrl(head, body)
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        self.rail.data(head, src)
    }

    fn taken(&self) -> u64 {
        self.rail.taken()
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        self.rail.flush()
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<Poll, Down> {
        self.rail.poll(sink)
    }

    fn arm(&mut self) -> Option<WaitFd> {
        self.rail.arm()
    }

    fn stalled(&mut self) -> bool {
        self.rail.stalled()
    }
}
