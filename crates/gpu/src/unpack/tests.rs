//! Every way puts the same bytes in the same places.
#![allow(clippy::unwrap_used)]

use linkspan_transport::Buf;

use super::*;
use crate::{SimConfig, SimGpu};

/// Pieces of a message cut at every `mss` bytes, in pages of a pool taken in an order of their own.
struct Received {
    pool: Vec<u8>,
    message: Vec<u8>,
    pieces: Vec<(u64, u32, u64)>,
}

fn received(len: usize, mss: usize, seed: u64) -> Received {
    const PAGE: usize = 4096;
    let mut x = seed;
    let mut next = |n: usize| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as usize % n.max(1)
    };
    let message: Vec<u8> = (0..len).map(|_| next(256) as u8).collect();
    let cuts: Vec<&[u8]> = message.chunks(mss.min(PAGE)).collect();
    let mut pages: Vec<usize> = (0..cuts.len()).collect();
    for i in (1..pages.len()).rev() {
        // Half of the time in order, so that neighbours meet.
        if seed.is_multiple_of(2) {
            pages.swap(i, next(i + 1));
        }
    }
    let mut pool = vec![0xEE; cuts.len() * PAGE];
    let (mut pieces, mut dst) = (Vec::new(), 0);
    for (cut, page) in cuts.iter().zip(pages) {
        let at = page * PAGE + if cut.len() < PAGE { next(PAGE - cut.len()) } else { 0 };
        pool[at..at + cut.len()].copy_from_slice(cut);
        pieces.push((at as u64, cut.len() as u32, dst));
        dst += cut.len() as u64;
    }
    Received { pool, message, pieces }
}

#[test]
fn every_way_is_byte_for_byte_the_same() {
    for (seed, mss) in [1usize, 7, 536, 1448, 4096, 4096, 8948].into_iter().enumerate() {
        for way in [Some(CopyMode::Kernel), Some(CopyMode::D2d), Some(CopyMode::Host), None] {
            let len = if mss < 500 { mss * 1500 } else { 300_000 + seed };
            let r = received(len, mss, seed as u64);
            let sim = SimGpu::new(SimConfig { seed: seed as u64, ..SimConfig::default() }).unwrap();
            let gpu: Arc<dyn Gpu> = sim.clone();
            let mut unpacker = Unpacker::new(&gpu, way).unwrap();
            let (pool, dst) = (GpuBuf::new(&gpu, r.pool.len()).unwrap(), GpuBuf::new(&gpu, len).unwrap());
            assert!(pool.mem().fill(0, &r.pool));
            let mut batch = Batch::new(r.pool.len() as u64, len as u64);
            for &(src, len, dst) in &r.pieces {
                batch.push(src, len, dst).unwrap();
            }
            assert!(unpacker.start(pool.mem(), dst.mem(), &batch).unwrap());
            while !unpacker.done().unwrap() {}
            assert!(dst.mem().to_vec() == r.message, "{way:?} with pieces of {mss}");
            assert_eq!(sim.fault(), None);
        }
    }
}

#[test]
fn a_batch_is_not_started_before_the_one_before_is_done() {
    let gpu: Arc<dyn Gpu> = SimGpu::new(SimConfig { delay: 50, ..SimConfig::default() }).unwrap();
    let mut unpacker = Unpacker::new(&gpu, Some(CopyMode::Kernel)).unwrap();
    let (pool, dst) = (GpuBuf::new(&gpu, 4096).unwrap(), GpuBuf::new(&gpu, 4096).unwrap());
    let mut batch = Batch::new(4096, 4096);
    batch.push(0, 4096, 0).unwrap();
    assert!(unpacker.start(pool.mem(), dst.mem(), &batch).unwrap());
    let mut waited = 0;
    while !unpacker.start(pool.mem(), dst.mem(), &batch).unwrap() {
        waited += 1;
    }
    assert!(waited > 0);
}

#[test]
fn longer_than_the_bounce_buffer() {
    let gpu: Arc<dyn Gpu> = SimGpu::new(SimConfig::default()).unwrap();
    let len = 2 * BOUNCE + 12_345;
    let mut unpacker = Unpacker::new(&gpu, Some(CopyMode::Host)).unwrap();
    let (pool, dst) = (GpuBuf::new(&gpu, len + 100).unwrap(), GpuBuf::new(&gpu, len).unwrap());
    let bytes: Vec<u8> = (0..len + 100).map(|i| (i * 31 + i / 4093) as u8).collect();
    assert!(pool.mem().fill(0, &bytes));
    let mut batch = Batch::new(len as u64 + 100, len as u64);
    // The second half first, and one long piece.
    let half = len as u64 / 2;
    batch.push(100 + half, (len as u64 - half) as u32, half).unwrap();
    batch.push(100, half as u32, 0).unwrap();
    assert!(unpacker.start(pool.mem(), dst.mem(), &batch).unwrap());
    while !unpacker.done().unwrap() {}
    assert!(dst.mem().to_vec() == bytes[100..]);
}

#[test]
fn neighbours_are_merged_and_nothing_else() {
    let mut batch = Batch::new(1 << 20, 1 << 20);
    batch.push(0, 100, 0).unwrap();
    batch.push(100, 50, 100).unwrap();
    batch.push(150, 0, 150).unwrap();
    batch.push(150, 10, 200).unwrap(); // a gap in the message
    batch.push(300, 10, 210).unwrap(); // a gap in the pool
    batch.push(290, 10, 220).unwrap(); // backwards
    let want = [(0, 150, 0), (150, 10, 200), (300, 10, 210), (290, 10, 220)];
    assert_eq!(batch.pieces(), want.map(|(src, len, dst)| Piece { src, len, dst }));
    assert_eq!((batch.bytes(), batch.longest()), (180, 150));
}

#[test]
fn pieces_outside_are_refused() {
    let mut batch = Batch::new(1000, 500);
    assert_eq!(batch.push(990, 11, 0), Err(Misfit::Source));
    assert_eq!(batch.push(u64::MAX, 1, 0), Err(Misfit::Source));
    assert_eq!(batch.push(0, 11, 490), Err(Misfit::Target));
    assert_eq!(batch.push(0, 1, u64::MAX), Err(Misfit::Target));
    assert!(batch.pieces().is_empty());
    // Offsets of more than 32 bits do not fit into a descriptor.
    let mut large = Batch::new(1 << 40, 500);
    assert_eq!(large.push((1 << 32) - 5, 5, 0), Ok(()));
    assert_eq!(large.push((1 << 32) - 5, 6, 0), Err(Misfit::Source));
    for i in 0..PIECES as u64 - 1 {
        large.push(i * 2, 1, 0).unwrap();
    }
    assert_eq!(large.push(0, 1, 0), Err(Misfit::Full));
    large.clear(10);
    assert_eq!((large.pieces().len(), large.target()), (0, 10));
}

#[test]
fn a_batch_for_a_longer_message_is_refused() {
    let gpu: Arc<dyn Gpu> = SimGpu::new(SimConfig::default()).unwrap();
    let mut unpacker = Unpacker::new(&gpu, None).unwrap();
    let (pool, dst) = (GpuBuf::new(&gpu, 4096).unwrap(), GpuBuf::new(&gpu, 100).unwrap());
    let batch = Batch::new(4096, 101);
    let error = unpacker.start(pool.mem(), dst.mem(), &batch).unwrap_err();
    assert!(error.to_string().starts_with("LS1306"), "{error}");
}

/// A device that has `memory` bytes, and so many events for us.
fn short_of(memory: u64, events: usize) -> Arc<dyn Gpu> {
    let gpu: Arc<dyn Gpu> = SimGpu::new(SimConfig { memory, ..SimConfig::default() }).unwrap();
    let all: Vec<Event> = std::iter::from_fn(|| gpu.event().ok()).collect();
    all[..events].iter().for_each(|event| gpu.retire_event(*event));
    gpu
}

#[test]
fn what_could_not_be_set_up_leaves_its_streams_and_events_to_others() {
    let enough = 1 << 20;
    for (gpu, why) in [(short_of(4096, 1), "LS1303"), (short_of(enough, 0), "LS1307")] {
        for _ in 0..3 {
            let error = Unpacker::new(&gpu, None).err().unwrap();
            assert!(error.to_string().starts_with(why), "{error}");
        }
        assert_eq!(gpu.stream().unwrap(), Stream(0), "{why}");
    }
    let gpu = short_of(4096, 1);
    assert!(Unpacker::new(&gpu, None).is_err());
    assert!(gpu.event().is_ok(), "the last event");
}

/// Bytes of a descriptor, as NCCL's kernels read them.
#[test]
fn descriptors_have_the_layout_of_load_meta() {
    let piece = Piece { src: 0x0403_0201, len: 0x0807_0605, dst: 0x100F_0E0D_0C0B_0A09 };
    assert_eq!(piece.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    assert_eq!(Piece::from_bytes(&piece.to_bytes()), piece);
}

#[test]
fn ways_have_names() {
    assert_eq!(
        ["kernel", "d2d", "host", ""].map(CopyMode::named),
        [Some(CopyMode::Kernel), Some(CopyMode::D2d), Some(CopyMode::Host), None]
    );
}

/// The PTX in the tree was made from the kernel in the tree.
#[test]
fn the_ptx_is_of_this_kernel() {
    let hash = KERNEL.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let first = PTX.lines().next().unwrap();
    assert!(first.contains(&format!("{hash:#018x}")), "stale: {first}, the kernel has {hash:#018x}");
    assert!(PTX.contains(".visible .entry linkspan_unpack("));
}
