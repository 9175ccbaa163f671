//! The suite of all transports, with device memory on a simulated GPU behind a simulated card. The production code is the one
//! that runs on the kernel's sockets.

use crate::common::bed::{Devmem, PAYLOAD, run};
use linkspan_devmem::sim::SimConfig;

linkspan_transport::conformance_suite!(devmem, Devmem::new(SimConfig::default()));

// Each process has a device and a card of its own.
linkspan_transport::processes_suite!(processes, Devmem::new(SimConfig::default()));

/// Jumbo frames, a card that sends from the host only, and so few pages that the stream is always short of them.
#[test]
fn few_pages_and_long_segments() {
    run(&PAYLOAD, || Devmem::new(SimConfig { seed: 7, pages: 9, mss: 8948, lends: false, ..SimConfig::default() }));
}

/// Segments of a few bytes: batches fill up with pieces.
#[test]
fn short_segments() {
    let sim = SimConfig { seed: 9, pages: 4096, mss: 61, linear: 5, plain: 9, ..SimConfig::default() };
    run(&["ordering_per_tag", "notify_comes_after_its_bytes"], || Devmem::new(sim));
}

/// A card that binds nothing: everything goes by way of the host.
#[test]
fn a_card_that_refuses() {
    run(&PAYLOAD, || {
        Devmem::new(SimConfig { refuses: Some("its driver cannot"), lends: false, ..SimConfig::default() })
    });
}
