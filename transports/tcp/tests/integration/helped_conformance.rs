//! The suite of all transports over rails with helper threads.

use crate::common::helpers::help;
use crate::common::lend_over;
use crate::common::loopback::Loopback;
use linkspan_tcp::{HelpedRail, Helpers, ZeroCopyPolicy};

/// All served by so many threads.
fn helped(threads: usize) -> Loopback<HelpedRail> {
    let helpers = Helpers::new(threads);
    Loopback::new(move |_, streams| {
        let (a, b) = lend_over(streams, ZeroCopyPolicy::Never);
        (help(&helpers, a), help(&helpers, b))
    })
}

linkspan_transport::conformance_suite!(helped_suite, helped(1));
