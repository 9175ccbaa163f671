//! Jobs whose counters say that something went wrong, or well again.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use linkspan_fabric::stats::{Counter, Event as SetupEvent, ProcessStats, Record};

use crate::events::{Event, Kind};

/// Counters whose growth is an event, with the words for one and for several.
const TOLD: [(Counter, Kind, &str, &str); 3] = [
    (Counter::RailsLost, Kind::RailLost, "lost a rail", "rails lost"),
    (Counter::RailsBack, Kind::RailBack, "has a lost rail again", "lost rails back"),
    (Counter::Failures, Kind::ConnectionFailed, "a connection ended in an error", "connections ended in an error"),
];

/// Of what happens while connections are set up, what is an event, with its words.
const REFUSED: [(SetupEvent, &str); 2] = [
    (SetupEvent::RefusedKey, "with another key or without one"),
    (SetupEvent::RefusedVersion, "of another protocol version"),
];

/// Most processes of one user that are observed. What a page says is not verified, and any user may write many.
const PROCESSES: usize = 256;

/// Most events of one user's jobs in one look; what is over is told in the next.
const EVENTS: usize = 16;

/// Bytes of the reason of a slow path that an event has, for many are kept.
const WHY: usize = 120;

/// A process, in time too: numbers are used again.
type Process = (u32, u32, Duration);

/// What of a process was told.
#[derive(Debug, Default)]
struct LastCounters {
    downgrades: u64,
    refused: [u64; REFUSED.len()],
    /// By device, transport and peer.
    counts: HashMap<(String, String, String), [u64; TOLD.len()]>,
}

/// The counters of the look before.
#[derive(Debug, Default)]
pub struct JobWatch {
    told: HashMap<Process, LastCounters>,
}

impl JobWatch {
    /// What the counters say since the look before; of a process that is new, since its start.
    pub fn look(&mut self, pages: &[ProcessStats]) -> Vec<Event> {
        let mut events = Vec::new();
        let mut users: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        let mut before = std::mem::take(&mut self.told);
        for page in pages {
            let (processes, left) = users.entry(page.uid).or_insert((0, EVENTS));
            *processes += 1;
            if *processes > PROCESSES {
                continue;
            }
            let key = (page.uid, page.pid, page.start);
            let mut told = before.remove(&key).unwrap_or_default();
            told.look(page, left, &mut events);
            self.told.insert(key, told);
        }
        events
    }
}

impl LastCounters {
    fn look(&mut self, page: &ProcessStats, left: &mut usize, events: &mut Vec<Event>) {
        let job = |kind: Kind, count: u64, what: String| Event {
            uid: Some(page.uid),
            pid: Some(page.pid),
            comm: Some(page.comm.clone()),
            count: Some(count),
            ..Event::new(kind, format!("{} ({}, user {}): {what}", page.comm, page.pid, page.uid))
        };
        if let Some(more) = grown(&mut self.downgrades, page.downgrades, left) {
            let what = match more {
                1 => "took a path slower than this machine could give".to_owned(),
                n => format!("took {n} paths slower than this machine could give"),
            };
            let why = match (page.last_downgrade.as_str(), more) {
                ("", _) => "; its log says why".to_owned(),
                (last, 1) => format!(": {}", short(last)),
                (last, _) => format!(", the last: {}", short(last)),
            };
            events.push(job(Kind::SlowPath, more, what + &why));
        }
        for ((event, whom), told) in REFUSED.iter().zip(&mut self.refused) {
            let now = page.events.get(*event as usize).copied().unwrap_or(0);
            if let Some(more) = grown(told, now, left) {
                let peers =
                    if more == 1 { "a peer was refused".to_owned() } else { format!("{more} peers were refused") };
                events.push(job(Kind::PeerRefused, more, format!("{peers} {whom}")));
            }
        }
        // A page of ours never takes a record back; one of somebody else may rename them for ever.
        let names =
            |r: &Record, key: &(String, String, String)| (&r.device, &r.transport, &r.peer) == (&key.0, &key.1, &key.2);
        self.counts.retain(|key, _| page.records.iter().any(|record| names(record, key)));
        for record in &page.records {
            let key = (record.device.clone(), record.transport.clone(), record.peer.clone());
            let counts = self.counts.entry(key).or_default();
            for ((counter, kind, one, several), told) in TOLD.iter().zip(counts) {
                let now = record.counters.get(*counter as usize).copied().unwrap_or(0);
                let Some(more) = grown(told, now, left) else { continue };
                let what = if more == 1 { (*one).to_owned() } else { format!("{more} {several}") };
                let mut event = job(*kind, more, format!("{what}, {}", over(record)));
                (event.device, event.transport) = (Some(record.device.clone()), Some(record.transport.clone()));
                event.peer = Some(record.peer.clone()).filter(|peer| !peer.is_empty());
                events.push(event);
            }
        }
    }
}

/// As much of a reason as an event has.
fn short(why: &str) -> String {
    if why.len() <= WHY {
        return why.to_owned();
    }
    format!("{}…", &why[..why.floor_char_boundary(WHY)])
}

/// How much a counter has grown, once that may be told.
fn grown(told: &mut u64, now: u64, left: &mut usize) -> Option<u64> {
    let more = now.saturating_sub(*told);
    if more == 0 || *left == 0 {
        return None;
    }
    *left -= 1;
    *told = now;
    Some(more)
}

fn over(record: &Record) -> String {
    let to = if record.peer.is_empty() { String::new() } else { format!(" to {}", record.peer) };
    format!("{} over {}{to}", record.transport, record.device)
}
