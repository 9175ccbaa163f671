use clap::Parser;

use super::*;
use crate::cli::{Cli, Command};

fn job(line: &str) -> Result<Job, Failure> {
    let args = ["lspan", "perf"].into_iter().chain(line.split_whitespace());
    match Cli::try_parse_from(args).unwrap().command {
        Some(Command::Perf { perf }) => Ok(Job::list(perf)?.remove(0)),
        _ => panic!("{line}"),
    }
}

#[test]
fn defaults_per_test() {
    let sizes = |line: &str| job(line).unwrap().suite.specs.iter().map(|spec| spec.size).collect::<Vec<_>>();
    assert_eq!(sizes("bw"), [8, 4096, 65536, 1 << 20, 16 << 20]);
    assert_eq!(sizes("jitter -s 1..4"), [1, 2, 4]);
    let bw = job("bw").unwrap();
    assert_eq!(bw.suite.specs[0].window, 32);
    assert_eq!(bw.suite.specs[2].window, 8);
    assert_eq!(job("multi -P 3").unwrap().suite.streams, Some(3));
    assert!(job("connect -n 5").unwrap().suite.connect);
}

#[test]
fn options_reach_the_measurement() {
    let job =
        job("bw host:1 -s 1K -n 7 --warmup 0 -w 3 --wait spin --bidir --no-verify --seed 9 --timeout 5s").unwrap();
    let spec = &job.suite.specs[0];
    assert_eq!((spec.stop, spec.warmup, spec.window, spec.wait), (Stop::Messages(7), 0, 3, WaitMode::Spin));
    assert_eq!((spec.direction, spec.verify, spec.seed), (Direction::Both, false, 9));
    assert_eq!(job.suite.timeout(spec), Duration::from_secs(5));
    assert_eq!(job.measure.peer.as_deref(), Some("host:1"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for line in [
        "jitter --baseline",
        "multi --baseline",
        "connect --baseline",
        "connect -s 8",
        "bw --histogram",
        "multi --histogram",
        "lat -w 2",
        "jitter -w 2",
    ] {
        let failure = job(line).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{line}");
        assert!(failure.message.starts_with("--"), "{}", failure.message);
    }
}

#[test]
fn all_are_the_five_tests_with_the_same_options() {
    let line = ["lspan", "perf", "all", "mini", "-s", "1K", "-n", "5", "-w", "2", "--histogram"];
    let Some(Command::Perf { perf }) = Cli::try_parse_from(line).unwrap().command else { panic!() };
    let jobs = Job::list(perf).unwrap();
    assert_eq!(jobs.iter().map(Job::name).collect::<Vec<_>>(), ["bw", "lat", "jitter", "load", "multi"]);
    for job in jobs {
        assert_eq!((job.measure.peer.as_deref(), job.suite.specs[0].size), (Some("mini"), 1024));
        assert_eq!(job.suite.specs[0].stop, Stop::Messages(5));
    }
}
