//! What `lspan devmem up` changed on a card, written down before it is changed: a process that was killed undoes nothing, and the
//! next one does it from here.
//!
//! The file is locked by the running process. Its lines say what was before each change, and which rules there are; a last line
//! without its end was never finished. When everything is undone it is empty.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use linkspan_netdev::{HeaderSplit, Rings};

use super::card::Card;
use super::up::{CardState, Change};

/// The first line.
const TITLE: &str = "linkspan devmem journal 1";

/// Longest file: a table of 4096 queues and as many rules as ever.
const MOST: u64 = 16 << 20;

/// Why a journal cannot be had.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unopened {
    /// Its process is running.
    Running,
    /// The reason.
    No(String),
}

/// The journal of an interface, locked while this lives.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: Rc<RefCell<File>>,
}

/// What a journal says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    rules: bool,
    split: Option<(bool, Option<u32>)>,
    table: Option<Vec<u32>>,
    streams: BTreeSet<u32>,
}

impl Left {
    /// Of the lines that are whole. An unknown one ends it: what it stands for cannot be undone by us.
    fn read(text: &str) -> Result<Left, String> {
        let mut left = Left::default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for (n, line) in whole.lines().enumerate() {
            let mut words = line.split(' ');
            let (kind, mut numbers) = (words.next().unwrap_or_default(), words.map(str::parse::<u32>));
            let bad = || format!("line {} is unknown: {line:?}", n + 1);
            match kind {
                _ if n == 0 && line == TITLE => {}
                "rules" => left.rules = true,
                "split" => {
                    let on = numbers.next().ok_or_else(bad)?.map_err(|_| bad())?;
                    left.split = Some((on != 0, numbers.next().transpose().map_err(|_| bad())?));
                }
                "table" => left.table = Some(numbers.collect::<Result<_, _>>().map_err(|_| bad())?),
                "stream" => {
                    left.streams.insert(numbers.next().ok_or_else(bad)?.map_err(|_| bad())?);
                }
                "gone" => {
                    left.streams.remove(&numbers.next().ok_or_else(bad)?.map_err(|_| bad())?);
                }
                _ => return Err(bad()),
            }
        }
        Ok(left)
    }

    /// Makes the card as it was, all that can be: what could not.
    fn undo(&self, card: &dyn Card) -> Vec<String> {
        let streams = self.streams.iter().map(|&rule| card.unsteer(rule));
        let table = self.table.iter().map(|table| card.set_spread(table));
        let split = self.split.iter().map(|&(on, threshold)| card.split(on, threshold));
        let rules = self.rules.then(|| card.take_rules(false)).into_iter();
        streams.chain(table).chain(split).chain(rules).filter_map(Result::err).collect()
    }
}

/// The line that says what was before a change.
fn line(change: &Change, state: &CardState) -> String {
    match change {
        Change::Rules => "rules\n".to_owned(),
        Change::Split { .. } => {
            let Rings { split, threshold, .. } = state.rings;
            let threshold = threshold.map(|n| format!(" {n}")).unwrap_or_default();
            format!("split {}{threshold}\n", u32::from(split == HeaderSplit::On))
        }
        Change::Spread { .. } => {
            let table: Vec<String> = state.table.iter().map(u32::to_string).collect();
            format!("table {}\n", table.join(" "))
        }
    }
}

impl Journal {
    /// Opens the journal of an interface in this folder, and undoes what a process that was killed has left. Returns whether
    /// there was anything.
    pub(super) fn open(folder: &Path, interface: &str, card: &dyn Card) -> Result<(Journal, bool), Unopened> {
        let path = folder.join(format!("devmem-{interface}.journal"));
        let no = |what: &str, e: &dyn std::fmt::Display| Unopened::No(format!("{what} {}: {e}", path.display()));
        super::make_folder(folder).map_err(|e| no("the folder of", &e))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(|e| no("open", &e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Unopened::Running),
            Err(TryLockError::Error(e)) => return Err(no("lock", &e)),
        }
        let mut text = String::new();
        (&mut file).take(MOST).read_to_string(&mut text).map_err(|e| no("read", &e))?;
        let left = Left::read(&text)
            .map_err(|why| no("read", &format!("{why}; what it says must be undone by hand, then remove it")))?;
        let found = left != Left::default();
        let failed = left.undo(card);
        if !failed.is_empty() {
            let why = failed.join("; ");
            let way = "undo it by hand and remove the file";
            return Err(no("undoing what is left in", &format!("{why}; {way}")));
        }
        let journal = Journal { path, file: Rc::new(RefCell::new(file)) };
        journal.clear().map_err(Unopened::No)?;
        Ok((journal, found))
    }

    /// What will be changed is written down.
    pub(super) fn begin(&self, state: &CardState, changes: &[Change]) -> Result<(), String> {
        let lines: String = changes.iter().map(|change| line(change, state)).collect();
        let text = format!("{TITLE}\n{lines}");
        self.file.borrow_mut().write_all(text.as_bytes()).map_err(|e| format!("write {}: {e}", self.path.display()))
    }

    /// Everything is undone.
    pub(super) fn clear(&self) -> Result<(), String> {
        let mut file = self.file.borrow_mut();
        let cleared = file.set_len(0).and_then(|()| file.rewind());
        cleared.map_err(|e| format!("empty {}: {e}", self.path.display()))
    }
}

/// A card whose rules are written down as they come and go.
pub(super) struct Noted<'a> {
    pub(super) card: &'a dyn Card,
    pub(super) journal: &'a Journal,
}

/// A rule. It ends before its line says so.
struct Stream {
    rule: Option<Box<dyn Any>>,
    number: u32,
    file: Rc<RefCell<File>>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.rule = None;
        // A line that is missing has a rule ended that is gone already.
        let _ = writeln!(self.file.borrow_mut(), "gone {}", self.number);
    }
}

impl Card for Noted<'_> {
    fn queues(&self) -> Result<u32, String> {
        self.card.queues()
    }

    fn rings(&self) -> Result<Rings, String> {
        self.card.rings()
    }

    fn split(&self, on: bool, threshold: Option<u32>) -> Result<(), String> {
        self.card.split(on, threshold)
    }

    fn spread(&self) -> Result<Vec<u32>, String> {
        self.card.spread()
    }

    fn set_spread(&self, table: &[u32]) -> Result<(), String> {
        self.card.set_spread(table)
    }

    fn takes_rules(&self) -> Result<bool, String> {
        self.card.takes_rules()
    }

    fn take_rules(&self, on: bool) -> Result<(), String> {
        self.card.take_rules(on)
    }

    fn bind(&self, queues: &[u32], dmabuf: BorrowedFd<'_>) -> Result<(u32, Box<dyn Any>), String> {
        self.card.bind(queues, dmabuf)
    }

    fn steer(&self, local: SocketAddr, peer: SocketAddr, queue: u32) -> Result<(u32, Box<dyn Any>), String> {
        let (number, rule) = self.card.steer(local, peer, queue)?;
        let noted = writeln!(self.journal.file.borrow_mut(), "stream {number}");
        noted.map_err(|e| format!("write {}: {e}", self.journal.path.display()))?;
        let file = self.journal.file.clone();
        Ok((number, Box::new(Stream { rule: Some(rule), number, file })))
    }

    fn unsteer(&self, rule: u32) -> Result<(), String> {
        self.card.unsteer(rule)
    }
}

#[cfg(test)]
mod tests;
