//! The suite with the memory of a simulated GPU, staged before a cable in software.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::Cables;
use linkspan_gpu::{Gpu, SimConfig, SimGpu, StageMemory, StagedRail};
use linkspan_thunderbolt::CableRail;
use linkspan_transport::Conn;
use linkspan_transport::conformance::{Room, Want};

type R = StagedRail<CableRail>;

/// Staged rails; both ends share one device.
struct Staged {
    gpu: Arc<SimGpu>,
    room: Cables,
}

impl Staged {
    fn new() -> Staged {
        Staged { gpu: SimGpu::new(SimConfig::default()).unwrap(), room: Cables::ring() }
    }

    /// As the fabric does it: each way begins in mid-stream, with the first chunk of device memory.
    fn stage(&self, rail: CableRail) -> R {
        let mut staged = StagedRail::late(rail, StageMemory::default());
        let gpu: Arc<dyn Gpu> = self.gpu.clone();
        staged.attach(&gpu).unwrap();
        staged
    }

    fn staged(&self) -> (R, R) {
        let (a, b) = self.room.rails();
        (self.stage(a), self.stage(b))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.gpu.fault(), None, "work in a wrong order");
        }
    }
}

impl Room for Staged {
    type R = R;

    fn pair(&mut self, want: Want) -> (Conn<R>, Conn<R>) {
        linkspan_gpu::conformance::use_memory_of(self.gpu.clone());
        self.room = Cables::ring();
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| self.staged()).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        3
    }

    fn extra_rail(&mut self) -> Option<(R, R)> {
        Some(self.staged())
    }
}

linkspan_transport::conformance_suite!(device, Staged::new());
