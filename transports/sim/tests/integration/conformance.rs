//! The suite over simulated links of three kinds.

use crate::common::SimBed;
use linkspan_sim::SimRail;
use linkspan_transport::conformance::{Level, behaviours};
use linkspan_transport::conformance_suite;

conformance_suite!(single_threaded ordered, SimBed::ordered());
conformance_suite!(single_threaded chunks_overtake_control, SimBed::unordered());
conformance_suite!(single_threaded small_pieces, SimBed::tight());

#[test]
fn the_quick_level_connects_at_most_200_times() {
    let mut bed = SimBed::ordered();
    for (_, behaviour) in behaviours::<SimRail>() {
        behaviour(&mut bed, Level::Quick);
    }
    assert!(bed.pairs <= 200, "{} connects", bed.pairs);
}
