//! The suite is only as good as the bugs it catches: each of these is planted alone, and some behaviour must fail. Those of the engine need
//! the feature `planted` (`cargo xtask planted`).

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::SimBed;
use crate::common::faulty::{FaultyBed, RailBug};
#[cfg(feature = "planted")]
use linkspan_proto::conn::{PlantedBug, plant};
use linkspan_transport::conformance::{Level, Testbed, behaviours};

/// Rounds after which a planted bug has hung the connection; honest behaviours of this size end in a hundredth.
const PATIENCE: u64 = 60_000;

/// Behaviours that move much; they come last, for most bugs are caught by a few bytes.
const HEAVY: [&str; 5] = ["sizes", "striping", "write_and_read", "connects", "peer_that_never_posts"];

/// The first behaviour that fails, by name.
fn caught_by<T: Testbed>(mut bed: impl FnMut() -> T) -> Option<&'static str> {
    let mut behaviours = behaviours::<T::R>();
    behaviours.sort_by_key(|b| HEAVY.contains(&b.0));
    behaviours.into_iter().find_map(|(name, behaviour)| {
        let mut bed = bed();
        let run = || behaviour(&mut bed, Level::Quick);
        catch_unwind(AssertUnwindSafe(run)).is_err().then_some(name)
    })
}

fn ordered() -> SimBed {
    let mut bed = SimBed::ordered();
    bed.patience = PATIENCE;
    bed
}

#[cfg(feature = "planted")]
fn engine(bug: PlantedBug) {
    plant(Some(bug));
    let caught = caught_by(ordered);
    plant(None);
    let name = caught.unwrap_or_else(|| panic!("{bug:?} was not caught"));
    println!("{bug:?} is caught by {name}");
}

fn rail(bug: RailBug) {
    let name = caught_by(|| FaultyBed::new(ordered(), bug));
    let name = name.unwrap_or_else(|| panic!("{bug:?} was not caught"));
    println!("{bug:?} is caught by {name}");
}

macro_rules! planted {
    ($($run:ident($kind:ident :: $bug:ident) $name:ident,)*) => {
        $(#[test]
        fn $name() {
            $run($kind::$bug);
        })*
    };
}

#[cfg(feature = "planted")]
planted!(
    engine(PlantedBug::LostAcknowledgement) lost_acknowledgement,
    engine(PlantedBug::StaleGeneration) stale_generation,
    engine(PlantedBug::EarlyNotify) early_notify,
    engine(PlantedBug::NoReplay) lost_control_after_failover,
    engine(PlantedBug::DoubleGrant) double_grant,
    engine(PlantedBug::CreditLeak) credit_leak,
    engine(PlantedBug::WrongSize) wrong_size,
    engine(PlantedBug::TornGroup) torn_group,
    engine(PlantedBug::SwappedTags) swapped_tags,
    engine(PlantedBug::NoRevocation) sent_again_without_revocation,
    engine(PlantedBug::EarlyCompletion) completion_before_landing,
    engine(PlantedBug::LostChunks) chunks_lost_with_their_rail,
    engine(PlantedBug::TornChunk) half_chunk_counted_as_landed,
    engine(PlantedBug::EarlySendDone) send_done_before_taken,
    engine(PlantedBug::SilentTruncation) silent_truncation,
);

planted!(
    rail(RailBug::LateDuplicate) late_duplicate_into_a_reused_buffer,
    rail(RailBug::TakenTooEarly) rail_takes_too_early,
    rail(RailBug::LandedTooEarly) rail_lands_too_early,
    rail(RailBug::ControlSwapped) rail_swaps_control,
    rail(RailBug::WritesAfterDrop) rail_writes_after_drop,
    rail(RailBug::WrongPlace) rail_writes_to_the_wrong_place,
    rail(RailBug::ChunkTwice) rail_sends_a_chunk_twice,
);

#[test]
fn without_a_bug_nothing_is_caught() {
    assert_eq!(caught_by(ordered), None);
}
