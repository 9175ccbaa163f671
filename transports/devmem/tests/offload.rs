//! NCCL's device offload over simulated cards: the test plays NCCL's kernel, which puts in place what the queue tells it of.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::VecDeque;
use std::sync::Arc;

use common::{SimRail, rails, until};
use linkspan_devmem::sim::SimConfig;
use linkspan_gpu::offload::{Queue, SLOTS, bounce};
use linkspan_gpu::{Gpu, GpuBuf, SimGpu};
use linkspan_transport::{Buf, Conn, MemSlice, Ticket};

/// The receiving side, and what NCCL's kernel knows of it.
struct Receiver {
    conn: Conn<SimRail>,
    queue: Arc<Queue>,
    gpu: Arc<SimGpu>,
    pool: MemSlice,
    /// Pieces that the kernel brought to their places.
    pieces: u64,
}

impl Receiver {
    /// What the kernel does with a receive: the pieces, and their bytes.
    fn kernel(&mut self, number: u64, dst: MemSlice) -> Vec<(u64, Vec<u8>)> {
        self.gpu.flush_writes().unwrap();
        let (slot, memory) = (number as usize % SLOTS, self.queue.memory());
        let mut count = [0; 8];
        assert!(memory.read((SLOTS * 32768 + slot * 8) as u64, &mut count));
        let mut read = Vec::new();
        for n in 0..u64::from_le_bytes(count) {
            let mut piece = [0; 16];
            assert!(memory.read(slot as u64 * 32768 + n * 16, &mut piece));
            let piece = linkspan_gpu::unpack::Piece::from_bytes(&piece);
            let mut bytes = vec![0; piece.len as usize];
            assert!(self.pool.read(piece.src.into(), &mut bytes), "{piece:?} is not in the pool");
            assert!(dst.fill(piece.dst, &bytes), "{piece:?} is not in the receive");
            self.pieces += 1;
            read.push((piece.src.into(), bytes));
        }
        read
    }
}

fn world(sim: SimConfig) -> (Conn<SimRail>, Receiver, Arc<dyn Gpu>) {
    let gpu = SimGpu::new(linkspan_gpu::SimConfig { seed: sim.seed, ..Default::default() }).unwrap();
    let any: Arc<dyn Gpu> = gpu.clone();
    let (a, mut b) = rails(&gpu, sim);
    let pool = b.pool().unwrap();
    let queue = Queue::new(&any, bounce(pool)).unwrap();
    assert!(b.offload(&queue));
    let conn = Conn::new([b], false);
    (Conn::new([a], false), Receiver { conn, queue, gpu, pool, pieces: 0 }, any)
}

/// Where pieces of a message belong, and their bytes.
type Pieces = Vec<(u64, Vec<u8>)>;

/// Messages of many lengths, up to `depth` received and not consumed, every fifth one of LL's kind, which the kernel does not
/// know of. Pages must hold still until the kernel is done with them. Returns the pieces, and what the queue counted.
fn run(sim: SimConfig, messages: u64, depth: usize) -> (u64, (u64, u64)) {
    let (mut a, mut b, any) = world(sim);
    let most = 300_000;
    let (src, dst) = (GpuBuf::new(&any, most).unwrap(), GpuBuf::new(&any, (depth + 1) * most).unwrap());
    let mut late: VecDeque<(u64, Pieces)> = VecDeque::new();
    let lengths = [0, 1, 700, 8192, 8193, 40_000, 123_457, most];
    for n in 0..messages {
        let len = lengths[(n * 7 + n / 8) as usize % lengths.len()];
        let bytes: Vec<u8> = (0..len as u64).map(|i| (i * 31 + n * 7 + (i >> 9)) as u8).collect();
        assert!(src.slice().fill(0, &bytes));
        let (out, place) = (src.slice().sub(0, len as u64).unwrap(), (n % (depth as u64 + 1)) * most as u64);
        let into = dst.slice().sub(place, len as u64).unwrap();
        assert!(into.fill(0, &vec![0xEE; len]));
        let number = (n % 5 != 4).then(|| b.queue.open(into).unwrap());
        let recv: Ticket = b.conn.post_recv(&[(1, into)]).unwrap().unwrap();
        let (mut send, mut done, mut sent) = (None, false, false);
        until("the message", || {
            send = send.or_else(|| a.post_send(1, out).unwrap());
            a.progress().unwrap();
            b.conn.progress().unwrap();
            done = done || b.conn.test(recv).unwrap().is_some();
            sent = sent || a.test(send?).unwrap().is_some();
            (done && sent).then_some(())
        });
        if let Some(number) = number {
            b.queue.finish(number);
            let read = b.kernel(number, into);
            late.push_back((number, read));
        }
        assert!(into.to_vec() == bytes, "message {n} of {len} bytes");
        while late.len() > depth || (n + 1 == messages && !late.is_empty()) {
            let (number, read) = late.pop_front().unwrap();
            for (at, bytes) in read {
                let mut now = vec![0; bytes.len()];
                assert!(b.pool.read(at, &mut now));
                assert!(now == bytes, "a page was used again before the kernel had read it, receive {number}");
            }
            b.queue.consume(number);
        }
    }
    assert_eq!(b.gpu.fault(), None, "work in a wrong order");
    (b.pieces, b.queue.counts())
}

#[test]
fn the_kernel_finds_every_byte() {
    let (pieces, (left, _)) = run(SimConfig { pages: 2048, ..SimConfig::default() }, 64, 7);
    assert!(pieces > 500 && left > 500, "{pieces} pieces, {left} fragments");
}

/// Of few pages the kernel gets half, and what finds no room is put in place by us.
#[test]
fn few_pages() {
    let (pieces, _) = run(SimConfig { seed: 2, pages: 48, mss: 8948, ..SimConfig::default() }, 48, 7);
    assert!(pieces > 20, "{pieces} pieces");
}

/// Segments of a few bytes: more pieces than a receive has room for.
#[test]
fn short_segments() {
    let sim = SimConfig { seed: 3, pages: 16_384, mss: 61, linear: 9, plain: 31, ..SimConfig::default() };
    let (pieces, _) = run(sim, 16, 2);
    assert!(pieces > 2048, "{pieces} pieces");
}
