//! The machine's own limits, measured in the same run: a bare TCP ping-pong and stream, and memcpy.

pub mod bare;
pub mod memcpy;

use std::time::Duration;

use crate::error::PerfError;
use crate::hist::median;
use crate::link::Link;
use crate::session::Client;
use crate::spec::{Direction, Spec, Stop, Test};
use bare::Bare;

/// What a [`Comparison`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Median half round trip, ns: a ratio below 1 is better than the baseline.
    HalfRoundTrip,
    /// Payload, decimal GB/s: a ratio above 1 is better than the baseline.
    Bandwidth,
}

/// Ours beside the bare loop, in interleaved pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What was compared.
    pub measure: Measure,
    /// One value of ours and one of the bare loop per round.
    pub pairs: Vec<(f64, f64)>,
    /// Processor time per byte, both sides together: ours and the bare loop's, ns, per round. Empty for latency.
    pub cpu: Vec<(f64, f64)>,
    /// Congestion control of the bare connection, as the kernel names it.
    pub congestion: String,
}

impl Comparison {
    /// Median, smallest and largest ratio of ours to the bare loop's.
    pub fn ratio(&self) -> (f64, f64, f64) {
        spread(&self.pairs)
    }

    /// As [`Comparison::ratio`], of processor time per byte. `None` for latency.
    pub fn cpu_ratio(&self) -> Option<(f64, f64, f64)> {
        (!self.cpu.is_empty()).then(|| spread(&self.cpu))
    }

    /// Median of ours and of the bare loop.
    pub fn medians(&self) -> (f64, f64) {
        let of = |pick: fn(&(f64, f64)) -> f64| median(&self.pairs.iter().map(pick).collect::<Vec<_>>()).unwrap_or(0.0);
        (of(|pair| pair.0), of(|pair| pair.1))
    }
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

/// Measures ours and the bare loop in turn, `rounds` times, each pair in the other order than the one before, with
/// the same size, window, wait mode and number of messages. `None` where the bare loop has no counterpart.
///
/// # Errors
/// [`PerfError`] of either.
pub fn compare<L: Link>(
    client: &mut Client<L>,
    bare: &mut Bare,
    spec: &Spec,
    rounds: u32,
) -> Result<Option<Comparison>, PerfError> {
    let measure = match spec.test {
        Test::Bw if spec.direction == Direction::Send => Measure::Bandwidth,
        Test::Lat => Measure::HalfRoundTrip,
        _ => return Ok(None),
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

    let mut out = Comparison { measure, pairs: Vec::new(), cpu: Vec::new(), congestion: bare.congestion().to_owned() };
    for number in 0..rounds {
        let (ours, theirs);
        if number % 2 == 0 {
            ours = one_of_ours(client, &round)?;
            theirs = one_bare(bare, &round, count)?;
        } else {
            theirs = one_bare(bare, &round, count)?;
            ours = one_of_ours(client, &round)?;
        }
        out.pairs.push((ours.0, theirs.0));
        if measure == Measure::Bandwidth {
            out.cpu.push((ours.1, theirs.1));
        }
    }
    Ok(Some(out))
}

/// Value and processor time per byte of one round of ours.
fn one_of_ours<L: Link>(client: &mut Client<L>, spec: &Spec) -> Result<(f64, f64), PerfError> {
    let out = client.run(spec)?;
    if let Some(rec) = &out.round_trips {
        return Ok((rec.summary(2.0).map_or(0.0, |summary| summary.p50), 0.0));
    }
    let bytes = out.bytes().max(1) as f64;
    Ok((bytes / out.elapsed_ns().max(1) as f64, (out.cpu_local_ns + out.cpu_peer_ns) as f64 / bytes))
}

/// As [`one_of_ours`], of the bare loop.
fn one_bare(bare: &mut Bare, spec: &Spec, count: u64) -> Result<(f64, f64), PerfError> {
    if spec.test == Test::Lat {
        bare.ping_pong(spec.size, u64::from(spec.warmup).max(1), spec.wait)?;
        let rec = bare.ping_pong(spec.size, count, spec.wait)?;
        return Ok((rec.summary(2.0).map_or(0.0, |summary| summary.p50), 0.0));
    }
    bare.stream(spec.size, spec.window_used(), u64::from(spec.warmup).max(1), spec.wait)?;
    let flow = bare.stream(spec.size, spec.window_used(), count, spec.wait)?;
    let bytes = (spec.size * count).max(1) as f64;
    Ok((bytes / flow.elapsed_ns.max(1) as f64, (flow.cpu_local_ns + flow.cpu_peer_ns) as f64 / bytes))
}

#[cfg(test)]
mod tests;
