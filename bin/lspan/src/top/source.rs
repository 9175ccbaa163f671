//! Where the figures come from: the pages of this host, or `lspan stats --json --watch` on others.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use linkspan_fabric::Config;
use linkspan_fabric::stats::{BUCKETS, Counter, ProcessStats, Record, plain, read};
use linkspan_service::host_name;
use serde_json::Value;

use crate::cli::TopArgs;
use crate::exit::{Exit, Failure};

/// Longest line of another host, bytes: 256 processes of 64 paths are 12 MB.
const LINE: u64 = 16 << 20;

/// Samples of other hosts that may wait to be shown; a host that sends faster waits.
const WAITING: usize = 64;

/// How long a host may say nothing, where it is asked more often than three times in that.
const SILENT: Duration = Duration::from_secs(5);

/// How long what a host says of its end may come after that: another process of ssh may hold its standard error open.
const LAST: Duration = Duration::from_millis(500);

/// What one host said.
pub(super) struct Sample {
    pub(super) host: String,
    /// Its processes, or why nothing is known.
    pub(super) found: Result<Vec<ProcessStats>, String>,
}

pub(super) enum Sources {
    Local { dir: PathBuf, every: Duration, next: Instant },
    Remote { from: Receiver<Sample>, hosts: Vec<Child>, heard: Heard },
}

/// When each host said something last. One that is gone says nothing, and ssh, which only receives, does not notice.
pub(super) struct Heard {
    limit: Duration,
    hosts: BTreeMap<String, Last>,
}

/// When that was, for how many seconds of silence it was told, and whether it said why it has nothing, which stays.
struct Last(Instant, u64, bool);

impl Heard {
    pub(super) fn new(hosts: &[String], every: Duration, now: Instant) -> Heard {
        let hosts = hosts.iter().map(|host| (host.clone(), Last(now, 0, false))).collect();
        Heard { limit: SILENT.max(3 * every), hosts }
    }

    /// Adds what is to be told of hosts that have been silent for long.
    pub(super) fn note(&mut self, samples: &mut Vec<Sample>, now: Instant) {
        for Sample { host, found } in samples.iter() {
            self.hosts.insert(host.clone(), Last(now, 0, found.is_err()));
        }
        for (host, Last(at, told, failed)) in &mut self.hosts {
            let silent = now.saturating_duration_since(*at);
            if !*failed && silent >= self.limit && silent.as_secs() > *told {
                *told = silent.as_secs();
                samples.push(Sample { host: host.clone(), found: Err(format!("nothing for {told} s")) });
            }
        }
    }
}

impl Sources {
    pub(super) fn start(args: &TopArgs) -> Result<Sources, Failure> {
        if args.ssh.is_empty() {
            let Some(dir) = Config::from_env()?.stats_dir else {
                return Err(Failure::new(
                    Exit::NoPeer,
                    "LINKSPAN_STATS_DIR=off: no process writes statistics; unset it",
                ));
            };
            return Ok(Sources::Local { dir, every: args.every, next: Instant::now() });
        }
        if let Some(bad) = args.ssh.iter().find(|host| host.is_empty() || host.starts_with('-')) {
            return Err(Failure::new(Exit::Usage, format!("--ssh: {bad:?} is no host")));
        }
        let (to, from) = sync_channel(WAITING);
        let start = |host: &String| watch(args, host, to.clone());
        let hosts = args.ssh.iter().map(start).collect::<Result<_, _>>()?;
        Ok(Sources::Remote { from, hosts, heard: Heard::new(&args.ssh, args.every, Instant::now()) })
    }

    /// Whether several hosts may be shown.
    pub(super) fn remote(&self) -> bool {
        matches!(self, Sources::Remote { .. })
    }

    /// What has come since the last call.
    pub(super) fn news(&mut self) -> Vec<Sample> {
        match self {
            Sources::Local { dir, every, next } => {
                let now = Instant::now();
                if now < *next {
                    return Vec::new();
                }
                *next = now + *every;
                let found = read(dir).map_err(|error| format!("statistics in {}: {error}", dir.display()));
                vec![Sample { host: host_name(), found }]
            }
            Sources::Remote { from, heard, .. } => {
                let mut samples = from.try_iter().collect();
                heard.note(&mut samples, Instant::now());
                samples
            }
        }
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        let Sources::Remote { hosts, .. } = self else { return };
        for host in hosts {
            let _ = host.kill();
            let _ = host.wait();
        }
    }
}

/// Starts the command on another host, and a thread that reads what it says.
fn watch(args: &TopArgs, host: &str, to: SyncSender<Sample>) -> Result<Child, Failure> {
    let mut words = args.rsh.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("ssh"));
    command.args(words).args([host, &args.lspan, "stats", "--json", "--watch"]);
    command.arg(format!("{}ms", args.every.as_millis().max(1)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| Failure::system(&args.rsh, &error))?;
    let (Some(said), Some(wrong)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Failure::new(Exit::Failed, format!("{}: no pipe", args.rsh)));
    };
    let name = host.to_owned();
    let last = Arc::new(Mutex::new(String::from("it has ended")));
    let newest = Arc::clone(&last);
    let (ends, ended) = sync_channel::<()>(0);
    let listen = move || {
        let tell = |found| to.send(Sample { host: name.clone(), found }).is_ok();
        let mut said = BufReader::new(said);
        loop {
            let mut line = String::new();
            match said.by_ref().take(LINE).read_line(&mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) if !tell(parse(&line)) => return,
                Ok(_) => {}
            }
        }
        let _ = ended.recv_timeout(LAST);
        tell(Err(plain(&last.lock().unwrap_or_else(|e| e.into_inner()))));
    };
    // It is read all the time: a host whose standard error is full would wait for ever.
    let complain = move || {
        let _ends = ends;
        let (mut wrong, mut line) = (BufReader::new(wrong), Vec::new());
        while let Ok(1..) = wrong.by_ref().take(4096).read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line);
            if !text.trim().is_empty() {
                text.trim().clone_into(&mut newest.lock().unwrap_or_else(|e| e.into_inner()));
            }
            line.clear();
        }
    };
    let thread = |name: &str| thread::Builder::new().name(name.into());
    let failed = |error| Failure::system("a thread", &error);
    thread("complaints").spawn(complain).map_err(failed)?;
    thread("host").spawn(listen).map_err(failed)?;
    Ok(child)
}

/// A line of `lspan stats --json --watch`.
fn parse(line: &str) -> Result<Vec<ProcessStats>, String> {
    let document: Value =
        serde_json::from_str(line).map_err(|error| format!("not what lspan stats prints: {error}"))?;
    if document["schema"] != crate::stats::SCHEMA {
        let schema = document["schema"].as_str().unwrap_or("no schema");
        return Err(format!(
            "prints {}, and {} is understood: another version of lspan",
            plain(schema),
            crate::stats::SCHEMA
        ));
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| plain(value.as_str().unwrap_or_default());
    let record = |value: &Value| Record {
        device: text(&value["device"]),
        transport: text(&value["transport"]),
        peer: text(&value["peer"]),
        reason: text(&value["reason"]),
        counters: Counter::ALL.iter().map(|counter| value[counter.name()].as_u64().unwrap_or(0)).collect(),
        latency: list(&value["latency_below_2_pow_n_us"]).iter().take(BUCKETS).filter_map(Value::as_u64).collect(),
    };
    let number = |value: &Value| u32::try_from(value.as_u64().unwrap_or(0)).unwrap_or(0);
    let process = |value: &Value| ProcessStats {
        pid: number(&value["pid"]),
        uid: number(&value["uid"]),
        comm: text(&value["comm"]),
        job: text(&value["job"]),
        uptime: Duration::try_from_secs_f64(value["uptime_s"].as_f64().unwrap_or(0.0)).unwrap_or_default(),
        downgrades: value["downgrades"].as_u64().unwrap_or(0),
        last_downgrade: text(&value["last_downgrade"]),
        records: list(&value["paths"]).iter().map(record).collect(),
        ..ProcessStats::default()
    };
    Ok(list(&document["processes"]).iter().map(process).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_falls_silent_is_told_until_it_speaks_again() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let hosts = ["a".to_owned(), "b".to_owned()];
        let mut heard = Heard::new(&hosts, Duration::from_secs(1), start);
        let said = |host: &str, found| Sample { host: host.into(), found };
        let mut noted = |mut samples: Vec<Sample>, now| {
            let known = samples.len();
            heard.note(&mut samples, now);
            let list = samples.split_off(known);
            list.into_iter().map(|one| format!("{}: {}", one.host, one.found.unwrap_err())).collect::<Vec<_>>()
        };
        assert!(noted(vec![], at(4)).is_empty());
        assert!(noted(vec![said("b", Err("Permission denied".into()))], at(4)).is_empty());
        assert_eq!(noted(vec![], at(5)), ["a: nothing for 5 s"]);
        assert!(noted(vec![], at(5)).is_empty(), "once a second");
        assert_eq!(noted(vec![], at(7)), ["a: nothing for 7 s"]);
        assert!(noted(vec![said("a", Ok(vec![])), said("b", Ok(vec![]))], at(8)).is_empty());
        assert_eq!(noted(vec![], at(13)), ["a: nothing for 5 s", "b: nothing for 5 s"]);
    }

    #[test]
    fn lines_of_other_hosts_are_read_and_bad_ones_are_refused() {
        let line = r#"{"schema":"linkspan.stats/1","processes":[{"pid":7,"uid":1000,"comm":"py\u001b[2J","job":"42","uptime_s":2.5,
            "downgrades":1,"paths":[{"device":"eth0","transport":"tcp","tx_host_bytes":5,"latency_below_2_pow_n_us":[0,3]}]}],"cards":[]}"#;
        let found = parse(line).unwrap();
        assert_eq!((found[0].pid, found[0].comm.as_str(), found[0].downgrades), (7, "py\u{fffd}[2J", 1));
        assert_eq!(found[0].records[0].counters[Counter::TxBytes as usize], 5);
        assert_eq!(found[0].records[0].latency, [0, 3]);
        assert!(parse("Permission denied").unwrap_err().contains("not what lspan stats prints"));
        assert!(parse(r#"{"schema":"linkspan.stats/9"}"#).unwrap_err().contains("another version"));
        // Numbers that are none, or too large, are zero.
        assert_eq!(
            parse(r#"{"schema":"linkspan.stats/1","processes":[{"pid":-1,"uptime_s":1e300}]}"#).unwrap()[0].pid,
            0
        );
    }
}
