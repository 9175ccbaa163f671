//! The suite of all transports, with device memory on a simulated GPU behind a simulated card. The production code is the one
//! that runs on the kernel's sockets.

use std::sync::Arc;

use crate::common::bed::{Devmem, PAYLOAD, run};
use crate::common::{rail, rails, streams, until};
use linkspan_devmem::RailConfig;
use linkspan_devmem::sim::SimConfig;
use linkspan_gpu::conformance::StaticGpuBuf;
use linkspan_gpu::{Gpu, GpuError, SimGpu, StageMemory};
use linkspan_proto::{Head, Kind};
use linkspan_transport::{Buf, Conn, Rail, StaticBuf};

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

/// The simulated stream looks at that when it is dropped.
#[test]
fn a_rail_that_ends_waits_until_its_card_reads_device_memory_no_more() {
    let gpu = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let any: Arc<dyn Gpu> = gpu.clone();
    let (mut a, _b) = rails(&gpu, SimConfig::default());
    let memory = StaticGpuBuf::new(&any, 1 << 20).unwrap();
    let mut head = Head::new(Kind::Chunk);
    head.len.set(1 << 20);
    a.prepare(memory.slice(), false);
    a.data(&head, memory.slice()).unwrap();
    a.flush().unwrap();
    drop(a);
}

/// What a rail needs beside its GPU's pages is there before the card is asked: without, payload goes on to come to the host.
#[test]
fn a_rail_without_memory_for_its_gpu_goes_on_as_it_was() {
    let gpu = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let any: Arc<dyn Gpu> = gpu.clone();
    for (mib, attaches) in [(1, false), (4, true)] {
        let ((a, b), (c, d)) = (streams(), streams());
        let config = RailConfig { memory: StageMemory::new(mib << 20), ..RailConfig::default() };
        let a = rail(&gpu, a, c, SimConfig::default(), RailConfig::default());
        let mut b = rail(&gpu, b, d, SimConfig::default(), config);
        match b.attach(&any) {
            Ok(()) => assert!(attaches && b.event().unwrap().contains("it comes to the host and is copied to the GPU")),
            Err(error) => assert!(!attaches && matches!(error, GpuError::StageMemory { .. }), "{error}"),
        }
        assert!(b.pool().is_none());
        let (mut a, mut b) = (Conn::new([a], false), Conn::new([b], false));
        let (src, dst) = (StaticBuf::new(100_000), StaticBuf::new(100_000));
        assert!(src.slice().fill(0, &[7; 100_000]));
        let recv = b.post_recv(&[(1, dst.slice())]).unwrap().unwrap();
        let mut send = None;
        until("the message", || {
            send = send.or_else(|| a.post_send(1, src.slice()).unwrap());
            a.progress().unwrap();
            b.progress().unwrap_or_else(|error| panic!("{error}: {:?}", b.lost()));
            b.test(recv).unwrap()
        });
        assert!(dst.slice().to_vec() == [7; 100_000]);
    }
}
