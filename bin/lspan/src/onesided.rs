//! `lspan perf write` and `lspan perf read`: the library's one-sided operations, measured as its users call them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linkspan::{Access, Exposed, Memory, RemoteBuffer, Transport, Url};
use linkspan_fabric::MemoryName;
use linkspan_perf::format::gbench::{self, Run};
use linkspan_perf::{Interrupt, LinkError, Offers, PerfError, Share, thread_cpu_ns};
use linkspan_topology::{Host, Roots};

use crate::cli::{OneSided, PathArg};
use crate::exit::{Exit, Failure};
use crate::fabric;
use crate::out::{Out, Progress};
use crate::peer_lines;
use crate::perf::Peer;

/// Iterations of one run at most, and how much one run may be longer than the one before it.
const MOST: u64 = 1_000_000_000;
const GROWTH: u64 = 10;

/// Longest that the connection beside the session may take to come up.
const CONNECT: Duration = Duration::from_secs(20);

/// Which way bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Write,
    Read,
}

impl Direction {
    fn name(self, bytes: u64) -> String {
        let way = match self {
            Direction::Write => "Write",
            Direction::Read => "Read",
        };
        format!("BM_Transport_{way}/{bytes}/real_time")
    }
}

/// Measures every size and prints the table.
pub(crate) fn run(args: &OneSided, way: Direction) -> Result<Exit, Failure> {
    let (mut out, mut path, mut runs) = (Out::default(), String::new(), Vec::new());
    let result = measure(args, way, &mut out, &mut path, &mut runs);
    let downgrades = fabric::downgrades();
    let exit = if downgrades.is_empty() { Exit::Ok } else { Exit::Degraded };
    if args.json {
        let error = result.as_ref().err().map(|failure| failure.message.clone());
        let text = gbench::json(&context(path, downgrades, error), &runs);
        out.text(&(text.map_err(|error| Failure::new(Exit::Failed, format!("JSON: {error}")))? + "\n"))?;
    } else if !path.is_empty() {
        eprintln!("{path}");
    }
    result.map(|()| exit)
}

/// Every size in turn; what was found, and on which path, also where one fails.
fn measure(
    args: &OneSided,
    way: Direction,
    out: &mut Out,
    path: &mut String,
    runs: &mut Vec<Run>,
) -> Result<(), Failure> {
    let peer = Peer::find(args.peer.as_deref(), args.path, args.device, MemoryName::Host)?;
    let interrupt = &peer.connector.interrupt;
    let link = linkspan_perf::link::Connector::connect(&peer.connector)?;
    let mut client = linkspan_perf::Client::new(link, Some(CONNECT)).with_interrupt(interrupt);
    let largest = args.size.0.iter().copied().max().unwrap_or(1);
    let offer = client.offer(largest)?;
    let (url, remote) = read_offer(&offer)?;
    let transport = fabric::one_sided(args.path, args.peer.is_none())?.transport_on(args.device)?;
    transport.connect_blocking(&url, CONNECT)?;
    let asked = interrupt.clone();
    transport.stop_waiting_when(move || asked.raised());
    *path = transport.path().unwrap_or_default();
    let (memory, interrupt) = (Memory::host(largest as usize), interrupt.clone());
    let side = Side { transport, remote, memory, timeout: args.timeout, way, interrupt };

    let mut progress = Progress::new();
    let width = args.size.0.iter().map(|&bytes| way.name(bytes).len()).max().unwrap_or(0);
    if !args.json {
        out.text(&gbench::head(width))?;
    }
    for &bytes in &args.size.0 {
        progress.say(&format!("measuring {} ...", way.name(bytes)));
        let found = side.measure(bytes, args);
        progress.clear();
        let run = match found {
            Err(failure) if side.interrupt.raised() && failure.exit != Exit::WrongData => break,
            found => found?,
        };
        if !args.json {
            out.text(&run.row(width))?;
        }
        runs.push(run);
        if side.interrupt.raised() || out.gone() {
            break;
        }
    }
    let interrupted = side.interrupt.raised();
    drop(side);
    let left = client.close();
    if interrupted { Err(LinkError::Interrupted.into()) } else { left.map_err(Failure::from) }
}

struct Side {
    transport: Transport,
    remote: RemoteBuffer,
    memory: Memory,
    timeout: Duration,
    way: Direction,
    interrupt: Interrupt,
}

impl Side {
    /// A pattern to find again, and the first use of every page. The timed operations alone put it where it is looked for.
    fn prepare(&self, bytes: u64) -> Result<Vec<u8>, Failure> {
        let pattern: Vec<u8> = (0..bytes).map(|n| (n.wrapping_mul(2_654_435_761) >> 16) as u8).collect();
        let other: Vec<u8> = pattern.iter().map(|byte| !byte).collect();
        match self.way {
            Direction::Write => {
                self.memory.fill(0, &other)?;
                self.turns(Direction::Write, bytes, 1)?;
                self.memory.fill(0, &pattern)?;
            }
            Direction::Read => {
                self.memory.fill(0, &pattern)?;
                self.turns(Direction::Write, bytes, 1)?;
                self.turns(Direction::Read, bytes, 1)?;
                self.memory.fill(0, &other)?;
            }
        }
        Ok(pattern)
    }

    fn measure(&self, bytes: u64, args: &OneSided) -> Result<Run, Failure> {
        let pattern = self.prepare(bytes)?;
        let mut count = args.iters.unwrap_or(1);
        let run = loop {
            let (began, cpu) = (Instant::now(), thread_cpu_ns());
            let done = self.turns(self.way, bytes, count)?;
            let (took, cpu) = (began.elapsed(), thread_cpu_ns() - cpu);
            if self.interrupt.raised() || args.iters.is_some() || took >= args.duration || count >= MOST {
                let each = |ns: f64| ns / done as f64;
                let (real_ns, cpu_ns) = (each(took.as_nanos() as f64), each(cpu as f64));
                break Run { name: self.way.name(bytes), iterations: done, real_ns, cpu_ns, bytes };
            }
            // As many as the time asks for and a half more, so that the next run is the last.
            let wanted = args.duration.as_secs_f64() * 1.5 / took.as_secs_f64().max(1e-9) * count as f64;
            count = (wanted as u64).clamp(count + 1, count.saturating_mul(GROWTH)).min(MOST);
        };
        // After Ctrl-C nothing is read back any more.
        if !args.no_verify && !self.interrupt.raised() {
            self.check(bytes, &pattern)?;
        }
        Ok(run)
    }

    /// Makes so many operations, fewer after Ctrl-C; how many.
    fn turns(&self, way: Direction, bytes: u64, count: u64) -> Result<u64, Failure> {
        let remote = self.remote.slice(0, bytes)?;
        let (to, from) = (self.memory.slice_mut(0, bytes as usize)?, self.memory.slice(0, bytes as usize)?);
        for done in 0..count {
            let one = match way {
                Direction::Write => self.transport.write_blocking(&from, &remote, None, Some(self.timeout)).map(drop),
                Direction::Read => self.transport.read_blocking(&to, &remote, Some(self.timeout)).map(drop),
            };
            if self.interrupt.raised() {
                let done = done + u64::from(one.is_ok());
                return if done > 0 { Ok(done) } else { Err(LinkError::Interrupted.into()) };
            }
            one?;
        }
        Ok(count)
    }

    /// What the peer has, or what came from it, is the pattern.
    fn check(&self, bytes: u64, pattern: &[u8]) -> Result<(), Failure> {
        if self.way == Direction::Write {
            self.memory.fill(0, &vec![0; bytes as usize])?;
            self.turns(Direction::Read, bytes, 1)?;
        }
        let mut got = vec![0; bytes as usize];
        self.memory.read(0, &mut got)?;
        match got.iter().zip(pattern).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => {
                let why = format!("wrong data: {bytes} bytes differ from byte {at} on: run `lspan selftest`");
                Err(Failure::new(Exit::WrongData, why))
            }
        }
    }
}

fn context(path: String, downgrades: Vec<String>, error: Option<String>) -> gbench::Context {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let host = Host::read(&Roots::default());
    gbench::Context {
        date: gbench::date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())),
        host_name: host.name,
        executable: std::env::current_exe().map(|p| p.display().to_string()).unwrap_or_default(),
        num_cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        mhz_per_cpu: 0,
        caches: Vec::new(),
        load_avg: load.split(' ').take(3).filter_map(|n| n.parse().ok()).collect(),
        library_build_type: if cfg!(debug_assertions) { "debug" } else { "release" },
        path,
        downgrades,
        error,
    }
}

/// What a serving process offers to one visitor: a transport of the library, with memory exposed on it.
pub(crate) struct OneSidedOffers {
    path: PathArg,
    device: usize,
    local: bool,
    context: Option<linkspan::Context>,
    held: Option<(Transport, Exposed, Share)>,
}

impl OneSidedOffers {
    pub(crate) fn new(path: PathArg, device: usize, local: bool) -> OneSidedOffers {
        OneSidedOffers { path, device, local, context: None, held: None }
    }

    fn make(&mut self, bytes: u64, share: Share) -> Result<String, Failure> {
        self.held = None;
        let context = match &self.context {
            Some(context) => context.clone(),
            None => self.context.insert(fabric::one_sided(self.path, self.local)?).clone(),
        };
        let transport = context.transport_on(self.device)?;
        let exposed = transport.expose(&Memory::host(bytes as usize).view(), Access::ReadWrite)?;
        let remote: String = exposed.remote().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("{} {remote}", transport.bind()?);
        self.held = Some((transport, exposed, share));
        Ok(text)
    }
}

impl Offers for OneSidedOffers {
    fn offer(&mut self, bytes: u64, share: Share) -> Option<String> {
        let made = self.make(bytes, share);
        made.inspect_err(|failure| peer_lines::say(&format!("lspan: {}", failure.message))).ok()
    }

    fn in_use(&self) -> bool {
        self.held.as_ref().is_some_and(|(transport, ..)| transport.connected())
    }
}

fn read_offer(text: &str) -> Result<(Url, RemoteBuffer), Failure> {
    let bad = || Failure::from(PerfError::from(linkspan_perf::wire::BadMessage::Offer));
    let (url, hex) = text.split_once(' ').ok_or_else(bad)?;
    let digit = |at: usize| hex.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(digit).collect();
    Ok((url.parse().map_err(|_| bad())?, RemoteBuffer::decode(&bytes.ok_or_else(bad)?)?))
}

#[cfg(test)]
mod tests;
