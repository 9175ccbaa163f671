//! Planted bugs of the room, each of which must be caught.
#![allow(clippy::unwrap_used)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use common::room::{Devmem, PAYLOAD};
use linkspan_devmem::sim::SimConfig;
use linkspan_devmem::{PlantedBug, plant};
use linkspan_transport::conformance::{Level, Patience, behaviours};

/// The first behaviour that fails, by name.
fn caught_by() -> Option<&'static str> {
    let tried = behaviours::<Devmem>().into_iter().filter(|b| PAYLOAD.contains(&b.0));
    tried.into_iter().find_map(|(name, behaviour)| {
        let run = || {
            let mut room = Devmem::new(SimConfig { seed: 3, pages: 96, linear: 7, plain: 29, ..SimConfig::default() });
            room.patience = Patience::Wall(Duration::from_secs(20));
            behaviour(&mut room, Level::Quick);
        };
        catch_unwind(AssertUnwindSafe(run)).is_err().then_some(name)
    })
}

#[test]
fn every_planted_bug_is_caught() {
    assert_eq!(caught_by(), None, "without a bug");
    for bug in [
        PlantedBug::TokensEarly,
        PlantedBug::NoFlush,
        PlantedBug::LandedEarly,
        PlantedBug::ReusedEarly,
        PlantedBug::TakenEarly,
        PlantedBug::SplitToken,
    ] {
        plant(Some(bug));
        let caught = caught_by();
        plant(None);
        println!("{bug:?} is caught by {}", caught.unwrap_or_else(|| panic!("{bug:?} was not caught")));
    }
}
