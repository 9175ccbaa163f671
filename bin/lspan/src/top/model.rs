//! What is shown: rows with rates, their order, and what was before.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use linkspan_fabric::stats::{Counter, ProcessStats, Record};

use super::source::Sample;

/// Samples of a row that are kept, for its history.
pub(super) const HISTORY: usize = 120;

/// Which path of which process.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) host: String,
    pub(super) uid: u32,
    pub(super) pid: u32,
    pub(super) transport: String,
    pub(super) device: String,
    pub(super) peer: String,
}

/// A path of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) comm: String,
    pub(super) job: String,
    pub(super) downgrades: u64,
    pub(super) last_downgrade: String,
    pub(super) reason: String,
    counters: Vec<u64>,
    latency: Vec<u64>,
    /// Bits per second out and in; `None` until there are two samples.
    pub(super) rates: Option<(f64, f64)>,
    /// Stalls and retries per second.
    pub(super) trouble: Option<(f64, f64)>,
    /// Upper bound of the median, since the sample before: microseconds.
    pub(super) latency_us: Option<u64>,
    /// Rates of earlier samples, the newest last.
    pub(super) history: VecDeque<(u64, u64)>,
    at: Option<Instant>,
}

impl Row {
    pub(super) fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }

    fn sent(&self) -> u64 {
        self.count(Counter::TxBytes).wrapping_add(self.count(Counter::TxDeviceBytes))
    }

    fn received(&self) -> u64 {
        self.count(Counter::RxBytes).wrapping_add(self.count(Counter::RxDeviceBytes))
    }

    /// Takes over what was known of it, and what has changed since.
    fn follow(&mut self, old: &Row, now: Instant) {
        let time = old.at.map_or(Duration::ZERO, |then| now.saturating_duration_since(then)).as_secs_f64();
        // A process of the same number that began since counts from zero.
        let less = self.sent() < old.sent() || self.received() < old.received();
        if time <= 0.0 || less {
            return;
        }
        let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / time;
        let (out, inward) = (8.0 * rate(self.sent(), old.sent()), 8.0 * rate(self.received(), old.received()));
        self.rates = Some((out, inward));
        let more = |counter| rate(self.count(counter), old.count(counter));
        self.trouble = Some((more(Counter::Stalls), more(Counter::Retries)));
        self.latency_us = median(&self.latency, &old.latency);
        self.history.clone_from(&old.history);
        self.history.push_back((out as u64, inward as u64));
        while self.history.len() > HISTORY {
            self.history.pop_front();
        }
    }
}

/// The bound of the bucket that has the median of what came since: 2^n us.
fn median(new: &[u64], old: &[u64]) -> Option<u64> {
    let since: Vec<u64> =
        new.iter().enumerate().map(|(n, count)| count.saturating_sub(old.get(n).copied().unwrap_or(0))).collect();
    let all: u64 = since.iter().sum();
    let mut sum = 0;
    let at = since.iter().position(|count| {
        sum += count;
        all > 0 && sum * 2 >= all
    });
    at.map(|n| 1 << n.min(63))
}

/// What rows may be sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Sent,
    Received,
    Latency,
    Stalls,
    Retries,
    Lost,
    Downgrades,
    Job,
    Process,
}

impl Column {
    pub(super) const ALL: [Column; 9] = [
        Column::Sent,
        Column::Received,
        Column::Latency,
        Column::Stalls,
        Column::Retries,
        Column::Lost,
        Column::Downgrades,
        Column::Job,
        Column::Process,
    ];
}

pub(super) struct Model {
    /// Whether rows of several hosts are told apart.
    pub(super) hosts: bool,
    rows: BTreeMap<Key, Row>,
    /// Hosts that say nothing, and why.
    pub(super) silent: BTreeMap<String, String>,
    pub(super) column: Column,
    pub(super) reverse: bool,
    pub(super) filter: String,
    /// Whether the filter is being typed.
    pub(super) typing: bool,
    /// What is shown stays.
    pub(super) frozen: bool,
    pub(super) help: bool,
    /// The row that is looked at, which stays when the order changes.
    selected: Option<Key>,
}

impl Model {
    pub(super) fn new(hosts: bool) -> Model {
        Model {
            hosts,
            rows: BTreeMap::new(),
            silent: BTreeMap::new(),
            column: Column::Sent,
            reverse: false,
            filter: String::new(),
            typing: false,
            frozen: false,
            help: false,
            selected: None,
        }
    }

    /// Takes a host's figures; those that it no longer has end.
    pub(super) fn feed(&mut self, sample: Sample, now: Instant) {
        if self.frozen {
            return;
        }
        let Sample { host, found } = sample;
        let list = match found {
            Ok(list) => {
                self.silent.remove(&host);
                list
            }
            Err(why) => {
                self.silent.insert(host.clone(), why);
                Vec::new()
            }
        };
        let all = std::mem::take(&mut self.rows);
        let (others, old): (BTreeMap<_, _>, BTreeMap<_, _>) = all.into_iter().partition(|(key, _)| key.host != host);
        self.rows = others;
        for process in &list {
            for record in &process.records {
                let mut row = row(&host, process, record, now);
                if let Some(before) = old.get(&row.key) {
                    row.follow(before, now);
                }
                self.rows.insert(row.key.clone(), row);
            }
        }
    }

    /// The rows that the filter leaves, in their order.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let wanted = self.filter.to_lowercase();
        let has = |row: &&Row| {
            let texts = [
                &row.key.host,
                &row.comm,
                &row.job,
                &row.key.transport,
                &row.key.device,
                &row.key.peer,
                &row.reason,
                &row.last_downgrade,
            ];
            texts.iter().any(|text| text.to_lowercase().contains(&wanted)) || row.key.pid.to_string().contains(&wanted)
        };
        let mut rows: Vec<&Row> = self.rows.values().filter(has).collect();
        let by = |row: &Row| match self.column {
            Column::Sent => row.rates.map_or(0.0, |rates| rates.0),
            Column::Received => row.rates.map_or(0.0, |rates| rates.1),
            Column::Latency => row.latency_us.unwrap_or(0) as f64,
            Column::Stalls => row.trouble.map_or(0.0, |trouble| trouble.0),
            Column::Retries => row.trouble.map_or(0.0, |trouble| trouble.1),
            Column::Lost => row.count(Counter::RailsLost) as f64,
            Column::Downgrades => row.downgrades as f64,
            Column::Job | Column::Process => 0.0,
        };
        // Numbers fall, names rise; what is equal keeps the order of its key.
        rows.sort_by(|a, b| match self.column {
            Column::Job => a.job.cmp(&b.job),
            Column::Process => a.comm.cmp(&b.comm),
            _ => by(b).total_cmp(&by(a)),
        });
        if self.reverse {
            rows.reverse();
        }
        rows
    }

    /// The place of the selected row among those shown.
    pub(super) fn selected(&self, rows: &[&Row]) -> Option<usize> {
        let known = self.selected.as_ref().and_then(|key| rows.iter().position(|row| row.key == *key));
        known.or(if rows.is_empty() { None } else { Some(0) })
    }

    /// Selects a row further down, or up.
    pub(super) fn go(&mut self, by: isize) {
        let rows = self.rows();
        let Some(at) = self.selected(&rows) else { return };
        let to = at.saturating_add_signed(by).min(rows.len() - 1);
        self.selected = Some(rows[to].key.clone());
    }

    /// Sorts by the next column, or the one before.
    pub(super) fn sort(&mut self, by: isize) {
        let all = Column::ALL;
        let at = all.iter().position(|column| *column == self.column).unwrap_or(0);
        let to = (at as isize + by).rem_euclid(all.len() as isize) as usize;
        self.column = all[to];
    }

    /// Processes, and what all rows move, each way.
    pub(super) fn sums(&self) -> (usize, f64, f64) {
        let mut processes: Vec<_> = self.rows.keys().map(|key| (&key.host, key.uid, key.pid)).collect();
        processes.dedup();
        let rates = self.rows.values().filter_map(|row| row.rates);
        let (out, inward) = rates.fold((0.0, 0.0), |sum, rates| (sum.0 + rates.0, sum.1 + rates.1));
        (processes.len(), out, inward)
    }
}

fn row(host: &str, process: &ProcessStats, record: &Record, now: Instant) -> Row {
    Row {
        key: Key {
            host: host.to_owned(),
            uid: process.uid,
            pid: process.pid,
            transport: record.transport.clone(),
            device: record.device.clone(),
            peer: record.peer.clone(),
        },
        comm: process.comm.clone(),
        job: process.job.clone(),
        downgrades: process.downgrades,
        last_downgrade: process.last_downgrade.clone(),
        reason: record.reason.clone(),
        counters: record.counters.clone(),
        latency: record.latency.clone(),
        at: Some(now),
        ..Row::default()
    }
}
