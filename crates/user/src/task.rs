//! What a user's service does for programs, each with its progress and its end: a bounded number at a time, and a bounded history on
//! the disk.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linkspan_net::Notifier;
use linkspan_perf::Interrupt;
use linkspan_perf::record::Row;
use serde::Serialize;
use serde_json::{Value, json};

use crate::Error;
use crate::mirror::Ends;

/// Most tasks at a time. A transfer has some threads and a pool of slots.
pub const TASKS: usize = 64;

/// Records of tasks that have ended, of which the oldest go.
pub const HISTORY: usize = 256;

/// Longest history that is written and read, bytes: a record of all five tests has about 20 KiB.
const HISTORY_MAX: u64 = 32 << 20;

/// Notes that a task keeps.
const NOTES: usize = 16;

/// Gets what is worth a line.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Measures; one at a time, as two would measure each other.
    Test,
    /// Sends files.
    Send,
    /// Gets files.
    Get,
    /// Keeps a directory like another.
    Mirror,
    /// Has a place of a peer mounted.
    Mount,
    /// Waits for somebody to pair with, or joins.
    Pair,
}

impl Kind {
    /// As in records.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Test => "test",
            Kind::Send => "send",
            Kind::Get => "get",
            Kind::Mirror => "mirror",
            Kind::Mount => "mount",
            Kind::Pair => "pair",
        }
    }
}

/// Numbers of a test.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measured {
    /// Measurements that were made.
    pub done: u32,
    /// Of how many.
    pub of: u32,
    /// What is being measured, in words.
    pub measuring: String,
    /// Those that were made, without their histograms.
    pub results: Vec<Row>,
}

/// Numbers of a transfer, or of the last run of a mirror.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Moved {
    /// Bytes of content that crossed the link.
    pub moved_bytes: u64,
    /// Bytes that did not have to.
    pub kept_bytes: u64,
    /// Bytes of all of it, once they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Files that have arrived.
    pub files_done: u64,
    /// Directories and links.
    pub entries_made: u64,
    /// Entries that were there.
    pub entries_same: u64,
    /// Entries that a dry run would send or make.
    pub entries_would: u64,
    /// Entries that went to the trash.
    pub entries_deleted: u64,
    /// Entries that failed.
    pub entries_failed: u64,
    /// Entries of which something does not travel.
    pub entries_left_out: u64,
    /// The last file that has arrived.
    pub current: String,
}

/// Of a pairing that was made.
#[derive(Clone, Debug, Serialize)]
pub struct PairedWith {
    /// What the peer is called here.
    pub name: String,
    /// What it calls itself.
    pub calls_itself: String,
    /// The same on both sides.
    pub fingerprint: String,
    /// It has said that it has stored our key.
    pub confirmed: bool,
}

/// How far a task is.
#[derive(Clone, Debug, Serialize)]
pub struct Progress {
    /// `connecting`, `running`, `waiting` (for the peer, which is away), `watching` (a mirror), `mounted`; at its end `done`, `failed` or
    /// `cancelled`.
    pub state: &'static str,
    /// What carries it; empty: nothing yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// What else is worth a line, the last ones.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub notes: VecDeque<String>,
    /// Of a test.
    #[serde(flatten)]
    pub test: Option<Measured>,
    /// Of a transfer or mirror.
    #[serde(flatten)]
    pub moved: Option<Moved>,
    /// Of a pairing.
    #[serde(flatten)]
    pub paired: Option<PairedWith>,
    /// Of a transfer or mirror: the options with which it goes on after it was cancelled, or has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

impl Progress {
    /// One note more, the oldest goes where there are many.
    pub fn note(&mut self, line: &str) {
        if self.notes.len() == NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(line.to_owned());
    }

    /// Numbers of a transfer.
    pub fn moved(&mut self) -> &mut Moved {
        self.moved.get_or_insert_default()
    }
}

/// One that runs.
#[derive(Debug)]
pub struct Task {
    /// Never that of another one in the history.
    pub id: u64,
    /// What it does.
    pub kind: Kind,
    /// With whom, as asked.
    pub peer: String,
    /// The other words of what was asked.
    pub arguments: Vec<String>,
    /// Seconds since 1970.
    pub started: u64,
    pub(crate) interrupt: Interrupt,
    /// It goes on with the next start of the service.
    pub(crate) kept: AtomicBool,
    wake: Notifier,
    progress: Mutex<Progress>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl Task {
    /// Has it end soon; a mount when no program has anything open there.
    pub fn cancel(&self) {
        self.interrupt.raise();
        self.wake.signal();
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        locked(&self.progress).clone()
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut locked(&self.progress));
    }

    /// Whether it is to end, for those who ask.
    pub(crate) fn stop(&self) -> impl Fn() -> bool + Clone + Send + Sync + 'static {
        let interrupt = self.interrupt.clone();
        move || interrupt.raised()
    }

    /// Can be read when it was cancelled, until it is drained.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(crate) fn drain(&self) {
        self.wake.drain();
    }

    fn is_over(&self) -> bool {
        matches!(self.progress().state, "done" | "failed" | "cancelled")
    }

    fn record(&self, error: Option<&str>) -> Value {
        let own = json!({ "id": self.id, "kind": self.kind, "peer": self.peer, "arguments": self.arguments,
            "started_unix_s": self.started, "ended_unix_s": self.is_over().then(now), "error": error });
        let (mut record, rest) = (own, serde_json::to_value(self.progress()).unwrap_or_default());
        if let (Some(record), Value::Object(rest)) = (record.as_object_mut(), rest) {
            record.extend(rest);
            record.retain(|_, value| !value.is_null());
        }
        record
    }
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    running: BTreeMap<u64, Arc<Task>>,
    /// The service ends.
    ending: bool,
    /// What nobody has been told of yet. No more than run at a time, as those who start them are told.
    ended: Vec<Value>,
}

/// All of one user. May be used from any thread.
pub struct Tasks {
    inner: Mutex<Inner>,
    one_ended: Condvar,
    history: Mutex<VecDeque<Value>>,
    file: PathBuf,
    say: Say,
    changed: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The records of a file, as far as they are some, and whether one of them is another one now: one that has no end was cut with its
/// service.
fn read(file: &std::path::Path) -> (VecDeque<Value>, bool) {
    use std::io::{Read, Seek, SeekFrom};
    let mut bytes = Vec::new();
    if let Ok(mut file) = std::fs::File::open(file) {
        // The newest ones are at its end.
        let before = file.metadata().map_or(0, |is| is.len().saturating_sub(HISTORY_MAX));
        let _ = file.seek(SeekFrom::Start(before)).and_then(|_| file.take(HISTORY_MAX).read_to_end(&mut bytes));
    }
    let records = bytes.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let mut records: VecDeque<Value> = records.filter(|record| record["id"].is_u64()).collect();
    records.drain(..records.len().saturating_sub(HISTORY));
    let mut cut = false;
    for record in records.iter_mut().filter(|record| record["ended_unix_s"].is_null()) {
        cut = true;
        let why = "LS1855 the service was killed meanwhile: ask for it again, and it goes on where it was";
        (record["state"], record["error"]) = ("failed".into(), why.into());
        record["ended_unix_s"] = now().into();
    }
    (records, cut)
}

impl Tasks {
    /// With the history in this file. `changed` is called when a task has ended.
    pub fn new(file: PathBuf, say: Say, changed: Box<dyn Fn() + Send + Sync>) -> Tasks {
        let (history, cut) = read(&file);
        let next = history.iter().filter_map(|record| record["id"].as_u64()).max().unwrap_or(0).saturating_add(1);
        let inner = Mutex::new(Inner { next, ..Inner::default() });
        let tasks = Tasks { inner, one_ended: Condvar::new(), history: Mutex::new(history), file, say, changed };
        if cut {
            tasks.keep(None);
        }
        tasks
    }

    /// A place for one more, which [`Tasks::start`] fills.
    ///
    /// # Errors
    /// [`Error::Limit`]: too many run, or a test does, or the service ends.
    pub fn prepare(&self, kind: Kind, peer: &str, arguments: Vec<String>) -> Result<Arc<Task>, Error> {
        let wake = Notifier::new().map_err(|error| Error::system("eventfd", error))?;
        let mut inner = locked(&self.inner);
        if inner.ending {
            return Err(Error::Limit("LS1857 the service ends: ask again once it runs again".into()));
        }
        if inner.running.len() >= TASKS {
            return Err(Error::Limit(format!(
                "LS1841 {TASKS} tasks are under way already; wait for one, or cancel it"
            )));
        }
        if kind == Kind::Test && inner.running.values().any(|task| task.kind == Kind::Test) {
            let text =
                "LS1842 a test is under way already, and two would measure each other; wait for it, or cancel it";
            return Err(Error::Limit(text.into()));
        }
        let ends = (kind == Kind::Mirror).then(|| Ends::plain(&arguments)).flatten();
        let same_ends = |words: &[String]| words == arguments || (ends.is_some() && Ends::plain(words) == ends);
        let same = |task: &&Arc<Task>| task.kind == kind && !task.interrupt.raised() && same_ends(&task.arguments);
        if kind == Kind::Mirror
            && let Some(task) = inner.running.values().find(same)
        {
            let text = format!("LS1853 this mirror runs already, as task {}; cancel it to have another one", task.id);
            return Err(Error::Limit(text));
        }
        let progress = Progress {
            state: "connecting",
            path: String::new(),
            notes: VecDeque::new(),
            test: (kind == Kind::Test).then(Measured::default),
            moved: matches!(kind, Kind::Send | Kind::Get | Kind::Mirror).then(Moved::default),
            paired: None,
            options: None,
        };
        let task = Arc::new(Task {
            id: inner.next,
            kind,
            peer: peer.to_owned(),
            arguments,
            started: now(),
            interrupt: Interrupt::new(),
            kept: AtomicBool::new(false),
            wake,
            progress: Mutex::new(progress),
        });
        inner.next += 1;
        inner.running.insert(task.id, task.clone());
        Ok(task)
    }

    /// Runs what was prepared, in a thread of its own.
    pub fn start(
        self: &Arc<Tasks>,
        task: &Arc<Task>,
        run: impl FnOnce(&Arc<Task>) -> Result<(), Error> + Send + 'static,
    ) {
        let (tasks, own) = (self.clone(), task.clone());
        let body = move || {
            let ran = std::panic::catch_unwind(AssertUnwindSafe(|| run(&own)));
            let ran = ran.unwrap_or_else(|_| Err(Error::Incomplete("LS1845 a part of the service failed".into())));
            tasks.ended(&own, ran);
        };
        if let Err(error) = std::thread::Builder::new().name("task".into()).spawn(body) {
            self.ended(task, Err(Error::system("a thread", error)));
        }
    }

    fn ended(&self, task: &Task, ran: Result<(), Error>) {
        let error = ran.err().map(|error| error.text());
        // One that watches has no other end than that it is stopped, or fails.
        let watched = task.kind == Kind::Mirror && task.progress().options.is_some_and(|how| how["watch"] == true);
        task.update(|progress| {
            progress.state = match &error {
                None if !watched => "done",
                _ if task.interrupt.raised() => "cancelled",
                None => "done",
                Some(_) => "failed",
            };
        });
        let record = task.record(error.as_deref());
        // One that goes on with the next start has not come to its end.
        let goes_on = task.kept.load(Ordering::Acquire) && task.interrupt.raised() && locked(&self.inner).ending;
        if !goes_on {
            self.keep(Some(&record));
        }
        let mut inner = locked(&self.inner);
        inner.running.remove(&task.id);
        inner.ended.push(record);
        drop(inner);
        self.one_ended.notify_all();
        (self.changed)();
    }

    /// Has a transfer that begins in the file, so that it is known of after the service was killed.
    pub(crate) fn begun(&self) {
        self.keep(None);
    }

    fn keep(&self, ended: Option<&Value>) {
        let mut history = locked(&self.history);
        if let Some(record) = ended {
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(record.clone());
        }
        let under_way = self.running().into_iter().filter(|task| matches!(task.kind, Kind::Send | Kind::Get));
        let under_way: Vec<Value> = under_way.filter(|task| !task.is_over()).map(|task| task.record(None)).collect();
        let line = |record: &Value| format!("{record}\n");
        let (mut lines, under_way): (VecDeque<String>, String) =
            (history.iter().map(line).collect(), under_way.iter().map(line).collect());
        let mut bytes = under_way.len() + lines.iter().map(String::len).sum::<usize>();
        while bytes as u64 > HISTORY_MAX
            && let Some(oldest) = lines.pop_front()
        {
            bytes -= oldest.len();
            history.pop_front();
        }
        lines.push_back(under_way);
        if let Err(error) = crate::replace(&self.file, lines.make_contiguous().concat().as_bytes(), 0o600) {
            (self.say)(&format!("LS1846 {} cannot be written: {error}", self.file.display()));
        }
    }

    /// Those that run, in the order of their start.
    pub fn running(&self) -> Vec<Arc<Task>> {
        locked(&self.inner).running.values().cloned().collect()
    }

    /// Records of those that have ended since the last call.
    pub fn take_ended(&self) -> Vec<Value> {
        std::mem::take(&mut locked(&self.inner).ended)
    }

    /// Records of those that have ended, newest first; 0: all that are kept.
    pub fn history(&self, most: usize) -> Vec<Value> {
        let most = if most == 0 { HISTORY } else { most };
        locked(&self.history).iter().rev().take(most).cloned().collect()
    }

    /// Cancels all, and waits for their ends as long as this.
    pub fn end(&self, patience: Duration) {
        locked(&self.inner).ending = true;
        self.running().iter().for_each(|task| task.cancel());
        let until = Instant::now() + patience;
        let mut inner = locked(&self.inner);
        while !inner.running.is_empty() {
            let Some(rest) = until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) else {
                return;
            };
            inner = self.one_ended.wait_timeout(inner, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests;
