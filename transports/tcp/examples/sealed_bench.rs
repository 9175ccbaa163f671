//! What encryption costs: encrypted rails against plain ones, pair by pair in one run. Informative, no goal.
//!
//! `cargo run --release -p linkspan-tcp --example sealed_bench [PAIRS]`: two threads, pinned to processors 0 and 1, over
//! loopback, the same buffers and the same loop for both. Each line has the medians, the median of the ratios of the
//! pairs, and their range. Loopback needs no network card, so the processor does all the work and the ratio is the
//! worst that encryption can do.
#![forbid(unsafe_code)]

#[path = "../tests/integration/common/ciphers.rs"]
mod ciphers;

use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use ciphers::ciphers;
use linkspan_proto::Kind;
use linkspan_stream::{Dial, Listen, Options, Stream};
use linkspan_tcp::{RailConfig, SealedRail, TcpRail};
use linkspan_transport::{Buf, Head, MemSlice, Rail, Sink, StaticBuf, Violation};

fn streams() -> (Stream, Stream) {
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let options = Options::default();
    let mut listen = Listen::bind(any, &options).expect("listen");
    let mut dial = Dial::start(None, listen.local_addr(), &options, Duration::from_secs(5)).expect("dial");
    let a = loop {
        if let Some(stream) = dial.poll().expect("connect") {
            break stream;
        }
    };
    loop {
        if let Some((b, _)) = listen.accept().expect("accept") {
            return (a, b);
        }
    }
}

/// Counts what arrives; every chunk goes to its offset in `place`.
struct Count {
    place: MemSlice,
    ctrl: u64,
    bytes: u64,
}

impl Sink for Count {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        self.ctrl += 1;
        Ok(())
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(self.place.sub(head.offset.get(), head.len.get().into()))
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        self.bytes += u64::from(head.len.get());
        Ok(())
    }
}

/// One end: a rail of each kind, and the buffers of both.
struct End {
    plain: TcpRail,
    sealed: SealedRail,
    src: MemSlice,
    dst: MemSlice,
}

#[derive(Clone, Copy)]
enum Test {
    /// There and back, a message of so many bytes.
    PingPong(usize),
    /// One way.
    Stream(usize),
}

fn head(kind: Kind, len: usize, offset: usize) -> Head {
    let mut head = Head::new(kind);
    head.len.set(len as u32);
    head.offset.set(offset as u64);
    head
}

fn send(rail: &mut impl Rail, src: MemSlice, size: usize) {
    let chunk = rail.info().caps.chunk;
    let (mut done, mut last) = (0, rail.taken());
    loop {
        while done < size {
            let len = (size - done).min(chunk);
            let part = src.sub(done as u64, len as u64).expect("inside");
            let item = if size <= 8192 {
                rail.ctrl(&head(Kind::Eager, len, done), part)
            } else {
                rail.data(&head(Kind::Chunk, len, done), part)
            };
            let Ok(item) = item else { break };
            last = item;
            done += len;
        }
        rail.flush().expect("flush");
        if done == size && rail.taken() == last {
            break;
        }
    }
}

fn receive(rail: &mut impl Rail, sink: &mut Count, ctrl: u64, bytes: u64) {
    while sink.ctrl < ctrl || sink.bytes < bytes {
        rail.poll(sink).expect("poll");
    }
}

/// Runs one end of `test`, `rounds` times; `first`: the end that begins.
fn run(rail: &mut impl Rail, src: MemSlice, dst: MemSlice, test: Test, rounds: u64, first: bool) {
    let mut sink = Count { place: dst, ctrl: 0, bytes: 0 };
    match test {
        Test::PingPong(size) => {
            for round in 1..=rounds {
                let (ctrl, bytes) = if size <= 8192 { (round, 0) } else { (0, round * size as u64) };
                if first {
                    send(rail, src, size);
                }
                receive(rail, &mut sink, ctrl, bytes);
                if !first {
                    send(rail, src, size);
                }
            }
        }
        Test::Stream(size) => {
            if first {
                for _ in 0..rounds {
                    send(rail, src, size);
                }
                receive(rail, &mut sink, 1, 0);
            } else {
                receive(rail, &mut sink, 0, rounds * size as u64);
                send(rail, src, 1);
            }
        }
    }
}

/// Processor time of this thread, seconds: what others do on the machine hardly shows in it.
fn cpu() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(stat.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

/// Both ends in one thread, one way, no spinning: processor seconds per GB of both together.
fn cost(from: &mut impl Rail, to: &mut impl Rail, src: MemSlice, dst: MemSlice, bytes: u64) -> Option<f64> {
    let mut sink = Count { place: dst, ctrl: 0, bytes: 0 };
    let (chunk, mut posted) = (from.info().caps.chunk, 0);
    let start = cpu()?;
    while sink.bytes < bytes {
        // A buffer of 4 MiB, as if a message after the other.
        let at = posted % (4 << 20);
        let part = src.sub(at, chunk as u64).expect("inside");
        if posted - sink.bytes < 1 << 20 && from.data(&head(Kind::Chunk, chunk, at as usize), part).is_ok() {
            posted += chunk as u64;
        }
        from.flush().expect("flush");
        to.poll(&mut sink).expect("poll");
    }
    Some((cpu()? - start) / (sink.bytes as f64 / 1e9))
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if rustix::thread::sched_setaffinity(None, &set).is_err() {
        eprintln!("not pinned: this process may not use processor {cpu}");
    }
}

fn median(v: &mut [f64]) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

fn main() {
    let pairs: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(11).max(1);
    const MAX: usize = 32 << 20;
    let bufs: Vec<StaticBuf> = (0..4).map(|_| StaticBuf::new(MAX)).collect();
    for buf in &bufs {
        for at in (0..MAX).step_by(4096) {
            assert!(buf.slice().fill(at as u64, &[1; 4096]));
        }
    }
    let mut tests: Vec<(String, Test, u64)> = Vec::new();
    for (size, rounds) in [(8, 20_000), (8192, 8000), (64 << 10, 2000)] {
        tests.push((format!("pingpong {size}"), Test::PingPong(size), rounds));
    }
    for size in [256 << 10, 1 << 20, 4 << 20, 32 << 20] {
        tests.push((format!("stream {size}"), Test::Stream(size), ((256 << 20) / size) as u64));
    }
    let ((pa, pb), (sa, sb), (ca, cb)) = (streams(), streams(), ciphers());
    println!("rails over {}; congestion {}", pa.path(), pa.congestion().name);
    let end = |plain: Stream, sealed: Stream, ciphers, at: usize| End {
        plain: TcpRail::new(plain, RailConfig::default(), &[]).expect("rail"),
        sealed: SealedRail::new(sealed, RailConfig::default(), ciphers),
        src: bufs[at].slice(),
        dst: bufs[at + 1].slice(),
    };
    let (mut a, mut b) = (end(pa, sa, ca, 0), end(pb, sb, cb, 2));
    pin(0);
    let (mut plain, mut sealed, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..=pairs {
        let plain_cost = cost(&mut a.plain, &mut b.plain, a.src, b.dst, 256 << 20);
        let sealed_cost = cost(&mut a.sealed, &mut b.sealed, a.src, b.dst, 256 << 20);
        if let (Some(p), Some(s), true) = (plain_cost, sealed_cost, pair > 0) {
            plain.push(p);
            sealed.push(s);
            ratio.push(s / p);
        }
    }
    if !ratio.is_empty() {
        let (plain, sealed, mid) = (median(&mut plain), median(&mut sealed), median(&mut ratio));
        let (least, most) = (ratio[0], ratio[ratio.len() - 1]);
        println!("processor time of both ends in one thread: plain {plain:.3} s/GB, encrypted {sealed:.3} s/GB");
        println!("    ratio {mid:.3}, {least:.3} .. {most:.3} of {pairs} pairs");
    }
    let gate = Barrier::new(2);
    println!("{:<18}{:>13}{:>13}{:>9}   range of {pairs} pairs", "", "plain", "encrypted", "ratio");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for &(_, test, rounds) in &tests {
                for pair in 0..=pairs {
                    let rounds = if pair == 0 { rounds / 4 + 1 } else { rounds };
                    gate.wait();
                    run(&mut b.plain, b.src, b.dst, test, rounds, false);
                    gate.wait();
                    run(&mut b.sealed, b.src, b.dst, test, rounds, false);
                }
            }
        });
        for (name, test, rounds) in &tests {
            let (mut plain, mut sealed, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
            for pair in 0..=pairs {
                // The first pair warms up.
                let rounds = if pair == 0 { rounds / 4 + 1 } else { *rounds };
                gate.wait();
                let start = Instant::now();
                run(&mut a.plain, a.src, a.dst, *test, rounds, true);
                let t_plain = start.elapsed().as_secs_f64() / rounds as f64;
                gate.wait();
                let start = Instant::now();
                run(&mut a.sealed, a.src, a.dst, *test, rounds, true);
                let t_sealed = start.elapsed().as_secs_f64() / rounds as f64;
                if pair > 0 {
                    plain.push(t_plain);
                    sealed.push(t_sealed);
                    ratio.push(t_sealed / t_plain);
                }
            }
            let (plain, sealed, mid) = (median(&mut plain), median(&mut sealed), median(&mut ratio));
            let (least, most) = (ratio[0], ratio[ratio.len() - 1]);
            match test {
                Test::PingPong(_) => println!(
                    "{name:<18}{:>10.2} us{:>10.2} us{mid:>9.3}   {least:.3} .. {most:.3} (half round trip)",
                    plain * 5e5,
                    sealed * 5e5
                ),
                Test::Stream(size) => println!(
                    "{name:<18}{:>8.2} GB/s{:>8.2} GB/s{:>9.3}   {:.3} .. {:.3}",
                    *size as f64 / plain / 1e9,
                    *size as f64 / sealed / 1e9,
                    1.0 / mid,
                    1.0 / most,
                    1.0 / least
                ),
            }
        }
    });
}
