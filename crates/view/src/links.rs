//! Cables, and the hosts at them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linkspan_bus::{Dict, from_dict};
use serde::Deserialize;

use crate::live::Ask;
use crate::row::{Action, Button, Group, Mood, Row};
use crate::text::{fill, gbit, shown, tr};

/// Most objects of one kind that are kept and shown; a host has fewer ports than that.
pub(crate) const MOST: usize = 256;

/// Most ways and notes of one cable that are shown.
const WAYS: usize = 16;

/// The objects of the service: interfaces and their properties by path.
pub type Objects = HashMap<String, HashMap<String, Dict>>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Cable {
    name: String,
    medium: String,
    peer: String,
    receive_lane_mbps: u32,
    receive_lanes: u32,
    send_lane_mbps: u32,
    send_lanes: u32,
    usable: bool,
    paths: Vec<ShownPath>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ShownPath {
    means: String,
    over: String,
    usable: bool,
    reason: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Peer {
    pub(crate) uuid: String,
    name: String,
    vendor: String,
    driver: String,
    pub(crate) allowed: bool,
    pub(crate) remembered: bool,
}

impl Peer {
    pub(crate) fn title(&self) -> String {
        let name = if self.name.trim().is_empty() { &self.uuid } else { &self.name };
        shown(name)
    }

    /// The driver has a link to it and lets it not in.
    pub(crate) fn waits(&self) -> bool {
        !self.driver.is_empty() && !self.allowed
    }
}

impl Cable {
    /// Path of the host at its other end.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Of the slower direction, Mb/s; 0: unknown.
    fn rate(&self) -> u64 {
        let total = |lanes: u32, mbps: u32| u64::from(lanes) * u64::from(mbps);
        let (receive, send) =
            (total(self.receive_lanes, self.receive_lane_mbps), total(self.send_lanes, self.send_lane_mbps));
        if receive == 0 || send == 0 { receive.max(send) } else { receive.min(send) }
    }

    /// One lane where two are usual: below 40 Gb/s a lane, both lanes of a port are bonded (USB4 2.0, lane bonding).
    fn half(&self) -> bool {
        let single = self.receive_lanes == 1 && self.send_lanes == 1;
        self.medium == "thunderbolt" && single && self.receive_lane_mbps < 40_000
    }
}

/// All cables and hosts, and the best speed that each cable has had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    pub(crate) cables: BTreeMap<String, Cable>,
    pub(crate) peers: BTreeMap<String, Peer>,
    best: BTreeMap<String, u64>,
    /// Objects that were not understood, or too many.
    pub(crate) left_out: usize,
}

impl Links {
    /// What is there now, in place of what was.
    pub(crate) fn replace(&mut self, objects: &Objects) {
        (self.cables, self.peers, self.left_out) = Default::default();
        let mut paths: Vec<&String> = objects.keys().collect();
        paths.sort();
        for path in paths {
            for (interface, properties) in &objects[path] {
                let understood = match interface.as_str() {
                    "org.linkspan.Link1.Cable" => keep(&mut self.cables, path, properties),
                    "org.linkspan.Link1.Peer" => keep(&mut self.peers, path, properties),
                    _ => true,
                };
                if !understood {
                    self.left_out += 1;
                }
            }
        }
        self.best.retain(|path, _| self.cables.contains_key(path));
        for (path, cable) in &self.cables {
            let best = self.best.entry(path.clone()).or_default();
            *best = (*best).max(cable.rate());
        }
    }

    /// How a cable is, and in one sentence why.
    pub(crate) fn judge(&self, path: &str, cable: &Cable) -> (Mood, String) {
        let best = self.best.get(path).copied().unwrap_or_default();
        if !cable.usable {
            let why = cable.paths.iter().find(|way| !way.reason.is_empty()).map(|way| shown(&way.reason));
            return (Mood::Trouble, why.unwrap_or_else(|| tr("No bytes can pass.")));
        }
        if cable.rate() < best {
            let text = tr("{now} in place of {best}: unplug the cable and plug it in again, or try another one.");
            return (Mood::Slow, fill(&text, &[("now", &gbit(cable.rate())), ("best", &gbit(best))]));
        }
        if cable.half() {
            return (Mood::Slow, tr("One lane of two: unplug the cable and plug it in again, or try another one."));
        }
        let way = cable.paths.iter().find(|way| way.usable).map(|way| shown(&way.means));
        (Mood::Good, fill(&tr("Works, by {means}"), &[("means", &way.unwrap_or_default())]))
    }

    pub(crate) fn row(&self, path: &str, cable: &Cable) -> Row {
        let (mood, subtitle) = self.judge(path, cable);
        let end = match cable.rate() {
            0 => String::new(),
            rate => gbit(rate),
        };
        let title = match cable.medium.as_str() {
            "thunderbolt" => tr("Thunderbolt cable {name}"),
            "ethernet" => tr("Network card {name}"),
            "infiniband" => tr("InfiniBand port {name}"),
            _ => tr("Cable {name}"),
        };
        let way = |(n, way): (usize, &ShownPath)| Row {
            id: n.to_string(),
            title: fill(&tr("{means} over {over}"), &[("means", &shown(&way.means)), ("over", &shown(&way.over))]),
            subtitle: if way.usable { tr("Can be used") } else { shown(&way.reason) },
            mood: if way.usable { Mood::Good } else { Mood::Plain },
            ..Row::default()
        };
        let note = |(n, note): (usize, &String)| Row {
            id: format!("note {n}"),
            title: tr("Note"),
            subtitle: shown(note),
            ..Row::default()
        };
        let mut details = speeds(cable);
        details.extend(cable.paths.iter().take(WAYS).enumerate().map(way));
        details.extend(cable.notes.iter().take(WAYS).enumerate().map(note));
        let title = fill(&title, &[("name", &shown(&cable.name))]);
        Row { id: path.to_owned(), title, subtitle, end, mood, details, ..Row::default() }
    }

    /// Hosts that wait to be let in.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values().filter(|peer| peer.waits())
    }

    /// A group for each host with its cables, then one for the cables that do not say where they lead.
    pub(crate) fn groups(&self, busy: &BTreeSet<Ask>, errors: &BTreeMap<Ask, String>) -> Vec<Group> {
        let mut groups = Vec::new();
        for (path, peer) in &self.peers {
            let cables = self.cables.iter().filter(|(_, cable)| cable.peer == *path);
            let mut rows: Vec<Row> = cables.map(|(path, cable)| self.row(path, cable)).collect();
            if peer.remembered {
                let ask = Ask::Forget(peer.uuid.clone());
                rows.push(remembered(peer, !busy.contains(&ask), errors.get(&ask)));
            }
            let text = if peer.vendor.is_empty() { String::new() } else { shown(&peer.vendor) };
            groups.push(Group { title: peer.title(), text, rows });
        }
        let alone = self.cables.iter().filter(|(_, cable)| !self.peers.contains_key(&cable.peer));
        let rows: Vec<Row> = alone.map(|(path, cable)| self.row(path, cable)).collect();
        if !rows.is_empty() {
            let text = tr("What is at their other end is known when a program connects.");
            groups.push(Group { title: tr("Other connections"), text, rows });
        }
        groups
    }
}

fn remembered(peer: &Peer, works: bool, error: Option<&String>) -> Row {
    let name = fill(&tr("Forget {host}"), &[("host", &peer.title())]);
    let action = Action::Forget(peer.uuid.clone());
    Row {
        id: format!("remembered {}", peer.uuid),
        title: tr("Let in whenever it is plugged in"),
        subtitle: error
            .cloned()
            .unwrap_or_else(|| fill(&tr("UUID {uuid}, not verified"), &[("uuid", &shown(&peer.uuid))])),
        mood: if error.is_some() { Mood::Trouble } else { Mood::Plain },
        button: Some(Button { label: tr("Forget"), name, action, works }),
        ..Row::default()
    }
}

fn speeds(cable: &Cable) -> Vec<Row> {
    let row = |id: &str, title: String, lanes: u32, mbps: u32| Row {
        id: id.into(),
        title,
        subtitle: fill(
            &tr("{lanes} × {speed}, as both ends agreed"),
            &[("lanes", &lanes.to_string()), ("speed", &gbit(mbps.into()))],
        ),
        ..Row::default()
    };
    let mut rows = Vec::new();
    if cable.receive_lanes > 0 {
        rows.push(row("receive", tr("Towards this machine"), cable.receive_lanes, cable.receive_lane_mbps));
    }
    if cable.send_lanes > 0 {
        rows.push(row("send", tr("Away from it"), cable.send_lanes, cable.send_lane_mbps));
    }
    rows
}

/// False: it is not what this version knows, or there are too many.
fn keep<T: for<'a> Deserialize<'a>>(into: &mut BTreeMap<String, T>, path: &str, properties: &Dict) -> bool {
    let fits = into.len() < MOST && path.len() <= 1024;
    let Some(object) = fits.then(|| from_dict(properties).ok()).flatten() else { return false };
    into.insert(path.to_owned(), object);
    true
}
