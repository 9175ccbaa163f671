//! The suite over simulated links of three kinds.

mod common;

use common::SimRoom;
use linkspan_transport::conformance_suite;

conformance_suite!(single_threaded ordered, SimRoom::ordered());
conformance_suite!(single_threaded chunks_overtake_control, SimRoom::unordered());
conformance_suite!(single_threaded small_pieces, SimRoom::tight());
