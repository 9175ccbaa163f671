//! The suite with the memory of a simulated GPU, staged.

use crate::common::loopback::plain;
use linkspan_gpu::conformance::Staged;

linkspan_transport::conformance_suite!(device, Staged::new(plain()));
