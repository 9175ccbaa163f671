//! The rail.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use linkspan_proto::Head;
use linkspan_proto::conn::{Access, RemoteSlice};
use linkspan_shmring::cma::{AccessGuard, Remote};
use linkspan_shmring::{Map, Side};
use linkspan_transport::{Buf, Busy, Down, MemSlice, Poll, Rail, RailInfo, Sink, WaitFd};

use crate::caps::{Config, SLICE_MAX, caps};
use crate::live::Watch;
use crate::memory::PeerMemory;
use crate::recv::Receiver;
use crate::regions::RegionTable;
use crate::send::{Fault, Sender};

/// One end of a connection between two processes through shared memory.
///
/// Not usable in a child of fork(2): there it must neither be driven nor dropped.
#[derive(Debug)]
pub struct ShmRail {
    info: RailInfo,
    send: Sender,
    recv: Receiver,
    reach: PeerMemory,
    regions: RegionTable,
    watch: Watch,
    /// Idle polls since the peer was found gone.
    grace: u8,
    /// That a copy was refused was told.
    told: bool,
}

/// What the set-up found out, for [`ShmRail::new`].
pub(crate) struct Parts {
    pub(crate) map: Map,
    pub(crate) side: Side,
    pub(crate) own_pid: u32,
    pub(crate) peer_pid: u32,
    pub(crate) pidfd: Option<Arc<OwnedFd>>,
    pub(crate) guard: AccessGuard,
    pub(crate) remote: Option<Remote>,
    pub(crate) reason: String,
    pub(crate) config: Config,
}

impl ShmRail {
    pub(crate) fn new(p: Parts, watch: impl FnOnce(&Arc<Map>) -> std::io::Result<Watch>) -> std::io::Result<ShmRail> {
        let map = Arc::new(p.map);
        let watch = watch(&map)?;
        let direct = p.remote.is_some();
        let path = format!("pid {} -> pid {}, ring buffers of {} KiB", p.own_pid, p.peer_pid, map.ring() >> 10);
        let mut info = RailInfo::new("shm", path, p.reason, caps(direct));
        let reach = PeerMemory::new(&map, &p.config, p.side, (p.peer_pid as i32, p.pidfd), p.remote, p.guard);
        if reach.pull_only() {
            info.reason.push_str("; only the receiver copies, since /proc does not show us the peer's threads");
        }
        Ok(ShmRail {
            info,
            send: Sender::new(&map, p.side, &p.config, direct),
            recv: Receiver::new(&map, p.side),
            regions: RegionTable::new(&map, p.side, direct && !reach.pull_only()),
            reach,
            watch,
            grace: 0,
            told: false,
        })
    }

    /// The descriptor that [`Rail::arm`] names, borrowed.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.watch.fd()
    }

    /// The shared memory, for tests and fuzzers with a misbehaving peer.
    #[doc(hidden)]
    pub fn map(&self) -> &Map {
        self.reach.map()
    }

    #[cold]
    fn down(&self, fault: Fault) -> Down {
        let path = self.info.path.clone();
        match fault {
            Fault::CorruptIndex(why) => Down::Protocol { path, why },
            Fault::System(call, source) => Down::System { call, path, source },
            Fault::Gone(why) => Down::PeerGone { path, why: why.into() },
        }
    }

    /// Wakes a sleeping peer where there is something to tell it.
    #[inline]
    fn announce(&mut self, idle: bool) {
        if self.send.unannounced() || self.recv.unannounced(idle) {
            self.watch.notify();
            self.send.announced();
            self.recv.announced();
        }
    }

    fn advance(&mut self) -> Result<bool, Fault> {
        if self.send.is_idle() { Ok(false) } else { self.send.advance(&self.reach) }
    }

    /// What an idle poll finds out about the peer.
    #[inline]
    fn lost(&mut self) -> Option<&'static str> {
        let why = if self.watch.closed() { "it closed the connection" } else { self.watch.lost()? };
        // What it sent or finished before comes first. We are idle, so that can only be what came since; a few rounds
        // of it, so that a misbehaving peer cannot hold this call.
        if self.grace < 16 && (self.recv.could_work() || self.send.could_work()) {
            self.grace += 1;
            return None;
        }
        Some(why)
    }
}

#[allow(unsafe_code)]
// SAFETY: memory of a send is read until `taken` reaches it, a place is written until it has landed; `Tx` and `Rx` drop their handles then, and the drop of the rail waits for copies of the peer (`Slot`).
unsafe impl Rail for ShmRail {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    #[inline]
    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        self.send.ctrl(head, body)
    }

    #[inline]
    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        self.send.data(head, src)
    }

    fn exposed(&mut self, key: u32, mem: MemSlice, access: Access) {
        self.regions.add(key, mem, access);
    }

    fn unexposed(&mut self, key: u32) -> bool {
        self.regions.remove(key)
    }

    fn copy_alone(&mut self, mem: MemSlice, place: RemoteSlice, write: bool) -> bool {
        let fits = mem.is_host() && (1..=SLICE_MAX).contains(&mem.len());
        // Not past what the peer is still to find, which it may be just before it sleeps: small operations keep their order.
        fits && self.watch.peer_sleeps() && self.send.all_found() && self.reach.copy_alone(mem, place, write)
    }

    fn copied_by_peer(&mut self) -> [u64; 2] {
        self.regions.copied()
    }

    #[inline]
    fn taken(&self) -> u64 {
        self.send.taken()
    }

    #[inline]
    fn flush(&mut self) -> Result<Poll, Down> {
        let result = self.advance();
        self.announce(false);
        match result {
            Ok(active) => Ok(if active { Poll::Active } else { Poll::Idle }),
            Err(fault) => Err(self.down(fault)),
        }
    }

    #[inline]
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        self.watch.disarm();
        self.send.polled();
        let active = match self.recv.poll(sink, &self.reach) {
            Ok(active) => active,
            Err(fault) => return Err(self.down(fault)),
        };
        let active = match self.advance() {
            Ok(sent) => active | sent,
            Err(fault) => return Err(self.down(fault)),
        };
        self.announce(!active);
        if active {
            return Ok(Poll::Active);
        }
        match self.lost() {
            None => Ok(Poll::Idle),
            Some(why) => Err(self.down(Fault::Gone(why))),
        }
    }

    fn arm(&mut self) -> Option<WaitFd> {
        self.announce(true);
        let wait = self.watch.arm();
        if self.recv.could_work() || self.send.could_work() || self.watch.closed() {
            self.watch.disarm();
            return None;
        }
        Some(wait)
    }

    /// That memory cannot be copied directly, once: the set-up has said that it can.
    fn event(&mut self) -> Option<String> {
        let error = self.reach.refused().filter(|_| !self.told)?;
        self.told = true;
        Some(format!(
            "{}: some memory cannot be copied directly and goes through the ring buffers, with one copy more: \
             process_vm_readv(2) or process_vm_writev(2): {error}",
            self.info.path
        ))
    }
}

impl Drop for ShmRail {
    fn drop(&mut self) {
        self.watch.close();
        self.send.stop();
        self.recv.stop();
        self.regions.clear();
        self.watch.notify();
        let watch = &self.watch;
        self.reach.quiesce(|| watch.ended());
    }
}

#[cfg(test)]
mod tests;
