//! The suite with the memory of a simulated GPU, staged before a cable in software.

use crate::common::Cables;
use linkspan_gpu::conformance::Staged;
use linkspan_thunderbolt::CableRail;

fn room() -> Staged<CableRail> {
    let mut cables = Cables::ring();
    Staged::new(3, move |fresh| {
        if fresh {
            cables = Cables::ring();
        }
        cables.rails()
    })
}

linkspan_transport::conformance_suite!(device, room());
