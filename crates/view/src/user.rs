//! What the user's service tells: tests, files and trusted peers.

mod files;
pub mod live;
mod measure;
mod place;
mod trust;

use std::collections::{BTreeMap, BTreeSet};

use linkspan_bus::{Dict, from_dict};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::model::{Notice, Service};
use crate::row::{Action, Button, Choice, Empty, Field, Kind, Mood, Row};
use crate::text::{fill, sentence, shown, tr};
pub use files::MIRROR;
use files::Open;
use measure::Measured;
pub(crate) use place::PlaceAt;

/// Most records, tasks, shares and peers that are kept; the service keeps 256 records and 64 tasks and shares.
const MOST: usize = 256;

/// Longest text that is typed.
const TYPED: usize = 8192;

/// What a person asks the user's service for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// Starts a test against a peer.
    Test {
        /// One of the five, or all.
        test: &'static str,
        /// Whom.
        peer: String,
    },
    /// Ends the task of this path.
    Cancel(String),
    /// Sends files and directories.
    Send {
        /// Paths of this machine.
        from: Vec<String>,
        /// A place.
        to: String,
        /// The service's options, as JSON; empty: none.
        options: String,
    },
    /// Gets places.
    Get {
        /// Places of one peer.
        from: Vec<String>,
        /// A directory.
        to: String,
        /// As those of `Send`.
        options: String,
    },
    /// Keeps a directory like another.
    Mirror {
        /// A directory or a place.
        source: String,
        /// The other.
        destination: String,
        /// The service's options, as JSON.
        options: String,
    },
    /// Reads a directory of a peer, or its shares.
    List(String),
    /// Lets peers see a directory.
    Share {
        /// What it is called.
        name: String,
        /// Where it is.
        directory: String,
        /// They may change it.
        writable: bool,
    },
    /// Ends that.
    Unshare(String),
    /// Serves the shares, or not.
    Serve(bool),
    /// Makes a join line.
    Offer,
    /// Joins with one.
    Join(String),
    /// Trusts a peer no more.
    Distrust(String),
    /// Looks for the service again.
    Retry,
}

impl Ask {
    /// Where an error of it is shown.
    fn topic(&self) -> &'static str {
        match self {
            Ask::Test { .. } => "test",
            Ask::Cancel(_) => "cancel",
            Ask::Send { .. } | Ask::Get { .. } | Ask::Mirror { .. } => "transfer",
            Ask::List(_) => "list",
            Ask::Share { .. } | Ask::Unshare(_) | Ask::Serve(_) => "share",
            Ask::Offer | Ask::Join(_) => "pair",
            Ask::Distrust(_) => "distrust",
            Ask::Retry => "retry",
        }
    }
}

/// The place of what is called so in a place that a model has given.
pub fn below(place: &str, name: &str) -> String {
    PlaceAt::parse(place).unwrap_or_default().below(name.as_bytes()).text()
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It is done.
    Done,
    /// Entries, and whether these are all.
    Listed(Vec<Dict>, bool),
    /// A join line, and the path of the task that waits for somebody to use it.
    Offered(String, String),
}

/// What is told of the user's service.
#[derive(Clone, Debug)]
pub enum Update {
    /// It is on the bus, in this version.
    Up(String),
    /// It is not, and why.
    Down(String),
    /// The properties of each task that runs, by its path.
    Tasks(Vec<(String, Dict)>),
    /// How far each is, and when that was (microseconds since 1970).
    Progress(Vec<(String, Dict)>, u64),
    /// Records of tasks that have ended, newest first.
    History(Vec<Dict>),
    /// Directories that peers see, whether they are served and where, and why not though they should be.
    Shares(Vec<Dict>, bool, Vec<String>, String),
    /// The line and the fingerprint of this user's key, empty where it has none that is of use, and whom it trusts; or why that cannot be read.
    Keys(Result<(String, String, Vec<Dict>), String>),
    /// It was asked for this.
    Asked(Ask),
    /// And this came of it, or an error in a sentence.
    Answered(Ask, Result<Answer, String>),
}

/// How far a task is, or was at its end.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Progress {
    state: String,
    path: String,
    notes: Vec<String>,
    done: u64,
    of: u64,
    measuring: String,
    results: Vec<Measured>,
    moved_bytes: u64,
    kept_bytes: u64,
    total_bytes: Option<u64>,
    files_done: u64,
    current: String,
    name: String,
    calls_itself: String,
    fingerprint: String,
    confirmed: bool,
    options: Map<String, Value>,
}

impl Progress {
    /// Those of a transfer or mirror, as JSON. `None`: nobody has told them.
    fn asked(&self) -> Option<String> {
        (!self.options.is_empty()).then(|| Value::Object(self.options.clone()).to_string())
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Task {
    kind: String,
    peer: String,
    arguments: Vec<String>,
    #[serde(skip)]
    progress: Progress,
    /// Bytes per second since the look before, and when that was.
    #[serde(skip)]
    rate: f64,
    #[serde(skip)]
    at_us: u64,
}

/// One that has ended.
#[derive(Clone, Debug, Default, Deserialize)]
struct Record {
    id: u64,
    kind: String,
    #[serde(default)]
    peer: String,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    ended_unix_s: u64,
    #[serde(default)]
    error: String,
    #[serde(flatten)]
    end: Progress,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Share {
    name: String,
    directory: String,
    writable: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Trusted {
    name: String,
    fingerprint: String,
}

impl Trusted {
    /// Of its row: a button is about this name of this key, whatever comes and goes beside it.
    fn id(&self) -> String {
        format!("peer {} {}", self.fingerprint, self.name)
    }
}

/// All of it, and what a person has typed.
#[derive(Clone, Debug, Default)]
pub(crate) struct User {
    pub(crate) service: Service,
    /// By number.
    tasks: BTreeMap<u64, (String, Task)>,
    history: Vec<Record>,
    shares: Vec<Share>,
    serving: bool,
    addresses: Vec<String>,
    unserved: String,
    line: String,
    fingerprint: String,
    trusted: Vec<Trusted>,
    /// Why keys cannot be read.
    keyless: Option<String>,
    typed: BTreeMap<Field, String>,
    test: usize,
    busy: BTreeSet<Ask>,
    errors: BTreeMap<&'static str, String>,
    open: Option<Open>,
    /// Files that are to be sent once there is a place for them.
    waiting: Vec<String>,
    /// The join line that waits, and its task.
    offered: Option<(String, String)>,
    compared: BTreeSet<String>,
    /// Pairings that had ended before are no news.
    paired_before: Option<u64>,
    /// Records of the look before by number and time, which are no news either. `None`: there was none.
    told: Option<BTreeSet<(u64, u64)>>,
    /// Mirrors that a person has paused all together, to be asked for again.
    paused: BTreeSet<Ask>,
    /// Those that were asked for again.
    resumed: BTreeSet<Ask>,
    /// Of each list what is not understood or too many.
    left_out: BTreeMap<&'static str, usize>,
}

/// Whether it moves bytes now.
fn moves_now(task: &Task) -> bool {
    let state = task.progress.state.as_str();
    task.kind == "test" || (files::moves(&task.kind) && matches!(state, "" | "connecting" | "running"))
}

/// A mirror that has followed changes before waits for a peer that is away as it goes on, and does not fail.
fn waiting(ask: Ask) -> Ask {
    let Ask::Mirror { source, destination, options } = ask else { return ask };
    let mut asked: Map<String, Value> = serde_json::from_str(&options).unwrap_or_default();
    let is = |name: &str| asked.get(name) == Some(&Value::Bool(true));
    let options = if is("watch") && !is("init") {
        asked.insert("again".into(), true.into());
        Value::Object(asked).to_string()
    } else {
        options
    };
    Ask::Mirror { source, destination, options }
}

/// The number at the end of a task's path.
fn number(path: &str) -> Option<u64> {
    path.rsplit('/').next()?.parse().ok()
}

/// Those that are understood, and how many are not or too many.
fn read<T: for<'a> Deserialize<'a>>(dicts: &[Dict]) -> (Vec<T>, usize) {
    let known: Vec<T> = dicts.iter().take(MOST).filter_map(|dict| from_dict(dict).ok()).collect();
    let left_out = dicts.len() - known.len();
    (known, left_out)
}

impl User {
    /// Takes it in, and answers what is news.
    pub(crate) fn apply(&mut self, told: Update) -> Vec<Notice> {
        match told {
            Update::Up(version) => self.service = Service::Up(shown(&version)),
            Update::Down(why) => {
                let kept = std::mem::take(self);
                self.service = Service::Down(sentence(&why));
                // What a person has typed and chosen is not the service's.
                (self.typed, self.test, self.waiting) = (kept.typed, kept.test, kept.waiting);
                (self.compared, self.paired_before) = (kept.compared, kept.paired_before);
                (self.told, self.paused, self.resumed) = (kept.told, kept.paused, kept.resumed);
            }
            Update::Tasks(list) => self.tasks(&list),
            Update::Progress(list, now_us) => self.progress(&list, now_us),
            Update::History(dicts) => {
                self.history = self.list("history", &dicts);
                let mut seen = BTreeSet::new();
                self.history.retain(|record| seen.insert(record.id));
                let last = self.history.iter().map(|record| record.id).max().unwrap_or_default();
                self.paired_before.get_or_insert(last);
                return self.news();
            }
            Update::Shares(dicts, serving, addresses, error) => {
                self.shares = self.list("shares", &dicts);
                let mut seen = BTreeSet::new();
                self.shares.retain(|share| seen.insert(share.name.clone()));
                (self.serving, self.unserved) = (serving, error);
                self.addresses = addresses.into_iter().take(MOST).collect();
            }
            Update::Keys(told) => {
                self.keyless = told.as_ref().err().map(|why| sentence(why));
                let (line, fingerprint, dicts) = told.unwrap_or_default();
                self.trusted = self.list("keys", &dicts);
                let mut seen = BTreeSet::new();
                self.trusted.retain(|peer| seen.insert(peer.id()));
                (self.line, self.fingerprint) = (line, fingerprint);
            }
            Update::Asked(ask) => {
                self.errors.remove(ask.topic());
                if let Ask::List(place) = &ask
                    && !self.open.as_ref().is_some_and(|open| open.is_at(place))
                {
                    self.open = Some(Open::at(place));
                }
                self.busy.insert(ask);
            }
            Update::Answered(ask, answer) => {
                self.busy.remove(&ask);
                match answer {
                    Ok(answer) => self.answered(ask, answer),
                    Err(why) => {
                        let (topic, text) = (ask.topic(), sentence(&why));
                        self.errors.insert(topic, text.clone());
                        let title = match &ask {
                            Ask::Test { .. } => tr("A test failed"),
                            Ask::Mirror { .. } if self.resumed.remove(&ask) => {
                                self.paused.insert(ask);
                                tr("A mirror cannot go on")
                            }
                            _ => tr("It could not be done"),
                        };
                        return vec![Notice { id: format!("ask {topic}"), title, text }];
                    }
                }
            }
        }
        Vec::new()
    }

    /// A list that the service tells; what is left out of it is counted.
    fn list<T: for<'a> Deserialize<'a>>(&mut self, name: &'static str, dicts: &[Dict]) -> Vec<T> {
        let (known, left_out) = read(dicts);
        self.left_out.insert(name, left_out);
        known
    }

    /// How much of what the service tells is not shown.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out.values().sum()
    }

    /// Tests and transfers that have ended since the look before, and that nobody has cancelled.
    fn news(&mut self) -> Vec<Notice> {
        let of = |record: &Record| (record.id, record.ended_unix_s);
        let Some(before) = self.told.replace(self.history.iter().map(of).collect()) else { return Vec::new() };
        let ended =
            self.history.iter().filter(|record| record.end.state != "cancelled" && !before.contains(&of(record)));
        let notice = |record: &Record| {
            let (title, text) = self.ended(record).or_else(|| self.arrived(record))?;
            Some(Notice { id: format!("task {} {}", record.id, record.ended_unix_s), title, text })
        };
        ended.filter_map(notice).collect()
    }

    /// A line for each test and transfer that runs, and whether bytes of one of them are on their way.
    pub(crate) fn running(&self) -> (Vec<String>, bool) {
        let line = |(path, task): &(String, Task)| {
            let row = match task.kind.as_str() {
                "test" => self.measurement(path, task),
                kind if files::moves(kind) => self.moving(path, task),
                _ => return None,
            };
            Some(match row.kind {
                Kind::Progress(Some(part)) if moves_now(task) => format!("{}: {:.0} %", row.title, part * 100.0),
                _ => row.title,
            })
        };
        let tasks = || self.tasks.values();
        (tasks().filter_map(line).collect(), tasks().any(|(_, task)| moves_now(task)))
    }

    /// Whom a test can be started against, a button each.
    pub(crate) fn to_measure(&self) -> Vec<Button> {
        let runs = self.tasks.values().any(|(_, task)| task.kind == "test");
        let button = |peer: &Trusted| {
            let name = fill(&tr("Measure the bandwidth to {peer}"), &[("peer", &shown(&peer.name))]);
            self.button(shown(&peer.name), name, Ask::Test { test: "bw", peer: peer.name.clone() }, !runs)
        };
        self.trusted.iter().map(button).collect()
    }

    /// Mirrors that run, and how each goes on.
    fn mirrors(&self) -> impl Iterator<Item = (&String, Ask)> {
        self.tasks.values().filter_map(|(path, task)| match (task.kind.as_str(), task.arguments.as_slice()) {
            ("mirror", [source, destination]) => {
                let (source, destination, options) = (source.clone(), destination.clone(), task.progress.asked()?);
                Some((path, Ask::Mirror { source, destination, options }))
            }
            _ => None,
        })
    }

    /// Whether all mirrors are paused. `None`: there are none.
    pub(crate) fn paused(&self) -> Option<bool> {
        let runs = self.mirrors().next().is_some();
        (runs || !self.paused.is_empty()).then_some(!runs)
    }

    /// What is to be asked for so that all mirrors stop, or go on where none runs.
    pub(crate) fn pause_mirrors(&mut self) -> Vec<Ask> {
        let running: Vec<(Ask, Ask)> = self.mirrors().map(|(path, ask)| (Ask::Cancel(path.clone()), ask)).collect();
        if running.is_empty() {
            self.resumed = std::mem::take(&mut self.paused).into_iter().map(waiting).collect();
            return self.resumed.iter().cloned().collect();
        }
        let (cancels, mirrors): (_, Vec<Ask>) = running.into_iter().unzip();
        // One that ends slowly is asked to a second time.
        self.paused.extend(mirrors);
        cancels
    }

    fn answered(&mut self, ask: Ask, answer: Answer) {
        match (ask, answer) {
            (Ask::List(place), Answer::Listed(entries, all)) => {
                let open = self.open.as_mut().filter(|open| open.is_at(&place));
                open.into_iter().for_each(|open| open.fill(&entries, all));
            }
            (Ask::Offer, Answer::Offered(line, task)) => self.offered = Some((line, task)),
            (Ask::Join(_), _) => drop(self.typed.remove(&Field::JoinLine)),
            (Ask::Send { from, .. }, _) if from == self.waiting => self.waiting.clear(),
            (ask @ Ask::Mirror { .. }, _) => drop(self.resumed.remove(&ask)),
            _ => {}
        }
    }

    fn tasks(&mut self, list: &[(String, Dict)]) {
        let mut tasks = BTreeMap::new();
        for (path, dict) in list.iter().take(MOST) {
            let Some((number, mut task)) = number(path).zip(from_dict::<Task>(dict).ok()) else { continue };
            if let Some((_, old)) = self.tasks.remove(&number) {
                (task.progress, task.rate, task.at_us) = (old.progress, old.rate, old.at_us);
            }
            tasks.insert(number, (path.clone(), task));
        }
        self.left_out.insert("tasks", list.len() - tasks.len());
        self.tasks = tasks;
        let runs = |path: &str| self.tasks.values().any(|(own, _)| own == path);
        if self.offered.as_ref().is_some_and(|(_, task)| !runs(task)) {
            self.offered = None;
        }
    }

    fn progress(&mut self, list: &[(String, Dict)], now_us: u64) {
        for (path, dict) in list.iter().take(MOST) {
            let known = number(path).and_then(|number| self.tasks.get_mut(&number));
            let (Some((_, task)), Ok(progress)) = (known, from_dict::<Progress>(dict)) else { continue };
            let seconds = now_us.saturating_sub(task.at_us) as f64 / 1e6;
            if task.at_us > 0 && seconds > 0.0 {
                task.rate = progress.moved_bytes.saturating_sub(task.progress.moved_bytes) as f64 / seconds;
            }
            (task.progress, task.at_us) = (progress, now_us);
        }
    }

    pub(crate) fn typed(&mut self, field: Field, text: &str) {
        self.typed.insert(field, text[..text.floor_char_boundary(TYPED)].to_owned());
    }

    pub(crate) fn choose(&mut self, choice: Choice, chosen: usize) {
        match choice {
            Choice::Test => self.test = chosen.min(measure::TESTS.len() - 1),
        }
    }

    pub(crate) fn await_place(&mut self, files: Vec<String>) {
        self.waiting = files;
    }

    pub(crate) fn compared(&mut self, pairing: String) {
        self.compared.insert(pairing);
    }

    fn text(&self, field: Field) -> &str {
        self.typed.get(&field).map_or("", String::as_str)
    }

    fn error(&self, topic: &str) -> Option<&String> {
        self.errors.get(topic)
    }

    /// The same as a row of its own.
    fn refused(&self, topic: &str, id: &str) -> Option<Row> {
        let row = |why: &String| Row { id: id.into(), title: why.clone(), mood: Mood::Trouble, ..Row::default() };
        self.error(topic).map(row)
    }

    /// A button that is dead while what it asks for is under way, or where `can` says so.
    fn button(&self, label: String, name: String, ask: Ask, can: bool) -> Button {
        let works = can && !self.busy.contains(&ask);
        Button { label, name, works, action: Action::User(ask) }
    }

    /// Why there is nothing to show, if the service is not there.
    fn absent(&self) -> Option<Empty> {
        let text = tr("Type in a terminal: systemctl --user start linkspan-user\nThe bus said: {why}");
        match &self.service {
            Service::Up(_) => None,
            Service::Asked => Some(Empty {
                icon: "network-transmit-receive-symbolic",
                title: tr("Asking your service"),
                text: tr("linkspand --user does this for you."),
                button: None,
            }),
            Service::Down(why) => Some(Empty {
                icon: "network-error-symbolic",
                title: tr("Your service does not run"),
                text: fill(&text, &[("why", why)]),
                button: Some(Button {
                    label: tr("Try Again"),
                    name: tr("Try Again"),
                    action: Action::Retry,
                    works: true,
                }),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
