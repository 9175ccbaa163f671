//! Results as `--json` prints them: schema `linkspan.perf/1`, described in `docs/schema/perf-1.json`. Every number's
//! unit is in its name.

use std::collections::BTreeMap;

use linkspan_gpu::MemoryName;
use serde::{Deserialize, Serialize};

use crate::baseline::{Comparison, Found, Measure};
use crate::connect::Connects;
use crate::hist::{Recorder, Summary};
use crate::link::LinkDesc;
use crate::multi::Streams;
use crate::session::Outcome;
use crate::spec::Test;
use crate::units::{gbit_s, gbyte_s};

/// Name of the schema of a whole record.
pub const SCHEMA: &str = "linkspan.perf/1";

/// Name of the schema of one line of `--json-stream`.
pub const STREAM_SCHEMA: &str = "linkspan.perf.stream/1";

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// Time of the start, seconds since 1970 UTC.
    pub time_unix_s: u64,
    /// The command line.
    pub command: Vec<String>,
    /// This host.
    pub host: HostInfo,
    /// Who was at the other end, as the command line names it; `null`: a process on this host that we started.
    pub peer: Option<String>,
    /// Environment names that may matter (LINKSPAN_* and NCCL_*) and their values.
    pub env: BTreeMap<String, String>,
    /// One row per measurement.
    pub results: Vec<Row>,
    /// Whether every measurement was made and found no wrong byte.
    pub ok: bool,
    /// Exit code of the program.
    pub exit_code: u8,
    /// What made the path slower than this machine could give, or cost a rail in mid-run; with any, the exit code of a run that went well is 3.
    pub downgrades: Vec<String>,
    /// Why the run ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The measuring host.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostInfo {
    /// Host name.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// Instruction set.
    pub arch: String,
    /// Processor model.
    pub cpu_model: Option<String>,
    /// Processors.
    pub cpus: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
}

/// One measurement.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Row {
    /// Kind of test: `bw`, `lat`, `jitter`, `load`, `multi`, `connect`.
    pub test: String,
    /// Transport that carried it.
    pub transport: String,
    /// The path.
    pub path: String,
    /// Why this path; of device memory also whether it is staged, and why.
    pub reason: String,
    /// Paths and reasons as text, a line for each rail.
    #[serde(skip)]
    pub lines: Vec<String>,
    /// Where messages are on this side: `host`, `cuda:N`, `hip:N`.
    pub memory: String,
    /// Where they are on the peer's side.
    pub peer_memory: String,
    /// Message size.
    pub size_bytes: u64,
    /// Size of the bulk messages under a latency test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_size_bytes: Option<u64>,
    /// `send`, `recv` or `both`, as this side sees it.
    pub direction: String,
    /// Connections used at once.
    pub streams: u32,
    /// Messages in flight on each; 1 where each waits for the answer to the one before.
    pub window: u32,
    /// How both sides waited: `spin`, `adaptive` or `sleep`.
    pub wait: String,
    /// Bulk messages, both directions together.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time from the common start to the last byte.
    pub elapsed_ns: u64,
    /// Payload, decimal gigabits per second.
    pub bw_gbit_s: f64,
    /// Payload, decimal gigabytes per second.
    pub bw_gbyte_s: f64,
    /// Messages per second.
    pub msg_per_s: f64,
    /// Half round trips; of `connect` the handshakes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Half round trips without load, of `load`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_latency: Option<Latency>,
    /// The distribution behind `latency`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<Step>,
    /// Wrong bytes found; `null`: nothing was checked.
    pub wrong_bytes: Option<u64>,
    /// Processor seconds of this side's testing threads per decimal gigabyte; helper threads of network cards (LINKSPAN_HELPERS)
    /// are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_local_s_per_gbyte: Option<f64>,
    /// As above, of the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_peer_s_per_gbyte: Option<f64>,
    /// Speed of the slowest stream as a part of the fastest one's, of `multi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// The machine's limits measured in the same run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baseline: Vec<BaselineRow>,
    /// Limits that could not be measured, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baseline_notes: Vec<String>,
}

/// Statistics of single operations.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Latency {
    /// Samples.
    pub count: u64,
    /// Smallest.
    pub min_ns: f64,
    /// Mean.
    pub avg_ns: f64,
    /// Largest.
    pub max_ns: f64,
    /// Standard deviation.
    pub stddev_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 90th percentile.
    pub p90_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p99_9_ns: f64,
    /// 99.99th percentile.
    pub p99_99_ns: f64,
    /// Smoothed difference of neighbours (RFC 3550).
    pub jitter_ns: f64,
}

/// A step of a histogram.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Step {
    /// Upper edge.
    pub upto_ns: f64,
    /// Samples above the step before and up to this edge.
    pub count: u64,
}

/// A limit of the machine beside our value.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct BaselineRow {
    /// A [`crate::baseline::Kind`].
    pub kind: String,
    /// `half_round_trip_ns` (smaller is better), `bw_gbyte_s` or `msg_per_s` (larger is better).
    pub measure: String,
    /// Median of ours.
    pub ours: f64,
    /// Median of the baseline.
    pub base: f64,
    /// Median of the ratios ours / baseline of the rounds.
    pub ratio: f64,
    /// Smallest of them.
    pub ratio_min: f64,
    /// Largest of them.
    pub ratio_max: f64,
    /// Interleaved rounds.
    pub rounds: u32,
    /// Ratio of processor time per byte, both sides together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ratio: Option<f64>,
    /// Smallest of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ratio_min: Option<f64>,
    /// Largest of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ratio_max: Option<f64>,
    /// Processor seconds per decimal gigabyte, both sides together, median of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ours_s_per_gbyte: Option<f64>,
    /// As above, of the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_base_s_per_gbyte: Option<f64>,
    /// Congestion control of the bare connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
}

/// A line of `--json-stream`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event<'a> {
    /// First line: the record without results.
    Start {
        /// [`STREAM_SCHEMA`].
        schema: &'static str,
        /// Who measures.
        host: &'a HostInfo,
        /// As in [`Record`].
        peer: &'a Option<String>,
        /// As in [`Record`].
        command: &'a [String],
    },
    /// A measurement.
    Result {
        /// It.
        row: &'a Row,
    },
    /// Last line.
    End {
        /// As in [`Record`].
        ok: bool,
        /// As in [`Record`].
        exit_code: u8,
        /// As in [`Record`].
        downgrades: &'a [String],
        /// As in [`Record`].
        error: Option<&'a str>,
    },
}

impl From<Summary> for Latency {
    fn from(s: Summary) -> Latency {
        Latency {
            count: s.count,
            min_ns: s.min,
            avg_ns: s.avg,
            max_ns: s.max,
            stddev_ns: s.stddev,
            p50_ns: s.p50,
            p90_ns: s.p90,
            p99_ns: s.p99,
            p99_9_ns: s.p999,
            p99_99_ns: s.p9999,
            jitter_ns: s.jitter,
        }
    }
}

impl From<&Comparison> for BaselineRow {
    fn from(comparison: &Comparison) -> BaselineRow {
        let ((ours, base), (ratio, ratio_min, ratio_max)) = (comparison.medians(), comparison.ratio());
        BaselineRow {
            kind: comparison.kind.name().into(),
            measure: match comparison.measure {
                Measure::HalfRoundTrip => "half_round_trip_ns",
                Measure::Bandwidth => "bw_gbyte_s",
                Measure::Rate => "msg_per_s",
            }
            .into(),
            ours,
            base,
            ratio,
            ratio_min,
            ratio_max,
            rounds: comparison.pairs.len() as u32,
            cpu_ratio: comparison.cpu_ratio().map(|(mid, _, _)| mid),
            cpu_ratio_min: comparison.cpu_ratio().map(|(_, low, _)| low),
            cpu_ratio_max: comparison.cpu_ratio().map(|(_, _, high)| high),
            cpu_ours_s_per_gbyte: comparison.cpu_medians().map(|(ours, _)| ours),
            cpu_base_s_per_gbyte: comparison.cpu_medians().map(|(_, base)| base),
            congestion: comparison.congestion.clone(),
        }
    }
}

/// Rows of the histogram in a record.
const STEPS: usize = 24;

fn steps(rec: Option<&Recorder>, parts: f64) -> Vec<Step> {
    let steps = rec.map_or_else(Vec::new, |rec| rec.steps(STEPS, parts));
    steps.into_iter().map(|(upto_ns, count)| Step { upto_ns, count }).collect()
}

impl Row {
    /// The row of a single-stream test.
    pub fn of(out: &Outcome, desc: &LinkDesc) -> Row {
        let spec = &out.spec;
        let load = spec.test == Test::Load;
        let latency = |rec: &Option<Recorder>| rec.as_ref().and_then(|rec| rec.summary(2.0)).map(Latency::from);
        let mut row = Row {
            test: spec.test.name().into(),
            size_bytes: spec.size,
            load_size_bytes: load.then_some(spec.load_size),
            direction: spec.direction.name().into(),
            streams: 1,
            window: match spec.test {
                Test::Bw => spec.window_used(),
                Test::Load => spec.load_window_used(),
                Test::Lat | Test::Jitter => 1,
            },
            wait: spec.wait.name().into(),
            latency: latency(&out.round_trips),
            idle_latency: latency(&out.idle_round_trips),
            histogram: steps(out.round_trips.as_ref(), 2.0),
            wrong_bytes: out.wrong_bytes,
            peer_memory: out.peer_memory.to_string(),
            ..Row::on(desc)
        };
        row.flow(out.messages(), out.bytes(), out.elapsed_ns());
        row.cpu(out.cpu_local_ns, out.cpu_peer_ns);
        row
    }

    /// Adds what was measured beside it.
    pub fn beside(&mut self, found: &Found) {
        self.baseline = found.comparisons.iter().map(BaselineRow::from).collect();
        self.baseline_notes.clone_from(&found.notes);
    }

    /// The row of several streams.
    pub fn of_streams(streams: &Streams) -> Row {
        let Some(first) = streams.each.first() else { return Row::on(&streams.desc) };
        let wrong = streams
            .each
            .iter()
            .map(|out| out.wrong_bytes)
            .try_fold(0u64, |sum, wrong| Some(sum.saturating_add(wrong?)));
        let mut row = Row {
            test: "multi".into(),
            streams: streams.each.len() as u32,
            wrong_bytes: wrong,
            fairness: Some(streams.fairness()),
            ..Row::of(first, &streams.desc)
        };
        row.flow(streams.messages(), streams.bytes(), streams.elapsed_ns());
        let sum = |pick: fn(&Outcome) -> u64| streams.each.iter().map(pick).sum();
        row.cpu(sum(|out| out.cpu_local_ns), sum(|out| out.cpu_peer_ns));
        row
    }

    /// The row of handshakes.
    pub fn of_connects(connects: &Connects, desc: &LinkDesc) -> Row {
        let count = connects.handshakes.count();
        Row {
            test: "connect".into(),
            direction: "send".into(),
            streams: 1,
            window: 1,
            wait: "adaptive".into(),
            messages: count,
            elapsed_ns: connects.elapsed_ns,
            msg_per_s: per_s(count, connects.elapsed_ns),
            latency: connects.handshakes.summary(1.0).map(Latency::from),
            histogram: steps(Some(&connects.handshakes), 1.0),
            ..Row::on(desc)
        }
    }

    fn on(desc: &LinkDesc) -> Row {
        Row {
            transport: desc.transport.clone(),
            path: desc.path.clone(),
            reason: desc.reason.clone(),
            lines: desc.lines.clone(),
            memory: desc.memory.to_string(),
            peer_memory: MemoryName::Host.to_string(),
            ..Row::default()
        }
    }

    fn flow(&mut self, messages: u64, bytes: u64, elapsed_ns: u64) {
        (self.messages, self.bytes, self.elapsed_ns) = (messages, bytes, elapsed_ns);
        self.bw_gbit_s = gbit_s(bytes, elapsed_ns);
        self.bw_gbyte_s = gbyte_s(bytes, elapsed_ns);
        self.msg_per_s = per_s(messages, elapsed_ns);
    }

    fn cpu(&mut self, local_ns: u64, peer_ns: u64) {
        // Processor time per byte says something of bulk data only.
        let per_gbyte = |ns: u64| (self.bytes > 0 && self.latency.is_none()).then(|| ns as f64 / self.bytes as f64);
        (self.cpu_local_s_per_gbyte, self.cpu_peer_s_per_gbyte) = (per_gbyte(local_ns), per_gbyte(peer_ns));
    }
}

fn per_s(count: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { count as f64 * 1e9 / ns as f64 }
}

#[cfg(test)]
mod tests;
