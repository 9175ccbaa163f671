//! The suite with the memory of a simulated GPU, staged: through the ring alone, and with direct copies from and to the
//! pinned buffers.

use std::sync::Arc;

use linkspan_gpu::{Gpu, SimConfig, SimGpu, StageMemory, StagedRail};
use linkspan_shm::{Config, ShmRail, pair};
use linkspan_transport::Conn;
use linkspan_transport::conformance::{Room, Want};

struct Staged(Arc<SimGpu>, Config);

impl Staged {
    fn new(config: Config) -> Staged {
        Staged(SimGpu::new(SimConfig::default()).unwrap(), config)
    }

    /// As the fabric does it: each way begins in mid-stream, with the first chunk of device memory.
    fn stage(&self, rail: ShmRail) -> StagedRail<ShmRail> {
        let mut staged = StagedRail::late(rail, StageMemory::default());
        let gpu: Arc<dyn Gpu> = self.0.clone();
        staged.attach(&gpu).unwrap();
        staged
    }

    fn staged(&self) -> (StagedRail<ShmRail>, StagedRail<ShmRail>) {
        let (a, b) = pair(self.1).unwrap();
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
    type R = StagedRail<ShmRail>;

    fn pair(&mut self, want: Want) -> (Conn<Self::R>, Conn<Self::R>) {
        linkspan_gpu::conformance::use_memory_of(self.0.clone());
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| self.staged()).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        2
    }

    fn extra_rail(&mut self) -> Option<(Self::R, Self::R)> {
        Some(self.staged())
    }
}

mod direct {
    use super::*;
    linkspan_transport::conformance_suite!(device, Staged::new(Config::default()));
}

mod rows {
    use super::*;
    linkspan_transport::conformance_suite!(device, Staged::new(Config { rows: true, ..Config::default() }));
}

mod ring {
    use super::*;
    linkspan_transport::conformance_suite!(device, Staged::new(Config { cma: false, ..Config::default() }));
}
