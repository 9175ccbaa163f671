//! The machine's own limits, measured in the same run: bare loops over TCP, both processes copying at once (split
//! CMA), a cache line thrown to and fro, and memcpy.

pub mod bare;
mod cma;
pub mod memcpy;
pub mod shared;
mod socket;

use std::time::Duration;

use crate::error::PerfError;
use crate::hist::median;
use crate::link::{Link, LinkDesc};
use crate::session::Client;
use crate::spec::{Direction, Spec, Stop, Test};
use bare::{Bare, Loop};
use memcpy::Memcpy;

/// A limit of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A TCP connection and nothing above it: ping-pong, or a stream that only the kernel holds back.
    Tcp,
    /// The same, with as many messages on their way at most as the test has, given back by the receiver.
    TcpWindow,
    /// Both processes copy at once with process_vm_readv and process_vm_writev.
    SplitCma,
    /// A word in shared memory to and fro.
    CacheLine,
    /// One processor copies memory.
    Memcpy,
}

impl Kind {
    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tcp => "bare_tcp",
            Kind::TcpWindow => "bare_tcp_window",
            Kind::SplitCma => "split_cma",
            Kind::CacheLine => "cache_line",
            Kind::Memcpy => "memcpy",
        }
    }
}

/// What a [`Comparison`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Median half round trip, ns: a ratio below 1 is better than the baseline.
    HalfRoundTrip,
    /// Payload, decimal GB/s: a ratio above 1 is better than the baseline.
    Bandwidth,
    /// Messages per second: a ratio above 1 is better than the baseline.
    Rate,
}

/// Ours beside one limit, in interleaved pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Which limit.
    pub kind: Kind,
    /// What was compared.
    pub measure: Measure,
    /// One value of ours and one of the limit per round.
    pub pairs: Vec<(f64, f64)>,
    /// Processor time per byte, both sides together: ours and the limit's, ns, per round. Empty for latency and memcpy.
    pub cpu: Vec<(f64, f64)>,
    /// Congestion control of the bare connection, as the kernel names it.
    pub congestion: Option<String>,
}

impl Comparison {
    /// Median, smallest and largest ratio of ours to the limit.
    pub fn ratio(&self) -> (f64, f64, f64) {
        spread(&self.pairs)
    }

    /// As [`Comparison::ratio`], of processor time per byte. `None` where there is none.
    pub fn cpu_ratio(&self) -> Option<(f64, f64, f64)> {
        (!self.cpu.is_empty()).then(|| spread(&self.cpu))
    }

    /// Median of ours and of the limit.
    pub fn medians(&self) -> (f64, f64) {
        medians(&self.pairs)
    }

    /// Median processor time per byte of ours and of the limit, ns, which is seconds per decimal gigabyte.
    pub fn cpu_medians(&self) -> Option<(f64, f64)> {
        (!self.cpu.is_empty()).then(|| medians(&self.cpu))
    }
}

fn medians(pairs: &[(f64, f64)]) -> (f64, f64) {
    let of = |pick: fn(&(f64, f64)) -> f64| median(&pairs.iter().map(pick).collect::<Vec<_>>()).unwrap_or(0.0);
    (of(|pair| pair.0), of(|pair| pair.1))
}

fn spread(pairs: &[(f64, f64)]) -> (f64, f64, f64) {
    let ratios: Vec<f64> = pairs.iter().filter(|pair| pair.1 > 0.0).map(|pair| pair.0 / pair.1).collect();
    let min = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    (
        median(&ratios).unwrap_or(0.0),
        if ratios.is_empty() { 0.0 } else { min },
        ratios.iter().copied().fold(0.0, f64::max),
    )
}

/// Rounds of a comparison at least: fewer say nothing of the spread.
pub const ROUNDS: u32 = 10;

/// Shortest half of a round.
const ROUND_MIN: Duration = Duration::from_millis(20);

/// Longest that memcpy takes of a round: it varies little.
const MEMCPY_MAX: Duration = Duration::from_millis(20);

/// Smallest message that two processes copy directly: below, a system call on each side is no limit but
/// a burden.
const CMA_MIN: u64 = 4096;

/// Largest message beside which a cache line is a limit.
const LINE_MAX: u64 = 64;

/// What [`compare`] found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Ours beside each limit.
    pub comparisons: Vec<Comparison>,
    /// Which limits could not be measured, and why.
    pub notes: Vec<String>,
}

/// Whether both ends of a link are on one host, as far as its description says.
fn one_host(desc: &LinkDesc) -> bool {
    match (desc.local, desc.peer) {
        (Some(local), Some(peer)) => local.ip() == peer.ip(),
        _ => true,
    }
}

/// Measures ours and each limit that `spec` has in turn: `rounds` pairs of each, every pair in the other order than
/// the one before, with the same size, window, wait mode and number of messages.
///
/// # Errors
/// [`PerfError`] of either side: those of [`Client::run`], and [`PerfError::Baseline`].
pub fn compare<L: Link>(client: &mut Client<L>, bare: &mut Bare, spec: &Spec, rounds: u32) -> Result<Found, PerfError> {
    let mut found = Found::default();
    let (small, large) = (spec.size <= LINE_MAX, spec.size >= CMA_MIN);
    let kinds: &[Kind] = match spec.test {
        Test::Bw if spec.direction == Direction::Send => {
            if large {
                &[Kind::Tcp, Kind::TcpWindow, Kind::SplitCma]
            } else {
                &[Kind::Tcp, Kind::TcpWindow]
            }
        }
        Test::Lat if small => &[Kind::Tcp, Kind::CacheLine],
        Test::Lat if large => &[Kind::Tcp, Kind::SplitCma],
        Test::Lat => &[Kind::Tcp],
        _ => {
            found.notes.push(format!(
                "no baseline for {} {}: it is measured beside `bw --direction send` and `lat`",
                spec.test.name(),
                spec.direction.name()
            ));
            return Ok(found);
        }
    };
    let rounds = rounds.max(ROUNDS);
    // How many messages fill half a round? One short test tells.
    let share = match spec.stop {
        Stop::After(time) => (time / (rounds * 2)).max(ROUND_MIN),
        Stop::Messages(_) => ROUND_MIN,
    };
    let probe = client.run(&Spec { stop: Stop::After(share), verify: false, ..spec.clone() })?;
    let done = probe.round_trips.as_ref().map_or(probe.messages(), crate::hist::Recorder::count);
    let count = match spec.stop {
        Stop::Messages(n) => n,
        Stop::After(_) => done.max(1),
    };
    let round = Spec { stop: Stop::Messages(count), warmup: spec.warmup.min(8), verify: false, ..spec.clone() };

    for &kind in kinds {
        if matches!(kind, Kind::SplitCma | Kind::CacheLine) {
            // Between hosts there is no such limit, and nothing to say of it.
            if !one_host(&client.describe()) {
                continue;
            }
            bare.set_patience(client.timeout());
            bare.join()?;
            if let Err(why) = bare.split() {
                found.notes.push(format!("{} not measured: {why}", kind.name()));
                continue;
            }
        }
        let with_memcpy = kind == Kind::Tcp && spec.test == Test::Bw;
        let mut memory = with_memcpy.then(|| Memcpy::new(spec.size, spec.window_used()));
        let mut copied = Vec::new();
        let mut one = series(client, bare, &round, count, kind, rounds, |ours| {
            if let Some(memory) = &mut memory {
                copied.push((ours, memory.round(share.min(MEMCPY_MAX))));
            }
        })?;
        if kind != Kind::Tcp && kind != Kind::TcpWindow {
            one.congestion = None;
        }
        found.comparisons.push(one);
        if with_memcpy {
            found.comparisons.push(Comparison {
                kind: Kind::Memcpy,
                measure: Measure::Bandwidth,
                pairs: copied,
                cpu: Vec::new(),
                congestion: None,
            });
        }
    }
    Ok(found)
}

/// The pairs of one limit. `after` gets each value of ours.
fn series<L: Link>(
    client: &mut Client<L>,
    bare: &mut Bare,
    round: &Spec,
    count: u64,
    kind: Kind,
    rounds: u32,
    mut after: impl FnMut(f64),
) -> Result<Comparison, PerfError> {
    let measure = match (round.test, kind) {
        (Test::Lat, _) => Measure::HalfRoundTrip,
        (_, Kind::TcpWindow) => Measure::Rate,
        _ => Measure::Bandwidth,
    };
    let congestion = Some(bare.congestion().to_owned());
    let mut out = Comparison { kind, measure, pairs: Vec::new(), cpu: Vec::new(), congestion };
    for number in 0..rounds {
        bare.set_patience(client.timeout());
        let (ours, theirs);
        if number % 2 == 0 {
            ours = one_of_ours(client, round, measure)?;
            theirs = one_bare(bare, round, count, kind, measure)?;
        } else {
            theirs = one_bare(bare, round, count, kind, measure)?;
            ours = one_of_ours(client, round, measure)?;
        }
        out.pairs.push((ours.0, theirs.0));
        if measure != Measure::HalfRoundTrip {
            out.cpu.push((ours.1, theirs.1));
        }
        after(ours.0);
    }
    Ok(out)
}

/// Bytes in a time as the measure has it.
fn speed(measure: Measure, size: u64, bytes: u64, ns: u64) -> f64 {
    let per_ns = bytes as f64 / ns.max(1) as f64;
    if measure == Measure::Rate { per_ns * 1e9 / size.max(1) as f64 } else { per_ns }
}

/// Value and processor time per byte of one round of ours.
fn one_of_ours<L: Link>(client: &mut Client<L>, spec: &Spec, measure: Measure) -> Result<(f64, f64), PerfError> {
    let out = client.run(spec)?;
    if client.interrupt().raised() {
        return Err(crate::link::LinkError::Interrupted.into());
    }
    if let Some(rec) = &out.round_trips {
        return Ok((rec.summary(2.0).map_or(0.0, |summary| summary.p50), 0.0));
    }
    let bytes = out.bytes().max(1);
    let cpu = (out.cpu_local_ns + out.cpu_peer_ns) as f64 / bytes as f64;
    Ok((speed(measure, spec.size, bytes, out.elapsed_ns()), cpu))
}

/// As [`one_of_ours`], of the limit.
fn one_bare(bare: &mut Bare, spec: &Spec, count: u64, kind: Kind, measure: Measure) -> Result<(f64, f64), PerfError> {
    let warm = u64::from(spec.warmup).max(1);
    if spec.test == Test::Lat {
        let kind = match kind {
            Kind::SplitCma => Loop::SplitPing,
            Kind::CacheLine => Loop::Line,
            _ => Loop::Ping,
        };
        bare.ping_pong(kind, spec.size, warm, spec.wait)?;
        let rec = bare.ping_pong(kind, spec.size, count, spec.wait)?;
        return Ok((rec.summary(2.0).map_or(0.0, |summary| summary.p50), 0.0));
    }
    let kind = match kind {
        Kind::SplitCma => Loop::Split,
        Kind::TcpWindow => Loop::Window,
        _ => Loop::Stream,
    };
    bare.stream(kind, spec.size, spec.window_used(), warm, spec.wait)?;
    let flow = bare.stream(kind, spec.size, spec.window_used(), count, spec.wait)?;
    let bytes = spec.size.saturating_mul(count).max(1);
    let cpu = (flow.cpu_local_ns + flow.cpu_peer_ns) as f64 / bytes as f64;
    Ok((speed(measure, spec.size, bytes, flow.elapsed_ns), cpu))
}

/// Round trips over a bare connection, for tests of sessions.
#[cfg(test)]
pub(crate) fn ping(bare: &mut Bare, count: u64) {
    bare.ping_pong(Loop::Ping, 8, count, crate::spec::WaitMode::Adaptive).unwrap();
}

#[cfg(test)]
mod tests;
