//! The suite of all transports, over loopback.

use crate::common::loopback::plain;

linkspan_transport::conformance_suite!(tcp, plain());
