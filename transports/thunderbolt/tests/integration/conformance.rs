//! The suite of all transports, over both tiers in software: the ring driver's device, streams with the ring that
//! Linux makes by default, and streams with the smallest that it makes.

use crate::common::Cables;
use crate::common::bed::Thunderbolt;

mod ring {
    use super::*;
    linkspan_transport::conformance_suite!(tier1, Thunderbolt::new(Cables::ring));
}

mod stream {
    use super::*;
    linkspan_transport::conformance_suite!(tier2, Thunderbolt::new(|| Cables::streams(6, 256)));
}

mod narrow {
    use super::*;
    linkspan_transport::conformance_suite!(tier2, Thunderbolt::new(|| Cables::streams(6, 32)));
}

linkspan_transport::processes_suite!(
    ignored processes,
    "the cable in software lives in one process; over the virtual cable the lab joins two machines"
);
