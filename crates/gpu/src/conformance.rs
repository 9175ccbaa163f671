//! Helps transports to run the conformance suite with device memory.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linkspan_transport::conformance::{Buffer, Patience, Side, Testbed, Want, take_memory_from};
use linkspan_transport::{Buf, MemSlice, Rail, StaticBuf};

use crate::{Gpu, GpuBuf, GpuError, Pinned, SimConfig, SimGpu, StageMemory, StagedRail};

/// A [`GpuBuf`] for tests, which is never given back: handles on it are always safe to use.
#[derive(Debug)]
pub struct StaticGpuBuf(ManuallyDrop<GpuBuf>);

impl StaticGpuBuf {
    /// `len` bytes, with undefined contents.
    ///
    /// # Errors
    /// As [`GpuBuf::new`].
    pub fn new(gpu: &Arc<dyn Gpu>, len: usize) -> Result<StaticGpuBuf, GpuError> {
        GpuBuf::new(gpu, len).map(|buf| StaticGpuBuf(ManuallyDrop::new(buf)))
    }

    /// A handle on the whole of it.
    pub fn slice(&self) -> MemSlice {
        self.0.mem()
    }
}

/// [`Pinned`] memory for tests, which is never unpinned: handles on it are always safe to use.
#[derive(Debug)]
pub struct StaticPinned(ManuallyDrop<Pinned>);

impl StaticPinned {
    /// `len` zero bytes.
    ///
    /// # Errors
    /// As [`Pinned::new`].
    pub fn new(gpu: &Arc<dyn Gpu>, len: usize) -> Result<StaticPinned, GpuError> {
        Pinned::new(gpu, len).map(|buf| StaticPinned(ManuallyDrop::new(buf)))
    }

    /// A handle on the whole of it.
    pub fn slice(&self) -> MemSlice {
        self.0.mem()
    }
}

impl Buffer for StaticGpuBuf {
    fn slice(&self) -> MemSlice {
        StaticGpuBuf::slice(self)
    }
}

/// From here on, the suite's buffers in this thread are on the device, but for every fifth, so that chunks for the host
/// and for the device meet on one rail.
pub fn use_memory_of(gpu: Arc<SimGpu>) {
    let made = AtomicUsize::new(0);
    take_memory_from(move |len| {
        if made.fetch_add(1, Ordering::Relaxed) % 5 == 4 {
            return Box::new(StaticBuf::new(len));
        }
        let any: Arc<dyn Gpu> = gpu.clone();
        let buf = StaticGpuBuf::new(&any, len).expect("simulated memory");
        let zeroed = buf.slice().fill(0, &vec![0; len]);
        assert!(zeroed, "fresh memory can be written");
        Box::new(buf)
    });
}

/// A transport that reaches host memory only, with staging before its rails; both ends share one simulated device.
pub struct Staged<T> {
    gpu: Arc<SimGpu>,
    bed: T,
}

impl<T: Testbed> Staged<T> {
    /// Before the rails of this testbed.
    ///
    /// # Panics
    /// There is no simulated device to be had.
    pub fn new(bed: T) -> Staged<T> {
        Staged { gpu: SimGpu::new(SimConfig::default()).expect("a simulated GPU"), bed }
    }

    /// As the fabric does it: each way begins in mid-stream, with the first chunk of device memory.
    fn stage(&self, rail: T::R) -> StagedRail<T::R> {
        let gpu: Arc<dyn Gpu> = self.gpu.clone();
        let mut staged = StagedRail::late(rail, StageMemory::default());
        staged.attach(&gpu).expect("memory for staging");
        staged
    }
}

impl<T> Drop for Staged<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.gpu.fault(), None, "work in a wrong order");
        }
    }
}

impl<T: Testbed> Testbed for Staged<T> {
    type R = StagedRail<T::R>;

    fn rail(&mut self, want: Want, n: usize) -> (Self::R, Self::R) {
        if n == 0 {
            use_memory_of(self.gpu.clone());
        }
        let (a, b) = self.bed.rail(want, n);
        (self.stage(a), self.stage(b))
    }

    fn rails(&self) -> usize {
        self.bed.rails()
    }

    fn stall(&mut self, side: Side, n: usize) {
        self.bed.stall(side, n);
    }

    fn release(&mut self) {
        self.bed.release();
    }

    fn kill(&mut self, side: Side) {
        self.bed.kill(side);
    }

    fn pass(&mut self) {
        self.bed.pass();
    }

    fn sleep(&mut self, time: Duration) {
        self.bed.sleep(time);
    }

    fn patience(&self) -> Patience {
        self.bed.patience()
    }
}
