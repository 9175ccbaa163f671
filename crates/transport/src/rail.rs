//! What a transport offers: a rail, one connection over one path.

use std::any::Any;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use linkspan_proto::Head;
use linkspan_proto::conn::{Access, RemoteSlice};

use crate::gpu::{DeviceQueue, Gpu, GpuError};
use crate::{MemSlice, MemoryDomain, Registrar};

/// The transport cannot take more at the moment. Not an error: progress, then ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// What a rail can do, by ability and not by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Payload is written by the network or the peer without the receiving process running.
    pub one_sided: bool,
    /// Device (GPU) memory may be the source and destination of chunks.
    pub device_memory: bool,
    /// Chunks and control messages arrive in the order in which they were accepted.
    pub ordered: bool,
    /// Chunk size this rail likes best, bytes; at most `linkspan_proto::head::CHUNK_MAX`.
    pub chunk: usize,
    /// Expected speed, bytes per second, as the link reports it; 0 when unknown.
    pub speed: u64,
    /// Both ends are on one host.
    pub local: bool,
    /// The end of the peer's process ends the rail at once, as the kernel tells of streams and of processes of this host.
    pub tells_end: bool,
}

/// What a rail is, for people: made once, when it comes up.
#[derive(Clone, Debug)]
pub struct RailInfo {
    /// Transport: `tcp`, `shm`, `verbs`, ...
    pub transport: &'static str,
    /// The very path: interfaces and addresses, as in `eth0 10.0.0.1:4000 -> 10.0.0.2:5000`.
    pub path: String,
    /// Why this path was taken, as in `same subnet` or `same host`.
    pub reason: String,
    /// Its abilities.
    pub caps: Caps,
    /// Name of the network interface that it goes through.
    pub interface: String,
    /// It stands by behind better ones: a connection gives it no chunk until [`crate::Conn::switch_standby`].
    pub standby: bool,
    /// The plug of this host that its cable is in, where one that was lost comes back over that plug alone and by itself.
    pub plug: Option<String>,
}

impl RailInfo {
    /// A rail whose path begins with the name of its interface.
    pub fn new(transport: &'static str, path: String, reason: String, caps: Caps) -> RailInfo {
        let interface = path.split(' ').next().unwrap_or_default().to_owned();
        RailInfo { transport, path, reason, caps, interface, standby: false, plug: None }
    }
}

/// A rail of any transport.
pub type BoxRail = Box<dyn Rail + Send>;

impl fmt::Debug for dyn Rail + Send + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.info().transport, self.info().path)
    }
}

/// How the path under a rail does, as far as its transport can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Nothing has been acknowledged for so long that the path is dead, not merely disturbed.
    pub dead: bool,
    /// Packets sent again so far.
    pub retransmitted: u64,
    /// Time since anything came from the peer, acknowledgements too; `None` where that is not known.
    pub heard: Option<Duration>,
}

/// The rail carries nothing any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Down {
    /// The peer process ended, or closed the rail without a close message.
    #[error("LS0101 the peer at {path} is gone: {why}")]
    PeerGone {
        /// The path as in [`RailInfo`].
        path: String,
        /// What proved it: `end of stream`, `connection reset`, `process ended`, ...
        why: String,
    },
    /// The operating system refused a call.
    #[error("LS0102 {call} on {path} failed")]
    System {
        /// The call.
        call: &'static str,
        /// The path.
        path: String,
        /// The OS error.
        #[source]
        source: std::io::Error,
    },
    /// The peer sent what a correct peer never sends.
    #[error("LS0103 the peer at {path} broke the protocol: {why}")]
    Protocol {
        /// The path.
        path: String,
        /// What it did.
        why: String,
    },
    /// The device whose memory the rail moves has failed.
    #[error("LS0104 the device behind {path} failed: {why}")]
    Device {
        /// The path.
        path: String,
        /// The device's error.
        why: String,
    },
}

impl Down {
    /// The path of the rail that went down.
    pub fn path(&self) -> &str {
        match self {
            Down::PeerGone { path, .. }
            | Down::System { path, .. }
            | Down::Protocol { path, .. }
            | Down::Device { path, .. } => path,
        }
    }
}

/// A message from the peer that breaks the protocol; the rail it came on is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

/// Where a rail brings what arrives. [`crate::Conn`] is the one that matters; tests have smaller ones.
pub trait Sink {
    /// Whether the message with this head may be brought now. If not, it is asked about again before any other is brought. Asked by rails
    /// that place chunks before those in front of them have landed, and by those that bring what goes on to another thread or rail.
    fn ready(&mut self, _: &Head) -> bool {
        true
    }

    /// A control message with its whole payload.
    ///
    /// # Errors
    /// [`Violation`]: the message breaks the protocol.
    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation>;

    /// The head of a chunk has come: where do its `head.len` bytes go? `None`: nowhere any more (its receive was
    /// revoked), drain them into scratch. The answer holds until `landed` or until the rail is dropped.
    ///
    /// # Errors
    /// [`Violation`]: the head breaks the protocol.
    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation>;

    /// All bytes of the chunk are in place and visible. Chunks land in the order in which they were placed; the next
    /// ones may be placed before one has landed, up to 512 at a time.
    ///
    /// # Errors
    /// [`Violation`]: the chunk breaks the protocol.
    fn landed(&mut self, head: &Head) -> Result<(), Violation>;
}

/// Whether a poll found anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Something arrived or left.
    Active,
    /// Nothing did.
    Idle,
}

/// What a caller that wants to sleep waits for.
#[derive(Clone, Copy, Debug)]
pub struct WaitFd {
    /// Descriptor for poll(2).
    pub fd: RawFd,
    /// Wake when it can be read.
    pub read: bool,
    /// Wake when it can be written.
    pub write: bool,
}

/// What a rail that does not promise to reach all of a device's memory reaches of it all the same.
///
/// # Safety
/// An implementation touches no memory through what it is asked about, and keeps no handle on it.
#[allow(unsafe_code)]
pub unsafe trait DeviceReach: Send {
    /// Whether the rail moves these bytes by itself: to send from, or with `target`, to land in. Takes no lock where nothing was
    /// registered since it was asked last.
    fn reaches(&mut self, mem: MemSlice, target: bool) -> bool;
}

/// One connection of one transport. Driven by one thread at a time; nothing here blocks, and after set-up nothing
/// allocates, locks or logs.
///
/// Items (control messages and chunks) are numbered from 1 in the order in which they were accepted.
/// Local memory of a chunk belongs to the rail until [`Rail::taken`] has reached its number.
/// Dropping a rail ends every access to local memory before `drop` returns.
///
/// # Safety
/// Whoever has a [`MemSlice`] may touch the memory, and the handle keeps nothing alive. So an implementation
/// - reads the body of [`Rail::ctrl`] within the call only, and never writes to it;
/// - reads a source of [`Rail::data`] until [`Rail::taken`] has reached its item, and never writes to it;
/// - touches a place of [`Sink::place`] until it has landed, [`Rail::prepare`]'s memory and that of [`Rail::granted`] only by
///   way of chunks;
/// - has memory of [`Rail::exposed`] touched by the peer alone, and until [`Rail::unexposed`] has answered true;
/// - touches memory of [`Rail::copy_alone`] within the call only;
/// - gives no handle to anything that may touch the memory later than that;
/// - has ended every access, of devices, helper threads and the peer too, when its `drop` returns.
#[allow(unsafe_code)]
pub unsafe trait Rail {
    /// What this rail is.
    fn info(&self) -> &RailInfo;

    /// Accepts a control message: `head` (`head.len == body.len()`, at most `EAGER_MAX`) and `body`, which is
    /// copied before the call returns. Returns the item's number.
    ///
    /// # Errors
    /// [`Busy`]: the rail takes nothing more at the moment; try again after [`Rail::poll`].
    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy>;

    /// Accepts a chunk: `head` (`head.len == src.len()`) and its payload, which the rail reads later.
    ///
    /// # Errors
    /// [`Busy`]: the rail takes nothing more at the moment; try again after [`Rail::poll`].
    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy>;

    /// Chunks will be cut from this memory, or (`target`) land in it: the whole of it, where the chunks are parts. For
    /// transports that register memory. A hint: nothing depends on it, and it may come more than once.
    fn prepare(&mut self, mem: MemSlice, target: bool) {
        let _ = (mem, target);
    }

    /// A receive of ours was granted to the peer under `id`, and what is sent into it lands in `mem`, at the offsets that
    /// the chunks' heads say. A transport whose peer can write by itself may tell it the place ahead, so that it need not ask;
    /// chunks are placed and land as ever. The grant ends with the receive, which is said with [`MemSlice::NONE`], or with the rail. A
    /// hint: nothing depends on it, and it may come more than once.
    fn granted(&mut self, id: u32, mem: MemSlice) {
        let _ = (id, mem);
    }

    /// The peer may use memory of ours under `key`, with these rights. A transport whose peer can copy by itself may let it: see
    /// [`Rail::copy_alone`]. A hint, ended by [`Rail::unexposed`] or with the rail.
    fn exposed(&mut self, key: u32, mem: MemSlice, access: Access) {
        let _ = (key, mem, access);
    }

    /// It may not any more. False: a copy that it makes by itself may be under way; ask again before the memory is used otherwise.
    fn unexposed(&mut self, key: u32) -> bool {
        let _ = key;
        true
    }

    /// Copies all of `mem` to (`write`) or from a place that the peer exposes, where this rail can do that at once, without the peer, and
    /// cheaper than by a message that would wake it. False: nothing is known to have been copied; it is to go by messages.
    fn copy_alone(&mut self, mem: MemSlice, place: RemoteSlice, write: bool) -> bool {
        let _ = (mem, place, write);
        false
    }

    /// Bytes that the peer has copied by itself into our memory, and out of it, since this was asked last, as it says: for counters.
    fn copied_by_peer(&mut self) -> [u64; 2] {
        [0; 2]
    }

    /// Number of the last item that has left for good: its memory may be reused and no further call is needed for
    /// it to arrive, as long as the peer is alive.
    fn taken(&self) -> u64;

    /// Hands accepted items to the medium as far as it takes them now.
    ///
    /// # Errors
    /// [`Down`]: the rail can carry nothing any more.
    fn flush(&mut self) -> Result<Poll, Down>;

    /// Brings what has arrived to `sink`, a bounded amount per call.
    ///
    /// # Errors
    /// [`Down`]: the rail can carry nothing any more.
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down>;

    /// Prepares for sleep: returns what to wait for, or `None` when there is work already. Spurious wake-ups are
    /// allowed, lost ones are not. The preparation is undone by the next `poll`.
    fn arm(&mut self) -> Option<WaitFd>;

    /// Whether the path itself has stopped carrying (as opposed to a peer that is silent or slow), as far as the transport
    /// can tell. Asked rarely, only while there are other rails; such a rail is closed once one of them has been heard of.
    fn stalled(&mut self) -> bool {
        false
    }

    /// The connection is lost: what was sent last need not arrive, and the drop that follows waits for no word of the peer.
    fn abandon(&mut self) {}

    /// The peer says over another rail that it has closed its end of this one: the drop that follows says nothing and waits for nothing.
    fn closed_by_peer(&mut self) {}

    /// How the path does. Asked some ten times a second; at most a system call.
    fn health(&self) -> Health {
        Health::default()
    }

    /// What has come to this host by now is found by the next [`Rail::poll`], also where another thread reads it.
    fn catch_up(&mut self) {}

    /// A line for people that was not given yet: a downgrade, a lack of something.
    fn event(&mut self) -> Option<String> {
        None
    }

    /// What registers memory with the device under it, ahead of the operations that use it.
    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        None
    }

    /// Tells which device memory it reaches, where some of it may be: ranges that were registered with its card.
    fn reach(&self) -> Option<Box<dyn DeviceReach>> {
        None
    }

    /// Whether its card fills device memory that nobody registered with it, so that what has arrived must be flushed before the GPU
    /// looks; of what was registered that is known.
    fn writes_devices(&self) -> bool {
        false
    }

    /// The rail itself, for a relay of its transport, which joins two. `None`: there is no such relay.
    fn into_any(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// Names the GPU whose memory it carries from now on, beside host memory. Set-up: may take long.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`]: it reaches host memory only. [`GpuError::OtherDevice`]: it has another GPU already. Any other
    /// [`GpuError`] of the device.
    fn attach(&mut self, gpu: &Arc<dyn Gpu>) -> Result<(), GpuError> {
        if self.info().caps.device_memory {
            return Ok(());
        }
        Err(GpuError::Unsupported {
            device: gpu.info().id(),
            what: "have its memory moved over this connection",
            why: format!("{} reaches host memory only and staging is off (LINKSPAN_GPU)", self.info().transport),
        })
    }

    /// Where in a GPU's memory a card leaves payload in pieces, if it does: the domain, and the first address.
    fn pool(&self) -> Option<(MemoryDomain, u64)> {
        None
    }

    /// NCCL's kernels put in place what this queue tells them of, for rails with a [`Rail::pool`].
    fn offload(&mut self, queue: &Arc<dyn DeviceQueue>) {
        let _ = queue;
    }
}
