//! The suite with the memory of a simulated GPU over simulated links: rails that stall in the middle of a chunk while
//! copies run, and planted bugs of the staging, each of which must be caught.

#[cfg(feature = "planted")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::common::SimBed;
#[cfg(feature = "planted")]
use linkspan_gpu::{PlantedBug, plant};
use linkspan_gpu::{SimConfig, SimGpu, StagedRail, Staging};
use linkspan_sim::SimRail;
#[cfg(feature = "planted")]
use linkspan_transport::conformance::{Level, behaviours};
use linkspan_transport::conformance::{Patience, Side, Testbed, Want};
use linkspan_transport::conformance_suite;

struct Staged {
    bed: SimBed,
    gpu: Arc<SimGpu>,
}

impl Staged {
    fn new(bed: SimBed, seed: u64) -> Staged {
        let config = SimConfig { seed, delay: 12, ..SimConfig::default() };
        Staged { bed, gpu: SimGpu::new(config).expect("a simulated GPU") }
    }

    fn stage(&self, rail: SimRail) -> StagedRail<SimRail> {
        StagedRail::new(rail, &Staging::new(self.gpu.clone())).expect("a staged rail")
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.gpu.settle();
            assert_eq!(self.gpu.fault(), None, "work in a wrong order");
        }
    }
}

impl Testbed for Staged {
    type R = StagedRail<SimRail>;

    fn rail(&mut self, want: Want, n: usize) -> (Self::R, Self::R) {
        if n == 0 {
            linkspan_gpu::conformance::use_memory_of(self.gpu.clone());
        }
        let (a, b) = self.bed.rail(want, n);
        (self.stage(a), self.stage(b))
    }

    fn rails(&self) -> usize {
        self.bed.rails()
    }

    fn pass(&mut self) {
        self.bed.pass();
    }

    fn sleep(&mut self, time: Duration) {
        self.bed.sleep(time);
    }

    fn kill(&mut self, side: Side) {
        self.bed.kill(side);
    }

    fn stall(&mut self, side: Side, n: usize) {
        self.bed.stall(side, n);
    }

    fn release(&mut self) {
        self.bed.release();
    }

    fn patience(&self) -> Patience {
        self.bed.patience()
    }
}

conformance_suite!(single_threaded ordered, Staged::new(SimBed::ordered(), 1));

/// Behaviours that move enough to see a bug of the staging, and end soon when there is none.
#[cfg(feature = "planted")]
const TRIED: [&str; 6] = [
    "ordering_per_tag",
    "both_directions",
    "write_and_read",
    "notify_comes_after_its_bytes",
    "rail_lost_at_any_point",
    "close_with_operations_in_flight",
];

/// The first behaviour that fails, by name.
#[cfg(feature = "planted")]
fn caught_by() -> Option<&'static str> {
    let tried = behaviours::<StagedRail<SimRail>>().into_iter().filter(|b| TRIED.contains(&b.0));
    tried.into_iter().find_map(|(name, behaviour)| {
        let run = || {
            let mut bed = Staged::new(SimBed::ordered(), 3);
            bed.bed.patience = 60_000;
            behaviour(&mut bed, Level::Quick);
        };
        catch_unwind(AssertUnwindSafe(run)).is_err().then_some(name)
    })
}

#[cfg(feature = "planted")]
#[test]
fn every_planted_bug_is_caught() {
    assert_eq!(caught_by(), None, "without a bug");
    for bug in [PlantedBug::SentEarly, PlantedBug::LandedEarly, PlantedBug::ReusedEarly, PlantedBug::DropWithoutWaiting]
    {
        plant(Some(bug));
        let caught = caught_by();
        plant(None);
        println!("{bug:?} is caught by {}", caught.unwrap_or_else(|| panic!("{bug:?} was not caught")));
    }
}
