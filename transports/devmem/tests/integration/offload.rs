//! NCCL's device offload over simulated cards: the test plays NCCL's kernel, which puts in place what the queue tells it of.

use std::collections::VecDeque;
#[cfg(feature = "planted")]
use std::panic::catch_unwind;
use std::sync::Arc;

use crate::common::{SimRail, rails, until};
use linkspan_devmem::sim::SimConfig;
#[cfg(feature = "planted")]
use linkspan_devmem::{PlantedBug, plant};
use linkspan_gpu::conformance::StaticGpuBuf;
use linkspan_gpu::offload::{Queue, SLOTS, bounce};
use linkspan_gpu::{Gpu, SimGpu};
use linkspan_transport::gpu::DeviceQueue;
use linkspan_transport::{Buf, Conn, Down, MemSlice, Rail, Ticket};

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

fn world(sim: SimConfig, paths: usize) -> (Conn<SimRail>, Receiver, Arc<dyn Gpu>) {
    let gpu = SimGpu::new(linkspan_gpu::SimConfig { seed: sim.seed, ..Default::default() }).unwrap();
    let any: Arc<dyn Gpu> = gpu.clone();
    let (a, mut b): (Vec<_>, Vec<_>) = (0..paths).map(|_| rails(&gpu, sim)).unzip();
    let pools = || b.iter().filter_map(Rail::pool);
    let (first, last) = (pools().min_by_key(|p| p.1).unwrap(), pools().max_by_key(|p| p.1).unwrap());
    let queue = Queue::new(&any, bounce(first)).unwrap();
    b.iter_mut().for_each(|b| b.offload(&(queue.clone() as Arc<dyn DeviceQueue>)));
    // SAFETY: the handle goes into a value beside the rails; a simulated GPU finds by itself what of it is not theirs.
    let pool =
        unsafe { MemSlice::on_device(first.0, first.1, (last.1 - first.1) as usize + sim.pages as usize * 4096) };
    let conn = Conn::new(b, false);
    (Conn::new(a, false), Receiver { conn, queue, gpu, pool, pieces: 0 }, any)
}

/// Where pieces of a message belong, and their bytes.
type Pieces = Vec<(u64, Vec<u8>)>;

/// Some travel as one control message, others in chunks.
const LENGTHS: [usize; 8] = [0, 1, 700, 8192, 8193, 40_000, 123_457, 300_000];

/// Messages of these lengths, two under way at a time, up to `depth` received and not consumed, every fifth one of LL's kind, which
/// the kernel does not know of. Pages must hold still until the kernel is done with them. Returns the pieces, and what the queue
/// counted.
fn run(sim: SimConfig, messages: u64, depth: usize, lengths: &[usize]) -> (u64, (u64, u64)) {
    let (mut a, mut b, any) = world(sim, 1);
    let most = LENGTHS[7];
    let (src, dst) = (StaticGpuBuf::new(&any, 2 * most).unwrap(), StaticGpuBuf::new(&any, (depth + 3) * most).unwrap());
    let mut late: VecDeque<(u64, Pieces)> = VecDeque::new();
    for pair in 0..messages / 2 {
        let posted = [2 * pair, 2 * pair + 1].map(|n| {
            let len = lengths[(n * 7 + n / 8) as usize % lengths.len()];
            let bytes: Vec<u8> = (0..len as u64).map(|i| (i * 31 + n * 7 + (i >> 9)) as u8).collect();
            let out = src.slice().sub(n % 2 * most as u64, len as u64).unwrap();
            let into = dst.slice().sub(n % (depth as u64 + 3) * most as u64, len as u64).unwrap();
            assert!(out.fill(0, &bytes) && into.fill(0, &vec![0xEE; len]));
            let number = (n % 5 != 4).then(|| b.queue.open(into).unwrap());
            let recv: Ticket = b.conn.post_recv(&[(1, into)]).unwrap().unwrap();
            (n, bytes, out, into, number, recv)
        });
        let (mut sends, mut sent, mut done) = ([None; 2], [false; 2], [false; 2]);
        until("two messages", || {
            for (n, (_, _, out, _, _, recv)) in posted.iter().enumerate() {
                if sends[n].is_none() && (n == 0 || sends[0].is_some()) {
                    sends[n] = a.post_send(1, *out).unwrap();
                }
                sent[n] = sent[n] || sends[n].is_some_and(|send| a.test(send).unwrap().is_some());
                done[n] = done[n] || b.conn.test(*recv).unwrap().is_some();
            }
            a.progress().unwrap();
            b.conn.progress().unwrap();
            (sent == [true; 2] && done == [true; 2]).then_some(())
        });
        for (n, bytes, _, into, number, _) in posted {
            if let Some(number) = number {
                b.queue.finish(number);
                let read = b.kernel(number, into);
                late.push_back((number, read));
            }
            assert!(into.to_vec() == bytes, "message {n} of {} bytes", bytes.len());
        }
        while late.len() > depth || (pair + 1 == messages / 2 && !late.is_empty()) {
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
    let (pieces, (left, _)) = run(SimConfig { pages: 2048, ..SimConfig::default() }, 64, 7, &LENGTHS);
    assert!(pieces > 500 && left > 500, "{pieces} pieces, {left} fragments");
}

/// Of few pages the kernel gets half, and what finds no space is put in place by us.
#[test]
fn few_pages() {
    let (pieces, _) = run(SimConfig { seed: 2, pages: 48, mss: 8948, ..SimConfig::default() }, 48, 7, &LENGTHS);
    assert!(pieces > 20, "{pieces} pieces");
}

/// Segments of a few bytes: more pieces than a receive has space for.
#[test]
fn short_segments() {
    let sim = SimConfig { seed: 3, pages: 16_384, mss: 61, linear: 9, plain: 31, ..SimConfig::default() };
    let (pieces, _) = run(sim, 16, 2, &LENGTHS);
    assert!(pieces > 2048, "{pieces} pieces");
}

/// Its only path, or one of two, ends when it has left pieces to the kernel and before that has read them.
#[test]
fn pages_of_a_lost_path_stay_until_the_kernel_has_read_them() {
    for paths in [1, 2] {
        let (a, mut b, any) = world(SimConfig { pages: 1024, ..SimConfig::default() }, paths);
        let len = 3 << 20;
        let (src, dst) = (StaticGpuBuf::new(&any, len).unwrap(), StaticGpuBuf::new(&any, len).unwrap());
        let bytes: Vec<u8> = (0..len as u64).map(|i| (i * 31 + (i >> 9)) as u8).collect();
        assert!(src.slice().fill(0, &bytes));
        let number = b.queue.open(dst.slice()).unwrap();
        let recv = b.conn.post_recv(&[(1, dst.slice())]).unwrap().unwrap();
        let (mut a, mut send, mut lost) = (Some(a), None, paths == 1);
        until("the message", || {
            if let Some(a) = &mut a {
                send = send.or_else(|| a.post_send(1, src.slice()).unwrap());
                a.progress().unwrap();
            }
            let ended = b.conn.progress().is_err();
            if !lost && b.queue.counts().0 > 100 {
                lost = true;
                let why = Down::PeerGone { path: String::new(), why: "a cable is out".into() };
                b.conn.give_up_rail(0, why).unwrap();
            }
            if paths == 2 {
                return b.conn.test(recv).unwrap();
            }
            // The peer closes as soon as it has sent, which may be read before the receive is asked after.
            if let (Some(sender), Some(send)) = (&mut a, send)
                && sender.test(send).unwrap().is_some()
            {
                a = None;
            }
            ended.then(|| b.conn.test(recv).unwrap()).flatten()
        });
        b.queue.finish(number);
        let pages: Vec<u64> = b.kernel(number, dst.slice()).iter().map(|piece| piece.0).collect();
        assert!(
            lost && pages.len() > 100 && dst.slice().to_vec() == bytes,
            "{} pieces over {paths} paths",
            pages.len()
        );
        b.queue.consume(number);
        let gone = pages.iter().filter(|&&at| !b.pool.read(at, &mut [0])).count();
        assert!(gone == pages.len() || paths == 2 && gone > 0, "pages of {gone} pieces were given back");
    }
}

/// Without them the same runs go well, so what catches each is the bug.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_caught() {
    let runs = |seed| {
        let sim = SimConfig { seed, pages: 200, linear: 0, plain: 0, mss: 4096, ..SimConfig::default() };
        run(sim, 40, 5, &[40_000, 61_457, 9001]);
    };
    runs(4);
    for bug in [PlantedBug::KeptEarly, PlantedBug::SharedEarly] {
        plant(Some(bug));
        // What shares a page is the network's affair too: some runs have no such page.
        let caught = (0..20).any(|seed| catch_unwind(|| runs(seed)).is_err());
        plant(None);
        assert!(caught, "{bug:?} was not caught");
    }
}
