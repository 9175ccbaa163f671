//! The suite that every room passes, with device memory on a simulated GPU behind simulated cards of several kinds. The production
//! code is the one that runs on the kernel's sockets.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{SimRail, rails};
use linkspan_devmem::sim::SimConfig;
use linkspan_gpu::SimGpu;
use linkspan_transport::Conn;
use linkspan_transport::conformance::{Room, Want};

/// Rails over loopback; both ends share one device.
struct Devmem(Arc<SimGpu>, SimConfig);

impl Devmem {
    fn new(sim: SimConfig) -> Devmem {
        Devmem(SimGpu::new(linkspan_gpu::SimConfig { seed: sim.seed, ..Default::default() }).unwrap(), sim)
    }
}

impl Drop for Devmem {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.0.fault(), None, "work in a wrong order");
        }
    }
}

impl Room for Devmem {
    type R = SimRail;

    fn pair(&mut self, want: Want) -> (Conn<SimRail>, Conn<SimRail>) {
        linkspan_gpu::conformance::use_memory_of(self.0.clone());
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| rails(&self.0, self.1)).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        3
    }

    fn extra_rail(&mut self) -> Option<(SimRail, SimRail)> {
        Some(rails(&self.0, self.1))
    }
}

linkspan_transport::conformance_suite!(devmem, Devmem::new(SimConfig::default()));
// Jumbo frames, a card that sends from the host only, and so few pages that the stream is always short of them.
linkspan_transport::conformance_suite!(
    single_threaded scarce,
    Devmem::new(SimConfig { seed: 7, pages: 9, mss: 8948, lends: false, ..SimConfig::default() })
);
// A card that binds nothing: everything goes by way of the host.
linkspan_transport::conformance_suite!(
    single_threaded refused,
    Devmem::new(SimConfig { refuses: Some("its driver cannot"), lends: false, ..SimConfig::default() })
);
