//! What is known, and what is shown of it.

use std::collections::{BTreeMap, BTreeSet};

use linkspan_bus::Dict;

use crate::events::Events;
use crate::findings::{self, Report};
use crate::jobs::Jobs;
use crate::links::{Links, Objects};
use crate::live;
use crate::row::{Action, Button, Choice, Empty, Field, Group, Mood, Page, Pages, Row};
use crate::text::{fill, shown, tr};
use crate::user::{Ask, Update, User};

/// What is told to the model. Times are microseconds since 1970.
#[derive(Clone, Debug)]
pub enum Input {
    /// The service is on the bus, in this version.
    Up(String),
    /// It is not, and why.
    Down(String),
    /// All its objects.
    Objects(Objects),
    /// Events, oldest first.
    Events(Vec<Dict>),
    /// Statistics of this user's processes, and when.
    Statistics(Vec<Dict>, u64),
    /// A host was asked to be let in or shut out.
    Asked(live::Ask),
    /// What came of it: an error in a sentence.
    Answered(live::Ask, Result<(), String>),
    /// The doctor looks.
    Examining,
    /// What it said.
    Examined(Result<String, String>),
    /// Of the user's service.
    User(Update),
    /// A person has typed this.
    Typed(Field, String),
    /// Or has chosen one of several.
    Chosen(Choice, usize),
    /// Or files to send, of which it is not known yet where to. None: they are put aside.
    ToSend(Vec<String>),
    /// Or has compared the fingerprint of a pairing.
    Compared(String),
}

/// Something that a person may want to be told at once. The same thing has the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Names it.
    pub id: String,
    /// First line.
    pub title: String,
    /// What it is about.
    pub text: String,
}

/// The whole in one line, for the tray.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Name of the symbolic icon, one of the freedesktop Icon Naming Specification.
    pub icon: &'static str,
    /// A sentence.
    pub text: String,
    /// A line for each cable to a host: its name, the speed.
    pub peers: Vec<String>,
    /// A line for each test and transfer that runs.
    pub tasks: Vec<String>,
    /// A button for each peer whose bandwidth can be measured, with its name on it.
    pub tests: Vec<Button>,
    /// Whether all mirrors are paused, which [`Model::pause_mirrors`] changes. `None`: there are none.
    pub paused: Option<bool>,
}

/// Of the machine, or of the user.
#[derive(Clone, Debug, Default)]
pub(crate) enum Service {
    #[default]
    Asked,
    Up(String),
    Down(String),
}

#[derive(Clone, Debug, Default)]
enum Doctor {
    #[default]
    NotAsked,
    Looks,
    Said(Result<Report, String>),
}

/// Most lines of one kind in a summary: a menu that is longer than a screen is no menu.
const LINES: usize = 16;

/// Most hosts of which it is remembered that they were told of.
const TOLD: usize = 1024;

/// What is known.
#[derive(Clone, Debug, Default)]
pub struct Model {
    host: String,
    service: Service,
    links: Links,
    events: Events,
    /// The first events are what was there before: no news.
    heard: bool,
    jobs: Jobs,
    busy: BTreeSet<live::Ask>,
    errors: BTreeMap<live::Ask, String>,
    told: BTreeSet<String>,
    doctor: Doctor,
    user: User,
}

impl Model {
    /// Nothing is known but the name of this machine.
    pub fn new(host: &str) -> Model {
        Model { host: shown(host), ..Model::default() }
    }

    /// Takes in what was told, and answers what is news. Never fails: what is not understood is passed over and counted.
    pub fn apply(&mut self, input: Input) -> Vec<Notice> {
        match input {
            Input::Up(version) => self.service = Service::Up(shown(&version)),
            Input::Down(why) => {
                // What it said is not known to be so any more.
                (self.links, self.jobs) = Default::default();
                self.busy.clear();
                self.errors.clear();
                self.service = Service::Down(shown(&why));
            }
            Input::Objects(objects) => {
                self.links.replace(&objects);
                return self.asks();
            }
            Input::Events(dicts) => {
                let new = self.events.add(&dicts);
                let news = std::mem::replace(&mut self.heard, true);
                let notice = |event: &crate::events::Event| Notice {
                    id: event.topic(),
                    title: event.title(),
                    text: shown(&event.text),
                };
                let told = new.iter().filter(|event| news && self.events.tells(event));
                return told.map(notice).collect();
            }
            Input::Statistics(dicts, now_us) => self.jobs.replace(&dicts, now_us),
            Input::Asked(ask) => {
                self.errors.retain(|other, _| other.host() != ask.host());
                self.busy.insert(ask);
            }
            Input::Answered(ask, answer) => {
                self.busy.remove(&ask);
                match answer {
                    Ok(()) => drop(self.errors.remove(&ask)),
                    Err(why) => drop(self.errors.insert(ask, shown(&why))),
                }
            }
            Input::Examining => self.doctor = Doctor::Looks,
            Input::Examined(said) => self.doctor = Doctor::Said(said.and_then(|json| findings::read(&json))),
            Input::User(told) => return self.user.apply(told),
            Input::Typed(field, text) => self.user.typed(field, &text),
            Input::Chosen(choice, chosen) => self.user.choose(choice, chosen),
            Input::ToSend(files) => self.user.await_place(files),
            Input::Compared(pairing) => self.user.compared(pairing),
        }
        Vec::new()
    }

    /// Hosts that ask to be let in and have not been told of since they came.
    fn asks(&mut self) -> Vec<Notice> {
        let waiting: BTreeSet<String> = self.links.waiting().map(|peer| peer.uuid.clone()).take(TOLD).collect();
        let new = self.links.waiting().filter(|peer| waiting.contains(&peer.uuid) && !self.told.contains(&peer.uuid));
        let notice = |peer: &crate::links::Peer| Notice {
            id: format!("allow {}", peer.uuid),
            title: tr("A host asks to be let in"),
            text: peer.title(),
        };
        let notices = new.map(notice).collect();
        self.told = waiting;
        notices
    }

    /// All that the window shows.
    pub fn pages(&self, now_us: u64) -> Pages {
        Pages {
            banner: self.banner(),
            overview: self.overview(),
            tests: self.user.tests(now_us),
            files: self.user.files(now_us),
            jobs: self.jobs(),
            findings: self.findings(),
            events: self.happened(now_us),
        }
    }

    /// What a folder of this name may be called as a share.
    pub fn share_name(&self, folder: &str) -> String {
        self.user.share_name(folder)
    }

    /// The place that is looked at, where files may be sent to.
    pub fn target(&self) -> Option<String> {
        self.user.target()
    }

    /// The page of a test in HTML, all in one, as `lspan perf --report` writes it without histograms; and a name for its file. `None`: it
    /// is not known, or its results are of another version. Reads what this machine is.
    pub fn report(&self, id: &str) -> Option<(String, String)> {
        self.user.report(id)
    }

    fn banner(&self) -> String {
        let mut said = Vec::new();
        for service in [&self.service, &self.user.service] {
            if let Service::Up(version) = service
                && version != env!("CARGO_PKG_VERSION")
            {
                let text = tr("A service has version {theirs}, this program {own}: some of it may be missing.");
                said.push(fill(&text, &[("theirs", version), ("own", env!("CARGO_PKG_VERSION"))]));
            }
        }
        said.dedup();
        let left_out = self.links.left_out + self.jobs.left_out + self.user.left_out();
        if left_out > 0 {
            let text = tr("{n} things that the service tells are not understood or too many, and are not shown.");
            said.push(fill(&text, &[("n", &left_out.to_string())]));
        }
        said.join(" ")
    }

    /// Why there is nothing to show, if the service is not there.
    fn absent(&self) -> Option<Empty> {
        match &self.service {
            Service::Up(_) => None,
            Service::Asked => Some(Empty {
                icon: "network-transmit-receive-symbolic",
                title: tr("Asking the service"),
                text: tr("linkspand tells what is plugged in."),
                button: None,
            }),
            Service::Down(why) => Some(Empty {
                icon: "network-error-symbolic",
                title: tr("The service does not run"),
                text: fill(&tr("Type in a terminal: systemctl start linkspand\nThe bus said: {why}"), &[("why", why)]),
                button: Some(button(tr("Try Again"), Action::Retry)),
            }),
        }
    }

    fn overview(&self) -> Page {
        let trust = self.user.trust();
        if let Some(empty) = self.absent() {
            if trust.is_empty() {
                return Page { empty: Some(empty), ..Page::default() };
            }
            // Peers are trusted without the service of the machine.
            let own = Group { title: tr("This machine"), text: String::new(), rows: vec![absent_row(empty)] };
            return Page { groups: [own].into_iter().chain(trust).collect(), empty: None };
        }
        let mut groups = Vec::new();
        let cards: Vec<Row> = self.links.waiting().map(|peer| self.card(peer)).collect();
        if !cards.is_empty() {
            let text = tr(
                "Its name and UUID are what it says of itself and prove nothing: let in what you have plugged in yourself.",
            );
            groups.push(Group { title: tr("Waiting to be let in"), text, rows: cards });
        }
        let Service::Up(version) = &self.service else { return Page::default() };
        let machine = Row {
            id: "machine".into(),
            title: self.host.clone(),
            subtitle: fill(&tr("linkspand {version} runs"), &[("version", version)]),
            ..Row::default()
        };
        groups.push(Group { title: tr("This machine"), text: String::new(), rows: vec![machine] });
        groups.extend(self.links.groups(&self.busy, &self.errors));
        if self.links.peers.is_empty() {
            let hint = Row {
                id: "hint".into(),
                title: tr("No host at a Thunderbolt or USB4 cable"),
                subtitle: tr("Plug a cable into this machine and into another one that runs Linux."),
                ..Row::default()
            };
            groups.insert(groups.len().min(1), Group { title: tr("Hosts"), text: String::new(), rows: vec![hint] });
        }
        groups.extend(trust);
        Page { groups, empty: None }
    }

    fn card(&self, peer: &crate::links::Peer) -> Row {
        let ask = live::Ask::Allow(peer.uuid.clone());
        let (busy, error) = (self.busy.contains(&ask), self.errors.get(&ask));
        let subtitle = match error {
            Some(why) => why.clone(),
            None if busy => tr("You may be asked for a password."),
            None => fill(&tr("UUID {uuid}"), &[("uuid", &shown(&peer.uuid))]),
        };
        let name = fill(&tr("Let {host} in"), &[("host", &peer.title())]);
        let action = Action::Allow(peer.uuid.clone());
        Row {
            id: format!("allow {}", peer.uuid),
            title: peer.title(),
            subtitle,
            mood: if error.is_some() { Mood::Trouble } else { Mood::Plain },
            button: Some(Button { label: tr("Let In"), name, action, works: !busy }),
            ..Row::default()
        }
    }

    fn jobs(&self) -> Page {
        if let Some(empty) = self.absent() {
            return Page { empty: Some(empty), ..Page::default() };
        }
        let groups = self.jobs.groups();
        let none = || Empty {
            icon: "network-offline-symbolic",
            title: tr("No job uses linkspan"),
            text: tr(
                "Your own jobs are shown here. Type in a terminal, on two machines: lspan perf serve --open, and lspan perf bw OTHER-HOST",
            ),
            button: None,
        };
        Page { empty: groups.is_empty().then(none), groups }
    }

    fn findings(&self) -> Page {
        let empty = |icon, title, text: String, label| Page {
            empty: Some(Empty { icon, title, text, button: Some(button(label, Action::Examine)) }),
            ..Page::default()
        };
        match &self.doctor {
            Doctor::NotAsked => empty(
                "network-offline-symbolic",
                tr("Not examined yet"),
                tr("lspan doctor looks at this machine and its cables. It changes nothing and sends nothing."),
                tr("Examine"),
            ),
            Doctor::Looks => {
                let mut page = empty(
                    "network-transmit-receive-symbolic",
                    tr("Examining"),
                    tr("This takes some seconds."),
                    tr("Examine"),
                );
                let button = page.empty.as_mut().and_then(|empty| empty.button.as_mut());
                button.into_iter().for_each(|button| button.works = false);
                page
            }
            Doctor::Said(Err(why)) => {
                empty("network-error-symbolic", tr("lspan doctor has not answered"), shown(why), tr("Examine Again"))
            }
            Doctor::Said(Ok(report)) if report.is_empty() => empty(
                "network-idle-symbolic",
                tr("Nothing is wrong"),
                tr("As far as one machine can tell."),
                tr("Examine Again"),
            ),
            Doctor::Said(Ok(report)) => {
                let mut groups = report.groups();
                let again = Row {
                    id: "again".into(),
                    title: tr("Something was mended?"),
                    button: Some(button(tr("Examine Again"), Action::Examine)),
                    ..Row::default()
                };
                groups.push(Group { rows: vec![again], ..Group::default() });
                Page { groups, empty: None }
            }
        }
    }

    fn happened(&self, now_us: u64) -> Page {
        let rows = self.events.rows(now_us);
        if rows.is_empty() {
            let none = || Empty {
                icon: "network-offline-symbolic",
                title: tr("Nothing has happened"),
                text: tr(
                    "Cables that come and go, changes of their speed and what goes wrong in your jobs stand here.",
                ),
                button: None,
            };
            return Page { empty: self.absent().or_else(|| Some(none())), ..Page::default() };
        }
        // What it has told before stays; nothing is heard meanwhile.
        let absent = self.absent().map(|empty| Group { rows: vec![absent_row(empty)], ..Group::default() });
        Page { groups: absent.into_iter().chain([Group { rows, ..Group::default() }]).collect(), empty: None }
    }

    /// What is to be asked of the user's service so that all mirrors stop, or go on where none runs.
    pub fn pause_mirrors(&mut self) -> Vec<Ask> {
        self.user.pause_mirrors()
    }

    /// The whole in one line.
    pub fn summary(&self) -> Summary {
        let (mut tasks, busy) = self.user.running();
        let mut tests = self.user.to_measure();
        let cables = || self.links.cables.iter().filter(|(_, cable)| self.links.peers.contains_key(cable.peer()));
        let moods: Vec<Mood> = cables().map(|(path, cable)| self.links.judge(path, cable).0).collect();
        let (icon, text) = match &self.service {
            Service::Asked => ("network-offline-symbolic", tr("Asking the service")),
            Service::Down(_) => ("network-error-symbolic", tr("The service does not run")),
            Service::Up(_) if self.links.waiting().next().is_some() => {
                ("dialog-warning-symbolic", tr("A host asks to be let in"))
            }
            Service::Up(_) if moods.contains(&Mood::Trouble) => {
                ("network-error-symbolic", tr("A cable cannot be used"))
            }
            Service::Up(_) if moods.contains(&Mood::Slow) => {
                ("dialog-warning-symbolic", tr("A cable is slower than it could be"))
            }
            Service::Up(_) if busy => ("network-transmit-receive-symbolic", tr("Transfers or tests run")),
            Service::Up(_) if moods.is_empty() => ("network-offline-symbolic", tr("No host at a cable")),
            Service::Up(_) => ("network-idle-symbolic", tr("All cables work")),
        };
        let line = |(path, cable): (&String, &crate::links::Cable)| {
            let row = self.links.row(path, cable);
            let host = self.links.peers.get(cable.peer()).map(crate::links::Peer::title).unwrap_or_default();
            if row.end.is_empty() { host } else { format!("{host}: {}", row.end) }
        };
        let peers = cables().take(LINES).map(line).collect();
        tasks.truncate(LINES);
        tests.truncate(LINES);
        Summary { icon, text, peers, tasks, tests, paused: self.user.paused() }
    }
}

/// The same where there is something else to show.
fn absent_row(empty: Empty) -> Row {
    let Empty { title, text, button, .. } = empty;
    let mood = if button.is_some() { Mood::Trouble } else { Mood::Plain };
    Row { id: "absent".into(), title, subtitle: text.replace('\n', " "), mood, button, ..Row::default() }
}

fn button(label: String, action: Action) -> Button {
    Button { name: label.clone(), label, action, works: true }
}
