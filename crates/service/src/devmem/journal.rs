//! What `lspan devmem up` changed on a card, written down before it is changed: a process that was killed undoes nothing, and the
//! next one does it from here.
//!
//! The file is locked by the running process. Its lines say what was before each change, and which streams have rules, each from before
//! its rule is made until that has ended; a last line without its end was never finished. When most lines are of rules that have ended,
//! another file without them takes its place. When everything is undone it is empty.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use linkspan_netdev::{HeaderSplit, Rings};

use super::card::Card;
use super::up::{CardState, Change};

/// The first line.
const TITLE: &str = "linkspan devmem journal 2";

/// Longest file: a table of 4096 queues, and two lines of 100 bytes for each rule that there can be.
const MOST: u64 = 16 << 20;

/// Lines about rules for each rule that there is, and some more, before the file is written anew.
const LINES: usize = 2;
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
    text: RefCell<Text>,
}

/// A stream that is steered: this host's end, the peer's.
type Stream = (SocketAddr, SocketAddr);

#[derive(Debug)]
struct Text {
    path: PathBuf,
    file: File,
    /// What was before each change.
    head: String,
    /// How many rules each has, and all together.
    streams: BTreeMap<Stream, usize>,
    rules: usize,
    /// Lines about streams.
    lines: usize,
}

fn add(streams: &mut BTreeMap<Stream, usize>, stream: Stream) {
    *streams.entry(stream).or_default() += 1;
}

/// Whether there was one.
fn take(streams: &mut BTreeMap<Stream, usize>, stream: Stream) -> bool {
    let Some(count) = streams.get_mut(&stream) else { return false };
    *count -= 1;
    if *count == 0 {
        streams.remove(&stream);
    }
    true
}

impl Text {
    /// One more line about a stream.
    fn add(&mut self, word: &str, (local, peer): Stream) -> io::Result<()> {
        let at = self.file.stream_position()?;
        // In one call: a kill comes before it or after it.
        if let Err(error) = self.file.write_all(format!("{word} {local} {peer}\n").as_bytes()) {
            // Half a line, of a full disk, and the next one would be one line.
            self.file.set_len(at)?;
            self.file.seek(SeekFrom::Start(at))?;
            return Err(error);
        }
        self.lines += 1;
        if self.lines > LINES * self.rules + MORE {
            // Where there is no space for another file this one goes on.
            let _ = self.replace();
        }
        Ok(())
    }

    /// A rule of it stands no more.
    fn gone(&mut self, stream: Stream) {
        if take(&mut self.streams, stream) {
            self.rules -= 1;
            // A line that is missing has a rule looked for that is gone already.
            let _ = self.add("gone", stream);
        }
    }

    /// Another file, locked, takes the place of this one.
    fn replace(&mut self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.try_lock()?;
        let line = |((local, peer), count): (&Stream, &usize)| format!("stream {local} {peer}\n").repeat(*count);
        let streams: String = self.streams.iter().map(line).collect();
        file.write_all(format!("{}{streams}", self.head).as_bytes())?;
        std::fs::rename(&new, &self.path)?;
        (self.file, self.lines) = (file, self.rules);
        Ok(())
    }
}

/// Ends whatever rules a stream has.
fn end(card: &dyn Card, (local, peer): Stream) -> Result<(), String> {
    card.unsteer(None, local, peer).map_err(|why| format!("the rule of the stream {peer} -> {local}: {why}"))
}

/// What a journal says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    rules: bool,
    split: Option<(bool, Option<u32>)>,
    table: Option<Vec<u32>>,
    streams: BTreeMap<Stream, usize>,
}

impl Left {
    /// Of the lines that are whole. An unknown one ends it: what it stands for cannot be undone by us.
    fn read(text: &str) -> Result<Left, String> {
        let mut left = Left::default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for (n, line) in whole.lines().enumerate() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            let mut numbers = rest.split(' ').filter(|word| !word.is_empty()).map(str::parse::<u32>);
            let bad = || format!("line {} is unknown: {line:?}", n + 1);
            let stream = || -> Option<Stream> {
                let (local, peer) = rest.split_once(' ')?;
                local.parse().ok().zip(peer.parse().ok())
            };
            match kind {
                _ if n == 0 && line == TITLE => {}
                "rules" => left.rules = true,
                "split" => {
                    let on = numbers.next().ok_or_else(bad)?.map_err(|_| bad())?;
                    left.split = Some((on != 0, numbers.next().transpose().map_err(|_| bad())?));
                }
                "table" => left.table = Some(numbers.collect::<Result<_, _>>().map_err(|_| bad())?),
                "stream" => add(&mut left.streams, stream().ok_or_else(bad)?),
                "gone" => _ = take(&mut left.streams, stream().ok_or_else(bad)?),
                _ => return Err(bad()),
            }
        }
        Ok(left)
    }

    /// Makes the card as it was, all that can be: what could not.
    fn undo(&self, card: &dyn Card) -> Vec<String> {
        let streams = self.streams.keys().map(|&stream| end(card, stream));
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
        let text = Text { path, file, head: String::new(), streams: BTreeMap::new(), rules: 0, lines: 0 };
        let journal = Journal { text: RefCell::new(text) };
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

    /// Ends the rules that still stand: what could not.
    pub(super) fn end_streams(&self, card: &dyn Card) -> Vec<String> {
        let streams = &mut self.text.borrow_mut().streams;
        let mut failed = Vec::new();
        streams.retain(|&stream, _| {
            let ended = end(card, stream);
            let stands = ended.is_err();
            failed.extend(ended.err());
            stands
        });
        failed
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

    fn steer(&self, local: SocketAddr, peer: SocketAddr, queue: u32) -> Result<u32, String> {
        let mut text = self.journal.text.borrow_mut();
        add(&mut text.streams, (local, peer));
        text.rules += 1;
        let steered = match text.add("stream", (local, peer)) {
            Ok(()) => self.card.steer(local, peer, queue),
            Err(e) => Err(format!("write {}: {e}", text.path.display())),
        };
        if steered.is_err() {
            text.gone((local, peer));
        }
        steered
    }

    fn unsteer(&self, place: Option<u32>, local: SocketAddr, peer: SocketAddr) -> Result<(), String> {
        self.card.unsteer(place, local, peer)?;
        self.journal.text.borrow_mut().gone((local, peer));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
