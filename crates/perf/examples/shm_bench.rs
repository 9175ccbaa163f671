//! The rail beside the machine's own limits, two processes, interleaved in one run:
//! `cargo run --release -p linkspan-perf --example shm_bench [ROUNDS]`.
//!
//! Prints, for each measurement, the median and spread of ours, of the bare loop, and of their ratio per round.

use std::io::{BufRead, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_perf::baseline::shared::Shared;
use linkspan_proto::{Head, Kind};
use linkspan_shm::{Accepting, Config, Connecting, IDENTITY_LEN, Identity, SETUP_TIME, ShmRail};
use linkspan_shmring::cma::{AccessGuard, Remote};
use linkspan_shmring::{Map, Side};
use linkspan_transport::{Buf, MemSlice, Rail, Sink, StaticBuf, Violation};

/// Both sides use this much source and destination memory, whatever the message.
const AREA: usize = 16 << 20;
const SIZES: [usize; 6] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
const PINGS: u64 = 20_000;
const BYTES: usize = 128 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("child") => child(&args.collect::<Vec<_>>()),
        rounds => parent(rounds.map_or(Ok(10), str::parse)?),
    }
}

/// A core for each side: two spinning processes on one core measure the scheduler.
fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if let Err(e) = rustix::thread::sched_setaffinity(None, &set) {
        eprintln!("core {core}: {e}; not pinned");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Result<[u8; N], Box<dyn std::error::Error>> {
    let mut out = [0; N];
    for (i, b) in out.iter_mut().enumerate() {
        *b = u8::from_str_radix(text.get(2 * i..2 * i + 2).ok_or("short")?, 16)?;
    }
    Ok(out)
}

fn parent(rounds: usize) -> Result<(), Box<dyn std::error::Error>> {
    pin(0);
    let own = linkspan_shm::identity()?;
    let map = Arc::new(Map::create(64 << 10)?);
    let (guard, area) = (AccessGuard::new([7, 7])?, touched());
    let mut child = Command::new(std::env::current_exe()?)
        .arg("child")
        .arg(rounds.to_string())
        .arg(std::process::id().to_string())
        .arg(map.fd().as_raw_fd().to_string())
        .arg(guard.address().to_string())
        .arg((area.slice().as_ptr() as u64).to_string())
        .arg(hex(&own.encode()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut from = std::io::BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
    let line = from.next().ok_or("the child ended")??;
    let mut words = line.split(' ');
    let (there_gate, there_area): (u64, u64) =
        (words.next().ok_or("gate")?.parse()?, words.next().ok_or("area")?.parse()?);
    let peer = Identity::decode(&unhex::<IDENTITY_LEN>(words.next().ok_or("identity")?)?)?;
    let deadline = Instant::now() + SETUP_TIME;
    let mut accepting = Accepting::new(Config::default(), &own, &peer, deadline)?;
    writeln!(child.stdin.as_mut().ok_or("no pipe")?, "listening")?;
    let rail = loop {
        if let Some(rail) = accepting.poll(Instant::now())? {
            break rail;
        }
    };
    println!("{} ({})", rail.info().path, rail.info().reason);
    let bare = Shared::new(&map, Side::A, Remote::new(child.id() as i32, there_gate), Box::new(|| Ok(())));
    let mut side = Run { rail, bare, area, there: there_area, got: Got::default(), first: true };
    let mut table = Vec::new();
    for _ in 0..rounds {
        table.push(side.round()?);
    }
    let names = std::iter::once("8 B half round trip, us".to_string())
        .chain(SIZES.iter().map(|s| format!("{:>6} KiB stream, GB/s", s >> 10)));
    println!("{:<26} {:>22} {:>22} {:>18}", "", "ours (min..max)", "bare (min..max)", "ours/bare");
    for (i, name) in names.enumerate() {
        let column = |f: fn(&(f64, f64)) -> f64| table.iter().filter_map(|r| r.get(i)).map(f).collect::<Vec<f64>>();
        let (ours, bare, ratio) = (column(|p| p.0), column(|p| p.1), column(|p| p.0 / p.1));
        println!("{name:<26} {} {} {}", spread(ours), spread(bare), spread(ratio));
    }
    child.wait()?;
    Ok(())
}

fn spread(mut v: Vec<f64>) -> String {
    v.sort_by(f64::total_cmp);
    let at = |i: usize| v.get(i).copied().unwrap_or(f64::NAN);
    format!("{:>7.3} ({:.3}..{:.3})", at(v.len() / 2), at(0), at(v.len().saturating_sub(1)))
}

fn child(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [rounds, pid, fd, guard, there, peer] = args else { return Err("arguments".into()) };
    pin(1);
    let own = linkspan_shm::identity()?;
    let peer = Identity::decode(&unhex::<IDENTITY_LEN>(peer)?)?;
    let memory = std::fs::OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))?;
    let map = Arc::new(Map::open(memory.into(), 64 << 10)?);
    let (own_gate, area) = (AccessGuard::new([7, 7])?, touched());
    println!("{} {} {}", own_gate.address(), area.slice().as_ptr() as u64, hex(&own.encode()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let deadline = Instant::now() + SETUP_TIME;
    let mut connecting = Connecting::new(Config::default(), &own, &peer, deadline)?;
    let rail = loop {
        if let Some(rail) = connecting.poll(Instant::now())? {
            break rail;
        }
    };
    let bare = Shared::new(&map, Side::B, Remote::new(pid.parse()?, guard.parse()?), Box::new(|| Ok(())));
    let mut side = Run { rail, bare, area, there: there.parse()?, got: Got::default(), first: false };
    for _ in 0..rounds.parse()? {
        side.round()?;
    }
    // The parent still has to see the end of the last transfer.
    std::thread::sleep(Duration::from_millis(20));
    Ok(())
}

fn touched() -> StaticBuf {
    let area = StaticBuf::new(AREA);
    for at in (0..AREA).step_by(4096) {
        let _ = area.slice().fill(at as u64, &[1]);
    }
    area
}

#[derive(Default)]
struct Got {
    area: Option<MemSlice>,
    ctrl: u64,
    landed: u64,
}

impl Sink for Got {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        self.ctrl += 1;
        Ok(())
    }
    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(self.area.and_then(|a| a.sub(head.offset.get(), head.len.get().into())))
    }
    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        self.landed += 1;
        Ok(())
    }
}

struct Run {
    rail: ShmRail,
    bare: Shared,
    area: StaticBuf,
    there: u64,
    got: Got,
    first: bool,
}

type Failure = Box<dyn std::error::Error>;

impl Run {
    /// Everything once, ours and bare: pairs of (ours, bare).
    fn round(&mut self) -> Result<Vec<(f64, f64)>, Failure> {
        self.got.area = Some(self.area.slice());
        let bare = self.bare_ping()?;
        let ours = self.ping()?;
        let mut out = vec![(ours, bare)];
        for size in SIZES {
            self.bare_pings(1)?;
            let bare = self.bare_stream(size)?;
            self.bare_pings(1)?;
            let ours = self.stream(size)?;
            out.push((ours, bare));
        }
        Ok(out)
    }

    fn bare_pings(&mut self, rounds: u64) -> std::io::Result<()> {
        (0..rounds).try_for_each(|_| if self.first { self.bare.throw() } else { self.bare.catch() })
    }

    fn bare_ping(&mut self) -> Result<f64, Failure> {
        let start = Instant::now();
        self.bare_pings(PINGS)?;
        Ok(start.elapsed().as_secs_f64() / PINGS as f64 / 2.0 * 1e6)
    }

    fn ping(&mut self) -> Result<f64, Failure> {
        let mut head = Head::new(Kind::Eager);
        head.len.set(8);
        let body = self.area.slice().sub(0, 8).ok_or("area")?;
        let start = Instant::now();
        for _ in 0..PINGS {
            if self.first {
                self.rail.ctrl(&head, body).map_err(|_| "busy")?;
                self.rail.flush()?;
            }
            let want = self.got.ctrl + 1;
            while self.got.ctrl != want {
                self.rail.poll(&mut self.got)?;
            }
            if !self.first {
                self.rail.ctrl(&head, body).map_err(|_| "busy")?;
                self.rail.flush()?;
            }
        }
        Ok(start.elapsed().as_secs_f64() / PINGS as f64 / 2.0 * 1e6)
    }

    fn bare_stream(&mut self, size: usize) -> Result<f64, Failure> {
        let count = BYTES / size;
        let start = Instant::now();
        for i in 0..count {
            let at = i * size % AREA;
            let mem = self.area.slice().sub(at as u64, size as u64).ok_or("area")?;
            let slice = (size / 4).clamp(16 << 10, 256 << 10);
            if self.first {
                self.bare.send(mem, slice, self.there + at as u64)?;
            } else {
                self.bare.receive(mem, slice, self.there + at as u64)?;
            }
        }
        Ok((count * size) as f64 / start.elapsed().as_secs_f64() / 1e9)
    }

    fn stream(&mut self, size: usize) -> Result<f64, Failure> {
        let chunk = size.min(self.rail.info().caps.chunk);
        let count = BYTES / chunk;
        let until = self.got.landed + count as u64;
        let start = Instant::now();
        if !self.first {
            while self.got.landed != until {
                self.rail.poll(&mut self.got)?;
            }
        } else {
            let mut last = 0;
            for i in 0..count {
                let at = (i * chunk % AREA) as u64;
                let mut head = Head::new(Kind::Chunk);
                head.len.set(chunk as u32);
                head.offset.set(at);
                let mem = self.area.slice().sub(at, chunk as u64).ok_or("area")?;
                loop {
                    if let Ok(n) = self.rail.data(&head, mem) {
                        last = n;
                        break;
                    }
                    self.rail.flush()?;
                    self.rail.poll(&mut self.got)?;
                }
                self.rail.flush()?;
            }
            while self.rail.taken() < last {
                self.rail.flush()?;
                self.rail.poll(&mut self.got)?;
            }
        }
        Ok((count * chunk) as f64 / start.elapsed().as_secs_f64() / 1e9)
    }
}
