//! The queue as NCCL's kernel reads it: golden offsets, written down here once more from NCCL's headers.

use std::sync::Arc;

use linkspan_transport::Buf;

use super::*;
use crate::{GpuBuf, SimConfig, SimGpu};

/// `netUnpackMeta.mem[slot][piece]` and `.cnt[slot]`.
fn piece(queue: &Queue, slot: usize, piece: usize) -> (u32, u32, u64) {
    let mut out = [0; 16];
    assert!(queue.memory().read((slot * 32768 + piece * 16) as u64, &mut out));
    let u32_at = |at: usize| u32::from_le_bytes(out[at..at + 4].try_into().unwrap());
    (u32_at(0), u32_at(4), u64::from_le_bytes(out[8..].try_into().unwrap()))
}

fn word(queue: &Queue, at: u64) -> u64 {
    let mut out = [0; 8];
    assert!(queue.memory().read(at, &mut out));
    u64::from_le_bytes(out)
}

fn count(queue: &Queue, slot: u64) -> u64 {
    word(queue, 524_288 + slot * 8)
}

struct World {
    queue: Arc<Queue>,
    pool: GpuBuf,
    dst: GpuBuf,
}

impl World {
    fn new() -> World {
        let gpu: Arc<dyn Gpu> = SimGpu::new(SimConfig::default()).unwrap();
        let (pool, dst) = (GpuBuf::new(&gpu, 64 << 12).unwrap(), GpuBuf::new(&gpu, 16 << 20).unwrap());
        let queue = Queue::new(&gpu, bounce((pool.mem().place(), pool.mem().as_ptr() as u64))).unwrap();
        World { queue, pool, dst }
    }

    fn pool_at(&self, offset: u64) -> u64 {
        self.pool.mem().as_ptr() as u64 + offset
    }

    fn dst(&self, at: u64, len: u64) -> MemSlice {
        self.dst.mem().sub(at, len).unwrap()
    }

    fn dst_at(&self, at: u64) -> u64 {
        self.dst.mem().as_ptr() as u64 + at
    }
}

#[test]
fn the_handle_names_queue_and_bounce_buffer() {
    let w = World::new();
    let queue = w.queue.memory().as_ptr() as u64;
    let at = w.queue.handle() - queue;
    assert_eq!((w.queue.handle() % 16, HANDLE_LEN), (0, 24));
    assert_eq!(word(&w.queue, at), queue);
    assert_eq!(word(&w.queue, at + 8), w.pool_at(0));
    // The kernel counts up before it looks: the first receive is in slot 0.
    assert_eq!((word(&w.queue, at + 16) + 1) % 16, 0);
    assert_eq!(
        bounce((w.dst.mem().place(), w.dst.mem().as_ptr() as u64)),
        w.pool_at(0),
        "one bounce buffer for each device"
    );
}

#[test]
fn pieces_and_counts_stand_where_the_kernel_looks() {
    let w = World::new();
    for number in 0..40 {
        let slot = number % 16;
        assert_eq!(w.queue.open(w.dst(number << 16, 1 << 16)), Some(number));
        assert!(w.queue.push(number, w.pool_at(4096 * 3), 100, w.dst_at((number << 16) + 7)));
        // Goes on where the last ends, in both.
        assert!(w.queue.push(number, w.pool_at(4096 * 3 + 100), 50, w.dst_at((number << 16) + 107)));
        assert!(w.queue.push(number, w.pool_at(5), 1, w.dst_at((number << 16) + 157)));
        // A long one is cut.
        assert!(w.queue.push(number, w.pool_at(4096), 9000, w.dst_at((number << 16) + 158)));
        w.queue.finish(number);
        assert_eq!(count(&w.queue, slot), 5);
        let pieces: Vec<_> = (0..5).map(|n| piece(&w.queue, slot as usize, n)).collect();
        let want = [(12288, 150, 7), (5, 1, 157), (4096, 4096, 158), (8192, 4096, 4254), (12288, 808, 8350)];
        assert_eq!(pieces, want);
        w.queue.consume(number);
        assert_eq!(w.queue.consumed(), number + 1);
    }
}

#[test]
fn sixteen_receives_and_not_one_more() {
    let w = World::new();
    for number in 0..16 {
        assert_eq!(w.queue.open(w.dst(0, 16)), Some(number));
    }
    assert_eq!(w.queue.open(w.dst(0, 16)), None);
    // Out of order: what came before still holds its pages.
    w.queue.consume(1);
    assert_eq!((w.queue.consumed(), w.queue.open(w.dst(0, 16))), (0, None));
    w.queue.consume(0);
    assert_eq!((w.queue.consumed(), w.queue.open(w.dst(0, 16))), (2, Some(16)));
    // One that the connection did not take after all, and its number again.
    w.queue.close(16);
    assert_eq!(w.queue.open(w.dst(0, 16)), Some(16));
    w.queue.finish(16);
    assert_eq!(count(&w.queue, 0), 0);
}

#[test]
fn which_receive_a_chunk_is_of() {
    let w = World::new();
    let host = linkspan_transport::StaticBuf::new(4096);
    assert_eq!(w.queue.open(w.dst(0, 100)), Some(0));
    assert_eq!(w.queue.open(w.dst(200, 100)), Some(1));
    assert_eq!(w.queue.open(host.slice()), Some(2));
    for (at, len, of) in [(0, 100, Some(0)), (40, 60, Some(0)), (40, 61, None), (299, 1, Some(1)), (300, 1, None)] {
        assert_eq!(w.queue.of(w.dst(at, len)), of, "{len} bytes at {at}");
    }
    w.queue.finish(0);
    // Posted again into the same place before the kernel has read the first.
    assert_eq!(w.queue.open(w.dst(0, 100)), Some(3));
    assert_eq!(w.queue.of(w.dst(5, 5)), Some(3));
    w.queue.consume(3);
    assert_eq!(w.queue.of(w.dst(5, 5)), Some(0));
    assert!(!w.queue.push(3, w.pool_at(0), 1, w.dst_at(5)), "a receive that is no more");
}

#[test]
fn what_the_queue_cannot_say_is_refused() {
    let w = World::new();
    assert_eq!(w.queue.open(w.dst(0, 16 << 20)), Some(0));
    assert!(!w.queue.push(0, w.pool_at(0) - 1, 1, w.dst_at(0)), "before the bounce buffer");
    assert!(!w.queue.push(0, w.pool_at(1 << 32), 1, w.dst_at(0)), "4 GiB behind it");
    assert!(w.queue.push(0, w.pool_at((1 << 32) - 1), 1, w.dst_at(0)));
    for n in 1..2048 {
        assert!(w.queue.push(0, w.pool_at(2 * n), 1, w.dst_at(8 * n)), "piece {n}");
    }
    assert!(!w.queue.push(0, w.pool_at(0), 1, w.dst_at(9)), "2048 pieces");
    assert!(w.queue.push(0, w.pool_at(2 * 2047 + 1), 5, w.dst_at(8 * 2047 + 1)), "a longer last one");
    assert!(!w.queue.push(0, w.pool_at(2 * 2047 + 6), 4096, w.dst_at(8 * 2047 + 6)), "that needs one more");
    w.queue.finish(0);
    assert_eq!(count(&w.queue, 0), 2048);
    assert_eq!(piece(&w.queue, 0, 2047), (4094, 6, 16376));
}
