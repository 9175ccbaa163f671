//! The suite with the memory of a simulated GPU over simulated links: rails that stall in the middle of a chunk while
//! copies run, and planted bugs of the staging, each of which must be caught.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::common::SimRoom;
use linkspan_gpu::{PlantedBug, SimConfig, SimGpu, StagedRail, Staging, plant};
use linkspan_sim::SimRail;
use linkspan_transport::conformance::{Level, Patience, Room, Want, behaviours};
use linkspan_transport::conformance_suite;
use linkspan_transport::{Conn, Down};

struct Staged {
    room: SimRoom,
    gpu: Arc<SimGpu>,
}

impl Staged {
    fn new(room: SimRoom, seed: u64) -> Staged {
        let config = SimConfig { seed, delay: 12, ..SimConfig::default() };
        Staged { room, gpu: SimGpu::new(config).expect("a simulated GPU") }
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

impl Room for Staged {
    type R = StagedRail<SimRail>;

    fn pair(&mut self, want: Want) -> (Conn<Self::R>, Conn<Self::R>) {
        linkspan_gpu::conformance::use_memory_of(self.gpu.clone());
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..want.rails {
            let (left, right) = self.room.world.link(self.room.config);
            a.push(self.stage(left));
            b.push(self.stage(right));
        }
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        self.room.rails()
    }

    fn pass(&mut self) {
        self.room.pass();
    }

    fn sleep(&mut self, time: Duration) {
        self.room.sleep(time);
    }

    fn kill(&mut self, mut conn: Conn<Self::R>) {
        conn.fail(Down::PeerGone { path: "this side".into(), why: "killed by the suite".into() });
    }

    fn stall(&mut self, conn: &Conn<Self::R>, slot: usize) -> bool {
        match conn.rails().find(|r| r.0 == slot) {
            Some((_, rail)) => {
                self.room.stall_rail(rail.inner());
                true
            }
            None => false,
        }
    }

    fn release(&mut self) {
        self.room.release();
    }

    fn extra_rail(&mut self) -> Option<(Self::R, Self::R)> {
        let (left, right) = self.room.world.link(self.room.config);
        Some((self.stage(left), self.stage(right)))
    }

    fn patience(&self) -> Patience {
        self.room.patience()
    }
}

conformance_suite!(single_threaded ordered, Staged::new(SimRoom::ordered(), 1));

/// Behaviours that move enough to see a bug of the staging, and end soon when there is none.
const TRIED: [&str; 6] = [
    "ordering_per_tag",
    "both_directions",
    "write_and_read",
    "notify_comes_after_its_bytes",
    "rail_lost_at_any_point",
    "close_with_operations_in_flight",
];

/// The first behaviour that fails, by name.
fn caught_by() -> Option<&'static str> {
    let tried = behaviours::<Staged>().into_iter().filter(|b| TRIED.contains(&b.0));
    tried.into_iter().find_map(|(name, behaviour)| {
        let run = || {
            let mut room = Staged::new(SimRoom::ordered(), 3);
            room.room.patience = 60_000;
            behaviour(&mut room, Level::Quick);
        };
        catch_unwind(AssertUnwindSafe(run)).is_err().then_some(name)
    })
}

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
