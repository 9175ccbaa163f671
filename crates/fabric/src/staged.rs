//! Rails with or without staging before them: what decides whether a connection can carry device memory.

use std::sync::Arc;

use linkspan_gpu::offload::Queue;
use linkspan_gpu::{Gpu, GpuError, StageMemory, StagedRail};
use linkspan_proto::Head;
use linkspan_transport::{Busy, DeviceReach, Down, MemSlice, Poll, Rail, RailInfo, Sink, WaitFd};

use crate::transport::AnyRail;

/// A rail as a connection has it.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "rails live inside of their connection; a box would be one more step to each"
)]
pub enum PathRail {
    /// As its transport made it: it reaches device memory itself, or none is wanted.
    Plain(AnyRail),
    /// It reaches host memory only, and device memory is staged before it.
    Staged(Box<StagedRail<AnyRail>>),
}

macro_rules! each {
    ($self:ident, $rail:ident => $call:expr) => {
        match $self {
            PathRail::Plain($rail) => $call,
            PathRail::Staged($rail) => $call,
        }
    };
}

#[allow(unsafe_code)]
// SAFETY: each call goes to the rail inside, which keeps the promise.
unsafe impl Rail for PathRail {
    fn info(&self) -> &RailInfo {
        each!(self, r => r.info())
    }

    #[inline]
    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        each!(self, r => r.ctrl(head, body))
    }

    #[inline]
    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        if self.is_inactive() {
            return Err(Busy);
        }
        each!(self, r => r.data(head, src))
    }

    fn prepare(&mut self, mem: MemSlice, target: bool) {
        if !self.is_inactive() {
            each!(self, r => r.prepare(mem, target));
        }
    }

    fn granted(&mut self, id: u32, mem: MemSlice) {
        each!(self, r => r.granted(id, mem));
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

impl PathRail {
    /// Staging goes before a rail that does not reach device memory, where `stage` says that there may be some.
    pub(crate) fn new(rail: AnyRail, stage: Option<&StageMemory>) -> PathRail {
        match stage {
            Some(memory) if !rail.info().caps.device_memory => {
                PathRail::Staged(Box::new(StagedRail::late(rail, memory.clone())))
            }
            _ => PathRail::Plain(rail),
        }
    }

    /// Whether it is on standby and is to be given no chunk. Asked before the staging, which accepts chunks that the rail
    /// has yet to take.
    #[inline]
    fn is_inactive(&self) -> bool {
        matches!(self.transport(), AnyRail::Standby(standby) if !standby.is_active())
    }

    /// What its transport wants people to know.
    pub(crate) fn events(&mut self) -> Option<String> {
        match self {
            PathRail::Plain(AnyRail::Devmem(rail)) => rail.events(),
            _ => None,
        }
    }

    /// The rail's own transport.
    pub(crate) fn transport(&self) -> &AnyRail {
        match self {
            PathRail::Plain(rail) => rail,
            PathRail::Staged(rail) => rail.inner(),
        }
    }

    /// Whether it may write device memory by itself.
    pub(crate) fn writes_devices(&self) -> bool {
        match self {
            PathRail::Plain(_) => true,
            PathRail::Staged(rail) => rail.has_reach(),
        }
    }

    /// Where a network card puts its payload.
    ///
    /// # Safety
    /// Nothing uses the handle once the rail is dropped.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn pool(&self) -> Option<MemSlice> {
        match self {
            // SAFETY: the caller's promise.
            PathRail::Plain(AnyRail::Devmem(rail)) => unsafe { rail.pool() },
            _ => None,
        }
    }

    /// NCCL's kernels put in place what this queue tells them of.
    pub(crate) fn offload(&mut self, queue: &Arc<Queue>) {
        if let PathRail::Plain(AnyRail::Devmem(rail)) = self {
            rail.offload(queue);
        }
    }

    /// From now on it carries memory of this device.
    pub(crate) fn attach(&mut self, gpu: &Arc<dyn Gpu>) -> Result<(), GpuError> {
        match self {
            PathRail::Staged(rail) => rail.attach(gpu),
            PathRail::Plain(AnyRail::Devmem(rail)) => rail.attach(gpu),
            PathRail::Plain(rail) if rail.info().caps.device_memory => Ok(()),
            PathRail::Plain(rail) => Err(GpuError::Unsupported {
                device: gpu.info().id(),
                what: "have its memory moved over this connection",
                why: format!("{} reaches host memory only and staging is off (LINKSPAN_GPU)", rail.info().transport),
            }),
        }
    }
}
