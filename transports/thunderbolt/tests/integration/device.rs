//! The suite with the memory of a simulated GPU, staged before a cable in software.

use crate::common::Cables;
use crate::common::bed::Thunderbolt;
use linkspan_gpu::conformance::Staged;

linkspan_transport::conformance_suite!(device, Staged::new(Thunderbolt::new(Cables::ring)));
