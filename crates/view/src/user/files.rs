//! Files: of a peer, on their way, and those that peers see.

use std::collections::BTreeMap;

use linkspan_bus::{Dict, from_dict};
use serde::Deserialize;

use super::{Ask, PlaceAt, Progress, Record, Task, User};
use crate::row::{Action, Button, Field, Group, Kind, Mood, Page, Pick, Row};
use crate::text::{ago, bytes, bytes_rate, cut, fill, sentence, shown, tr};

/// Most entries of a directory that are shown; the service answers 10000.
const ENTRIES: usize = 500;

/// Most transfers of the past that are shown.
const PAST: usize = 10;

/// Most characters of a path.
const PATH: usize = 512;

/// Options of a mirror that a person begins here: both directories are marked, and it follows each change.
pub const MIRROR: &str = r#"{"init":true,"watch":true}"#;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    kind: String,
    name: Option<String>,
    name_hex: String,
    size_bytes: u64,
    writable: bool,
}

impl Entry {
    /// `None`: it is no name.
    fn name(&self) -> Option<Vec<u8>> {
        let name = match &self.name {
            Some(name) => name.clone().into_bytes(),
            None => unhex(&self.name_hex)?,
        };
        (!name.is_empty() && name != b".." && name != b"." && !name.contains(&b'/')).then_some(name)
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..text.len()).step_by(2).map(digits).collect()
}

/// A place of a peer that is looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    place: PlaceAt,
    /// As it was asked for.
    asked: String,
    entries: Option<Vec<(Vec<u8>, Entry)>>,
    /// Entries that are not shown.
    more: usize,
    /// More than these are there.
    cut: bool,
}

impl Open {
    pub(super) fn at(asked: &str) -> Open {
        Open { place: PlaceAt::parse(asked).unwrap_or_default(), asked: asked.to_owned(), ..Open::default() }
    }

    pub(super) fn is_at(&self, asked: &str) -> bool {
        self.asked == asked
    }

    pub(super) fn fill(&mut self, dicts: &[Dict], all: bool) {
        let entry = |dict: &Dict| from_dict::<Entry>(dict).ok().and_then(|entry| Some((entry.name()?, entry)));
        // Directories first, each name once.
        let mut entries: BTreeMap<(bool, Vec<u8>), Entry> = BTreeMap::new();
        for (name, entry) in dicts.iter().filter_map(entry) {
            entries.insert((!matches!(entry.kind.as_str(), "share" | "directory"), name), entry);
        }
        self.more = dicts.len().saturating_sub(entries.len().min(ENTRIES));
        self.cut = !all;
        self.entries = Some(entries.into_iter().take(ENTRIES).map(|((_, name), entry)| (name, entry)).collect());
    }
}

/// The last part of a path, which is never empty.
fn base(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

fn named(paths: &[String]) -> String {
    match paths {
        [one] => shown(base(one)),
        [first, rest @ ..] => {
            let values = [("name", shown(base(first))), ("n", rest.len().to_string())];
            fill(&tr("{name} and {n} more"), &[("name", &values[0].1), ("n", &values[1].1)])
        }
        [] => tr("nothing"),
    }
}

/// A place of arguments as people read it.
fn read(place: &str) -> String {
    let at = PlaceAt::parse(place).map(|place| place.title());
    cut(at.as_deref().unwrap_or(place).trim_end_matches(':'), PATH)
}

fn titled(kind: &str, arguments: &[String]) -> String {
    let (last, first) = arguments.split_last().map_or(("", &[][..]), |(last, first)| (last.as_str(), first));
    let own = || first.first().map_or("", String::as_str);
    match kind {
        "send" => fill(&tr("{what} to {place}"), &[("what", &named(first)), ("place", &read(last))]),
        "get" => {
            let places: Vec<String> = first.iter().map(|place| read(place)).collect();
            fill(&tr("{what} into {folder}"), &[("what", &named(&places)), ("folder", &cut(last, PATH))])
        }
        "mirror" => {
            // One of the two is a path of this machine.
            let side = |text: &str| if text.starts_with('/') { cut(text, PATH) } else { read(text) };
            fill(&tr("{destination} kept like {source}"), &[("source", &side(own())), ("destination", &side(last))])
        }
        "mount" => fill(&tr("{place} at {folder}"), &[("place", &read(own())), ("folder", &cut(last, PATH))]),
        other => shown(other),
    }
}

/// The same once more: what arrived is not sent again.
fn again(record: &Record) -> Option<Ask> {
    let (last, first) = record.arguments.split_last()?;
    let (from, to) = (first.to_vec(), last.clone());
    match record.kind.as_str() {
        "send" => Some(Ask::Send { from, to, options: record.end.asked().unwrap_or_default() }),
        "get" => Some(Ask::Get { from, to, options: record.end.asked().unwrap_or_default() }),
        "mirror" => {
            let options = record.end.asked().unwrap_or_else(|| MIRROR.to_owned());
            Some(Ask::Mirror { source: from.into_iter().next()?, destination: to, options })
        }
        _ => None,
    }
}

pub(super) fn moves(kind: &str) -> bool {
    matches!(kind, "send" | "get" | "mirror" | "mount")
}

fn numbers(progress: &Progress) -> String {
    let moved = progress.moved_bytes.saturating_add(progress.kept_bytes);
    match progress.total_bytes {
        Some(total) => fill(&tr("{moved} of {total}"), &[("moved", &bytes(moved)), ("total", &bytes(total))]),
        None => bytes(moved),
    }
}

impl User {
    pub(crate) fn files(&self, now_us: u64) -> Page {
        if let Some(empty) = self.absent() {
            return Page { empty: Some(empty), ..Page::default() };
        }
        let mut groups = Vec::new();
        groups.extend(self.to_be_sent());
        groups.push(self.at_a_peer());
        groups.extend(self.entries());
        groups.extend(self.transfers(now_us));
        groups.push(self.seen());
        Page { groups, empty: None }
    }

    /// Where files that are dropped or chosen go: the place that is looked at, if it is one for files.
    pub(crate) fn target(&self) -> Option<String> {
        let open = self.open.as_ref()?;
        open.place.share().map(|_| open.place.text())
    }

    fn to_be_sent(&self) -> Option<Group> {
        if self.waiting.is_empty() {
            return None;
        }
        let to = self.target();
        let about = match &to {
            Some(_) => fill(&tr("To {place}"), &[("place", &self.open.as_ref().map_or_else(String::new, shown_at))]),
            None => tr("Open a share of a peer below, then send."),
        };
        let (from, can) = (self.waiting.clone(), to.is_some());
        let send = Ask::Send { from, to: to.unwrap_or_default(), options: String::new() };
        let aside =
            Button { label: tr("Not Now"), name: tr("Put the files aside"), action: Action::SetAside, works: true };
        let row = Row {
            id: "waiting".into(),
            title: named(&self.waiting),
            subtitle: about,
            button: Some(self.button(tr("Send"), tr("Send the files"), send, can)),
            second: Some(aside),
            ..Row::default()
        };
        Some(Group { title: tr("To be sent"), text: String::new(), rows: vec![row] })
    }

    fn at_a_peer(&self) -> Group {
        let typed = self.text(Field::Place);
        let place = PlaceAt::parse(typed);
        let ask = Ask::List(place.as_ref().map(PlaceAt::text).unwrap_or_default());
        let open = self.button(tr("Open"), tr("Open this place"), ask, place.is_some());
        let mut rows = vec![Row {
            id: "place".into(),
            title: tr("Peer, or PEER:SHARE/PATH"),
            kind: Kind::Field(Field::Place, typed.to_owned()),
            button: Some(open),
            ..Row::default()
        }];
        rows.extend(self.refused("list", "error"));
        // Peers that are trusted are one press away.
        if self.open.is_none() {
            for peer in self.trusted.iter().take(16) {
                let title = shown(&peer.name);
                let place = PlaceAt::of_peer(&peer.name);
                let name = fill(&tr("Open the files of {peer}"), &[("peer", &title)]);
                let button = self.button(tr("Open"), name, Ask::List(place.text()), true);
                rows.push(Row { id: peer.id(), title, button: Some(button), ..Row::default() });
            }
        }
        let text = tr("On the other machine type: lspan files serve, or let its linkspan serve shares.");
        Group { title: tr("Files of a peer"), text, rows }
    }

    fn entries(&self) -> Option<Group> {
        let open = self.open.as_ref()?;
        let above = open.place.above();
        let up = Ask::List(above.as_ref().map(PlaceAt::text).unwrap_or_default());
        let up = self.button(tr("Up"), tr("Open the folder above"), up, above.is_some());
        let target = self.target();
        let pick = |label: String, pick: fn(String) -> Pick| Button {
            name: label.clone(),
            label,
            action: Action::Pick(pick(target.clone().unwrap_or_default())),
            works: target.is_some(),
        };
        let looks = self.busy.contains(&Ask::List(open.asked.clone()));
        let again = Ask::List(open.asked.clone());
        let mut rows = vec![Row {
            id: "at".into(),
            title: shown_at(open),
            subtitle: match &open.entries {
                _ if looks => tr("Looking"),
                None => tr("It could not be read."),
                Some(entries) if entries.is_empty() => tr("There is nothing in it."),
                Some(_) => String::new(),
            },
            button: Some(self.button(tr("Look Again"), tr("Look at this place again"), again, true)),
            second: Some(up),
            ..Row::default()
        }];
        if target.is_some() {
            rows.push(Row {
                id: "send".into(),
                title: tr("Send to this place"),
                subtitle: tr("Or drop files on this page."),
                button: Some(pick(tr("Files…"), Pick::Files)),
                second: Some(pick(tr("Folder…"), Pick::Folder)),
                ..Row::default()
            });
            rows.push(Row {
                id: "mirror".into(),
                title: tr("Keep a copy of a folder here"),
                subtitle: tr("It follows each change. What is only in the copy goes to its trash."),
                button: Some(pick(tr("Mirror…"), Pick::Mirror)),
                ..Row::default()
            });
            rows.push(both_ways(open.place.peer()));
        }
        for (name, entry) in open.entries.iter().flatten() {
            rows.push(self.entry(open, name, entry));
        }
        if open.more > 0 || open.cut {
            let text = tr("More is there than is shown; lspan ls shows all of it.");
            rows.push(Row { id: "more".into(), title: text, ..Row::default() });
        }
        Some(Group { title: fill(&tr("At {peer}"), &[("peer", &shown(open.place.peer()))]), text: String::new(), rows })
    }

    fn entry(&self, open: &Open, name: &[u8], entry: &Entry) -> Row {
        let (title, place) = (shown(&String::from_utf8_lossy(name)), open.place.below(name));
        let button = match entry.kind.as_str() {
            "share" | "directory" => {
                let label = fill(&tr("Open {name}"), &[("name", &title)]);
                Some(self.button(tr("Open"), label, Ask::List(place.text()), true))
            }
            "file" => {
                let (name, action) = (fill(&tr("Get {name}"), &[("name", &title)]), Action::Get(place.file()));
                Some(Button { label: tr("Get"), name, action, works: true })
            }
            _ => None,
        };
        let (subtitle, end) = match entry.kind.as_str() {
            "share" if entry.writable => (tr("Share, to read and to write"), String::new()),
            "share" => (tr("Share, to read"), String::new()),
            "directory" => (tr("Folder"), String::new()),
            "symlink" => (tr("Link"), String::new()),
            "file" => (String::new(), bytes(entry.size_bytes)),
            _ => (tr("Something else"), String::new()),
        };
        let id = format!("{} {}", entry.kind, super::place::encoded(name));
        Row { id, title, subtitle, end, button, ..Row::default() }
    }

    fn transfers(&self, now_us: u64) -> Option<Group> {
        let running = self.tasks.values().filter(|(_, task)| moves(&task.kind));
        let mut rows: Vec<Row> = running.map(|(path, task)| self.moving(path, task)).collect();
        rows.extend(["transfer", "cancel"].into_iter().filter_map(|topic| self.refused(topic, topic)));
        let past = self.history.iter().filter(|record| moves(&record.kind)).take(PAST);
        rows.extend(past.map(|record| self.moved(record, now_us)));
        let text = tr("What is replaced goes to the trash, .lspan/trash of the share or folder, for 30 days at most.");
        (!rows.is_empty()).then(|| Group { title: tr("Transfers"), text, rows })
    }

    pub(super) fn moving(&self, path: &str, task: &Task) -> Row {
        let progress = &task.progress;
        let moved = progress.moved_bytes.saturating_add(progress.kept_bytes) as f64;
        let part = progress.total_bytes.filter(|total| *total > 0).map(|total| (moved / total as f64).clamp(0.0, 1.0));
        let note = progress.notes.last().map(|note| sentence(note));
        let subtitle = match progress.state.as_str() {
            "running" => format!("{}, {}", numbers(progress), bytes_rate(task.rate)),
            "waiting" => note.unwrap_or_else(|| tr("The peer is away; it goes on when it is back.")),
            "watching" => tr("The copy is like it, and follows each change."),
            "mounted" => tr("It can be opened."),
            _ => tr("Connecting"),
        };
        let title = titled(&task.kind, &task.arguments);
        let cancel = Ask::Cancel(path.to_owned());
        // What has arrived stays, and what is asked for once more goes on from there.
        let (label, name) = match task.kind.as_str() {
            "send" | "get" => (tr("Pause"), fill(&tr("Pause {what}"), &[("what", &title)])),
            _ => (tr("Stop"), fill(&tr("Stop {what}"), &[("what", &title)])),
        };
        Row {
            id: path.to_owned(),
            title,
            subtitle,
            // A row that became one of another kind would be another one below the pointer.
            kind: match (task.kind.as_str(), progress.state.as_str()) {
                ("mount", _) => Kind::Line,
                (_, "watching") => Kind::Progress(Some(1.0)),
                _ => Kind::Progress(part),
            },
            button: Some(self.button(label, name, cancel, true)),
            ..Row::default()
        }
    }

    /// How a transfer has ended, and which. `None`: it is none, or one that is done when somebody ends it.
    pub(super) fn arrived(&self, record: &Record) -> Option<(String, String)> {
        let what = titled(&record.kind, &record.arguments);
        match (record.kind.as_str(), record.end.state.as_str()) {
            ("send" | "get", "done") => Some((tr("A transfer is done"), what)),
            ("mirror" | "mount", "done") => None,
            (kind, _) if moves(kind) => Some((tr("A transfer failed"), format!("{what}: {}", sentence(&record.error)))),
            _ => None,
        }
    }

    fn moved(&self, record: &Record, now_us: u64) -> Row {
        let when = ago((now_us / 1_000_000).saturating_sub(record.ended_unix_s));
        let title = titled(&record.kind, &record.arguments);
        let progress = &record.end;
        let (mood, said) = match progress.state.as_str() {
            // What went through it, nobody has counted.
            "done" | "cancelled" if record.kind == "mount" => (Mood::Plain, tr("Ended")),
            "done" => {
                let values = (progress.files_done.to_string(), bytes(progress.moved_bytes));
                (Mood::Good, fill(&tr("Files arrived: {n}, {moved} moved"), &[("n", &values.0), ("moved", &values.1)]))
            }
            "cancelled" => (Mood::Plain, fill(&tr("Paused at {numbers}"), &[("numbers", &numbers(progress))])),
            _ => (Mood::Trouble, sentence(&record.error)),
        };
        let name = fill(&tr("Go on with {what}"), &[("what", &title)]);
        // It may have been asked for again, or gone on by itself; then the options of this one are no longer those to go on with.
        let same = |kind: &str, arguments: &[String]| kind == record.kind && arguments == record.arguments;
        let runs = self.tasks.values().any(|(_, task)| same(&task.kind, &task.arguments));
        let newer = self.history.iter().any(|one| one.id > record.id && same(&one.kind, &one.arguments));
        let go_on = again(record).filter(|_| progress.state != "done" && !runs && !newer);
        let button = go_on.map(|ask| self.button(tr("Go On"), name, ask, true));
        Row { id: record.id.to_string(), title, subtitle: said, end: when, mood, button, ..Row::default() }
    }

    /// A share has letters, digits and a few signs in its name, 64 at most. A name in which none of them is gives way to another.
    pub(crate) fn share_name(&self, folder: &str) -> String {
        let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
        let name: String = folder.chars().map(fits).skip_while(|c| matches!(c, '.' | '-')).take(64).collect();
        let name = name.trim_end_matches('-');
        let others = (2..).map(|n| format!("share-{n}"));
        let free = |name: &String| self.shares.iter().all(|share| share.name != *name);
        match name.is_empty() {
            true => std::iter::once("share".to_owned()).chain(others).find(free).unwrap_or_default(),
            false => name.to_owned(),
        }
    }

    fn seen(&self) -> Group {
        // Those that are not served yet will be, by themselves.
        let on = self.serving || !self.unserved.is_empty();
        let ask = Ask::Serve(!on);
        let where_to = cut(&self.addresses.join(", "), PATH);
        let about = match (self.unserved.as_str(), self.serving) {
            (why, _) if !why.is_empty() => sentence(why),
            (_, true) => fill(&tr("At {addresses}, to peers that you trust"), &[("addresses", &where_to)]),
            _ => tr("Nobody sees them now."),
        };
        let mut rows = vec![Row {
            id: "serve".into(),
            title: tr("Serve shares"),
            subtitle: about,
            mood: if self.unserved.is_empty() { Mood::Plain } else { Mood::Trouble },
            kind: Kind::Switch(on),
            button: Some(self.button(tr("Serve"), tr("Serve shares"), ask, on || !self.shares.is_empty())),
            ..Row::default()
        }];
        rows.extend(self.refused("share", "not shared"));
        for share in &self.shares {
            let title = shown(&share.name);
            let name = fill(&tr("Share {name} no more"), &[("name", &title)]);
            let how = if share.writable { tr("peers may change it") } else { tr("peers may read it") };
            rows.push(Row {
                id: format!("share {}", share.name),
                subtitle: format!("{}, {how}", cut(&share.directory, PATH)),
                title,
                button: Some(self.button(tr("Remove"), name, Ask::Unshare(share.name.clone()), true)),
                ..Row::default()
            });
        }
        let pick = |label: String, name: String, writable| Button {
            label,
            name,
            action: Action::Pick(Pick::Share(writable)),
            works: true,
        };
        rows.push(Row {
            id: "add".into(),
            title: tr("Share a folder"),
            button: Some(pick(tr("To Read…"), tr("Share a folder to read"), false)),
            second: Some(pick(tr("To Write…"), tr("Share a folder to write"), true)),
            ..Row::default()
        });
        Group { title: tr("Shares of this machine"), text: String::new(), rows }
    }
}

/// What a person needs for folders that change on both sides, which are not ours to keep alike.
fn both_ways(peer: &str) -> Row {
    // A name of our own, for a peer may be an address with a port, which is no name for ssh.
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let host = if !peer.is_empty() && peer.chars().all(plain) { peer } else { "linkspan-peer" };
    let peer: String = peer.chars().filter(|c| !c.is_control()).collect();
    let name = tr("Copy a profile for unison");
    let profile = format!(
        "# In ~/.ssh/config, where {peer} lets you in by `lspan files serve --allow ssh`:\n#   Host {host}\n#       ProxyCommand lspan pipe {peer} ssh\n\
         # In ~/.unison/{host}.prf, with your folders; then type: unison {host}\n\
         root = /FOLDER/OF/THIS/MACHINE\nroot = ssh://{host}//FOLDER/OF/THAT/MACHINE\n"
    );
    Row {
        id: "both ways".into(),
        title: tr("Keep two folders alike, whichever is changed"),
        subtitle: tr("unison does that over linkspan, and asks where both were changed."),
        button: Some(Button { label: tr("Copy Profile"), name, action: Action::Copy(profile), works: true }),
        ..Row::default()
    }
}

fn shown_at(open: &Open) -> String {
    cut(open.place.title().trim_end_matches(':'), PATH)
}
