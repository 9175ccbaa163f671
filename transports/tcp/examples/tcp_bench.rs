//! Rail against a bare loop of recv and send, pair by pair in one run.
//!
//! `cargo run --release -p linkspan-tcp --example tcp_bench [PAIRS] [FILTER]`: two threads, pinned to processors 0
//! and 1, over loopback. Both sides of each pair use the same buffers, spin, and are set up by the same code. A run
//! is timed in short laps and counts with its median lap, so that what else the machine does matters little. Each
//! line has the medians of the runs, the median of the ratios of the pairs, and their range.
#![forbid(unsafe_code)]

use std::hint::spin_loop;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use linkspan_proto::Kind;
use linkspan_stream::{Dial, Listen, Options, Stream};
use linkspan_tcp::{CHUNK, RailConfig, TcpRail};
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
    acked: u64,
    bytes: u64,
}

impl Sink for Count {
    fn ctrl(&mut self, head: &Head, _: &[u8]) -> Result<(), Violation> {
        match head.kind {
            k if k == Kind::Ack as u8 => self.acked = head.total.get(),
            _ => self.ctrl += 1,
        }
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

/// One end of a pair: a bare socket, a rail, and the buffers of both.
struct End {
    bare: Stream,
    rail: TcpRail,
    src: MemSlice,
    dst: MemSlice,
    sink: Count,
    sent: usize,
}

/// Times laps of a number of rounds.
struct Laps {
    every: u64,
    since: Instant,
    /// Seconds of one round, lap by lap.
    rounds: Vec<f64>,
}

impl Laps {
    fn new(every: u64, rounds: u64) -> Laps {
        Laps { every, since: Instant::now(), rounds: Vec::with_capacity((rounds / every) as usize + 1) }
    }

    fn tick(&mut self, done: u64, before: u64) {
        if done / self.every != before / self.every {
            let now = Instant::now();
            let rounds = (done / self.every - before / self.every) * self.every;
            self.rounds.push((now - self.since).as_secs_f64() / rounds as f64);
            self.since = now;
        }
    }
}

/// What to measure.
#[derive(Clone, Copy)]
enum Test {
    /// There and back, `size` bytes.
    PingPong { size: usize },
    /// One way, messages of `size` bytes.
    Stream { size: usize },
    /// One way, 8-byte messages, at most `window` without answer.
    Window { window: u64 },
}

impl Test {
    /// Rounds that are timed together.
    fn lap(self) -> u64 {
        match self {
            Test::PingPong { .. } => 1,
            // The socket buffers hold some MiB, so a lap is a multiple of that.
            Test::Stream { size } => ((32 << 20) / size) as u64,
            Test::Window { .. } => 1000,
        }
    }
}

fn head(kind: Kind, len: usize, offset: usize) -> Head {
    let mut head = Head::new(kind);
    head.len.set(len as u32);
    head.offset.set(offset as u64);
    head
}

fn bare_send(fd: BorrowedFd<'_>, mem: MemSlice) {
    let mut done = 0;
    while done < mem.len() {
        let part = mem.sub(done as u64, (mem.len() - done).min(CHUNK) as u64).expect("inside");
        match linkspan_net::send_mem(fd, part).expect("send") {
            Some(n) => done += n,
            None => spin_loop(),
        }
    }
}

fn bare_recv(fd: BorrowedFd<'_>, mem: MemSlice) {
    let mut done = 0;
    while done < mem.len() {
        let part = mem.sub(done as u64, (mem.len() - done).min(CHUNK) as u64).expect("inside");
        match linkspan_net::recv_mem(fd, part).expect("recv") {
            Some(0) => panic!("the other thread is gone"),
            Some(n) => done += n,
            None => spin_loop(),
        }
    }
}

impl End {
    fn rail_send(&mut self, size: usize) {
        let mut done = 0;
        let mut last = self.rail.taken();
        loop {
            while done < size {
                let len = (size - done).min(CHUNK);
                let part = self.src.sub(done as u64, len as u64).expect("inside");
                let item = if size <= 8192 {
                    self.rail.ctrl(&head(Kind::Eager, len, done), part)
                } else {
                    self.rail.data(&head(Kind::Chunk, len, done), part)
                };
                let Ok(item) = item else { break };
                last = item;
                done += len;
            }
            self.rail.flush().expect("flush");
            if done == size && self.rail.taken() == last {
                break;
            }
        }
        self.sent += size;
    }

    fn rail_recv(&mut self, ctrl: u64, bytes: u64) {
        while self.sink.ctrl < ctrl || self.sink.bytes < bytes {
            self.rail.poll(&mut self.sink).expect("poll");
        }
    }

    /// Runs one end of `test`, `rounds` times; `first`: the end that begins.
    fn bare(&mut self, test: Test, rounds: u64, first: bool) -> Laps {
        let fd = self.bare.as_fd();
        let mut laps = Laps::new(test.lap(), rounds);
        match test {
            Test::PingPong { size } => {
                let (src, dst) = (self.src.sub(0, size as u64).expect("in"), self.dst.sub(0, size as u64).expect("in"));
                for round in 0..rounds {
                    if first {
                        bare_send(fd, src);
                        bare_recv(fd, dst);
                    } else {
                        bare_recv(fd, dst);
                        bare_send(fd, src);
                    }
                    laps.tick(round + 1, round);
                }
            }
            Test::Stream { size } => {
                let (src, dst) = (self.src.sub(0, size as u64).expect("in"), self.dst.sub(0, size as u64).expect("in"));
                for round in 0..rounds {
                    if first {
                        bare_send(fd, src);
                    } else {
                        bare_recv(fd, dst);
                    }
                    laps.tick(round + 1, round);
                }
                let done = self.src.sub(0, 1).expect("in");
                if first {
                    bare_recv(fd, done);
                } else {
                    bare_send(fd, done);
                }
            }
            Test::Window { window } => {
                let mut buf = [0u8; 4096];
                if first {
                    let (mut sent, mut acked) = (0, 0);
                    while acked < rounds {
                        let now = (window - (sent - acked)).min(rounds - sent);
                        if now > 0 {
                            let n = linkspan_net::send(fd, &buf[..now as usize * 8]).expect("send").unwrap_or(0);
                            assert!(n.is_multiple_of(8), "loopback took part of a message");
                            sent += n as u64 / 8;
                        }
                        let n = linkspan_net::recv(fd, &mut buf).expect("recv").unwrap_or(0);
                        let more = buf[..n].iter().map(|&b| u64::from(b)).sum::<u64>();
                        acked += more;
                        laps.tick(acked, acked - more);
                    }
                } else {
                    let (mut bytes, mut acked) = (0, 0);
                    while acked < rounds {
                        bytes += linkspan_net::recv(fd, &mut buf).expect("recv").unwrap_or(0) as u64;
                        let now = bytes / 8 - acked;
                        if now > 0 {
                            bare_ack(fd, now as u8);
                            acked += now;
                        }
                    }
                }
            }
        }
        laps
    }

    /// As [`End::bare`], over the rail.
    fn rail(&mut self, test: Test, rounds: u64, first: bool) -> Laps {
        (self.sink.ctrl, self.sink.bytes, self.sink.acked) = (0, 0, 0);
        let mut laps = Laps::new(test.lap(), rounds);
        match test {
            Test::PingPong { size } => {
                for round in 1..=rounds {
                    let (ctrl, bytes) = if size <= 8192 { (round, 0) } else { (0, round * size as u64) };
                    if first {
                        self.rail_send(size);
                        self.rail_recv(ctrl, bytes);
                    } else {
                        self.rail_recv(ctrl, bytes);
                        self.rail_send(size);
                    }
                    laps.tick(round, round - 1);
                }
            }
            Test::Stream { size } => {
                if first {
                    for round in 0..rounds {
                        self.rail_send(size);
                        laps.tick(round + 1, round);
                    }
                    self.rail_recv(1, 0);
                } else {
                    self.rail_recv(0, rounds * size as u64);
                    self.rail_send(1);
                }
            }
            Test::Window { window } => {
                if first {
                    let mut sent = 0;
                    let body = self.src.sub(0, 8).expect("in");
                    while self.sink.acked < rounds {
                        while sent < rounds && sent - self.sink.acked < window {
                            if self.rail.ctrl(&head(Kind::Eager, 8, 0), body).is_err() {
                                break;
                            }
                            sent += 1;
                        }
                        self.rail.flush().expect("flush");
                        let before = self.sink.acked;
                        self.rail.poll(&mut self.sink).expect("poll");
                        laps.tick(self.sink.acked, before);
                    }
                } else {
                    let mut acked = 0;
                    while acked < rounds {
                        self.rail.poll(&mut self.sink).expect("poll");
                        if self.sink.ctrl > acked {
                            let mut ack = Head::new(Kind::Ack);
                            ack.total.set(self.sink.ctrl);
                            if self.rail.ctrl(&ack, MemSlice::EMPTY).is_ok() {
                                acked = self.sink.ctrl;
                            }
                        }
                        self.rail.flush().expect("flush");
                    }
                    while self.rail.flush().expect("flush") == linkspan_transport::Poll::Active {}
                }
            }
        }
        laps
    }
}

fn bare_ack(fd: BorrowedFd<'_>, n: u8) {
    while linkspan_net::send(fd, &[n]).expect("send").is_none() {}
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
    let mut args = std::env::args().skip(1);
    let pairs: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(11).max(1);
    let filter = args.next().unwrap_or_default();
    const MAX: usize = 32 << 20;
    let bufs: Vec<StaticBuf> = (0..4).map(|_| StaticBuf::new(MAX)).collect();
    for buf in &bufs {
        for at in (0..MAX).step_by(4096) {
            assert!(buf.slice().fill(at as u64, &[1; 4096]));
        }
    }
    let mut tests: Vec<(String, Test, u64)> = Vec::new();
    for (size, rounds) in [(8, 4000), (16 << 10, 1500), (64 << 10, 800), (128 << 10, 500)] {
        tests.push((format!("pingpong {size}"), Test::PingPong { size }, rounds));
    }
    for size in [256 << 10, 1 << 20, 4 << 20, 32 << 20] {
        tests.push((format!("stream {size}"), Test::Stream { size }, ((256 << 20) / size) as u64));
    }
    for window in [8, 32] {
        tests.push((format!("window {window}"), Test::Window { window }, 100_000));
    }
    tests.retain(|t| t.0.contains(&filter));

    let (ba, bb) = streams();
    let (ra, rb) = streams();
    println!("rail over {}; congestion {} {}", ra.path(), ra.congestion().name, ra.congestion().reason);
    let end = |bare: Stream, rail: Stream, at: usize| End {
        bare,
        rail: TcpRail::new(rail, RailConfig::default(), &[]).expect("rail"),
        src: bufs[at].slice(),
        dst: bufs[at + 1].slice(),
        sink: Count { place: bufs[at + 1].slice(), ctrl: 0, acked: 0, bytes: 0 },
        sent: 0,
    };
    let (mut a, mut b) = (end(ba, ra, 0), end(bb, rb, 2));
    pin(0);
    idle(&mut a);

    let gate = Barrier::new(2);
    println!("{:<18}{:>12}{:>12}{:>9}   range of {pairs} pairs", "", "bare", "rail", "ratio");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for &(_, test, rounds) in &tests {
                for pair in 0..=pairs {
                    let rounds = if pair == 0 { rounds / 4 + 1 } else { rounds };
                    gate.wait();
                    b.bare(test, rounds, false);
                    gate.wait();
                    b.rail(test, rounds, false);
                }
            }
        });
        for (name, test, rounds) in &tests {
            let (mut bare, mut rail, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
            for pair in 0..=pairs {
                // The first pair warms up.
                let rounds = if pair == 0 { rounds / 4 + 1 } else { *rounds };
                gate.wait();
                let t_bare = median(&mut a.bare(*test, rounds, true).rounds);
                gate.wait();
                let t_rail = median(&mut a.rail(*test, rounds, true).rounds);
                if pair > 0 {
                    bare.push(t_bare);
                    rail.push(t_rail);
                    ratio.push(t_rail / t_bare);
                }
            }
            report(name, *test, median(&mut bare), median(&mut rail), &mut ratio);
        }
    });
}

fn report(name: &str, test: Test, bare: f64, rail: f64, ratio: &mut [f64]) {
    let mid = median(ratio);
    let (least, most) = (ratio[0], ratio[ratio.len() - 1]);
    match test {
        Test::PingPong { .. } => println!(
            "{name:<18}{:>9.2} us{:>9.2} us{mid:>9.3}   {least:.3} .. {most:.3} (half round trip; goal <= 1.15)",
            bare * 5e5,
            rail * 5e5
        ),
        Test::Stream { size } => println!(
            "{name:<18}{:>7.2} GB/s{:>7.2} GB/s{:>9.3}   {:.3} .. {:.3} (goal >= 0.95)",
            size as f64 / bare / 1e9,
            size as f64 / rail / 1e9,
            1.0 / mid,
            1.0 / most,
            1.0 / least
        ),
        Test::Window { .. } => println!(
            "{name:<18}{:>8.2} M/s{:>8.2} M/s{:>9.3}   {:.3} .. {:.3} (goals: 8: >= 0.6; 32: >= 4 M/s)",
            1e-6 / bare,
            1e-6 / rail,
            1.0 / mid,
            1.0 / most,
            1.0 / least
        ),
    }
}

/// What asking an empty socket costs.
fn idle(end: &mut End) {
    const N: u32 = 500_000;
    let start = Instant::now();
    for _ in 0..N {
        assert!(linkspan_net::recv(end.bare.as_fd(), &mut [0; 64]).expect("recv").is_none());
    }
    let bare = start.elapsed().as_secs_f64() / f64::from(N);
    let start = Instant::now();
    for _ in 0..N {
        end.rail.flush().expect("flush");
        end.rail.poll(&mut end.sink).expect("poll");
    }
    let rail = start.elapsed().as_secs_f64() / f64::from(N);
    println!("idle: recv {:.0} ns, flush and poll of the rail {:.0} ns", bare * 1e9, rail * 1e9);
}
