//! NCCL's device offload on a connection.

use std::sync::Arc;

use linkspan_gpu::GpuError;
use linkspan_gpu::offload::{Queue, bounce};

use linkspan_transport::gpu::DeviceQueue;

use super::Channel;

impl Channel {
    /// Has NCCL's kernels put in place what arrives in pieces, by a queue in memory that the attached GPU reads. `None`: no path
    /// brings pieces. What the queue does not tell them of is put in place as ever.
    ///
    /// # Errors
    /// Those of [`Queue::new`]: [`GpuError::Call`] where the driver refuses pinned memory, [`GpuError::Unsupported`]
    /// where the device cannot read it.
    pub fn offload(&mut self) -> Result<Option<Arc<Queue>>, GpuError> {
        let pool = self.conn.rails().find_map(|(_, rail)| rail.pool());
        let (Some(gpu), Some(pool)) = (&self.gpu, pool) else { return Ok(None) };
        let queue = Queue::new(gpu, bounce(pool))?;
        let told = self.conn.try_each_rail(|rail| {
            rail.offload(&device_queue(&queue));
            Ok::<(), std::convert::Infallible>(())
        });
        debug_assert!(told.is_ok());
        self.fabric.log().info(&format!("NCCL's kernels unpack what {} receives", gpu.info().id()));
        self.queue = Some(queue.clone());
        Ok(Some(queue))
    }
}

/// The queue as rails know it.
pub(super) fn device_queue(queue: &Arc<Queue>) -> Arc<dyn DeviceQueue> {
    queue.clone()
}
