//! What happened, newest first.

use std::collections::VecDeque;

use linkspan_bus::{Dict, from_dict};
use serde::Deserialize;

use crate::row::{Mood, Row};
use crate::text::{ago, shown, tr};

/// Most that are kept; the service keeps 1024 itself.
pub(crate) const KEPT: usize = 256;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Event {
    pub(crate) time_us: u64,
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) text: String,
}

impl Event {
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
pub(crate) struct Events(VecDeque<Event>);

impl Events {
    /// Adds what is later than all that is there, and answers it.
    pub(crate) fn add(&mut self, dicts: &[Dict]) -> Vec<Event> {
        let mut new = Vec::new();
        for event in dicts.iter().filter_map(|dict| from_dict::<Event>(dict).ok()) {
            if event.time_us > self.last() {
                self.0.push_back(event.clone());
                new.push(event);
            }
        }
        while self.0.len() > KEPT {
            self.0.pop_front();
        }
        new
    }

    /// Time of the newest; 0: there is none.
    pub(crate) fn last(&self) -> u64 {
        self.0.back().map_or(0, |event| event.time_us)
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
        self.0.iter().rev().map(row).collect()
    }
}
