//! The suite with the memory of a simulated GPU, staged before RDMA that does not reach it (NICs in software).

use crate::common::Verbs;
use linkspan_gpu::conformance::Staged;
use linkspan_verbs::VerbsRail;
use linkspan_verbs_sys::soft::SoftNic;

fn room() -> Staged<VerbsRail<SoftNic>> {
    let verbs = Verbs::new();
    Staged::new(2, move |_| verbs.rails())
}

linkspan_transport::conformance_suite!(device, room());
