//! The simulated GPU does what the contract says, and finds those who do not.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{GpuBuf, Pinned};

const LEN: usize = 100_000;

struct Bench {
    sim: Arc<SimGpu>,
    gpu: Arc<dyn Gpu>,
    stream: Stream,
    event: Event,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let sim = SimGpu::new(SimConfig { seed, ..SimConfig::default() }).unwrap();
        let gpu: Arc<dyn Gpu> = sim.clone();
        let (stream, event) = (gpu.stream().unwrap(), gpu.event().unwrap());
        Bench { sim, gpu, stream, event }
    }

    fn mark(&self) {
        self.gpu.record(self.event, self.stream).unwrap();
    }
}

fn filled(mem: MemSlice, byte: u8) {
    assert!(mem.fill(0, &vec![byte; mem.len()]));
}

fn holds(mem: MemSlice, byte: u8) -> bool {
    mem.to_vec().iter().all(|&b| b == byte)
}

/// How many of 32 seeds see something.
fn seeds(see: impl Fn(Bench) -> bool) -> usize {
    (0..32).filter(|&seed| see(Bench::new(seed))).count()
}

#[test]
fn work_in_order_is_never_wrong() {
    let right = seeds(|b| {
        let (up, down) = (Pinned::new(&b.gpu, LEN).unwrap(), Pinned::new(&b.gpu, LEN).unwrap());
        let mem = GpuBuf::new(&b.gpu, LEN).unwrap();
        for byte in 0..8 {
            filled(up.mem(), byte);
            b.gpu.copy(b.stream, mem.mem(), up.mem()).unwrap();
            b.gpu.copy(b.stream, down.mem(), mem.mem()).unwrap();
            b.mark();
            b.gpu.wait(b.event).unwrap();
            assert!(holds(down.mem(), byte) && holds(mem.mem(), byte));
        }
        b.sim.fault().is_none()
    });
    assert_eq!(right, 32);
}

#[test]
fn an_early_read_of_a_copy_sees_poison() {
    let caught = seeds(|b| {
        let (down, mem) = (Pinned::new(&b.gpu, LEN).unwrap(), GpuBuf::new(&b.gpu, LEN).unwrap());
        filled(mem.mem(), 7);
        b.gpu.copy(b.stream, down.mem(), mem.mem()).unwrap();
        b.mark();
        b.gpu.done(b.event).unwrap();
        let early = !holds(down.mem(), 7);
        b.gpu.wait(b.event).unwrap();
        early && holds(down.mem(), 7)
    });
    assert!(caught >= 24, "{caught} of 32");
}

#[test]
fn a_source_reused_before_its_event_spoils_the_copy() {
    let caught = seeds(|b| {
        let (up, mem) = (Pinned::new(&b.gpu, LEN).unwrap(), GpuBuf::new(&b.gpu, LEN).unwrap());
        filled(up.mem(), 1);
        b.gpu.copy(b.stream, mem.mem(), up.mem()).unwrap();
        b.mark();
        filled(up.mem(), 2);
        b.gpu.wait(b.event).unwrap();
        !holds(mem.mem(), 1)
    });
    assert_eq!(caught, 32);
}

#[test]
fn streams_know_nothing_of_each_other_without_an_event() {
    let run = |b: &Bench, ordered: bool| {
        let second = b.gpu.stream().unwrap();
        let (up, down) = (Pinned::new(&b.gpu, LEN).unwrap(), Pinned::new(&b.gpu, LEN).unwrap());
        let mem = GpuBuf::new(&b.gpu, LEN).unwrap();
        filled(up.mem(), 9);
        b.gpu.copy(b.stream, mem.mem(), up.mem()).unwrap();
        b.mark();
        if ordered {
            b.gpu.after(second, b.event).unwrap();
        }
        b.gpu.copy(second, down.mem(), mem.mem()).unwrap();
        let end = b.gpu.event().unwrap();
        b.gpu.record(end, second).unwrap();
        b.gpu.wait(end).unwrap();
        b.sim.settle();
        holds(down.mem(), 9)
    };
    assert_eq!(seeds(|b| run(&b, true)), 32);
    let right = seeds(|b| run(&b, false));
    assert!(right <= 24, "a missing dependency goes unseen: {right} of 32");
}

#[test]
fn network_writes_need_a_flush() {
    let run = |b: &Bench, flush: bool| {
        let (down, mem) = (Pinned::new(&b.gpu, 64).unwrap(), GpuBuf::new(&b.gpu, 64).unwrap());
        filled(mem.mem(), 0);
        b.sim.nic_write(mem.mem(), &[5; 64]);
        if flush {
            b.gpu.flush_writes().unwrap();
        }
        b.gpu.copy(b.stream, down.mem(), mem.mem()).unwrap();
        b.mark();
        b.gpu.wait(b.event).unwrap();
        holds(down.mem(), 5)
    };
    assert_eq!(seeds(|b| run(&b, true)), 32);
    let right = seeds(|b| run(&b, false));
    assert!(right <= 16, "a missing flush goes unseen: {right} of 32");
}

fn order(error: GpuError) -> String {
    match error {
        GpuError::Order { what, .. } => what,
        other => panic!("expected an order bug, got {other}"),
    }
}

#[test]
fn memory_freed_before_its_copy_is_a_fault_that_stays() {
    let b = Bench::new(3);
    let (up, mem) = (Pinned::new(&b.gpu, LEN).unwrap(), GpuBuf::new(&b.gpu, LEN).unwrap());
    b.gpu.copy(b.stream, mem.mem(), up.mem()).unwrap();
    b.mark();
    let stale = mem.mem();
    drop(mem);
    assert!(order(b.gpu.wait(b.event).unwrap_err()).contains("freed memory"));
    assert!(order(b.gpu.done(b.event).unwrap_err()).contains("freed memory"));
    assert!(!stale.read(0, &mut [0]), "a freed range is not read");
    // A later allocation never has the old address.
    let fresh = GpuBuf::new(&b.gpu, LEN).unwrap();
    assert_ne!(fresh.mem().as_ptr(), stale.as_ptr());
}

#[test]
fn host_memory_must_be_pinned_and_stay_so() {
    let b = Bench::new(4);
    let mem = GpuBuf::new(&b.gpu, 64).unwrap();
    let host = linkspan_transport::StaticBuf::new(64);
    assert!(order(b.gpu.copy(b.stream, mem.mem(), host.slice()).unwrap_err()).contains("not pinned"));

    let b = Bench::new(4);
    let (up, mem) = (Pinned::new(&b.gpu, LEN).unwrap(), GpuBuf::new(&b.gpu, LEN).unwrap());
    b.gpu.copy(b.stream, mem.mem(), up.mem()).unwrap();
    b.mark();
    drop(up);
    assert!(order(b.gpu.wait(b.event).unwrap_err()).contains("unpinned"));
}

#[test]
fn ranges_are_checked() {
    let b = Bench::new(5);
    let mem = GpuBuf::new(&b.gpu, 64).unwrap();
    let up = Pinned::new(&b.gpu, 64).unwrap();
    let short = up.mem().sub(0, 63).unwrap();
    assert!(b.gpu.copy(b.stream, mem.mem(), short).unwrap_err().to_string().starts_with("LS1306"));
    assert!(mem.mem().sub(1, 64).is_none());
    assert!(!mem.mem().fill(1, &[0; 64]));
    assert!(SimGpu::new(SimConfig { memory: 10, ..SimConfig::default() }).unwrap().alloc(11).is_err());
}

#[test]
fn pointers_are_told_apart() {
    let b = Bench::new(6);
    let (up, mem) = (Pinned::new(&b.gpu, 64).unwrap(), GpuBuf::new(&b.gpu, 64).unwrap());
    let base = mem.mem().as_ptr() as u64;
    assert_eq!(b.gpu.pointer(base + 63).unwrap(), Pointer::Device { ordinal: 0, base, len: 64 });
    assert_eq!(b.gpu.pointer(base + 64).unwrap(), Pointer::Host);
    assert_eq!(b.gpu.pointer(up.mem().as_ptr() as u64).unwrap(), Pointer::Pinned);
    assert!(b.gpu.export(mem.mem()).unwrap_err().to_string().starts_with("LS1305"));
}

#[test]
fn the_same_seed_runs_the_same_way() {
    let run = |seed| {
        let b = Bench::new(seed);
        let (up, mem) = (Pinned::new(&b.gpu, LEN).unwrap(), GpuBuf::new(&b.gpu, LEN).unwrap());
        b.gpu.copy(b.stream, mem.mem(), up.mem()).unwrap();
        b.mark();
        (0..).take_while(|_| !b.gpu.done(b.event).unwrap()).count()
    };
    assert_eq!(run(11), run(11));
    assert!((0..16).any(|seed| run(seed) != run(11)));
}
