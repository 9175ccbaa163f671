//! What happened, newest first.

use std::collections::{BTreeMap, VecDeque};

use linkspan_bus::{Dict, from_dict};
use serde::Deserialize;

use crate::row::{Mood, Row};
use crate::text::{ago, shown, tr};

/// Most that are kept; the service keeps 1024 itself.
pub(crate) const KEPT: usize = 256;

/// For how long a process is told of once where a stranger on the network may cause it without end.
const QUIET_US: u64 = 600_000_000;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Event {
    pub(crate) time_us: u64,
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) text: String,
    #[serde(default)]
    cable: String,
    pid: Option<u32>,
    #[serde(default)]
    device: String,
}

impl Event {
    /// What of the same cable, or of the same process and device, has too, and takes the place of.
    pub(crate) fn topic(&self) -> String {
        match self.pid {
            Some(pid) => format!("{} {pid} {}", self.kind, shown(&self.device)),
            None => format!("{} {}", self.kind, shown(&self.cable)),
        }
    }

    pub(crate) fn mood(&self) -> Mood {
        match self.kind.as_str() {
            "present" | "plugged" | "recovered" | "rail_back" => Mood::Good,
            "degraded" | "connection_failed" | "rail_lost" => Mood::Trouble,
            "slow_path" | "peer_refused" | "speed_changed" => Mood::Slow,
            _ => Mood::Plain,
        }
    }

    pub(crate) fn title(&self) -> String {
        match self.kind.as_str() {
            "present" => tr("Cable was there"),
            "plugged" => tr("Cable plugged in"),
            "unplugged" => tr("Cable unplugged"),
            "speed_changed" => tr("Speed changed"),
            "degraded" => tr("Cable cannot be used any more"),
            "recovered" => tr("Cable can be used again"),
            "rail_lost" => tr("A job lost a rail"),
            "rail_back" => tr("A job has its rail back"),
            "connection_failed" => tr("A connection failed"),
            "peer_refused" => tr("A peer was refused"),
            "slow_path" => tr("A job took a slower path"),
            other => shown(other),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    kept: VecDeque<Event>,
    /// When a process was told of, by kind and process.
    told: BTreeMap<(String, Option<u32>), u64>,
}

impl Events {
    /// Adds what is later than all that is there, and answers it.
    pub(crate) fn add(&mut self, dicts: &[Dict]) -> Vec<Event> {
        let mut new = Vec::new();
        for event in dicts.iter().filter_map(|dict| from_dict::<Event>(dict).ok()) {
            if event.time_us > self.last() {
                self.kept.push_back(event.clone());
                new.push(event);
            }
        }
        while self.kept.len() > KEPT {
            self.kept.pop_front();
        }
        new
    }

    /// Whether a person is to be told of it.
    pub(crate) fn tells(&mut self, event: &Event) -> bool {
        if !matches!(event.mood(), Mood::Slow | Mood::Trouble) && event.kind != "plugged" {
            return false;
        }
        if !matches!(event.kind.as_str(), "peer_refused" | "connection_failed" | "slow_path") {
            return true;
        }
        self.told.retain(|_, told| event.time_us.saturating_sub(*told) < QUIET_US);
        let process = (event.kind.clone(), event.pid);
        if self.told.len() >= KEPT || self.told.contains_key(&process) {
            return false;
        }
        self.told.insert(process, event.time_us);
        true
    }

    /// Time of the newest; 0: there is none.
    pub(crate) fn last(&self) -> u64 {
        self.kept.back().map_or(0, |event| event.time_us)
    }

    pub(crate) fn rows(&self, now_us: u64) -> Vec<Row> {
        let row = |event: &Event| Row {
            id: event.time_us.to_string(),
            title: event.title(),
            subtitle: shown(&event.text),
            end: ago(now_us.saturating_sub(event.time_us) / 1_000_000),
            mood: event.mood(),
            ..Row::default()
        };
        self.kept.iter().rev().map(row).collect()
    }
}
