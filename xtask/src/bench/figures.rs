//! The figures, and the programs that show them. Every program here is in the tree since `bench/core-base`.

use super::stats::Rule;

/// What measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// `tests/plugin-host` of the base, with the plugin of either side: the same instrument for both.
    PluginHost,
    /// The example of this name, of whichever package has it: each side's own.
    Example(&'static str),
}

/// Whether more is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sense {
    /// The number is a time or a cost.
    Less,
    /// The number is a rate.
    More,
}

/// One number of a run's output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    /// Its name, in tables and for `--figure`.
    pub(crate) name: &'static str,
    /// Whether it belongs to the quick set.
    pub(crate) quick: bool,
    /// Which way is faster.
    pub(crate) sense: Sense,
    /// What is asked of it.
    pub(crate) rule: Rule,
    /// Start of its line.
    pub(crate) line: &'static str,
    /// What stands before the number in that line.
    pub(crate) before: &'static str,
    /// What stands behind it.
    pub(crate) unit: &'static str,
}

/// One command and what is read from its output.
#[derive(Debug)]
pub(crate) struct Run {
    /// The program.
    pub(crate) program: Program,
    /// Its arguments.
    pub(crate) args: &'static [&'static str],
    /// `LINKSPAN_PATH`, where the program does not choose itself.
    pub(crate) path: Option<&'static str>,
    /// What its output has.
    pub(crate) figures: &'static [Figure],
}

const USUAL: Rule = Rule { width: 0.06, least: 0.97 };
const TINY: Rule = Rule { width: 0.10, least: 0.95 };

const fn latency(name: &'static str, quick: bool, rule: Rule) -> Figure {
    Figure { name, quick, sense: Sense::Less, rule, line: "lat v", before: "half round trip ", unit: "us" }
}

const fn rate(name: &'static str) -> Figure {
    Figure { name, quick: false, sense: Sense::More, rule: TINY, line: "rate v", before: ": plugin ", unit: "M/s" }
}

const fn stream(name: &'static str, quick: bool) -> Figure {
    Figure { name, quick, sense: Sense::More, rule: USUAL, line: "bw v", before: ": plugin ", unit: "GB/s" }
}

const fn cpu(name: &'static str) -> Figure {
    let before = "CPU s/GB both sides ";
    Figure { name, quick: false, sense: Sense::Less, rule: USUAL, line: "bw v", before, unit: "s/GB" }
}

const fn host(path: &'static str, args: &'static [&'static str], figures: &'static [Figure]) -> Run {
    Run { program: Program::PluginHost, args, path: Some(path), figures }
}

/// Every run. One second of plugin-host is twelve rounds of it beside bare sockets, whose numbers are not used here.
pub(crate) const RUNS: [Run; 14] = [
    host("tcp", &["--bench", "lat", "--size", "8", "--seconds", "1"], &[latency("tcp-8B", true, TINY)]),
    host("tcp", &["--bench", "lat", "--size", "64K", "--seconds", "1"], &[latency("tcp-64KiB", true, USUAL)]),
    host(
        "tcp",
        &["--bench", "bw", "--size", "1M", "--window", "8", "--seconds", "1"],
        &[stream("tcp-stream-1MiB", true), cpu("tcp-cpu-1MiB")],
    ),
    host(
        "shm",
        &["--bench", "bw", "--size", "1M", "--window", "8", "--seconds", "1"],
        &[stream("shm-stream-1MiB", true)],
    ),
    Run {
        program: Program::Example("blocking_bench"),
        args: &["--rounds", "5", "--count", "4000"],
        path: None,
        figures: &[
            one_sided("one-sided-8B", true, "tcp: turn"),
            one_sided("one-sided-8B-acknowledged", false, "tcp: alone"),
            one_sided("one-sided-shm-8B", false, "shm: turn"),
        ],
    },
    host("tcp", &["--bench", "rate", "--size", "8", "--window", "8", "--seconds", "1"], &[rate("tcp-rate-window-8")]),
    host("tcp", &["--bench", "rate", "--size", "8", "--window", "32", "--seconds", "1"], &[rate("tcp-rate-window-32")]),
    host(
        "tcp",
        &["--bench", "bw", "--size", "256K", "--window", "8", "--seconds", "1"],
        &[stream("tcp-stream-256KiB", false)],
    ),
    host(
        "tcp",
        &["--bench", "bw", "--size", "512K", "--window", "8", "--seconds", "1"],
        &[stream("tcp-stream-512KiB", false)],
    ),
    host(
        "tcp",
        &["--bench", "bw", "--size", "4M", "--window", "8", "--seconds", "1"],
        &[stream("tcp-stream-4MiB", false), cpu("tcp-cpu-4MiB")],
    ),
    host(
        "tcp",
        &["--bench", "bw", "--size", "32M", "--window", "4", "--seconds", "2"],
        &[stream("tcp-stream-32MiB", false)],
    ),
    host("shm", &["--bench", "lat", "--size", "8", "--seconds", "1"], &[latency("shm-8B", false, TINY)]),
    host("shm", &["--bench", "lat", "--size", "64K", "--seconds", "1"], &[latency("shm-64KiB", false, USUAL)]),
    Run {
        program: Program::Example("rate_bench"),
        args: &["--rounds", "3", "--ms", "60", "--pages", "256", "--peers", "64"],
        path: None,
        figures: &[
            write("one-sided-1MiB", "tcp 1 MiB, target waiting"),
            write("one-sided-shm-1MiB", "shm 1 MiB, target waiting"),
            Figure {
                name: "connect-64",
                quick: false,
                sense: Sense::Less,
                rule: USUAL,
                line: "64 peers connected",
                before: "median ",
                unit: "ms",
            },
        ],
    },
];

const fn one_sided(name: &'static str, quick: bool, line: &'static str) -> Figure {
    Figure { name, quick, sense: Sense::Less, rule: TINY, line, before: "median ", unit: "us" }
}

const fn write(name: &'static str, line: &'static str) -> Figure {
    Figure { name, quick: false, sense: Sense::More, rule: USUAL, line, before: ": ", unit: "GB/s" }
}

/// What no program of the base shows, so that no ratio to it can be taken.
pub(crate) const NOT_SHOWN: [(&str, &str); 3] = [
    (
        "8 B rate in the shape of NCCL's proxy",
        "one send, then one test of the oldest, per pass: plugin-host posts until its window is full",
    ),
    ("connect of 64 peers through the plugin", "connect-64 is taken through the library, both ends in one process"),
    ("memory per connection", "no program prints it"),
];

/// What instructions are counted of: words of the example `cost`, which does each so many times over the NIC in software.
pub(crate) const COSTS: [(&str, &str); 2] =
    [("frame", "a message of 64 B"), ("chunk", "a message of one 12 KiB chunk")];

/// The number of `figure` in a program's output.
pub(crate) fn number(figure: &Figure, output: &str) -> Option<f64> {
    let line = output.lines().find(|l| l.starts_with(figure.line))?;
    let (_, rest) = line.split_once(figure.before)?;
    let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok().filter(|n: &f64| *n > 0.0)
}

/// How fast `head` is beside `base`: over 1 is faster.
pub(crate) fn ratio(sense: Sense, base: f64, head: f64) -> f64 {
    match sense {
        Sense::Less => base / head,
        Sense::More => head / base,
    }
}

#[cfg(test)]
mod tests;
