//! Helps rooms to run the conformance suite with device memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linkspan_transport::conformance::{Buffer, take_memory_from};
use linkspan_transport::{Buf, HostBuf, MemSlice};

use crate::{Gpu, GpuBuf, SimGpu};

impl Buffer for GpuBuf {
    fn slice(&self) -> MemSlice {
        GpuBuf::slice(self)
    }
}

/// From here on, the suite's buffers in this thread are on the device, but for every fifth, so that chunks for the host
/// and for the device meet on one rail.
pub fn use_memory_of(gpu: Arc<SimGpu>) {
    let made = AtomicUsize::new(0);
    take_memory_from(move |len| {
        if made.fetch_add(1, Ordering::Relaxed) % 5 == 4 {
            return Box::new(HostBuf::new(len));
        }
        let any: Arc<dyn Gpu> = gpu.clone();
        let buf = GpuBuf::new(&any, len).expect("simulated memory");
        let zeroed = buf.slice().fill(0, &vec![0; len]);
        assert!(zeroed, "fresh memory can be written");
        Box::new(buf)
    });
}
