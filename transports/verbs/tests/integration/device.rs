//! The suite with the memory of a simulated GPU, staged before RDMA that does not reach it (NICs in software).

use crate::common::Verbs;
use linkspan_gpu::conformance::Staged;

linkspan_transport::conformance_suite!(device, Staged::new(Verbs::new()));
