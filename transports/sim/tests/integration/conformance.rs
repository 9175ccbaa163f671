//! The suite over simulated links of three kinds.

use crate::common::SimRoom;
use linkspan_transport::conformance::{Level, behaviours};
use linkspan_transport::conformance_suite;

conformance_suite!(single_threaded ordered, SimRoom::ordered());
conformance_suite!(single_threaded chunks_overtake_control, SimRoom::unordered());
conformance_suite!(single_threaded small_pieces, SimRoom::tight());

#[test]
fn the_quick_level_connects_at_most_200_times() {
    let mut room = SimRoom::ordered();
    for (_, behaviour) in behaviours::<SimRoom>() {
        behaviour(&mut room, Level::Quick);
    }
    assert!(room.pairs <= 200, "{} connects", room.pairs);
}
