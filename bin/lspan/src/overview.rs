//! `lspan` without arguments: what there is, and how fast it is.

use std::time::Duration;

use linkspan_fabric::MemoryName;
use linkspan_perf::format::table;
use linkspan_perf::record::Row;
use linkspan_perf::units::show_us;
use linkspan_perf::{Spec, Stop, Test};

use crate::cli::PathArg;
use crate::exit::{Exit, Failure};
use crate::fabric;
use crate::out::{Out, Progress};
use crate::perf::{Job, Peer, measure};
use crate::status;

/// Length of each timed part: ten of them and their checks stay far below a minute.
const EACH: Duration = Duration::from_millis(700);

/// What is measured on each path.
fn job(path: PathArg) -> Job {
    let spec = |test, size| Spec { stop: Stop::After(EACH), ..Spec::new(test, size) };
    let specs = vec![
        spec(Test::Lat, 8),
        spec(Test::Lat, 64 << 10),
        spec(Test::Bw, 8),
        spec(Test::Bw, 64 << 10),
        spec(Test::Bw, 4 << 20),
    ];
    Job::of(path, specs)
}

pub(crate) fn run() -> Result<Exit, Failure> {
    let mut out = Out::default();
    let (view, exit) = status::view()?;
    out.text(&view)?;
    let mut exit = exit?;
    out.text("\nbetween two processes on this machine, every byte checked:\n")?;
    let mut rows =
        vec![cells(["path", "8 B us", "p99", "64K us", "8 B M/s", "64K GB/s", "4M GB/s", "4M Gb/s", "#wrong"])];
    let (mut notes, mut interrupted) = (String::new(), None);
    for path in [PathArg::TCP, PathArg::SHM] {
        let name = path.name();
        let mut found: Vec<Row> = Vec::new();
        Progress::new().say(&format!("measuring {name} ..."));
        let result = Peer::find(None, path, 0, MemoryName::Host).and_then(|peer| {
            measure(&job(path), &peer, &mut |row| {
                found.push(row);
                Ok(())
            })
        });
        // What was measured before Ctrl-C stands.
        let result = match result {
            Err(failure) if failure.exit == Exit::Interrupted => {
                interrupted = Some(failure);
                Ok(())
            }
            result => result,
        };
        match result {
            Ok(()) if found.is_empty() => {}
            Ok(()) => {
                let wrong: u64 = found.iter().filter_map(|row| row.wrong_bytes).fold(0, u64::saturating_add);
                if wrong > 0 {
                    exit = Exit::WrongData;
                }
                rows.push(line(name, &found, wrong));
                if let Some(row) = found.first() {
                    notes.push_str(&format!("{name}: {} ({})\n", row.path, row.reason));
                }
            }
            Err(failure) => {
                rows.push(cells([name, "-", "-", "-", "-", "-", "-", "-", "-"]));
                notes.push_str(&format!("{name}: not measured: {}\n", failure.message));
                if exit == Exit::Ok {
                    exit = Exit::Degraded;
                }
            }
        }
        if interrupted.is_some() {
            break;
        }
    }
    out.text(&format!("{}{notes}", table(&rows)))?;
    if let Some(failure) = interrupted.filter(|_| exit != Exit::WrongData) {
        return Err(failure);
    }
    if exit == Exit::Ok && !fabric::downgrades().is_empty() {
        exit = Exit::Degraded;
    }
    out.text(
        "\nmore: `lspan doctor` says what is wrong here, `lspan perf --help`; between two hosts: `lspan perf serve --open` there, `lspan perf bw HOST` here\n",
    )?;
    Ok(exit)
}

fn cells<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(String::from).to_vec()
}

fn line(name: &str, rows: &[Row], wrong: u64) -> Vec<String> {
    let latency = |at: usize| rows.get(at).and_then(|row| row.latency.as_ref());
    let us = |at: usize, pick: fn(&linkspan_perf::record::Latency) -> f64| {
        latency(at).map_or_else(|| "-".into(), |l| show_us(pick(l)))
    };
    let bulk = |at: usize, pick: fn(&Row) -> f64, places: usize| {
        rows.get(at).map_or_else(|| "-".into(), |row| format!("{:.places$}", pick(row)))
    };
    vec![
        name.to_owned(),
        us(0, |l| l.p50_ns),
        us(0, |l| l.p99_ns),
        us(1, |l| l.p50_ns),
        bulk(2, |row| row.msg_per_s / 1e6, 2),
        bulk(3, |row| row.bw_gbyte_s, 2),
        bulk(4, |row| row.bw_gbyte_s, 2),
        bulk(4, |row| row.bw_gbit_s, 1),
        wrong.to_string(),
    ]
}
