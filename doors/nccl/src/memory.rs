//! Registered memory: the GPU that owns it, or its keys with the RDMA devices under the connection.

use std::sync::Arc;

use linkspan_fabric::{Channel, Fabric, Gpu, GpuWish, MemSlice, Memory, Registered, chain, gpus};
use linkspan_ncclnet::{Fail, Logger, Mem, Part, Region};

/// Where the memory of one comm is registered.
pub struct Domain {
    log: Logger,
    /// Device memory is taken.
    device: bool,
    /// The RDMA devices under the connection, if any.
    cards: Memory,
    /// The peer writes into the memory; else it is only sent from.
    target: bool,
}

/// A registration: of device memory, with its GPU; of host memory, with its keys. Its end takes the keys back, so that the
/// memory may be unmapped.
pub struct Mr {
    gpu: Option<Arc<dyn Gpu>>,
    _keys: Option<Registered>,
}

impl Mr {
    /// The GPU, of device memory.
    pub(crate) fn gpu(&self) -> Option<&Arc<dyn Gpu>> {
        self.gpu.as_ref()
    }
}

/// Whether NCCL is told that device memory is taken: only what every path of the device can keep.
pub(crate) fn takes_device(fabric: &Fabric) -> bool {
    match fabric.config().gpu {
        GpuWish::Off => false,
        GpuWish::Staged => gpus::any(),
        // Connections that device-memory TCP cannot have are staged.
        GpuWish::Direct => fabric.reaches_device_memory() && gpus::any(),
    }
}

impl Domain {
    pub(crate) fn sending(log: Logger, fabric: &Fabric, channel: &Channel) -> Domain {
        Domain { log, device: takes_device(fabric), cards: channel.memory(), target: false }
    }

    pub(crate) fn receiving(log: Logger, fabric: &Fabric, channel: &Channel) -> Domain {
        Domain { target: true, ..Domain::sending(log, fabric, channel) }
    }

    /// Host memory is registered where an RDMA device wants it. Of device memory the GPU is looked up; a dma-buf is NCCL's,
    /// which closes it, and names the same memory as the address does.
    pub(crate) fn register(&self, region: &Region<'_>) -> Result<Mr, Fail> {
        let range = match region.mem {
            Mem::Host(mem) => return Ok(Mr { gpu: None, _keys: self.keys(mem)? }),
            Mem::Device(range) => range,
        };
        if !self.device {
            self.log.warn("linkspan: device memory was registered, which this device never announced");
            return Err(Fail::InvalidUsage);
        }
        match gpus::owner(range.addr()) {
            Ok(gpu) => Ok(Mr { gpu: Some(gpu), _keys: None }),
            Err(error) => {
                self.log.warn(&format!("linkspan: {}", chain(&error)));
                Err(Fail::InvalidArgument)
            }
        }
    }

    fn keys(&self, mem: MemSlice) -> Result<Option<Registered>, Fail> {
        if !self.cards.is_registered() {
            return Ok(None);
        }
        self.cards.register(mem, self.target).map(Some).map_err(|why| {
            self.log.warn(&format!("linkspan: memory cannot be registered for RDMA: {why}"));
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
