//! The suite with the memory of a simulated GPU, staged.

use std::sync::Arc;

use crate::common::{V4, rails};
use linkspan_gpu::{Gpu, SimConfig, SimGpu, StageMemory, StagedRail};
use linkspan_tcp::{Options, TcpRail};
use linkspan_transport::Conn;
use linkspan_transport::conformance::{Room, Want};

/// Staged rails over loopback; both ends share one device.
struct Staged(Arc<SimGpu>);

impl Staged {
    fn new() -> Staged {
        Staged(SimGpu::new(SimConfig::default()).unwrap())
    }

    /// As the fabric does it: each way begins in mid-stream, with the first chunk of device memory.
    fn stage(&self, rail: TcpRail) -> StagedRail<TcpRail> {
        let mut staged = StagedRail::late(rail, StageMemory::default());
        let gpu: Arc<dyn Gpu> = self.0.clone();
        staged.attach(&gpu).unwrap();
        staged
    }

    fn staged(&self) -> (StagedRail<TcpRail>, StagedRail<TcpRail>) {
        let (a, b) = rails(V4, &Options::default());
        (self.stage(a), self.stage(b))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.0.fault(), None, "work in a wrong order");
        }
    }
}

impl Room for Staged {
    type R = StagedRail<TcpRail>;

    fn pair(&mut self, want: Want) -> (Conn<Self::R>, Conn<Self::R>) {
        linkspan_gpu::conformance::use_memory_of(self.0.clone());
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| self.staged()).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        3
    }

    fn extra_rail(&mut self) -> Option<(Self::R, Self::R)> {
        Some(self.staged())
    }
}

linkspan_transport::conformance_suite!(device, Staged::new());
