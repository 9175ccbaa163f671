//! What `lspan devmem up` changed on a card, written down before it is changed: a process that was killed undoes nothing, and the
//! next one does it from here.
//!
//! The file is locked by the running process. Its lines say what was before each change, and which rules there are; a last line
//! without its end was never finished. When most lines are of rules that have ended, another file without them takes its place.
//! When everything is undone it is empty.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use linkspan_netdev::{HeaderSplit, Rings};

use super::card::Card;
use super::up::{CardState, Change};

/// The first line.
const TITLE: &str = "linkspan devmem journal 1";

/// Longest file: a table of 4096 queues, and ten lines for each rule that there can be.
const MOST: u64 = 16 << 20;

/// Lines about rules for each rule that there is, and some more, before the file is written anew.
const LINES: usize = 10;
const MORE: usize = 100;

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
    text: Rc<RefCell<Text>>,
}

#[derive(Debug)]
struct Text {
    path: PathBuf,
    file: File,
    /// What was before each change.
    head: String,
    streams: BTreeSet<u32>,
    /// Lines about streams.
    lines: usize,
}

impl Text {
    /// One more line about a stream.
    fn add(&mut self, word: &str, number: u32) -> io::Result<()> {
        // In one call: a kill comes before it or after it.
        self.file.write_all(format!("{word} {number}\n").as_bytes())?;
        self.lines += 1;
        if self.lines > LINES * self.streams.len() + MORE {
            // Where there is no space for another file this one goes on.
            let _ = self.replace();
        }
        Ok(())
    }

    /// Another file, locked, takes the place of this one.
    fn replace(&mut self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.try_lock()?;
        let streams: String = self.streams.iter().map(|number| format!("stream {number}\n")).collect();
        file.write_all(format!("{}{streams}", self.head).as_bytes())?;
        std::fs::rename(&new, &self.path)?;
        (self.file, self.lines) = (file, self.streams.len());
        Ok(())
    }
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
        let (meta, now) = (file.metadata().map_err(|e| no("stat", &e))?, std::fs::metadata(&path));
        if !now.is_ok_and(|now| now.ino() == meta.ino()) {
            // A running process has put another file in its place since.
            return Err(Unopened::Running);
        }
        if meta.len() > MOST {
            let why =
                format!("{} bytes, more than {MOST}; what it says must be undone by hand, then remove it", meta.len());
            return Err(no("read", &why));
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
        let text = Text { path, file, head: String::new(), streams: BTreeSet::new(), lines: 0 };
        let journal = Journal { text: Rc::new(RefCell::new(text)) };
        journal.clear().map_err(Unopened::No)?;
        Ok((journal, found))
    }

    /// What will be changed is written down.
    pub(super) fn begin(&self, state: &CardState, changes: &[Change]) -> Result<(), String> {
        let lines: String = changes.iter().map(|change| line(change, state)).collect();
        let mut text = self.text.borrow_mut();
        text.head = format!("{TITLE}\n{lines}");
        let Text { path, file, head, .. } = &mut *text;
        file.write_all(head.as_bytes()).map_err(|e| format!("write {}: {e}", path.display()))
    }

    /// Everything is undone.
    pub(super) fn clear(&self) -> Result<(), String> {
        let Text { path, file, .. } = &mut *self.text.borrow_mut();
        let cleared = file.set_len(0).and_then(|()| file.rewind());
        cleared.map_err(|e| format!("empty {}: {e}", path.display()))
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
    text: Rc<RefCell<Text>>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.rule = None;
        let mut text = self.text.borrow_mut();
        text.streams.remove(&self.number);
        // A line that is missing has a rule ended that is gone already.
        let _ = text.add("gone", self.number);
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
        let mut text = self.journal.text.borrow_mut();
        text.streams.insert(number);
        if let Err(e) = text.add("stream", number) {
            text.streams.remove(&number);
            return Err(format!("write {}: {e}", text.path.display()));
        }
        Ok((number, Box::new(Stream { rule: Some(rule), number, text: self.journal.text.clone() })))
    }

    fn unsteer(&self, rule: u32) -> Result<(), String> {
        self.card.unsteer(rule)
    }
}

#[cfg(test)]
mod tests;
