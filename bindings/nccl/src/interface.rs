//! What a plugin implements: the newest shape of the interface, without pointers.

use std::ffi::CStr;

use crate::abi::NetAttr;
use crate::{Fail, Logger, Part, Props, RecvHints, RegisterRange};

/// Bytes of a listen handle that belong to the plugin. Of NCCL's 128, the last eight remember the connect attempt.
pub const HANDLE_LEN: usize = crate::abi::HANDLE_MAXSIZE - 8;

/// Most buffers in one receive; more in `Props::max_recvs` are cut to this.
pub const MAX_RECVS: usize = 8;

/// What NCCL says when a communicator starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// The communicator's number; `None` below v11, where all communicators share one context.
    pub comm_id: Option<u64>,
    /// Traffic class for all connections of this communicator; in v10 it comes with connect.
    pub traffic_class: Option<u8>,
    /// Version of the table that NCCL took.
    pub version: u32,
}

/// An established direction of a connection.
#[derive(Debug)]
pub struct Opened<T, D> {
    /// The data path, driven by NCCL's progress thread.
    pub path: T,
    /// Where memory is registered for it, from NCCL's service thread and at the same time.
    pub domain: D,
}

/// The shared queue of a receive comm of which NCCL's kernels unpack what it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceQueue {
    /// Where the GPU finds `unpackNetDeviceHandle`.
    pub address: u64,
    /// Its bytes.
    pub len: usize,
}

/// What [`Connecting::poll`] gives.
pub type OpenedSend<P> = Opened<<P as NetPlugin>::Send, <P as NetPlugin>::Domain>;

/// What [`ListenComm::accept`] gives.
pub type OpenedRecv<P> = Opened<<P as NetPlugin>::Recv, <P as NetPlugin>::Domain>;

/// The plugin: made at the first init, dropped after the last finalize (below v11: when the library is unloaded).
///
/// Every method may be called from several threads at once, as far as its receiver type allows; nothing may block
/// or wait for the peer. A panic reaches NCCL as an internal error.
///
/// # Safety
/// An implementation touches memory of a registration no longer than the registration lives.
pub unsafe trait NetPlugin: Sized + Send + Sync + 'static {
    /// Name for `NCCL_NET`, which NCCL compares without regard to case.
    const NAME: &'static CStr;
    /// Whether NCCL may merge devices ([`NetPlugin::merge`]).
    const MERGES: bool = false;

    /// What belongs to one communicator (all of them below v11). Dropped at finalize, after every comm in it.
    type Ctx: Send + Sync;
    /// A listen comm. Dropping it closes it.
    type Listen: ListenComm<Self>;
    /// A connect in progress. Dropping it cancels it.
    type Connecting: Connecting<Self>;
    /// A send comm. Dropping it closes it, with requests in flight too.
    type Send: SendComm<Mr = Self::Mr>;
    /// A receive comm. Dropping it closes it, with requests in flight too.
    type Recv: RecvComm<Mr = Self::Mr>;
    /// Where the memory of one comm is registered.
    type Domain: Send + Sync;
    /// A registration.
    type Mr: Send + Sync;

    /// Finds the devices. Anything but success lets NCCL silently take another plugin.
    fn load(log: Logger) -> Result<Self, Fail>;

    /// Number of devices.
    fn devices(&self) -> usize;

    /// Properties of device `dev`, which is below [`NetPlugin::devices`]. The same answer every time.
    fn properties(&self, dev: usize) -> Result<Props, Fail>;

    /// A communicator starts.
    fn open(&self, init: Init) -> Result<Self::Ctx, Fail>;

    /// Listens on `dev` and fills `handle` (zeroed before), which travels to the peer. Returns at once.
    fn listen(&self, ctx: &Self::Ctx, dev: usize, handle: &mut [u8; HANDLE_LEN]) -> Result<Self::Listen, Fail>;

    /// Begins to connect from `dev` to the listener of `handle`; [`Connecting::poll`] goes on. Must not wait for
    /// accept: NCCL connects to itself from one thread. `handle` comes from the peer and is not to be trusted.
    fn connect(
        &self,
        ctx: &Self::Ctx,
        dev: usize,
        traffic_class: Option<u8>,
        handle: &[u8; HANDLE_LEN],
    ) -> Result<Self::Connecting, Fail>;

    /// Registers memory, from the service thread, while the data path runs.
    fn register(domain: &Self::Domain, region: RegisterRange<'_>) -> Result<Self::Mr, Fail>;

    /// Ends a registration. Operations that used it are done or were revoked ([`SendComm::revoke`]).
    fn deregister(domain: &Self::Domain, mr: Self::Mr) -> Result<(), Fail> {
        let _ = (domain, mr);
        Ok(())
    }

    /// Merges devices into a new one and returns its number; it answers `properties` from then on.
    fn merge(&self, members: &[usize]) -> Result<usize, Fail> {
        let _ = members;
        Err(Fail::InvalidUsage)
    }

    /// How the communicator will use the network (since v11); hints only.
    fn attributes(&self, ctx: &Self::Ctx, attr: NetAttr) -> Result<(), Fail> {
        let _ = (ctx, attr);
        Ok(())
    }
}

/// A listen comm, driven by the service thread.
pub trait ListenComm<P: NetPlugin>: Send {
    /// The next established connection, or `None` as long as there is none. NCCL may accept several.
    fn accept(&mut self) -> Result<Option<OpenedRecv<P>>, Fail>;

    /// Whether its device said that NCCL's kernels unpack ([`Props::unpack_since`]).
    fn unpacks(&self) -> bool {
        false
    }
}

/// A connect in progress, driven by the service thread.
pub trait Connecting<P: NetPlugin>: Send {
    /// The established connection, or `None` as long as it is not. An error ends the attempt.
    fn poll(&mut self) -> Result<Option<OpenedSend<P>>, Fail>;
}

/// The data path of a send comm. Nothing here may block, allocate or log while all is well.
///
/// # Safety
/// Memory of a request is touched until it was reported done, [`SendComm::revoke`] was called with its registration, or the
/// comm was dropped; no handle is given to anything that may touch it later.
pub unsafe trait SendComm: Send {
    /// A registration.
    type Mr;

    /// Starts a send. Returns a ticket that [`SendComm::test`] gets, or `None` when nothing can start now. The memory
    /// may be read until the ticket was reported done.
    fn isend(&mut self, part: Part<'_, Self::Mr>) -> Result<Option<u64>, Fail>;

    /// Makes progress. `Some(bytes)` when the send is done, which needs no further call from NCCL to arrive; the
    /// ticket is dead after it. Tickets are tested in any order.
    fn test(&mut self, ticket: u64) -> Result<Option<usize>, Fail>;

    /// `true`: sends that are posted from now on need not leave by a test, for more follow. `false`: what waits for that leaves.
    fn hold(&mut self, on: bool) {
        let _ = on;
    }

    /// What was posted leaves.
    fn flush(&mut self) {}

    /// NCCL takes this memory away while requests use it (abort): no byte of it may be touched after the return.
    /// Failing or dropping everything in flight is fine.
    fn revoke(&mut self, mr: &Self::Mr);
}

/// The data path of a receive comm. Nothing here may block, allocate or log while all is well.
///
/// # Safety
/// As [`SendComm`].
pub unsafe trait RecvComm: Send {
    /// A registration.
    type Mr;

    /// Posts 1 to [`MAX_RECVS`] buffers as one request. Returns a ticket, or `None` when nothing can start now. The
    /// memory may be written until the ticket was reported done.
    fn irecv(&mut self, parts: &[Part<'_, Self::Mr>], hints: RecvHints) -> Result<Option<u64>, Fail>;

    /// NCCL asks for its own kernels to unpack on this comm, once, before anything is received. `None`: this comm puts everything
    /// in place itself, and NCCL's kernels do nothing.
    fn unpack_queue(&mut self) -> Option<DeviceQueue> {
        None
    }

    /// Whether a receive that is done waits for [`RecvComm::consumed`]: its ticket lives until then.
    fn waits_for_kernel(&self, ticket: u64) -> bool {
        let _ = ticket;
        false
    }

    /// NCCL's kernel has read what the receive left for it.
    fn consumed(&mut self, ticket: u64) -> Result<(), Fail> {
        let _ = ticket;
        Ok(())
    }

    /// Makes what was received visible to the GPU. `None`: it is already.
    fn flush(&mut self, parts: &[Part<'_, Self::Mr>]) -> Result<Option<u64>, Fail> {
        let _ = parts;
        Ok(None)
    }

    /// Makes progress. True when the request is done, with the bytes received in `sizes` (one per part, 0 before);
    /// the ticket is dead after it. Tickets of receives and flushes are tested in any order.
    fn test(&mut self, ticket: u64, sizes: &mut [usize]) -> Result<bool, Fail>;

    /// As [`SendComm::revoke`].
    fn revoke(&mut self, mr: &Self::Mr);
}
