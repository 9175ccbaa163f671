//! `cargo xtask bench-files`: files over linkspan beside the tools that people have, in turn, over TCP on loopback.
//!
//! Of each round only ratios count, and of the ratios the median. Processor time is that of both ends: of the command, and of the
//! servers that it used.

mod peers;
mod rows;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::run::{self, Outcome};
use peers::{Peers, Started};
use rows::{Entry, Row};

use super::stats::median;

const USAGE: &str = "bench-files [--small] [--rounds N] [--row NAME]... [--disk DIR] [--record FILE]";

/// Rounds unless `--rounds` says otherwise.
const ROUNDS: usize = 7;

/// How long all rows may take; a row whose share is over ends, but has so many rounds. The table says how many it had.
const TIME: Duration = Duration::from_secs(18 * 60);
const LEAST: usize = 3;

/// What is asked for.
struct Options {
    small: bool,
    rounds: usize,
    only: Vec<String>,
    disk: Option<PathBuf>,
    record: Option<String>,
}

impl Options {
    fn read(words: &[&str]) -> Result<Options, String> {
        let mut options = Options { small: false, rounds: ROUNDS, only: Vec::new(), disk: None, record: None };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().copied().ok_or_else(|| format!("{word} needs a value: {USAGE}"));
            match word {
                "--small" => options.small = true,
                "--rounds" => {
                    options.rounds =
                        value()?.parse().ok().filter(|n| *n > 0).ok_or("--rounds takes a number from 1")?;
                }
                "--row" => options.only.push(value()?.to_owned()),
                "--disk" => options.disk = Some(value()?.into()),
                "--record" => options.record = Some(value()?.to_owned()),
                other => return Err(format!("{other} is not an option: {USAGE}")),
            }
        }
        match options.only.iter().find(|name| !rows::NAMES.contains(&&***name)) {
            Some(name) => Err(format!("there is no row {name}; there are {}", rows::NAMES.join(", "))),
            None => Ok(options),
        }
    }

    fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == row)
    }
}

/// One run of one command.
#[derive(Clone, Copy, Debug)]
struct Sample {
    seconds: f64,
    /// Of both ends.
    cpu: f64,
    /// What the row reads from the output.
    number: Option<f64>,
}

/// Measures and prints.
pub(crate) fn run(root: &Path, words: &[&str]) -> Outcome {
    match Options::read(words).and_then(|options| measure(root, words, &options)) {
        Ok(()) => Outcome::Done,
        Err(why) => Outcome::Failed(why),
    }
}

fn measure(root: &Path, words: &[&str], options: &Options) -> Result<(), String> {
    run::must(run::cargo(root).args(["build", "--release", "-p", "lspan"]))?;
    run::must(run::cargo(root).args(["build", "--release", "-p", "linkspan-mount", "--examples"]))?;
    run::must(run::cargo(root).args(["build", "--release", "-p", "linkspan-files", "--example", "hash_file"]))?;
    let disk = options.disk.clone().unwrap_or_else(|| run::target_dir(root).join("bench-files"));
    let peers = Peers::start(&run::target_dir(root).join("release"), &disk)?;
    let (mut table, began, loaded) = (String::new(), Instant::now(), load());
    let names: Vec<&str> = rows::NAMES.into_iter().filter(|name| options.wants(name)).collect();
    for (at, name) in names.iter().enumerate() {
        let share = TIME.saturating_sub(began.elapsed()) / (names.len() - at) as u32;
        let row = rows::row(name, &peers, options.small)?;
        if row.entries.is_empty() {
            println!("skipped: {name}: no socat (Debian: socat)");
            continue;
        }
        eprintln!("{name}: {}", row.what);
        let found = rounds(&peers, &row, options.rounds, share)?;
        let text = shown(&row, &found);
        println!("{text}");
        table += &text;
        for entry in &row.entries {
            peers.shell(&entry.prepare)?;
        }
        peers.shell(&row.clean)?;
        // After each row, for the next one may fail.
        if let Some(file) = &options.record {
            let text = format!("# Files: beside other tools\n\n{}\n{table}", head(words, &loaded)?);
            fs::write(root.join(file), text).map_err(|error| format!("{file}: {error}"))?;
        }
    }
    eprintln!("{} s of measuring", began.elapsed().as_secs());
    Ok(())
}

/// Processes that wanted a processor, over 1, 5 and 15 minutes (proc_loadavg(5)).
fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Machine, commit and command.
fn head(words: &[&str], loaded: &str) -> Result<String, String> {
    let git = run::output(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]))?;
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().next().unwrap_or_default().to_owned();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(format!(
        "Machine: {processors} processors, {memory}, Linux {}, loopback. Load before: {loaded}; at the end: {}. Commit {}.\n\n```\ncargo xtask bench-files {}\n```\n\n\
         Speed is lspan's over the other's: the median of the rounds' ratios, with the lowest and the highest. CPU is that of both ends.\n",
        kernel.trim(),
        load(),
        git.trim(),
        words.join(" "),
    ))
}

/// Everybody in turn, each round from another one on.
fn rounds(peers: &Peers, row: &Row, count: usize, share: Duration) -> Result<Vec<Vec<Sample>>, String> {
    let began = Instant::now();
    peers.shell(&row.plant)?;
    let mut found = vec![Vec::new(); row.entries.len()];
    for round in 0..count {
        if round >= LEAST && began.elapsed() >= share {
            break;
        }
        for at in (0..row.entries.len()).map(|n| (n + round) % row.entries.len()) {
            let sample = one(peers, &row.entries[at]).map_err(|why| format!("{}: {why}", row.entries[at].name))?;
            found[at].push(sample);
        }
    }
    Ok(found)
}

fn one(peers: &Peers, entry: &Entry) -> Result<Sample, String> {
    peers.shell(&entry.prepare)?;
    let mount = entry.mount.as_ref().map(|mount| peers.mount(mount)).transpose()?;
    let mut servers = entry.servers.clone();
    servers.extend(mount.as_ref().map(Started::id));
    let cpu = || servers.iter().map(|&pid| cpu_of(pid)).sum::<f64>() + own_children();
    let (before, began) = (cpu(), Instant::now());
    let output = peers.shell(&entry.command)?;
    let seconds = began.elapsed().as_secs_f64();
    // What a mount has of processes, here and at its server, counts when they have ended.
    if let Some(mount) = mount {
        peers.unmount(mount)?;
    }
    // What forks for a connection ends a little later, and counts when it has.
    let end = Instant::now() + Duration::from_secs(10);
    while entry.servers.iter().any(|&pid| has_children(pid)) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    let cpu = cpu() - before;
    Ok(Sample { seconds, cpu, number: entry.number.and_then(|number| number(&output)) })
}

/// Seconds of processor time in these fields of proc_pid_stat(5), counted behind the name; a tick is 10 ms (USER_HZ).
fn ticks(path: &str, fields: std::ops::RangeInclusive<usize>) -> f64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let behind = text.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<_>>()).unwrap_or_default();
    fields.filter_map(|n| behind.get(n)?.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Of a process and those of its children that have ended.
fn cpu_of(pid: u32) -> f64 {
    ticks(&format!("/proc/{pid}/stat"), 11..=14)
}

fn own_children() -> f64 {
    ticks("/proc/self/stat", 13..=14)
}

fn has_children(pid: u32) -> bool {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    !children.trim().is_empty()
}

/// The table of a row, and its goals with what was reached.
fn shown(row: &Row, found: &[Vec<Sample>]) -> String {
    let mut text = format!(
        "\n## {}, {} rounds\n\n| | seconds | GB/s | CPU s | CPU s/GB | {} | speed of lspan |\n|---|---|---|---|---|---|---|\n",
        row.what,
        found[0].len(),
        row.number.unwrap_or("")
    );
    let gb = row.bytes as f64 / 1e9;
    for (entry, samples) in row.entries.iter().zip(found) {
        let mut ratios: Vec<f64> =
            samples.iter().zip(&found[0]).map(|(other, ours)| other.seconds / ours.seconds).collect();
        ratios.sort_by(f64::total_cmp);
        let seconds = median(&samples.iter().map(|s| s.seconds).collect::<Vec<_>>());
        let cpu = median(&samples.iter().map(|s| s.cpu).collect::<Vec<_>>());
        let number = median(&samples.iter().filter_map(|s| s.number).collect::<Vec<_>>());
        let number = if number.is_nan() { String::new() } else { format!("{number:.3}") };
        let (low, high) = (ratios.first().copied().unwrap_or(0.0), ratios.last().copied().unwrap_or(0.0));
        let middle = median(&ratios);
        text += &format!(
            "| {} | {seconds:.3} | {:.3} | {cpu:.2} | {:.2} | {number} | {middle:.2} ({low:.2} to {high:.2}) |\n",
            entry.name,
            gb / seconds,
            cpu / gb
        );
    }
    let of = |name: &str| row.entries.iter().position(|entry| entry.name == name).map(|at| &found[at][..]);
    for goal in &row.goals {
        let each = (0..found[0].len()).filter_map(|round| (goal.value)(&|name| of(name).map(|samples| samples[round])));
        let value = median(&each.collect::<Vec<_>>());
        let met = if value.is_nan() {
            "not shown"
        } else if (value >= goal.bound) == goal.least {
            "met"
        } else {
            "MISSED"
        };
        let sign = if goal.least { ">=" } else { "<=" };
        text += &format!("\n{}: {value:.3}, goal {sign} {}: {met}\n", goal.what, goal.bound);
    }
    text
}
