//! Helps rooms to run the conformance suite with device memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linkspan_transport::conformance::{Buffer, Room, Want, take_memory_from};
use linkspan_transport::{Buf, Conn, HostBuf, MemSlice, Rail};

use crate::{Gpu, GpuBuf, SimConfig, SimGpu, StageMemory, StagedRail};

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

/// A room that reaches host memory only, with staging before its rails; both ends share one simulated device.
pub struct Staged<C> {
    gpu: Arc<SimGpu>,
    rails: usize,
    /// Makes a pair of rails; `true`: in a world of their own.
    make: Box<dyn FnMut(bool) -> (C, C)>,
}

impl<C: Rail> Staged<C> {
    /// With at most so many rails.
    ///
    /// # Panics
    /// There is no simulated device to be had.
    pub fn new(rails: usize, make: impl FnMut(bool) -> (C, C) + 'static) -> Staged<C> {
        Staged { gpu: SimGpu::new(SimConfig::default()).expect("a simulated GPU"), rails, make: Box::new(make) }
    }

    /// As the fabric does it: each way begins in mid-stream, with the first chunk of device memory.
    fn staged(&mut self, fresh: bool) -> (StagedRail<C>, StagedRail<C>) {
        let gpu: Arc<dyn Gpu> = self.gpu.clone();
        let stage = |rail| {
            let mut staged = StagedRail::late(rail, StageMemory::default());
            staged.attach(&gpu).expect("memory for staging");
            staged
        };
        let (a, b) = (self.make)(fresh);
        (stage(a), stage(b))
    }
}

impl<C> Drop for Staged<C> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.gpu.fault(), None, "work in a wrong order");
        }
    }
}

impl<C: Rail> Room for Staged<C> {
    type R = StagedRail<C>;

    fn pair(&mut self, want: Want) -> (Conn<Self::R>, Conn<Self::R>) {
        use_memory_of(self.gpu.clone());
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|n| self.staged(n == 0)).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        self.rails
    }

    fn extra_rail(&mut self) -> Option<(Self::R, Self::R)> {
        Some(self.staged(false))
    }
}
