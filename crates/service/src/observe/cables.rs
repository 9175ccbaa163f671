//! Cables that come, go and change.

use std::collections::{BTreeMap, BTreeSet};

use linkspan_topology::{Cable, Lanes, Link, Medium};

use crate::events::{Event, Kind};

/// What is remembered of a cable.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    medium: Medium,
    link: Link,
    peer: Option<String>,
    uuid: Option<String>,
    /// Why no bytes go over it; `None`: they do.
    unusable: Option<String>,
}

impl Seen {
    fn of(cable: &Cable) -> Seen {
        let usable = cable.paths.iter().any(|path| path.usable);
        let why = || {
            let reasons =
                cable.paths.iter().filter_map(|path| Some(format!("{}: {}", path.means, path.reason.as_ref()?)));
            let reasons: Vec<String> = reasons.collect();
            if reasons.is_empty() { "nothing offers a way over it".to_owned() } else { reasons.join("; ") }
        };
        Seen {
            medium: cable.medium,
            link: cable.link,
            peer: cable.peer.as_ref().and_then(|peer| peer.device_name.clone()),
            uuid: cable.peer.as_ref().and_then(|peer| peer.unique_id.clone()),
            unusable: (!usable).then(why),
        }
    }

    /// `cable 0-1 (thunderbolt, to strix-b)`.
    fn name(&self, name: &str) -> String {
        let to = self.peer.as_ref().map_or_else(String::new, |peer| format!(", to {peer}"));
        format!("cable {name} ({}{to})", self.medium)
    }

    fn event(&self, kind: Kind, name: &str, what: &str) -> Event {
        Event {
            cable: Some(name.to_owned()),
            peer: self.peer.clone(),
            peer_uuid: self.uuid.clone(),
            ..Event::new(kind, format!("{} {what}", self.name(name)))
        }
    }
}

/// Speeds of both directions, where they are known.
fn speed(link: &Link) -> Option<String> {
    let way = |lanes: Lanes| match lanes.lanes {
        1 => format!("{} Gb/s", f64::from(lanes.lane_mbps) / 1e3),
        n => format!("{n} x {} Gb/s", f64::from(lanes.lane_mbps) / 1e3),
    };
    match (link.rx, link.tx) {
        (Some(rx), Some(tx)) if rx == tx => Some(way(rx)),
        (Some(rx), Some(tx)) => Some(format!("{} in and {} out", way(rx), way(tx))),
        (Some(one), None) | (None, Some(one)) => Some(way(one)),
        (None, None) => None,
    }
}

/// The cables of the look before.
#[derive(Debug, Default)]
pub struct CableWatch {
    seen: Option<BTreeMap<String, Seen>>,
}

impl CableWatch {
    /// What is different from the look before; at the first look, what is there. `removed` are names of cables that went in between,
    /// also of those that are there again.
    pub fn look(&mut self, cables: &[Cable], removed: &BTreeSet<String>) -> Vec<Event> {
        let now: BTreeMap<String, Seen> = cables.iter().map(|cable| (cable.name.clone(), Seen::of(cable))).collect();
        let mut events = Vec::new();
        let first = self.seen.is_none();
        let before = self.seen.replace(now.clone()).unwrap_or_default();
        // Another host on the same port is another cable.
        let same = |name: &str, old: &Seen, new: &Seen| {
            !removed.contains(name) && old.medium == new.medium && (old.uuid == new.uuid || old.uuid.is_none())
        };
        for (name, old) in &before {
            if !now.get(name).is_some_and(|new| same(name, old, new)) {
                events.push(old.event(Kind::Unplugged, name, "was unplugged"));
            }
        }
        for (name, new) in &now {
            match before.get(name).filter(|old| same(name, old, new)) {
                Some(old) => changed(name, old, new, &mut events),
                None => came(name, new, first, &mut events),
            }
        }
        events
    }
}

fn came(name: &str, new: &Seen, first: bool, events: &mut Vec<Event>) {
    let at = speed(&new.link).map_or_else(String::new, |speed| format!(", {speed}"));
    events.push(match first {
        true => new.event(Kind::Present, name, &format!("is there{at}")),
        false => new.event(Kind::Plugged, name, &format!("was plugged in{at}")),
    });
    // Interfaces and addresses come some time after the cable: only at the first look is their absence worth a word.
    if let (true, Some(why)) = (first, &new.unusable) {
        events.push(new.event(Kind::Degraded, name, &format!("carries nothing: {why}")));
    }
}

fn changed(name: &str, old: &Seen, new: &Seen, events: &mut Vec<Event>) {
    // A link that is being trained has no speed.
    if let (Some(before), Some(now)) = (speed(&old.link), speed(&new.link))
        && before != now
    {
        events.push(new.event(Kind::SpeedChanged, name, &format!("runs at {now}, before at {before}")));
    }
    match (&old.unusable, &new.unusable) {
        (None, Some(why)) => {
            events.push(new.event(Kind::Degraded, name, &format!("carries nothing any more: {why}")));
        }
        (Some(_), None) => events.push(new.event(Kind::Recovered, name, "can be used")),
        _ => {}
    }
}
