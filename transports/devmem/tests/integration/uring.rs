//! io_uring's zero-copy receive on the kernel of this machine: the transport's payload over its mode without a card where there is one, and
//! else what the kernel says and what the rail makes of it.

use std::os::fd::AsFd;
use std::sync::Arc;

use crate::common::bed::{PAYLOAD, run};
use crate::common::uring::{here, uring};
use crate::common::{Leaves, streams};
use linkspan_devmem::Bound;
use linkspan_gpu::{Gpu, SimGpu};

#[test]
fn payload_lands_by_io_uring_or_the_kernel_says_why_not() {
    match here() {
        Ok(()) => run(&PAYLOAD, || uring(96)),
        Err(why) => {
            println!("cannot be tested here: {why}");
            assert!(why.contains("LS1335"), "{why}");
            let words =
                ["Invalid argument", "Operation not permitted", "Function not implemented", "Permission denied"];
            assert!(words.iter().any(|word| why.contains(word)), "not the kernel's own words: {why}");
        }
    }
}

/// A card that does not exist, whatever this kernel can.
#[test]
fn a_queue_that_cannot_be_is_refused_with_the_step_and_the_word() {
    let gpu: Arc<dyn Gpu> = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let (a, _b) = streams();
    let stream = Leaves::new(a);
    let why = Bound::by_ring(&gpu, stream.as_fd(), (1, 0), 1 << 20, Box::new(())).unwrap_err();
    assert!(why.contains("dma-buf"), "a simulated GPU exports nothing: {why}");
    assert!(Bound::copied(&gpu, stream.as_fd(), 0).is_err(), "an area of nothing");
}
