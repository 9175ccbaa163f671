//! The suite of all transports, over loopback, with payload that goes through a pipe wherever a connection allows it.

use crate::common::lend_over;
use crate::common::loopback::Loopback;
use linkspan_tcp::{TcpRail, ZeroCopyPolicy};

fn piped() -> Loopback<TcpRail> {
    Loopback::new(|want, streams| {
        // Without acknowledgements an operation is done when the rail has taken it, and its memory changes.
        lend_over(streams, if want.acked { ZeroCopyPolicy::Piped(4096) } else { ZeroCopyPolicy::Never })
    })
}

linkspan_transport::conformance_suite!(piped, piped());
