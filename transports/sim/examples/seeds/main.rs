//! Runs many seeds, or one with a trace: `seeds -- --from 0 --count 10000`, `seeds -- --seed 17`.

mod model;
mod onesided;
mod plan;
mod run;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use run::{Met, Report, run};

const USAGE: &str = "usage: seeds [--from N] [--count N] | --seed N";

fn main() -> ExitCode {
    let (mut from, mut count, mut single) = (0u64, 1000u64, None);
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().and_then(|v| v.parse().ok());
        match (name.as_str(), value) {
            ("--from", Some(n)) => from = n,
            ("--count", Some(n)) => count = n,
            ("--seed", Some(n)) => single = Some(n),
            _ => {
                eprintln!("{name}: not an option with a number\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    if let Some(seed) = single {
        println!("{:#?}", run(seed, true));
        return ExitCode::SUCCESS;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let parts: Vec<(Total, Vec<u64>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|t| scope.spawn(move || worker((from + t..from + count).step_by(threads as usize))))
            .collect();
        let results = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
        results.map(|r| r.expect("workers catch panics")).collect()
    });
    let mut total = Total::default();
    let mut failed = Vec::new();
    for (part, bad) in parts {
        total.add(part);
        failed.extend(bad);
    }
    failed.sort_unstable();
    total.print(count);
    for seed in &failed {
        println!("FAILED: cargo run --release -p linkspan-sim --example seeds -- --seed {seed}");
    }
    println!("{} of {count} seeds failed", failed.len());
    ExitCode::from(u8::from(!failed.is_empty()))
}

fn worker(seeds: impl Iterator<Item = u64>) -> (Total, Vec<u64>) {
    let (mut total, mut failed) = (Total::default(), Vec::new());
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| run(seed, false))) {
            Ok(report) => total.count(report),
            Err(_) => failed.push(seed),
        }
    }
    (total, failed)
}

#[derive(Default)]
struct Total {
    met: Met,
    messages: u64,
    written: u64,
    read: u64,
    may_die: u64,
    died: u64,
    rails_lost: u64,
    longest: u64,
}

impl Total {
    fn count(&mut self, report: Report) {
        self.add(Total {
            met: report.met,
            messages: report.messages,
            written: report.written,
            read: report.read,
            may_die: u64::from(report.may_die),
            died: u64::from(report.died),
            rails_lost: report.rails_lost,
            longest: report.rounds,
        });
    }

    fn add(&mut self, other: Total) {
        for (key, n) in other.met {
            *self.met.entry(key).or_default() += n;
        }
        self.messages += other.messages;
        self.written += other.written;
        self.read += other.read;
        self.may_die += other.may_die;
        self.died += other.died;
        self.rails_lost += other.rails_lost;
        self.longest = self.longest.max(other.longest);
    }

    fn print(&self, count: u64) {
        let mut phases: Vec<&str> = self.met.keys().map(|k| k.1).collect();
        phases.sort_unstable();
        phases.dedup();
        println!("which fault met which state, over {count} seeds:\n");
        print!("{:<28}", "");
        phases.iter().for_each(|p| print!("{p:>23}"));
        println!();
        let mut names: Vec<&str> = self.met.keys().map(|k| k.0).collect();
        names.dedup();
        for name in names {
            print!("{name:<28}");
            for phase in &phases {
                let n = self.met.iter().find(|(k, _)| k.0 == name && k.1 == *phase);
                print!("{:>23}", n.map_or(0, |(_, n)| *n));
            }
            println!();
        }
        println!(
            "\n{} messages delivered, {} writes and {} reads done, {} rails lost; {} connections had to survive, {} of {} others were ended by their faults; the longest run took {} rounds",
            self.messages,
            self.written,
            self.read,
            self.rails_lost,
            count - self.may_die,
            self.died,
            self.may_die,
            self.longest
        );
    }
}
