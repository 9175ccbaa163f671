//! Rails over loopback as the suite wants them.

use std::sync::Arc;
use std::time::Duration;

use linkspan_devmem::RailConfig;
use linkspan_devmem::sim::SimConfig;
use linkspan_gpu::{Gpu, SimGpu};
use linkspan_stream::Stream;
use linkspan_transport::Rail;
use linkspan_transport::conformance::{Joint, Level, Patience, PeerPipe, Proxies, Side, Testbed, Want, behaviours};

use super::{SimRail, rail, stream_to_process, streams, streams_by};

/// Makes one end of a rail of its streams for control and for data.
type Make = Box<dyn Fn(&Arc<SimGpu>, Stream, Stream) -> SimRail>;

/// Both ends share one device. Where the suite stalls or kills a rail, each of its streams goes by way of a proxy.
pub(crate) struct Devmem {
    pub(crate) gpu: Arc<SimGpu>,
    pub(crate) patience: Patience,
    make: Make,
    proxies: Proxies,
}

impl Devmem {
    /// With simulated cards.
    pub(crate) fn new(sim: SimConfig) -> Devmem {
        Devmem::of(sim.seed, move |gpu, control, data| {
            let mut rail = rail(gpu, control, data, sim, RailConfig::default());
            let any: Arc<dyn Gpu> = gpu.clone();
            rail.attach(&any).unwrap();
            rail
        })
    }

    /// With ends like these.
    pub(crate) fn of(seed: u64, make: impl Fn(&Arc<SimGpu>, Stream, Stream) -> SimRail + 'static) -> Devmem {
        let gpu = SimGpu::new(linkspan_gpu::SimConfig { seed, ..Default::default() }).unwrap();
        let patience = Patience::Wall(Duration::from_secs(60));
        Devmem { gpu, patience, make: Box::new(make), proxies: Proxies::default() }
    }
}

impl Drop for Devmem {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.gpu.fault(), None, "work in a wrong order");
        }
    }
}

impl Testbed for Devmem {
    type R = SimRail;

    fn rail(&mut self, want: Want, n: usize) -> (SimRail, SimRail) {
        if n == 0 {
            linkspan_gpu::conformance::use_memory_of(self.gpu.clone());
        }
        if want.faults {
            self.proxies.begin(n);
        }
        let mut two = || if want.faults { streams_by(|to| self.proxies.before(to)) } else { streams() };
        let ((a, b), (c, d)) = (two(), two());
        ((self.make)(&self.gpu, a, c), (self.make)(&self.gpu, b, d))
    }

    fn rails(&self) -> usize {
        3
    }

    fn stall(&mut self, side: Side, n: usize) {
        self.proxies.stall(side, n);
    }

    fn release(&mut self) {
        self.proxies.release();
    }

    fn kill(&mut self, _: Side) {
        self.proxies.kill();
    }

    fn patience(&self) -> Patience {
        self.patience
    }
}

impl Joint for Devmem {
    type R = SimRail;

    fn rail(&mut self, side: Side, link: &mut PeerPipe) -> SimRail {
        linkspan_gpu::conformance::use_memory_of(self.gpu.clone());
        let (control, data) = (stream_to_process(side, link), stream_to_process(side, link));
        (self.make)(&self.gpu, control, data)
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

/// Runs these behaviours, each in a testbed of its own.
pub(crate) fn run(names: &[&str], mut bed: impl FnMut() -> Devmem) {
    let chosen: Vec<_> = behaviours::<SimRail>().into_iter().filter(|b| names.contains(&b.0)).collect();
    assert_eq!(chosen.len(), names.len(), "behaviours have other names");
    for (name, behaviour) in chosen {
        println!("{name}");
        behaviour(&mut bed(), Level::Quick);
    }
}
