//! The table and the JSON of google-benchmark, as its users and their scripts know them: time and processor time per
//! iteration, iterations, bytes per second in units of 1024.

use serde::Serialize;

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// `operation/bytes/real_time`.
    pub name: String,
    /// Iterations of the timed part.
    pub iterations: u64,
    /// Time of one, ns.
    pub real_ns: f64,
    /// Processor time of the asking thread for one, ns.
    pub cpu_ns: f64,
    /// Bytes of one.
    pub bytes: u64,
}

/// What the JSON says of the machine.
#[derive(Clone, Debug, Serialize)]
pub struct Context {
    /// As [`date`] has it.
    pub date: String,
    /// Name of the host.
    pub host_name: String,
    /// The program.
    pub executable: String,
    /// Processors.
    pub num_cpus: usize,
    /// 0: not known.
    pub mhz_per_cpu: u64,
    /// Caches; not asked for.
    pub caches: Vec<()>,
    /// Load averages of 1, 5 and 15 minutes.
    pub load_avg: Vec<f64>,
    /// `release` or `debug`.
    pub library_build_type: &'static str,
    /// What carried the bytes, and why.
    pub path: String,
    /// What made it slower than this machine could give.
    pub downgrades: Vec<String>,
    /// Why the run ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Serialize)]
struct Benchmark<'a> {
    name: &'a str,
    family_index: usize,
    per_family_instance_index: usize,
    run_name: &'a str,
    run_type: &'static str,
    repetitions: u32,
    repetition_index: u32,
    threads: u32,
    iterations: u64,
    real_time: f64,
    cpu_time: f64,
    time_unit: &'static str,
    bytes_per_second: f64,
}

#[derive(Serialize)]
struct Document<'a> {
    context: &'a Context,
    benchmarks: Vec<Benchmark<'a>>,
}

impl Run {
    /// Bytes per second of real time.
    pub fn rate(&self) -> f64 {
        if self.real_ns > 0.0 { self.bytes as f64 * 1e9 / self.real_ns } else { 0.0 }
    }

    /// The row, for names of at most `width` characters.
    pub fn row(&self, width: usize) -> String {
        format!(
            "{:<width$} {} {:<4} {} {:<4} {:>10} bytes_per_second={}/s\n",
            self.name,
            time(self.real_ns / 1e3),
            "us",
            time(self.cpu_ns / 1e3),
            "us",
            self.iterations,
            binary(self.rate()),
        )
    }
}

/// The lines above the rows.
pub fn head(width: usize) -> String {
    let names = format!("{:<width$} {:>13} {:>15} {:>12}", "Benchmark", "Time", "CPU", "Iterations");
    let line = "-".repeat(names.len());
    format!("{line}\n{names}\n{line}\n")
}

/// The whole result as JSON.
///
/// # Errors
/// A value that JSON has no form for, such as an infinite number.
pub fn json(context: &Context, runs: &[Run]) -> serde_json::Result<String> {
    let benchmarks = runs.iter().enumerate().map(|(index, run)| Benchmark {
        name: &run.name,
        family_index: 0,
        per_family_instance_index: index,
        run_name: &run.name,
        run_type: "iteration",
        repetitions: 1,
        repetition_index: 0,
        threads: 1,
        iterations: run.iterations,
        real_time: run.real_ns / 1e3,
        cpu_time: run.cpu_ns / 1e3,
        time_unit: "us",
        bytes_per_second: run.rate(),
    });
    serde_json::to_string_pretty(&Document { context, benchmarks: benchmarks.collect() })
}

/// The last second of the year 9999: ISO 8601 has years of four digits.
const LAST: u64 = 253_402_300_799;

/// A moment, seconds since 1970, as ISO 8601 in UTC; later ones are shown as the last one that has a form.
pub fn date(unix_s: u64) -> String {
    // A peer may say anything of its files.
    let unix_s = unix_s.min(LAST);
    let (mut days, second) = (unix_s / 86_400, unix_s % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for len in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}+00:00", days + 1)
}

/// A time in its column: three digits that count.
fn time(us: f64) -> String {
    match us {
        t if t < 1.0 => format!("{t:>10.3}"),
        t if t < 9.995 => format!("{t:>10.2}"),
        t if t < 99.95 => format!("{t:>10.1}"),
        t => format!("{t:>10.0}"),
    }
}

/// Six digits that count, with the suffix of a power of 1024.
fn binary(mut n: f64) -> String {
    let mut suffix = "";
    for next in ["k", "M", "G", "T"] {
        if n < 1024.0 {
            break;
        }
        n /= 1024.0;
        suffix = next;
    }
    let before = if n >= 1.0 { n.log10().floor() as usize + 1 } else { 1 };
    let text = format!("{n:.*}", 6usize.saturating_sub(before));
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests;
