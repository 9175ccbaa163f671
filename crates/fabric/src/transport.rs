//! One enum over the rails of all transports. A new transport needs a variant here and more elsewhere: CONTRIBUTING.md,
//! "Adding things", lists the places.

use std::time::Duration;

use linkspan_proto::Head;
use linkspan_shm::ShmRail;
use linkspan_tcp::{HelpedRail, SealedRail, TcpInfo, TcpRail};
use linkspan_thunderbolt::CableRail;
use linkspan_transport::{Busy, DeviceReach, Down, MemSlice, Poll, Rail, RailInfo, Sink, WaitFd};
use linkspan_verbs::VerbsRail;
use linkspan_verbs_sys::AnyNic;

use crate::standby::Standby;

/// Retransmissions or probes in a row that nothing has answered: they begin 0.2 s apart (or at the round trip) and double, so
/// six are 12.6 s or more. A peer that is stopped, or whose window is full, has a kernel that answers.
const UNANSWERED: u8 = 6;

/// The same where round trips are long and six would take minutes: the wait that the sixth at 0.2 s is at. As it has doubled since the
/// first, what has been waited for in all is nearly as much.
const WAIT: Duration = Duration::from_millis(12_800);

/// Least retransmissions for that: chance losses do not get there.
const FEW: u8 = 3;

/// A rail of any transport.
pub enum AnyRail {
    /// TCP.
    Tcp(TcpRail),
    /// TCP, its socket served by a helper thread.
    Helped(HelpedRail),
    /// TCP, encrypted.
    Sealed(SealedRail),
    /// Shared memory.
    Shm(ShmRail),
    /// Device-memory TCP.
    Devmem(Box<crate::devmem::Rail>),
    /// RDMA.
    Verbs(Box<VerbsRail<AnyNic>>),
    /// A Thunderbolt or USB4 cable.
    Thunderbolt(CableRail),
    /// TCP behind one of those two: carries chunks when nothing else is left.
    Standby(Standby),
}

macro_rules! each {
    ($self:ident, $rail:ident => $call:expr) => {
        match $self {
            AnyRail::Tcp($rail) => $call,
            AnyRail::Helped($rail) => $call,
            AnyRail::Sealed($rail) => $call,
            AnyRail::Shm($rail) => $call,
            AnyRail::Devmem($rail) => $call,
            AnyRail::Verbs($rail) => $call,
            AnyRail::Thunderbolt($rail) => $call,
            AnyRail::Standby($rail) => $call,
        }
    };
}

#[allow(unsafe_code)]
// SAFETY: each call goes to the rail inside, which keeps the promise.
unsafe impl Rail for AnyRail {
    fn info(&self) -> &RailInfo {
        each!(self, r => r.info())
    }

    #[inline]
    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        each!(self, r => r.ctrl(head, body))
    }

    #[inline]
    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        each!(self, r => r.data(head, src))
    }

    fn prepare(&mut self, mem: MemSlice, target: bool) {
        each!(self, r => r.prepare(mem, target))
    }

    fn granted(&mut self, id: u32, mem: MemSlice) {
        each!(self, r => r.granted(id, mem))
    }

    #[inline]
    fn taken(&self) -> u64 {
        each!(self, r => r.taken())
    }

    #[inline]
    fn flush(&mut self) -> Result<Poll, Down> {
        each!(self, r => r.flush())
    }

    #[inline]
    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<Poll, Down> {
        each!(self, r => r.poll(sink))
    }

    fn arm(&mut self) -> Option<WaitFd> {
        each!(self, r => r.arm())
    }

    fn stalled(&mut self) -> bool {
        each!(self, r => r.stalled())
    }

    fn reach(&self) -> Option<Box<dyn DeviceReach>> {
        each!(self, r => r.reach())
    }
}

impl AnyRail {
    /// What has come to this host is found by the next poll, also where another thread reads it.
    pub(crate) fn look(&self) {
        if let AnyRail::Helped(rail) = self {
            rail.look();
        }
    }

    /// Name of the network interface that it goes through. A queue pair's path names its device, which is another thing than
    /// the interface that its port is on; other paths begin with it.
    pub(crate) fn interface(&self) -> &str {
        match self {
            AnyRail::Verbs(rail) if !rail.interface().is_empty() => rail.interface(),
            other => first_word(&other.info().path),
        }
    }

    /// What the kernel knows of the stream; `None` where there is none. A system call.
    pub(crate) fn tcp_info(&self) -> Option<TcpInfo> {
        match self {
            AnyRail::Tcp(rail) => rail.tcp_info().ok(),
            AnyRail::Helped(rail) => rail.tcp_info().ok(),
            AnyRail::Sealed(rail) => rail.tcp_info().ok(),
            AnyRail::Devmem(rail) => rail.control().tcp_info().ok(),
            AnyRail::Standby(rail) => rail.tcp_info().ok(),
            AnyRail::Shm(_) | AnyRail::Verbs(_) | AnyRail::Thunderbolt(_) => None,
        }
    }

    /// Whether the end of the peer's process ends the rail at once, as the kernel tells of streams and of processes of this host.
    pub(crate) fn tells_end(&self) -> bool {
        !matches!(self, AnyRail::Verbs(_) | AnyRail::Thunderbolt(_))
    }

    /// Whether nothing has been acknowledged for so long that the way is dead, not merely disturbed.
    pub(crate) fn unanswered(&self) -> bool {
        match self {
            // Not every card stops retransmitting by itself, rdma_rxe does not.
            AnyRail::Verbs(rail) => rail.unanswered(),
            other => other.tcp_info().is_some_and(|info| is_dead(&info)),
        }
    }
}

fn is_dead(info: &TcpInfo) -> bool {
    info.timeouts.max(info.probes) >= UNANSWERED || info.timeouts >= FEW && info.wait >= WAIT
}

/// The interface that a path begins with.
pub(crate) fn first_word(path: &str) -> &str {
    path.split(' ').next().unwrap_or_default()
}

impl std::fmt::Debug for AnyRail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AnyRail({} {})", self.info().transport, self.info().path)
    }
}

#[cfg(test)]
mod tests;
