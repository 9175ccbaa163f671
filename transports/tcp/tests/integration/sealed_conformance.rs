//! The suite of all transports over encrypted rails.

use crate::common::loopback::Loopback;
use crate::common::sealed::seal_over;

linkspan_transport::conformance_suite!(encrypted, Loopback::new(|_, streams| seal_over(streams)));
