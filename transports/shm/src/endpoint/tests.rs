//! A misbehaving peer: it overwrites the shared map at random while we poll. Whatever it does costs it the connection at
//! most; it never makes us panic, hang, or write outside what the sink granted.

use std::time::{Duration, Instant};

use linkspan_proto::{Head, Kind};
use linkspan_shmring::{Side, Slots, layout, slot};
use linkspan_transport::{Buf, MemSlice, Rail, Sink, StaticBuf, Violation};

use crate::{Config, pair};

/// Grants only the middle third of its memory.
struct Guarded {
    memory: StaticBuf,
    part: usize,
}

impl Guarded {
    fn new(part: usize) -> Guarded {
        let memory = StaticBuf::new(3 * part);
        assert!(memory.slice().fill(0, &vec![0xA5; part]));
        assert!(memory.slice().fill(2 * part as u64, &vec![0xA5; part]));
        Guarded { memory, part }
    }

    fn intact(&self) -> bool {
        let bytes = self.memory.slice().to_vec();
        bytes[..self.part].iter().chain(&bytes[2 * self.part..]).all(|b| *b == 0xA5)
    }
}

impl Sink for Guarded {
    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        assert_eq!(head.len.get() as usize, payload.len());
        Ok(())
    }
    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        let granted = self.memory.slice().sub(self.part as u64, self.part as u64);
        let place = granted.and_then(|g| g.sub(head.offset.get(), head.len.get().into()));
        place.map(Some).ok_or(Violation("outside the grant".into()))
    }
    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        Ok(())
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Values near what is expected do more harm than wild ones.
    fn value(&mut self, old: u64) -> u64 {
        match self.next() % 6 {
            0 => self.next(),
            1 => self.next() % 256,
            2 => old ^ (1 << (self.next() % 64)),
            3 => old.wrapping_add(self.next() % 128).wrapping_sub(64),
            4 => ((self.next() % 4) << 32) | ((self.next() % 8) << 16) | (self.next() % 70),
            _ => u64::MAX,
        }
    }
}

fn chunk(seq: u32, len: usize) -> Head {
    let mut head = Head::new(Kind::Chunk);
    head.seq.set(seq);
    head.len.set(len as u32);
    head
}

#[test]
fn a_receiver_survives_any_scribbling() {
    let src = StaticBuf::new(64 << 10);
    let mut downs = 0;
    for seed in 1..=600u64 {
        // Every third with batches.
        let (batches, cma_from) = (seed % 3 == 0, if seed % 3 == 0 { 48 << 10 } else { 8 << 10 });
        let config = Config { ring: 64 << 10, cma_from, slice: 4096, batches, ..Config::default() };
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        // Everything at once for odd seeds, one kind of thing for even ones.
        let (from, to) = match seed % 4 {
            0 => (4096, 8192),
            2 => (8192, 32768),
            _ => (4096, layout::total(config.ring)),
        };
        let (mut a, mut b) = pair(config).unwrap();
        let map = b.reach.map().clone();
        let mut sink = Guarded::new(64 << 10);
        let mut none = Guarded::new(0);
        for step in 0..200 {
            let len = [0, 8, 1000, 10_000, 64 << 10][(random.next() % 5) as usize];
            if random.next().is_multiple_of(2) {
                // The peer's own half is never overwritten, only what it publishes.
                let _ = a.data(&chunk(step, len), src.slice().sub(0, len as u64).unwrap());
            } else {
                let mut head = Head::new(Kind::Eager);
                head.len.set((len % 8193) as u32);
                let _ = a.ctrl(&head, src.slice().sub(0, (len % 8193) as u64).unwrap());
            }
            let at = from + (random.next() as usize % (to - from));
            let value = random.value(map.peek(at));
            map.corrupt(at, value);
            if b.poll(&mut sink).is_err() {
                downs += 1;
                break;
            }
            let _ = b.arm();
            if step % 8 == 0 {
                // Lets honest transfers finish, unless it has noticed already.
                let _ = a.send.is_idle() || a.recv.poll(&mut none, &a.reach).is_ok();
            }
        }
        assert!(sink.intact(), "seed {seed}: written outside the grant");
        let start = Instant::now();
        drop(b);
        assert!(start.elapsed() < Duration::from_secs(20), "seed {seed}: the drop hangs");
        assert!(sink.intact(), "seed {seed}");
    }
    assert!(downs > 100, "scribbling must be noticed more often than {downs} times in 600");
}

#[test]
fn a_sender_survives_any_scribbling() {
    let config = Config { ring: 64 << 10, cma: false, ..Config::default() };
    let src = StaticBuf::new(64 << 10);
    for seed in 1..=400u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let (mut a, _b) = pair(config).unwrap();
        let map = a.reach.map().clone();
        let mut none = Guarded::new(0);
        for step in 0..200 {
            let _ = a.data(&chunk(step, 40_000), src.slice().sub(0, 40_000).unwrap());
            let at = 4096 + (random.next() as usize % 12288);
            map.corrupt(at, random.value(map.peek(at)));
            if a.flush().is_err() || a.poll(&mut none).is_err() {
                break;
            }
            let _ = a.arm();
        }
    }
}

/// The peer may copy from its slot until it is told that it may not: the end of the rail tells it, also of what the fault came from.
#[test]
fn a_transfer_in_which_a_fault_was_found_is_stopped_with_the_rail() {
    let (mut a, _b) = pair(Config { cma_from: 8 << 10, ..Config::default() }).unwrap();
    if !a.reach.direct() {
        eprintln!("cannot be tested here: neither process may copy the other's memory");
        return;
    }
    let src = StaticBuf::new(64 << 10);
    a.data(&chunk(0, 64 << 10), src.slice()).unwrap();
    let map = a.reach.map().clone();
    let slots = Slots::new(&map, Side::A);
    let words = slots.get(0).unwrap();
    // Another generation than the one that was offered.
    slot::offer(&words, 7);
    assert!(a.poll(&mut Guarded::new(0)).is_err());
    assert!(!slot::state(&words, 7).unwrap().stopped);
    drop(a);
    assert!(slot::state(&words, 7).unwrap().stopped, "the peer may go on");
}

/// Whatever a mad peer says of its threads, closing takes a moment and no more.
#[test]
fn a_lie_about_being_inside_delays_and_nothing_else() {
    let tid = linkspan_shmring::peer::this_thread();
    for who in [1, tid, u64::MAX, u64::from(u32::MAX)] {
        let (_a, b) = pair(Config::default()).unwrap();
        b.reach.map().inside(Side::A).store(who, std::sync::atomic::Ordering::Relaxed);
        let start = Instant::now();
        drop(b);
        assert!(start.elapsed() < Duration::from_secs(20), "{who}");
    }
}

/// Every slice is in place, but the sender stopped before the receiver looked: it may be reusing its memory since, so
/// for all the receiver knows the chunk is torn.
#[test]
fn a_chunk_that_was_stopped_before_its_end_is_not_reported() {
    #[derive(Default)]
    struct Count(Option<MemSlice>, u32);
    impl Sink for Count {
        fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
            Ok(())
        }
        fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, Violation> {
            Ok(self.0)
        }
        fn landed(&mut self, _: &Head) -> Result<(), Violation> {
            self.1 += 1;
            Ok(())
        }
    }
    for stop in [false, true] {
        let (mut a, mut b) = pair(Config::default()).unwrap();
        let (src, dst) = (StaticBuf::new(1 << 20), StaticBuf::new(1 << 20));
        a.data(&chunk(0, 1 << 20), src.slice()).unwrap();
        let mut sink = Count(Some(dst.slice()), 0);
        b.poll(&mut sink).unwrap();
        for _ in 0..100 {
            a.flush().unwrap();
        }
        assert_eq!(sink.1, 0, "the receiver has not looked yet");
        if stop {
            a.send.stop();
        }
        let last = b.poll(&mut sink);
        assert_eq!((last.is_ok(), sink.1), if stop { (false, 0) } else { (true, 1) });
    }
}

/// A piece at the end of the address space is unallocated, and no arithmetic on its offset overflows.
#[test]
fn a_piece_at_an_impossible_offset_is_a_lie() {
    const TAIL: usize = 4096;
    const RING: usize = 32768;
    for offset in [u64::MAX, u64::MAX - 4095, 64 << 10, 1 << 40] {
        let config = Config { ring: 64 << 10, cma_from: 8 << 10, slice: 4096, ..Config::default() };
        let (mut a, mut b) = pair(config).unwrap();
        let (src, mut sink) = (StaticBuf::new(64 << 10), Guarded::new(64 << 10));
        a.data(&chunk(0, 64 << 10), src.slice()).unwrap();
        a.flush().unwrap();
        b.poll(&mut sink).unwrap();
        let map = a.reach.map().clone();
        let tail = map.peek(TAIL);
        assert_eq!(tail, 64, "one offer, or the direct copy is not to be had here");
        let generation = (map.peek(RING + 56) >> 32) as u32;
        let line = crate::record::piece(64, 0, generation, offset);
        for (n, word) in line.chunks_exact(8).enumerate() {
            map.corrupt(RING + 64 + 8 * n, u64::from_le_bytes(word.try_into().unwrap()));
        }
        map.corrupt(TAIL, tail + 128);
        let error = b.poll(&mut sink).unwrap_err();
        assert!(error.to_string().contains("LS0103"), "{error}");
    }
}

#[test]
fn a_rail_is_gone_only_when_the_peers_copy_into_our_memory_is_over() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use linkspan_shmring::{Side, peer::this_thread};

    let (a, _b) = pair(Config::default()).expect("a pair");
    let (map, left) = (a.reach.map().clone(), Arc::new(AtomicBool::new(false)));
    let (theirs, out) = (map.clone(), left.clone());
    // A thread of the peer in the middle of a copy: it runs, so nobody but itself can say that it is out.
    let copying = std::thread::spawn(move || {
        theirs.inside(Side::B).store(this_thread(), Ordering::SeqCst);
        while theirs.closed(Side::A).load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
        for _ in 0..100_000 {
            std::hint::spin_loop();
        }
        out.store(true, Ordering::SeqCst);
        theirs.inside(Side::B).store(0, Ordering::SeqCst);
    });
    while map.inside(Side::B).load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    drop(a);
    assert!(left.load(Ordering::SeqCst), "its memory may be freed while the peer writes it");
    copying.join().expect("it ends");
}

/// Where no proof can be had the sender is given no place to write to: all slices are the receiver's from the start.
#[test]
fn a_receiver_that_can_prove_nothing_copies_alone() {
    let (mut a, mut b) = pair(Config::default()).unwrap();
    assert!(!b.info().reason.contains("only the receiver copies"), "{}", b.info().reason);
    b.reach.prove_nothing();
    let src = StaticBuf::new(1 << 20);
    assert!(src.slice().fill(0, &[7; 1 << 20]));
    let mut sink = Guarded::new(1 << 20);
    for seq in 0..8 {
        let item = a.data(&chunk(seq, 1 << 20), src.slice()).unwrap();
        while a.taken() < item {
            a.flush().unwrap();
            b.poll(&mut sink).unwrap();
        }
    }
    let slots = Slots::new(a.reach.map(), Side::A);
    for w in (0..linkspan_shmring::SLOTS).filter_map(|n| slots.get(n)) {
        assert_eq!(slot::Words::sent(&w).load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}
