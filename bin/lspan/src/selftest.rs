//! `lspan selftest`: one line per part.

mod driver;
mod plugin;

use std::path::Path;
use std::time::Duration;

use linkspan_fabric::MemoryName;
use linkspan_perf::record::Row;
use linkspan_perf::units::show_us;
use linkspan_perf::{Spec, Stop, Test};
use linkspan_verbs::Rdma;
use serde::Serialize;

use crate::cli::{PathArg, SelftestArgs};
use crate::exit::{Exit, Failure};
use crate::out::{Out, Progress};
use crate::perf::{Job, Peer, measure};

/// Schema of `--json`.
const SCHEMA: &str = "linkspan.selftest/1";

/// How a part fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Pass,
    Fail,
    /// Cannot be tested here; the text says why.
    Skip,
}

/// One part.
#[derive(Clone, Debug, Serialize)]
struct Line {
    part: String,
    verdict: Verdict,
    text: String,
}

impl Line {
    fn new(part: impl Into<String>, verdict: Verdict, text: impl Into<String>) -> Line {
        Line { part: part.into(), verdict, text: text.into() }
    }
}

pub(crate) fn run(args: &SelftestArgs) -> Result<Exit, Failure> {
    if let Some(file) = &args.load {
        return plugin::child(file);
    }
    let mut out = Out::default();
    let mut lines = Vec::new();
    let mut exit = Exit::Ok;
    let mut add = |line: Line, out: &mut Out| {
        if !args.json {
            let word = match line.verdict {
                Verdict::Pass => "pass",
                Verdict::Fail => "FAIL",
                Verdict::Skip => "skip",
            };
            out.text(&format!("{word}  {:<14} {}\n", line.part, line.text))?;
        }
        lines.push(line);
        Ok::<(), Failure>(())
    };

    for line in driver::lines(Path::new("/")) {
        if line.verdict == Verdict::Fail {
            exit = Exit::Failed;
        }
        add(line, &mut out)?;
    }
    let mut rdma = false;
    match crate::fabric::open(PathArg::AUTO, MemoryName::Host) {
        Ok(fabric) => {
            for (number, device) in fabric.devices().iter().enumerate() {
                let reach = if device.loopback { ", reaches this host only" } else { "" };
                let text = format!("{}, {} Mb/s, host memory{reach}", device.name, device.mbps);
                add(Line::new(format!("device {number}"), Verdict::Pass, text), &mut out)?;
            }
            let (ports, reasons) = fabric.transport::<Rdma>().map(Rdma::ports).unwrap_or_default();
            rdma = ports.iter().any(|port| port.why_not.is_none());
            for port in ports {
                let (verdict, text) =
                    port.why_not.map_or((Verdict::Pass, "ready".to_owned()), |why| (Verdict::Skip, why));
                add(Line::new(format!("rdma {}", port.name), verdict, text), &mut out)?;
            }
            for why in reasons {
                add(Line::new("rdma", Verdict::Skip, format!("cannot be tested here: {why}")), &mut out)?;
            }
        }
        Err(failure) => {
            exit = failure.exit;
            add(Line::new("settings", Verdict::Fail, failure.message), &mut out)?;
        }
    }
    for line in plugin::lines(args.plugin.as_deref()) {
        if line.verdict == Verdict::Fail && exit == Exit::Ok {
            exit = Exit::Failed;
        }
        add(line, &mut out)?;
    }
    let peers: Vec<(String, Option<&str>, PathArg)> = match args.peer.as_deref() {
        Some(peer) => vec![(format!("peer {peer}"), Some(peer), PathArg::AUTO)],
        None => {
            let paths = [PathArg::TCP, PathArg::SHM].into_iter().chain(rdma.then_some(PathArg::VERBS));
            paths.map(|path| (format!("path {}", path.name()), None, path)).collect()
        }
    };
    let mut interrupted = None;
    for (part, peer, path) in peers {
        let mut progress = Progress::new();
        progress.say(&format!("testing {part} ..."));
        let result = try_path(peer, path);
        drop(progress);
        match result {
            Ok((text, 0)) => add(Line::new(part, Verdict::Pass, text), &mut out)?,
            Ok((text, wrong)) => {
                exit = Exit::WrongData;
                add(Line::new(part, Verdict::Fail, format!("{wrong} wrong bytes; {text}")), &mut out)?;
            }
            Err(failure) if failure.exit == Exit::Interrupted => {
                if exit != Exit::WrongData {
                    (exit, interrupted) = (failure.exit, Some(failure));
                }
                break;
            }
            Err(failure) => {
                if exit != Exit::WrongData {
                    exit = failure.exit;
                }
                add(Line::new(part, Verdict::Fail, failure.message), &mut out)?;
            }
        }
    }
    if args.json {
        let ok = exit == Exit::Ok;
        out.json(&serde_json::json!({ "schema": SCHEMA, "parts": lines, "ok": ok, "exit_code": exit as u8 }), true)?;
    }
    interrupted.map_or(Ok(exit), Err)
}

/// Moves checked data both ways; what was found, and wrong bytes.
fn try_path(peer: Option<&str>, path: PathArg) -> Result<(String, u64), Failure> {
    let spec = |test, size| Spec {
        stop: Stop::After(Duration::from_millis(200)),
        direction: linkspan_perf::Direction::Both,
        ..Spec::new(test, size)
    };
    let specs = vec![spec(Test::Lat, 8), spec(Test::Bw, 1), spec(Test::Bw, 1 << 20), spec(Test::Bw, (5 << 20) + 3)];
    let job = Job::of(path, specs);
    let mut rows: Vec<Row> = Vec::new();
    let peer = Peer::find(peer, path, 0, MemoryName::Host)?;
    measure(&job, &peer, &mut |row| {
        rows.push(row);
        Ok(())
    })?;
    let wrong = rows.iter().filter_map(|row| row.wrong_bytes).fold(0, u64::saturating_add);
    let first = rows.first();
    let half = first.and_then(|row| row.latency.as_ref()).map_or_else(|| "-".into(), |latency| show_us(latency.p50_ns));
    let speed = rows.get(2).map_or(0.0, |row| row.bw_gbyte_s);
    let name = first.map_or("", |row| &row.path);
    Ok((format!("{name}: {half} us, {speed:.2} GB/s both ways together"), wrong))
}
