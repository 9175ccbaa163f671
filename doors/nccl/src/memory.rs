//! Registered memory, and the GPU that owns it.

use std::sync::Arc;

use linkspan_fabric::{Channel, Fabric, Gpu, GpuWish, MemSlice, chain, gpus};
use linkspan_ncclnet::{Fail, Logger, Mem, Part, Region};

/// Where the memory of one comm is registered.
pub struct Domain {
    log: Logger,
    /// Device memory is taken.
    device: bool,
}

/// A registration: of device memory, with its GPU.
pub struct Mr {
    gpu: Option<Arc<dyn Gpu>>,
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
        GpuWish::Direct => false,
    }
}

impl Domain {
    pub(crate) fn new(log: Logger, fabric: &Fabric) -> Domain {
        Domain { log, device: takes_device(fabric) }
    }

    /// Host memory needs no registration on any path there is. Of device memory the GPU is looked up; a dma-buf is
    /// NCCL's, which closes it, and names the same memory as the address does.
    pub(crate) fn register(&self, region: &Region<'_>) -> Result<Mr, Fail> {
        let Mem::Device(range) = region.mem else { return Ok(Mr { gpu: None }) };
        if !self.device {
            self.log.warn("linkspan: device memory was registered, which this device never announced");
            return Err(Fail::InvalidUsage);
        }
        match gpus::owner(range.addr()) {
            Ok(gpu) => Ok(Mr { gpu: Some(gpu) }),
            Err(error) => {
                self.log.warn(&format!("linkspan: {}", chain(&error)));
                Err(Fail::InvalidArgument)
            }
        }
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
