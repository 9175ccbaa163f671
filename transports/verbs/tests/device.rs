//! The suite with the memory of a simulated GPU, staged before RDMA that does not reach it (NICs in software).
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::Verbs;
use linkspan_gpu::{Gpu, SimConfig, SimGpu, StageMemory, StagedRail};
use linkspan_transport::Conn;
use linkspan_transport::conformance::{Room, Want};
use linkspan_verbs::VerbsRail;
use linkspan_verbs_sys::soft::SoftNic;

type R = StagedRail<VerbsRail<SoftNic>>;

/// Staged rails; both ends share one device.
struct Staged {
    gpu: Arc<SimGpu>,
    room: Verbs,
}

impl Staged {
    fn new() -> Staged {
        Staged { gpu: SimGpu::new(SimConfig::default()).unwrap(), room: Verbs::new() }
    }

    /// As the fabric does it: each way begins in mid-stream, with the first chunk of device memory.
    fn stage(&self, rail: VerbsRail<SoftNic>) -> R {
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
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| self.staged()).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        2
    }

    fn extra_rail(&mut self) -> Option<(R, R)> {
        Some(self.staged())
    }
}

linkspan_transport::conformance_suite!(device, Staged::new());
