//! `cargo xtask bench-pair BASE HEAD`: is a commit as fast as another one?
//!
//! A machine's speed changes within minutes, by more than what is asked about. So both commits run in turn, a second or two
//! each; of every pair of runs only the ratio counts, and of the ratios the median with its 95 % interval.

mod figures;
pub(crate) mod files;
mod instructions;
mod sides;
mod stats;
pub(crate) mod visited;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{self, Outcome};
use crate::stages;
use figures::{Figure, NOT_SHOWN, Program, RUNS, Run};
use sides::Side;
use stats::{Interval, Verdict};

/// Pairs unless `--pairs` says otherwise: the quick set is for after each step, the full one for records.
const PAIRS: usize = 30;
/// A figure that is undecided then gets more, up to this many times as many.
const MORE: usize = 3;
/// Longest time one run may take; it takes two seconds on a machine with nothing else to do.
const LIMIT: Duration = Duration::from_secs(120);

const USAGE: &str = "bench-pair BASE HEAD [--quick] [--pairs N] [--figure NAME]... [--instructions] [--record FILE]";

#[derive(Default)]
struct Options<'a> {
    sides: Vec<&'a str>,
    quick: bool,
    pairs: Option<usize>,
    only: Vec<&'a str>,
    instructions: bool,
    record: Option<&'a str>,
}

impl<'a> Options<'a> {
    fn read(words: &[&'a str]) -> Result<Options<'a>, String> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().copied().ok_or_else(|| format!("{word} needs a value: {USAGE}"));
            match word {
                "--quick" => options.quick = true,
                "--instructions" => options.instructions = true,
                "--pairs" => {
                    let pairs = value()?.parse().ok().filter(|n| *n >= 6);
                    options.pairs = Some(pairs.ok_or("--pairs takes a number from 6: fewer have no 95 % interval")?);
                }
                "--figure" => options.only.push(value()?),
                "--record" => options.record = Some(value()?),
                other if other.starts_with('-') => return Err(format!("{other} is not an option: {USAGE}")),
                other => options.sides.push(other),
            }
        }
        let known = |name: &str| RUNS.iter().flat_map(|run| run.figures).any(|f| f.name == name);
        if let Some(name) = options.only.iter().find(|name| !known(name)) {
            let all: Vec<&str> = RUNS.iter().flat_map(|run| run.figures).map(|f| f.name).collect();
            return Err(format!("there is no figure {name}; there are {}", all.join(", ")));
        }
        if options.sides.len() == 2 { Ok(options) } else { Err(USAGE.to_owned()) }
    }

    fn wants(&self, figure: &Figure) -> bool {
        if self.only.is_empty() { figure.quick || !self.quick } else { self.only.contains(&figure.name) }
    }
}

/// What was found of one figure, pair by pair.
struct Column {
    figure: &'static Figure,
    base: Vec<f64>,
    head: Vec<f64>,
    /// Why there is nothing.
    missing: Option<String>,
}

impl Column {
    fn ratios(&self) -> Vec<f64> {
        self.base.iter().zip(&self.head).map(|(b, h)| figures::ratio(self.figure.sense, *b, *h)).collect()
    }

    fn interval(&self) -> Option<Interval> {
        stats::interval(&self.ratios())
    }

    fn verdict(&self) -> Verdict {
        stats::verdict(self.interval(), self.figure.rule)
    }

    fn row(&self) -> String {
        if let Some(why) = &self.missing {
            return format!("| {} | | | | | | not shown: {why} |", self.figure.name);
        }
        let (ratio, bounds) = match self.interval() {
            Some(i) => (format!("{:.3}", i.median), format!("{:.3}..{:.3}", i.low, i.high)),
            None => Default::default(),
        };
        format!(
            "| {} | {:.3} {unit} | {:.3} {unit} | {ratio} | {bounds} | {} | {} |",
            self.figure.name,
            stats::median(&self.base),
            stats::median(&self.head),
            self.base.len(),
            self.verdict().word(),
            unit = self.figure.unit,
        )
    }
}

/// Measures; fails where a figure was lost, could not be decided, or was not shown by one of the two.
pub(crate) fn run(root: &Path, words: &[&str]) -> Outcome {
    match measure(root, words) {
        Ok(problems) => Outcome::from_problems(&problems),
        Err(why) => Outcome::Failed(why),
    }
}

fn measure(root: &Path, words: &[&str]) -> Result<Vec<String>, String> {
    let options = Options::read(words)?;
    let commits = [sides::commit(root, options.sides[0])?, sides::commit(root, options.sides[1])?];
    let changed = run::output(Command::new("git").args(["status", "--porcelain"]).current_dir(root))?;
    if !changed.trim().is_empty() {
        eprintln!("what is changed here and not committed is not measured");
    }
    let mut programs: Vec<Program> = Vec::new();
    for run in RUNS.iter().filter(|run| run.figures.iter().any(|f| options.wants(f))) {
        if !programs.contains(&run.program) {
            programs.push(run.program);
        }
    }
    if options.instructions {
        programs.push(instructions::PROGRAM);
    }
    let sides = [Side::ready(root, &commits[0], &programs)?, Side::ready(root, &commits[1], &programs)?];
    let host = match programs.contains(&Program::PluginHost) {
        true => Some(host(&sides[0])?),
        false => None,
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    if load.split(' ').next().and_then(|n| n.parse().ok()).is_some_and(|n: f64| n > 1.0) {
        eprintln!("the machine is busy (load {}): what else runs here makes every interval wide", load.trim());
    }
    let began = Instant::now();
    let mut columns = Vec::new();
    for run in RUNS.iter().filter(|run| run.figures.iter().any(|f| options.wants(f))) {
        let found = pairs(run, &options, &sides, host.as_deref());
        for column in &found {
            println!("{}", column.row());
        }
        columns.extend(found);
    }
    let mut table = String::from("| figure | base | head | speed | 95 % | pairs | |\n|---|---|---|---|---|---|---|\n");
    for column in &columns {
        let _ = writeln!(table, "{}", column.row());
    }
    for (what, why) in NOT_SHOWN.iter().filter(|_| options.only.is_empty() && !options.quick) {
        let _ = writeln!(table, "| {what} | | | | | | not shown: {why} |");
    }
    if options.instructions {
        let _ = write!(table, "\n{}", instructions::table(&sides)?);
    }
    println!("\n{table}\n{} s of measuring", began.elapsed().as_secs());
    if let Some(file) = options.record {
        let text = record(&sides, words, &table)?;
        std::fs::write(root.join(file), text).map_err(|e| format!("{file}: {e}"))?;
    }
    let bad = columns.iter().filter(|c| c.missing.is_some() || c.verdict() != Verdict::Kept);
    let word = |c: &Column| if c.missing.is_some() { "not shown" } else { c.verdict().word() };
    let problems: Vec<String> = bad.map(|c| format!("{}: {}", c.figure.name, word(c))).collect();
    for problem in &problems {
        eprintln!("{problem}");
    }
    Ok(problems)
}

/// Runs both sides in turn until every wanted figure of the run is decided, or the limit of pairs is reached.
fn pairs(run: &'static Run, options: &Options<'_>, sides: &[Side; 2], host: Option<&Path>) -> Vec<Column> {
    let wanted = run.figures.iter().filter(|f| options.wants(f));
    let mut columns: Vec<Column> =
        wanted.map(|figure| Column { figure, base: Vec::new(), head: Vec::new(), missing: None }).collect();
    let commands = [command(run, &sides[0], host), command(run, &sides[1], host)];
    let [Ok(_), Ok(_)] = &commands else {
        let why = commands.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("; ");
        columns.iter_mut().for_each(|c| c.missing = Some(why.clone()));
        return columns;
    };
    let least = options.pairs.unwrap_or(PAIRS);
    for pair in 0..least * MORE {
        if pair >= least && columns.iter().all(|c| c.missing.is_some() || c.verdict() != Verdict::Undecided) {
            break;
        }
        // Who goes first alternates: what one leaves behind, in caches or in clock rates, is then met by both.
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut output = [String::new(), String::new()];
        for side in order {
            match command(run, &sides[side], host).and_then(|mut command| limited(&mut command)) {
                Ok(text) => output[side] = text,
                Err(why) => {
                    columns.iter_mut().for_each(|c| c.missing = Some(why.clone()));
                    return columns;
                }
            }
        }
        for column in columns.iter_mut().filter(|c| c.missing.is_none()) {
            match [0, 1].map(|side| figures::number(column.figure, &output[side])) {
                [Some(base), Some(head)] => {
                    column.base.push(base);
                    column.head.push(head);
                }
                [base, _] => {
                    let side = &sides[usize::from(base.is_some())].commit[..12];
                    column.missing = Some(format!("no such number in the output of {side}"));
                }
            }
        }
    }
    columns
}

/// The command of a run for one side, or what that side lacks for it.
fn command(run: &Run, side: &Side, host: Option<&Path>) -> Result<Command, String> {
    let short = &side.commit[..12];
    let mut command = match run.program {
        Program::PluginHost => {
            let plugin = side.plugin().ok_or_else(|| format!("{short} has no plugin"))?;
            let mut command = Command::new(host.ok_or("plugin-host was not built")?);
            command.arg("--plugin").arg(plugin).args(["--version", "12"]);
            command
        }
        Program::Example(name) => {
            Command::new(side.example(name).ok_or_else(|| format!("{short} has no example {name}"))?)
        }
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LINKSPAN_")) {
        command.env_remove(name);
    }
    command.args(run.args).env("LINKSPAN_IFNAME", "=lo");
    if let Some(path) = run.path {
        command.env("LINKSPAN_PATH", path);
    }
    Ok(command)
}

/// Standard output of a command that must end well, and in time.
fn limited(command: &mut Command) -> Result<String, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{command:?}: {e}"))?;
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let id = child.id().to_string();
    let watch = std::thread::spawn(move || {
        // The sender is dropped when the program has ended.
        if ended.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", &id]).status();
        }
    });
    let mut errors = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(errors) = &mut errors {
            let _ = std::io::Read::read_to_end(errors, &mut text);
        }
        text
    });
    let out = child.wait_with_output().map_err(|e| format!("{command:?}: {e}"));
    drop(end);
    let _ = watch.join();
    let errors = reader.join().unwrap_or_default();
    let out = out?;
    if out.status.success() {
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    } else {
        Err(format!("{command:?} ended with {}: {}", out.status, String::from_utf8_lossy(&errors).trim()))
    }
}

/// plugin-host of the base, for both sides.
fn host(base: &Side) -> Result<PathBuf, String> {
    if run::which("cc").is_none() {
        return Err("plugin-host needs a C compiler (Debian: gcc libc6-dev)".to_owned());
    }
    stages::compile_plugin_host(&base.root)
}

/// A file in the form of `bench/records`.
fn record(sides: &[Side; 2], words: &[&str], table: &str) -> Result<String, String> {
    let said =
        |program: &str, args: &[&str]| run::output(Command::new(program).args(args)).map(|s| s.trim().to_owned());
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (processors, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let after = |text: &str, name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).and_then(|l| l.split_once(':'));
        line.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let kib: f64 = after(&memory, "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0.0);
    let mut shown: Vec<&str> = words.to_vec();
    if let Some(at) = shown.iter().position(|w| *w == "--record") {
        shown.drain(at..(at + 2).min(shown.len()));
    }
    Ok(format!(
        "# {}: {} beside {}\n\n\
         Machine: {} processors ({}), {:.0} GiB, Linux {}, loopback. Load at the end: {}.\n\
         Base: commit {}. Head: commit {}.\n\n```\ncargo xtask bench-pair {}\n```\n\n\
         Speed is head over base, so that more than 1 is faster: the median of the ratios of interleaved pairs, with its 95 %\n\
         interval by order statistics. Base and head are medians of their own.\n\n{table}",
        said("date", &["+%F"])?,
        &sides[1].commit[..12],
        &sides[0].commit[..12],
        processors.matches("processor\t").count(),
        after(&processors, "model name"),
        kib / 1_048_576.0,
        read("/proc/sys/kernel/osrelease").trim(),
        read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
        sides[0].commit,
        sides[1].commit,
        shown.join(" "),
    ))
}

#[cfg(test)]
mod tests;
