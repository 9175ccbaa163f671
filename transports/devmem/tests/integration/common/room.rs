//! The room as the suite sees it.

use std::sync::Arc;

use linkspan_devmem::sim::SimConfig;
use linkspan_gpu::SimGpu;
use linkspan_transport::Conn;
use linkspan_transport::conformance::{Level, Patience, Room, Verdict, Want, behaviours};

use super::{SimRail, rails};

/// Rails over loopback with simulated cards; both ends share one device.
pub(crate) struct Devmem {
    pub(crate) gpu: Arc<SimGpu>,
    pub(crate) sim: SimConfig,
    pub(crate) patience: Patience,
}

impl Devmem {
    pub(crate) fn new(sim: SimConfig) -> Devmem {
        let config = linkspan_gpu::SimConfig { seed: sim.seed, ..Default::default() };
        let patience = Patience::Wall(std::time::Duration::from_secs(60));
        Devmem { gpu: SimGpu::new(config).unwrap(), sim, patience }
    }
}

impl Drop for Devmem {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.gpu.fault(), None, "work in a wrong order");
        }
    }
}

impl Room for Devmem {
    type R = SimRail;

    fn pair(&mut self, want: Want) -> (Conn<SimRail>, Conn<SimRail>) {
        linkspan_gpu::conformance::use_memory_of(self.gpu.clone());
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| rails(&self.gpu, self.sim)).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        3
    }

    fn extra_rail(&mut self) -> Option<(SimRail, SimRail)> {
        Some(rails(&self.gpu, self.sim))
    }

    fn patience(&self) -> Patience {
        self.patience
    }
}

/// What moves payload in every way.
pub(crate) const PAYLOAD: [&str; 8] = [
    "sizes",
    "ordering_per_tag",
    "both_directions",
    "write_and_read",
    "notify_comes_after_its_bytes",
    "rail_lost_at_any_point",
    "close_with_operations_in_flight",
    "requests_32_by_8",
];

/// Runs these behaviours, each in a fresh room.
pub(crate) fn run<R: Room>(names: &[&str], mut room: impl FnMut() -> R) {
    let chosen: Vec<_> = behaviours::<R>().into_iter().filter(|b| names.contains(&b.0)).collect();
    assert_eq!(chosen.len(), names.len(), "behaviours have other names");
    for (name, behaviour) in chosen {
        println!("{name}");
        assert!(behaviour(&mut room(), Level::Quick) == Verdict::Passed, "{name} cannot be tested here");
    }
}
