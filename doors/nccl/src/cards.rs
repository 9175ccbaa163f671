//! Memory registered with the RDMA devices under a connection.

use linkspan_fabric::{Channel, Memory, Registered};
use linkspan_ncclnet::{Fail, Logger, Mem, Region};

/// Where the memory of one comm is registered.
pub struct Cards {
    log: Logger,
    memory: Memory,
    /// The peer writes into it; else it is only sent from.
    target: bool,
}

/// A registration. Its end takes the keys back, so that the memory may be unmapped.
pub struct Held {
    _registered: Option<Registered>,
}

impl Cards {
    pub(crate) fn sending(log: Logger, channel: &Channel) -> Cards {
        Cards { log, memory: channel.memory(), target: false }
    }

    pub(crate) fn receiving(log: Logger, channel: &Channel) -> Cards {
        Cards { log, memory: channel.memory(), target: true }
    }

    /// Host memory is registered where a device wants it; device memory is not announced.
    pub(crate) fn register(&self, region: &Region<'_>) -> Result<Held, Fail> {
        let Mem::Host(mem) = region.mem else { return Err(Fail::InvalidUsage) };
        if !self.memory.is_registered() {
            return Ok(Held { _registered: None });
        }
        match self.memory.register(mem, self.target) {
            Ok(registered) => Ok(Held { _registered: Some(registered) }),
            Err(why) => {
                self.log.warn(&format!("linkspan: memory cannot be registered for RDMA: {why}"));
                Err(Fail::System)
            }
        }
    }
}
