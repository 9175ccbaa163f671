//! Registered memory: the GPU that owns it, its keys with the RDMA devices under the connection, or both.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linkspan_fabric::{Channel, ConnMemory, Fabric, Gpu, GpuWish, Log, MemSlice, Registered, chain, gpus};

use crate::{Fail, Logger, Mem, Part, RegisterRange};

/// Where the memory of one comm is registered.
pub struct Domain {
    /// The fabric's, which counts downgrades.
    log: Log,
    /// Device memory is taken.
    device: bool,
    /// The RDMA devices under the connection, if any.
    cards: ConnMemory,
    /// The peer writes into the memory; else it is only sent from.
    target: bool,
    /// A downgrade is an error.
    strict: bool,
    /// It has been said that cards reach device memory, and that it is staged: with one limit or another, what comes later may be.
    told_direct: AtomicBool,
    told_staged: AtomicBool,
}

/// A registration: of device memory, with its GPU, and with its keys where cards reach it; of host memory, with its keys. Its end takes the keys back, so that the
/// memory may be unmapped.
pub struct Mr {
    gpu: Option<Arc<dyn Gpu>>,
    keys: Option<Registered>,
}

impl Mr {
    /// The GPU, of device memory.
    pub(crate) fn gpu(&self) -> Option<&Arc<dyn Gpu>> {
        self.gpu.as_ref()
    }

    #[cfg(test)]
    pub(crate) fn staged(gpu: &Arc<dyn Gpu>) -> Mr {
        Mr { gpu: Some(gpu.clone()), keys: None }
    }

    /// Cards may write it.
    pub(crate) fn is_direct(&self) -> bool {
        self.keys.is_some()
    }
}

/// Whether NCCL is told that device memory is taken: only where somebody asks for it. What a program queues behind a kernel can stop our
/// copies, and NCCL's kernels wait for us: docs/GPU.md.
pub(crate) fn takes_device(fabric: &Fabric) -> bool {
    fabric.config().gpu == GpuWish::Staged && gpus::any()
}

/// First version of NCCL's table in which it is told that its own kernels unpack. Its LL and LL128 kernels do not: since
/// version 9 it says which receives are theirs, before that it must have been told to use neither.
pub(crate) fn unpack_since(fabric: &Fabric, get: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let is = |name: &str, value: &str| get(name).is_some_and(|v| v.trim().eq_ignore_ascii_case(value));
    let cuda = || matches!(gpus::drivers(), [(_, Ok(n)), _] if n > 0);
    if !takes_device(fabric) || !fabric.offers_unpack() || !cuda() {
        return None;
    }
    match (is("NCCL_PROTO", "simple"), is("NCCL_NET_OPTIONAL_RECV_COMPLETION", "0")) {
        (true, _) => Some(7),
        (false, false) => Some(9),
        (false, true) => None,
    }
}

impl Domain {
    pub(crate) fn sending(fabric: &Fabric, channel: &Channel) -> Domain {
        let (log, cards, strict) = (fabric.log().clone(), channel.memory(), fabric.config().strict);
        let (told_direct, told_staged) = Default::default();
        Domain { log, device: takes_device(fabric), cards, target: false, strict, told_direct, told_staged }
    }

    pub(crate) fn receiving(fabric: &Fabric, channel: &Channel) -> Domain {
        Domain { target: true, ..Domain::sending(fabric, channel) }
    }

    /// Host memory is registered where an RDMA device wants it. Of device memory the GPU is looked up, and cards are asked to
    /// take it: by the dma-buf, which is NCCL's and names the same memory as the address does, else by address; else it is staged.
    pub(crate) fn register(&self, region: &RegisterRange<'_>) -> Result<Mr, Fail> {
        let range = match region.mem {
            Mem::Host(mem) => return Ok(Mr { gpu: None, keys: self.keys(mem)? }),
            Mem::Device(range) => range,
        };
        if !self.device {
            self.log.warn("NCCL registered device memory, but this device announced host memory only");
            return Err(Fail::InvalidUsage);
        }
        match gpus::owner(range.addr()) {
            Ok(gpu) => {
                let keys = self.direct(&gpu, region.dma_buf, range.at(gpu.place()))?;
                Ok(Mr { gpu: Some(gpu), keys })
            }
            Err(error) => {
                self.log.warn(&chain(&error));
                Err(Fail::InvalidArgument)
            }
        }
    }

    /// Registers device memory with the cards, or says why it is staged: the first of either is a line of the log.
    pub(crate) fn direct(
        &self,
        gpu: &Arc<dyn Gpu>,
        dma_buf: Option<(BorrowedFd<'_>, u64)>,
        mem: MemSlice,
    ) -> Result<Option<Registered>, Fail> {
        if !self.cards.is_registered() {
            return Ok(None);
        }
        if self.cards.only_lends() {
            // Where the peer's bytes land is the transport's affair: what is sent may leave from where it lies.
            return Ok(dma_buf.filter(|_| !self.target).and_then(|(fd, offset)| self.cards.lend(fd, offset, mem)));
        }
        // What a card has written is flushed before the GPU looks: where that cannot be, it writes to the host.
        let flushes = if self.target { gpu.flush_writes().map_err(|error| chain(&error)) } else { Ok(()) };
        match flushes.and_then(|()| self.cards.register_device(dma_buf, mem, self.target)) {
            Ok((held, by, before)) => {
                let before = before.map(|why| format!("; by dma-buf: {why}")).unwrap_or_default();
                if !self.told_direct.swap(true, Ordering::Relaxed) {
                    self.log.info(&format!("RDMA devices access device memory {}{before}", by.shown()));
                }
                Ok(Some(held))
            }
            Err(why) if self.strict => {
                self.log.warn(&format!("LINKSPAN_STRICT=1 forbids staging device memory for RDMA: {why}"));
                Err(Fail::InvalidUsage)
            }
            Err(why) => {
                if !self.told_staged.swap(true, Ordering::Relaxed) {
                    self.log.warn(&format!("downgrade: device memory is staged for RDMA: {why}"));
                }
                Ok(None)
            }
        }
    }

    /// Also where nothing is registered yet: a path that comes up later registers what it moves, and must forget it with this.
    fn keys(&self, mem: MemSlice) -> Result<Option<Registered>, Fail> {
        self.cards.register(mem, self.target).map(Some).map_err(|why| {
            self.log.warn(&format!("memory cannot be registered for RDMA: {why}"));
            Fail::System
        })
    }
}

/// The part's memory, after its GPU was made the channel's.
#[inline]
pub(crate) fn slice(log: Logger, channel: &mut Channel, part: &Part<'_, Mr>) -> Result<MemSlice, Fail> {
    match part.mem {
        Mem::Host(mem) => Ok(mem),
        Mem::Device(range) => {
            let gpu = part.mr.and_then(Mr::gpu).ok_or(Fail::InvalidUsage)?;
            let known = channel.gpu().is_some_and(|ours| ours.place() == gpu.place());
            if !known {
                attach(log, channel, gpu)?;
            }
            Ok(range.at(gpu.place()))
        }
    }
}

#[cold]
fn attach(log: Logger, channel: &mut Channel, gpu: &Arc<dyn Gpu>) -> Result<(), Fail> {
    channel.attach(gpu).map_err(|error| {
        log.warn(&format!("linkspan: {}", chain(&error)));
        Fail::InvalidUsage
    })
}
