//! The NIC as the transport sees it.

use std::os::fd::{BorrowedFd, RawFd};

use linkspan_transport::MemSlice;

use crate::{
    Access, AsyncEvent, Completion, Error, GidEntry, InitAttr, Keys, Limits, Port, PostError, QpCaps, QpState, RecvWr,
    RtrAttr, RtsAttr, SendWr,
};

/// An opened device with a protection domain. Cloning shares both; it closes with its last clone, region, queue and
/// queue pair. May be used from several threads.
///
/// # Safety
/// The device reaches registered memory no longer than the region lives, and only for posted work or peers that know its keys.
#[allow(unsafe_code)]
pub unsafe trait Nic: Clone + Send + Sync + 'static {
    /// A registered region.
    type Mr: Mr;
    /// A completion queue.
    type Cq: Cq;
    /// A queue pair.
    type Qp: Qp;

    /// Its name, as in `mlx5_0`.
    fn name(&self) -> &str;

    /// The same device with another protection domain, empty: its queue pairs reach none of the regions of this one, nor the
    /// other way round, whatever keys their peers know. Events of the device go to whichever asks first.
    ///
    /// # Errors
    /// [`Error::System`]: the device refuses.
    fn isolated(&self) -> Result<Self, Error>;

    /// Its limits.
    ///
    /// # Errors
    /// [`Error::System`]: the device does not answer.
    fn limits(&self) -> Result<Limits, Error>;

    /// A port, from 1.
    ///
    /// # Errors
    /// [`Error::System`]: there is no port of this number.
    fn port(&self, port: u8) -> Result<Port, Error>;

    /// The entries of a port's GID table that are in use.
    ///
    /// # Errors
    /// [`Error::System`]: the table cannot be read.
    fn gids(&self, port: u8) -> Result<Vec<GidEntry>, Error>;

    /// A partition key of a port.
    ///
    /// # Errors
    /// [`Error::System`]: there is no such entry.
    fn pkey(&self, port: u8, index: u16) -> Result<u16, Error>;

    /// Registers host memory: pins its pages and gives it keys. Costs tens of microseconds and more; see the cache of
    /// the transport. The memory stays mapped as `MemSlice` promises; a region that outlives that is to be dropped.
    ///
    /// # Errors
    /// [`Error::System`]: the device refuses; ENOMEM when no more memory may be locked.
    fn register(&self, mem: MemSlice, access: Access) -> Result<Self::Mr, Error>;

    /// Registers `len` bytes at `offset` of a dma-buf (device memory), under addresses from `iova` on.
    ///
    /// # Errors
    /// [`Error::Unsupported`] or [`Error::System`]: library, kernel or device cannot. The memory is to be staged
    /// through host memory then.
    fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<Self::Mr, Error>;

    /// Whether [`Nic::register_dmabuf`] can work at all; asked without a dma-buf.
    ///
    /// # Errors
    /// [`Error::Unsupported`], which says what is missing.
    fn takes_dmabuf(&self) -> Result<(), Error>;

    /// A completion queue of at least `depth` entries with its own completion channel.
    ///
    /// # Errors
    /// [`Error::Limit`] for more entries than the device has, [`Error::System`] where it refuses.
    fn cq(&self, depth: u32) -> Result<Self::Cq, Error>;

    /// A reliable-connection queue pair, both of whose queues complete on `cq`.
    ///
    /// # Errors
    /// [`Error::Limit`] for more than the device has, [`Error::System`] where it refuses.
    fn qp(&self, cq: &Self::Cq, caps: QpCaps) -> Result<Self::Qp, Error>;

    /// The next asynchronous event, if there is one. Does not block.
    ///
    /// # Errors
    /// [`Error::System`]: the queue of events cannot be read.
    fn event(&self) -> Result<Option<AsyncEvent>, Error>;

    /// Readable when [`Nic::event`] has something.
    fn event_fd(&self) -> RawFd;
}

/// A registered region; dropping it takes its keys back before `drop` returns.
pub trait Mr: Send + Sync + 'static {
    /// Where it lies, and its keys.
    fn keys(&self) -> Keys;
}

/// A completion queue.
pub trait Cq: Send + 'static {
    /// Takes completions, oldest first; how many.
    ///
    /// # Errors
    /// [`Error::System`]: the completion queue is broken.
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Error>;

    /// Asks that [`Cq::fd`] becomes readable with the next completion. One that is there already does not count: poll
    /// once more after this.
    ///
    /// # Errors
    /// [`Error::System`]: the completion queue is broken.
    fn arm(&mut self) -> Result<(), Error>;

    /// The completion channel's descriptor.
    fn fd(&self) -> RawFd;

    /// Takes what made the descriptor readable. Does not block.
    fn calm(&mut self);
}

/// A reliable-connection queue pair. Dropping it ends every access of the device to memory on its behalf before
/// `drop` returns.
pub trait Qp: Send + 'static {
    /// Its number, 24 bits.
    fn number(&self) -> u32;

    /// What was granted of the asked sizes.
    fn caps(&self) -> QpCaps;

    /// Its state, asked of the device.
    ///
    /// # Errors
    /// [`Error::System`]: the device does not answer.
    fn state(&self) -> Result<QpState, Error>;

    /// RESET to INIT.
    ///
    /// # Errors
    /// [`Error::System`]: the device refuses the change of state.
    fn init(&mut self, attr: &InitAttr) -> Result<(), Error>;

    /// INIT to RTR. Receives should be posted before.
    ///
    /// # Errors
    /// [`Error::System`]: the device refuses the change of state.
    fn ready_to_receive(&mut self, attr: &RtrAttr) -> Result<(), Error>;

    /// RTR to RTS.
    ///
    /// # Errors
    /// [`Error::System`]: the device refuses the change of state.
    fn ready_to_send(&mut self, attr: &RtsAttr) -> Result<(), Error>;

    /// Breaks it: what is posted comes back flushed, nothing the peer sends lands any more.
    ///
    /// # Errors
    /// [`Error::System`]: the device refuses the change of state.
    fn fail(&mut self) -> Result<(), Error>;

    /// Back to RESET: what was posted is forgotten, nothing the peer sends lands any more.
    ///
    /// # Errors
    /// [`Error::System`]: the device refuses the change of state.
    fn reset(&mut self) -> Result<(), Error>;

    /// Posts receives as one list.
    ///
    /// # Errors
    /// [`PostError`] with how many were taken.
    fn post_recv(&mut self, list: &[RecvWr]) -> Result<(), PostError>;

    /// Posts sends as one list: one doorbell.
    ///
    /// # Errors
    /// [`PostError`] with how many were taken.
    fn post_send(&mut self, list: &[SendWr]) -> Result<(), PostError>;
}
