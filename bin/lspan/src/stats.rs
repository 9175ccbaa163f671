//! `lspan stats`: what running processes have moved.

use std::thread;
use std::time::{Duration, Instant};

use linkspan_fabric::Config;
use linkspan_fabric::stats::{Counter, ProcessStats, Record, read};
use linkspan_perf::format::table;
use linkspan_service::statistics;
use serde_json::{Value, json};

use crate::cli::StatsArgs;
use crate::exit::{Exit, Failure};
use crate::out::Out;
use crate::pools;

/// Schema of `--json`: `docs/schema/stats-1.json`.
pub(crate) const SCHEMA: &str = "linkspan.stats/1";

pub(crate) fn run(args: &StatsArgs) -> Result<Exit, Failure> {
    let config = Config::from_env()?;
    let Some(dir) = config.stats_dir.clone() else {
        return Err(Failure::new(Exit::NoPeer, "LINKSPAN_STATS_DIR=off: no process writes statistics; unset it"));
    };
    let mut out = Out::default();
    let mut before: Option<(Instant, Vec<ProcessStats>)> = None;
    loop {
        let now = Instant::now();
        let found = read(&dir).map_err(|error| Failure::system(&format!("statistics in {}", dir.display()), &error))?;
        let cards = pools::cards(&config);
        if args.json {
            let processes: Vec<Value> = found.iter().map(statistics::json).collect();
            out.json(&json!({ "schema": SCHEMA, "processes": processes, "cards": cards }), args.watch.is_none())?;
        } else if found.is_empty() {
            out.text(&format!("no process that uses linkspan writes statistics to {}\n", dir.display()))?;
        } else {
            let last = before.as_ref().map(|(then, list)| (now - *then, list.as_slice()));
            out.text(&text(&found, last))?;
            out.text(&reason_lines(&found))?;
            out.text(&event_lines(&found))?;
        }
        if !args.json {
            out.text(&pools::lines(&cards))?;
        }
        match args.watch {
            Some(pause) if !out.gone() => thread::sleep(pause),
            _ => return Ok(Exit::Ok),
        }
        if !args.json {
            out.text("\n")?;
        }
        before = Some((now, found));
    }
}

/// Why each path was taken, and what the newest downgrade was.
fn reason_lines(found: &[ProcessStats]) -> String {
    let mut lines = String::new();
    for process in found {
        for Record { transport, device, peer, reason, .. } in process.records.iter().filter(|r| !r.reason.is_empty()) {
            let to = if peer.is_empty() { String::new() } else { format!(" to {peer}") };
            lines.push_str(&format!("pid {}: {transport} over {device}{to}: {reason}\n", process.pid));
        }
        if !process.last_downgrade.is_empty() {
            lines.push_str(&format!("pid {}: last downgrade: {}\n", process.pid, process.last_downgrade));
        }
    }
    lines
}

/// A line for each event of each process that there was.
fn event_lines(found: &[ProcessStats]) -> String {
    let lines = found.iter().flat_map(|process| {
        let some = statistics::events(process).filter(|(_, n)| *n > 0);
        some.map(|(event, n)| format!("pid {}: {} {n}: {}\n", process.pid, event.name(), event.text()))
    });
    lines.collect()
}

fn of(record: &Record, counter: Counter) -> u64 {
    record.counters.get(counter as usize).copied().unwrap_or(0)
}

/// Bytes each way, host and device memory together.
fn moved(record: &Record) -> (u64, u64) {
    let sum = |a, b| of(record, a).saturating_add(of(record, b));
    (sum(Counter::TxBytes, Counter::TxDeviceBytes), sum(Counter::RxBytes, Counter::RxDeviceBytes))
}

fn text(found: &[ProcessStats], last: Option<(Duration, &[ProcessStats])>) -> String {
    let head = [
        "pid",
        "user",
        "program",
        "up s",
        "device",
        "path",
        "peer",
        "conns",
        "sent GB",
        "received GB",
        "sent Gb/s",
        "received Gb/s",
        "stalls",
        "retries",
        "rails lost",
        "rails back",
        "failed",
        "downgrades",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    for process in found {
        for record in &process.records {
            let (tx, rx) = moved(record);
            let same = |other: &&Record| {
                (&other.device, &other.transport, &other.peer) == (&record.device, &record.transport, &record.peer)
            };
            let older = last.and_then(|(time, list)| {
                let process = list.iter().find(|older| (older.pid, older.start) == (process.pid, process.start))?;
                Some((time, moved(process.records.iter().find(same)?)))
            });
            let rate = |now: u64, pick: fn((u64, u64)) -> u64| match older {
                Some((time, bytes)) => {
                    format!("{:.3}", now.saturating_sub(pick(bytes)) as f64 * 8e-9 / time.as_secs_f64().max(1e-9))
                }
                None => "-".into(),
            };
            rows.push(vec![
                process.pid.to_string(),
                process.uid.to_string(),
                process.comm.clone(),
                process.uptime.as_secs().to_string(),
                record.device.clone(),
                record.transport.clone(),
                if record.peer.is_empty() { "-".into() } else { record.peer.clone() },
                of(record, Counter::Open).to_string(),
                format!("{:.3}", tx as f64 / 1e9),
                format!("{:.3}", rx as f64 / 1e9),
                rate(tx, |bytes| bytes.0),
                rate(rx, |bytes| bytes.1),
                of(record, Counter::Stalls).to_string(),
                of(record, Counter::Retries).to_string(),
                of(record, Counter::RailsLost).to_string(),
                of(record, Counter::RailsBack).to_string(),
                of(record, Counter::Failures).to_string(),
                process.downgrades.to_string(),
            ]);
        }
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use linkspan_fabric::stats::Event;

    use super::*;

    #[test]
    fn events_and_reasons_have_a_line_each_where_there_are_any() {
        let record = Record {
            device: "eth0".into(),
            transport: "tcp".into(),
            peer: "mini2".into(),
            reason: "same subnet".into(),
            ..Record::default()
        };
        let mut events = vec![0; Event::ALL.len()];
        events[Event::RailRetries as usize] = 3;
        let quiet = ProcessStats { pid: 6, records: vec![Record::default()], ..ProcessStats::default() };
        let last_downgrade = "TCP in place of RDMA: no port".into();
        let found =
            [quiet, ProcessStats { pid: 7, records: vec![record], events, last_downgrade, ..ProcessStats::default() }];
        assert_eq!(event_lines(&found), "pid 7: rail_retries 3: Tries to reconnect a rail that failed.\n");
        assert_eq!(
            reason_lines(&found),
            "pid 7: tcp over eth0 to mini2: same subnet\npid 7: last downgrade: TCP in place of RDMA: no port\n"
        );
    }
}
