//! Processes of this user that use linkspan, with rates between two looks.

use std::collections::HashMap;

use linkspan_bus::{Dict, PROCESSES, from_dict};
use serde::Deserialize;

use crate::row::{Group, Mood, Row};
use crate::text::{bytes_rate, fill, shown, tr};

/// Most processes that are shown, which is what the service tells, and paths of each.
const MOST: usize = PROCESSES;
const PATHS: usize = 32;

#[derive(Clone, Debug, Default, Deserialize)]
struct Process {
    pid: u32,
    /// Microseconds since 1970. In its own container another one may have the same number.
    #[serde(default)]
    start_unix_us: u64,
    #[serde(default)]
    comm: String,
    #[serde(default)]
    downgrades: u64,
    #[serde(default)]
    last_downgrade: String,
    #[serde(default)]
    paths: Vec<Path>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Path {
    device: String,
    transport: String,
    peer: String,
    connections_open: u64,
    tx_host_bytes: u64,
    rx_host_bytes: u64,
    tx_device_bytes: u64,
    rx_device_bytes: u64,
    stalls: u64,
    rails_lost: u64,
    rails_back: u64,
    failures: u64,
}

/// A process, and one of its paths.
type Key = ((u32, u64), String, String, String);

#[derive(Clone, Debug, Default)]
pub(crate) struct Jobs {
    processes: Vec<Process>,
    at_us: u64,
    /// Bytes sent and received at the last look, then the rates since the one before.
    counted: HashMap<Key, (u64, u64)>,
    rates: HashMap<Key, (f64, f64)>,
    pub(crate) left_out: usize,
    /// How many processes the service has told.
    told: usize,
}

impl Jobs {
    pub(crate) fn replace(&mut self, dicts: &[Dict], now_us: u64) {
        let seconds = now_us.saturating_sub(self.at_us) as f64 / 1e6;
        let known: Vec<Process> = dicts.iter().take(MOST).filter_map(|dict| from_dict(dict).ok()).collect();
        (self.told, self.left_out) = (dicts.len(), dicts.len() - known.len());
        let mut counted = HashMap::new();
        self.rates.clear();
        for process in &known {
            for path in process.paths.iter().take(PATHS) {
                let key = key(process, path);
                let sent = path.tx_host_bytes.wrapping_add(path.tx_device_bytes);
                let received = path.rx_host_bytes.wrapping_add(path.rx_device_bytes);
                if let Some((tx, rx)) = self.counted.get(&key).filter(|_| seconds > 0.0) {
                    let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
                    self.rates.insert(key.clone(), (rate(sent, *tx), rate(received, *rx)));
                }
                counted.insert(key, (sent, received));
            }
        }
        (self.processes, self.counted, self.at_us) = (known, counted, now_us);
    }

    pub(crate) fn groups(&self) -> Vec<Group> {
        let group = |process: &Process| {
            let text = match process.downgrades {
                0 => String::new(),
                _ if process.last_downgrade.is_empty() => {
                    tr("It took a path slower than this machine could give; its log says why.")
                }
                _ => fill(
                    &tr("It took a path slower than this machine could give: {why}"),
                    &[("why", &shown(&process.last_downgrade))],
                ),
            };
            let title = format!("{} ({})", shown(&process.comm), process.pid);
            let rows = process.paths.iter().take(PATHS).enumerate().map(|(n, path)| self.row(process, n, path));
            Group { title, text, rows: rows.collect() }
        };
        let text = tr("More than {n} processes are not told; lspan stats shows all of them.");
        let title = fill(&text, &[("n", &MOST.to_string())]);
        let more = Row { id: "more".into(), title, ..Row::default() };
        let more = (self.told >= MOST).then(|| Group { rows: vec![more], ..Group::default() });
        self.processes.iter().map(group).chain(more).collect()
    }

    fn row(&self, process: &Process, n: usize, path: &Path) -> Row {
        let (sent, received) = self.rates.get(&key(process, path)).copied().unwrap_or_default();
        let peer = if path.peer.is_empty() { tr("a peer without a name") } else { shown(&path.peer) };
        let title = fill(
            &tr("{transport} over {device} to {peer}"),
            &[("transport", &shown(&path.transport)), ("device", &shown(&path.device)), ("peer", &peer)],
        );
        let lost = path.rails_lost.saturating_sub(path.rails_back);
        let mood = match (path.failures, lost) {
            (0, 0) => Mood::Good,
            (0, _) => Mood::Slow,
            _ => Mood::Trouble,
        };
        let subtitle = fill(
            &tr("{open} open, {lost} rails lost, {stalls} stalls, {failures} failed"),
            &[
                ("open", &path.connections_open.to_string()),
                ("lost", &lost.to_string()),
                ("stalls", &path.stalls.to_string()),
                ("failures", &path.failures.to_string()),
            ],
        );
        let end = format!("↑ {}\n↓ {}", bytes_rate(sent), bytes_rate(received));
        Row { id: n.to_string(), title, subtitle, end, mood, ..Row::default() }
    }
}

fn key(process: &Process, path: &Path) -> Key {
    ((process.pid, process.start_unix_us), path.device.clone(), path.transport.clone(), path.peer.clone())
}
