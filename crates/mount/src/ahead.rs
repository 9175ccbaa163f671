//! An open file of the peer: writing to it, reading from it, and ahead of whoever reads it from front to back. Everything that is
//! to be read is asked for at once; the answers come in the same order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fuser::Errno;
use linkspan_files::client::Client;
use linkspan_files::fs::{Change, OpenHow, Time};
use linkspan_files::wire::{Answer, Entry, Fault, FaultKind, READ_MAX, Request};
use linkspan_files::{Error, lock};

use crate::Shared;
use crate::courier::errno;
use crate::nodes::{Edits, number};
use crate::pending::{Pending, Reply, Ticket};

/// Bytes of what is read ahead at a time: what the kernel asks for at most (fuse(4)), so that an answer is mostly one piece.
const PIECE: u64 = 128 << 10;

/// Pieces read ahead of one file, and of all files of a mount.
const PIECES: usize = 12;
const ALL_PIECES: usize = 96;

/// Pieces that are asked for together.
const GROUP: usize = 4;

/// Requests that are not answered, about: they and what they hold are fewer than a session keeps under way (1 MiB of 8 KiB each).
const UNDER_WAY_MAX: usize = 64;

/// Reads this near to where the last one ended go on from it: the kernel has several under way, and they overtake each other.
const NEAR: u64 = 1 << 20;

/// Reads in a row after which a file is read ahead.
const RUN: u32 = 2;

/// How long what was read ahead is given out: readers of 26 kB/s and more come to it before. It is long for those who ask for the same bytes
/// again and again (O_DIRECT) and for no attributes.
const FRESH: Duration = Duration::from_secs(60);

/// What is read ahead, counted while it lives.
#[derive(Debug)]
struct Piece {
    offset: u64,
    asked: Instant,
    /// `None`: it was asked for and has not come.
    bytes: Option<Arc<Vec<u8>>>,
}

impl Piece {
    fn new(offset: u64) -> Piece {
        HELD.fetch_add(1, Ordering::Relaxed);
        Piece { offset, asked: Instant::now(), bytes: None }
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes.as_ref().map_or(PIECE, |bytes| bytes.len() as u64)
    }
}

static HELD: AtomicUsize = AtomicUsize::new(0);

impl Drop for Piece {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The answer to an open.
pub(crate) struct Opened {
    pub(crate) handle: u32,
    pub(crate) entry: Entry,
    pub(crate) born: Time,
    /// A later change has another time.
    pub(crate) settled: bool,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    view: Shared,
    number: u64,
    how: OpenHow,
    /// Device and number there, and when it was made: numbers are used again.
    which: (u64, u64, Time),
    /// Of its number.
    generation: u64,
    handle: u32,
    epoch: u64,
    edits: Arc<Edits>,
    /// How many of them what was read ahead has seen.
    seen: u64,
    /// Where the last read ended, and how many in a row have begun there.
    next: u64,
    run: u32,
    /// Without gaps.
    ahead: VecDeque<Piece>,
    /// Reads of what was asked for and has not come.
    waiting: Vec<Read>,
    /// Nothing follows what was read ahead.
    ended: bool,
}

/// What a read finds.
enum Found {
    /// All of it.
    Whole(Vec<u8>),
    /// All of it in one piece, from this byte of it on.
    Piece(Arc<Vec<u8>>, usize),
    /// It is under way.
    UnderWay,
    /// It has to be asked for.
    Nothing,
}

impl OpenFile {
    /// Open under this handle in the session of this epoch, and one to be opened anew where another one is.
    pub(crate) fn new(view: Shared, how: OpenHow, opened: &Opened, epoch: u64) -> OpenFile {
        let Opened { handle, ref entry, born, .. } = *opened;
        let number = number(entry);
        let (ahead, waiting, edits) = (VecDeque::new(), Vec::new(), view.edits(number));
        let OpenHow { read, write, .. } = how;
        let (which, how) = ((entry.dev, entry.ino, born), OpenHow { read, write, again: true, ..OpenHow::default() });
        let (seen, generation, next, run, ended) = (edits.count(), view.generation(number), 0, 0, false);
        OpenFile { view, number, how, which, generation, handle, epoch, edits, seen, next, run, ahead, waiting, ended }
    }

    /// Its number in the session of this epoch, where it is open there.
    pub(crate) fn handle(&self, epoch: u64) -> Option<u32> {
        (self.epoch == epoch).then_some(self.handle)
    }

    /// It was open in a session before, and what has its number now is another file, of which the kernel does not know.
    pub(crate) fn is_gone(&self, epoch: u64, opened: &Opened) -> bool {
        let Opened { entry, born, .. } = opened;
        let is_it = (entry.dev, entry.ino, *born) == self.which;
        self.epoch != epoch && !is_it && self.generation == self.view.generation(self.number)
    }

    /// Forgets what was read ahead. Reads that wait for it are handed out.
    fn forget(&mut self) -> Vec<Read> {
        self.ahead.clear();
        self.ended = false;
        std::mem::take(&mut self.waiting)
    }

    /// What was read ahead of a content that is another by now is of no use, nor is what is old. Who waits for some of it asks when that has come.
    fn renew(&mut self) {
        let count = self.edits.count();
        if count != self.seen {
            self.seen = count;
            self.ahead.clear();
            self.ended = false;
        }
        while self.ahead.front().is_some_and(|first| first.bytes.is_some() && first.asked.elapsed() >= FRESH) {
            self.ahead.pop_front();
        }
    }

    /// Notes where it is read.
    fn note(&mut self, offset: u64, size: u32) {
        self.renew();
        if offset + NEAR >= self.next && offset <= self.next + NEAR {
            self.run = self.run.saturating_add(1);
        } else {
            self.run = 0;
            self.drop_to(u64::MAX);
            self.ended = false;
            self.next = offset;
        }
        self.next = self.next.max(offset + u64::from(size));
        // What is a little behind may still be asked for.
        self.drop_to(self.next.saturating_sub(NEAR));
        // What was passed by is of no use.
        if self.ahead.back().is_some_and(|last| last.end() < self.next) && self.waiting.is_empty() {
            self.ahead.clear();
        }
    }

    /// Drops pieces that end before this byte. A piece that somebody waits for stays.
    fn drop_to(&mut self, keep: u64) {
        while let Some(first) = self.ahead.front()
            && first.end() <= keep
            && !self.waiting.iter().any(|read| read.offset < first.end())
        {
            self.ahead.pop_front();
        }
    }

    /// What is known of these bytes.
    fn find(&mut self, offset: u64, size: u32) -> Found {
        self.renew();
        let end = offset + u64::from(size);
        let Some(first) = self.ahead.iter().position(|piece| (piece.offset..piece.end()).contains(&offset)) else {
            return Found::Nothing;
        };
        if let Some(bytes) = &self.ahead[first].bytes
            && end <= self.ahead[first].end()
        {
            return Found::Piece(bytes.clone(), (offset - self.ahead[first].offset) as usize);
        }
        let mut out = Vec::with_capacity(size as usize);
        for piece in self.ahead.range(first..) {
            let Some(bytes) = &piece.bytes else { return Found::UnderWay };
            let from = (offset + out.len() as u64 - piece.offset) as usize;
            out.extend_from_slice(&bytes[from..bytes.len().min(from + size as usize - out.len())]);
            if out.len() == size as usize {
                return Found::Whole(out);
            }
        }
        // A piece that is short is the last one of the file.
        let last = self.ahead.back().and_then(|last| last.bytes.as_ref());
        if last.is_some_and(|last| (last.len() as u64) < PIECE) { Found::Whole(out) } else { Found::Nothing }
    }

    /// Whether so much is missing that a group of pieces is to be asked for.
    fn wants(&self) -> bool {
        self.run >= RUN && !self.ended && self.before() + GROUP <= PIECES
    }

    /// Pieces that lie before the reader.
    fn before(&self) -> usize {
        let from = self.ahead.back().map_or(self.next, Piece::end).max(self.next);
        (from - self.next).div_ceil(PIECE) as usize
    }

    /// The first byte of the next piece to be read ahead, and which content it is of.
    fn begin(&mut self) -> Option<(u64, u64)> {
        self.renew();
        let free = HELD.load(Ordering::Relaxed) < ALL_PIECES;
        if self.run < RUN || self.ended || !free || self.before() >= PIECES {
            return None;
        }
        let from = self.ahead.back().map_or(self.next, Piece::end);
        if from < self.next {
            self.ahead.clear();
        }
        let from = from.max(self.next);
        self.ahead.push_back(Piece::new(from));
        Some((from, self.seen))
    }

    /// A piece that was asked for has come, or will not.
    fn add(&mut self, (offset, seen): (u64, u64), answer: Result<Answer, Fault>) {
        let is_it = |piece: &Piece| piece.offset == offset && piece.bytes.is_none() && seen == self.seen;
        let Some(at) = self.ahead.iter().position(is_it) else { return };
        match answer {
            Ok(Answer::Bytes(bytes)) if !bytes.is_empty() && bytes.len() <= PIECE as usize => {
                self.ended = (bytes.len() as u64) < PIECE;
                self.ahead[at].bytes = Some(Arc::new(bytes));
                if self.ended {
                    self.ahead.truncate(at + 1);
                }
            }
            // Whoever reads there is told.
            _ => {
                self.ended = true;
                self.ahead.truncate(at);
            }
        }
    }

    /// As many bytes as there are until the end of the file, a piece at a time.
    fn read(&mut self, client: &mut Client, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let mut out = Vec::new();
        while out.len() < size as usize {
            let (at, left) = (offset + out.len() as u64, size as usize - out.len());
            let bytes = self.fetch(client, at, left.min(READ_MAX as usize) as u32)?;
            if bytes.is_empty() {
                break;
            }
            out.extend_from_slice(&bytes);
        }
        Ok(out)
    }

    fn fetch(&mut self, client: &mut Client, offset: u64, len: u32) -> Result<Vec<u8>, Errno> {
        match self.ask(client, |handle| Request::Read { handle, offset, len })? {
            Answer::Bytes(bytes) if bytes.len() <= len as usize => Ok(bytes),
            _ => Err(Errno::EIO),
        }
    }

    /// Asks for something with the file, in whatever session there is by then.
    fn ask(&mut self, client: &mut Client, what: impl Fn(u32) -> Request) -> Result<Answer, Errno> {
        if self.epoch != client.epoch() {
            self.again(client)?;
        }
        let answer = match client.request(what(self.handle)) {
            // The session was made again while it was asked, and has nothing open.
            Err(Error::Refused(fault)) if fault.kind == FaultKind::NotFound && self.epoch != client.epoch() => {
                self.again(client)?;
                client.request(what(self.handle))
            }
            other => other,
        };
        answer.map_err(|error| errno(&error))
    }

    fn stat(&mut self, client: &mut Client, what: impl Fn(u32) -> Request) -> Result<Entry, Errno> {
        match self.ask(client, what)? {
            Answer::Stat(entry) => Ok(entry),
            _ => Err(Errno::EIO),
        }
    }

    /// What it is, also where it has no name any more.
    pub(crate) fn known(&mut self, client: &mut Client) -> Result<Entry, Errno> {
        self.stat(client, Request::Known)
    }

    /// What it is after this change.
    pub(crate) fn change(&mut self, client: &mut Client, change: Change) -> Result<Entry, Errno> {
        if change.size.is_some() {
            self.edits.begin(client.boot().map_err(|error| errno(&error))?);
        }
        self.stat(client, |handle| Request::Change(handle, change))
    }

    /// Returns when the peer has all of it. Without an offset it goes behind the end that the file has there.
    pub(crate) fn write(&mut self, client: &mut Client, offset: Option<u64>, bytes: &[u8]) -> Result<(), Errno> {
        self.edits.begin(client.boot().map_err(|error| errno(&error))?);
        let pieces = (0u64..).step_by(PIECE as usize).zip(bytes.chunks(PIECE as usize));
        let what = |handle, at: u64, piece: &[u8]| Request::Write {
            handle,
            offset: offset.map(|offset| offset + at),
            bytes: piece.to_vec(),
        };
        if self.epoch == client.epoch() && offset.is_some() && bytes.len() as u64 > PIECE {
            let mut result = Ok(());
            let all = pieces.clone().map(|(at, piece)| what(self.handle, at, piece)).collect();
            let asked = client.requests(all, |_, answer| {
                if let (Ok(()), Err(fault)) = (result, answer) {
                    result = Err(errno(&Error::Refused(fault)));
                }
            });
            if asked.is_ok() {
                return result;
            }
            // The connection was lost. Bytes that are at their place by now are written there once more.
        }
        for (at, piece) in pieces {
            match self.ask(client, |handle| what(handle, at, piece))? {
                Answer::Done => {}
                _ => return Err(Errno::EIO),
            }
        }
        Ok(())
    }

    /// Returns when all that was written is on the peer's disk. EIO: it may not be, the peer has booted since.
    pub(crate) fn sync(&mut self, client: &mut Client) -> Result<(), Errno> {
        let edits = self.edits.clone();
        let synced = edits.sync(|| {
            self.ask(client, Request::Sync)?;
            client.boot().map_err(|error| errno(&error))
        })?;
        if synced { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Opens it in a new session: if it is the same file there, whoever reads it notices nothing.
    fn again(&mut self, client: &mut Client) -> Result<(), Errno> {
        let at = self.view.place(self.number)?;
        match client.request(Request::Open(at, self.how)) {
            Ok(Answer::Opened(handle, entry, born, _)) => {
                if (entry.dev, entry.ino, born) != self.which {
                    let _ = client.request(Request::Close(handle));
                    return Err(Errno::ESTALE);
                }
                (self.handle, self.epoch) = (handle, client.epoch());
                Ok(())
            }
            Err(Error::Refused(fault)) if fault.kind == FaultKind::NotFound => Err(Errno::ESTALE),
            Err(error) => Err(errno(&error)),
            Ok(_) => Err(Errno::EIO),
        }
    }
}

/// A read that waits for its answer.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) file: Arc<Mutex<OpenFile>>,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) ticket: Ticket,
}

impl Read {
    fn answer(&self, pending: &Pending, bytes: Result<&[u8], Errno>) {
        match (pending.take(&self.ticket), bytes) {
            (Some(Reply::Data(reply)), Ok(bytes)) => reply.data(bytes),
            (Some(reply), Err(error)) => reply.error(error),
            _ => {}
        }
    }

    /// Answers it with what is there already, on a thread that must not wait. Whether it was, and whether more is to be read ahead.
    pub(crate) fn at_once(&self, pending: &Pending) -> (bool, bool) {
        let (found, wants) = match self.file.try_lock() {
            Ok(mut file) => {
                file.note(self.offset, self.size);
                (file.find(self.offset, self.size), file.wants())
            }
            // Somebody has it who may wait for the peer.
            Err(_) => return (false, false),
        };
        (self.give(pending, found), wants)
    }

    fn give(&self, pending: &Pending, found: Found) -> bool {
        match found {
            Found::Whole(bytes) => self.answer(pending, Ok(&bytes)),
            Found::Piece(bytes, from) => self.answer(pending, Ok(&bytes[from..from + self.size as usize])),
            Found::UnderWay | Found::Nothing => return false,
        }
        true
    }

    /// Step by step, with the connection and the file made anew where that is wanted.
    fn slowly(&self, client: &mut Client, pending: &Pending) {
        if pending.is_open(&self.ticket) {
            let bytes = lock(&self.file).read(client, self.offset, self.size);
            self.answer(pending, bytes.as_deref().map_err(|error| *error));
        }
    }
}

/// What an answer is for.
enum For {
    Read(Read),
    /// From this byte on, of this content.
    Ahead(Arc<Mutex<OpenFile>>, (u64, u64)),
}

/// What was asked for and is not answered, in order.
#[derive(Default)]
pub(crate) struct UnderWay(VecDeque<For>);

impl UnderWay {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asks for what a read wants, unless it is there or on its way.
    pub(crate) fn read(&mut self, client: &mut Client, pending: &Pending, read: Read) {
        let mut file = lock(&read.file);
        let found = file.find(read.offset, read.size);
        if let Found::UnderWay = found {
            file.waiting.push(read.clone());
            return;
        }
        let (handle, known) = (file.handle, file.epoch == client.epoch());
        drop(file);
        if read.give(pending, found) {
            return;
        }
        if !known || read.size > READ_MAX {
            self.finish(client, pending);
            return read.slowly(client, pending);
        }
        match client.ask(Request::Read { handle, offset: read.offset, len: read.size }) {
            Ok(_) => self.0.push_back(For::Read(read)),
            Err(_) => {
                self.0.push_back(For::Read(read));
                self.lost(client, pending);
            }
        }
    }

    /// Asks for what is to be read ahead of a file.
    pub(crate) fn ahead(&mut self, client: &mut Client, pending: &Pending, file: &Arc<Mutex<OpenFile>>) {
        loop {
            let (piece, handle) = {
                let mut of = lock(file);
                if of.epoch != client.epoch() || self.0.len() >= UNDER_WAY_MAX {
                    return;
                }
                let Some(piece) = of.begin() else { return };
                (piece, of.handle)
            };
            self.0.push_back(For::Ahead(file.clone(), piece));
            if client.ask(Request::Read { handle, offset: piece.0, len: PIECE as u32 }).is_err() {
                return self.lost(client, pending);
            }
        }
    }

    /// Waits for the next answer.
    pub(crate) fn next(&mut self, client: &mut Client, pending: &Pending) {
        let Ok((_, answer)) = client.answered() else { return self.lost(client, pending) };
        match (self.0.pop_front(), answer) {
            (Some(For::Read(read)), Ok(Answer::Bytes(bytes))) if bytes.len() <= read.size as usize => {
                read.answer(pending, Ok(&bytes));
            }
            (Some(For::Read(read)), answer) => {
                let error = answer.map_or_else(|fault| errno(&Error::Refused(fault)), |_| Errno::EIO);
                read.answer(pending, Err(error));
            }
            (Some(For::Ahead(file, piece)), answer) => {
                let waiting = {
                    let mut of = lock(&file);
                    of.add(piece, answer);
                    std::mem::take(&mut of.waiting)
                };
                waiting.into_iter().for_each(|read| self.read(client, pending, read));
            }
            (None, _) => {}
        }
    }

    /// Waits for all answers.
    pub(crate) fn finish(&mut self, client: &mut Client, pending: &Pending) {
        while !self.is_empty() {
            self.next(client, pending);
        }
    }

    /// The connection was lost: reads make it again, and open their files in the new session.
    fn lost(&mut self, client: &mut Client, pending: &Pending) {
        for one in std::mem::take(&mut self.0) {
            match one {
                For::Read(read) => read.slowly(client, pending),
                For::Ahead(file, _) => {
                    let waiting = lock(&file).forget();
                    waiting.into_iter().for_each(|read| read.slowly(client, pending));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use linkspan_files::name::RelPath;
    use linkspan_files::wire::PeerPath;

    use super::*;
    use crate::Options;
    use crate::fs::View;

    /// A file that is read from front to back, and has the kernel told of what it is.
    fn read() -> (OpenFile, impl Fn(u64)) {
        let (share, base, source) = (String::new(), RelPath::default(), String::new());
        let options = Options { share, base, source, names: FRESH, data: FRESH, writable: false };
        let view = View::new(options);
        let entry = Entry { ino: 7, ..Entry::default() };
        let at = PeerPath { share: String::new(), path: RelPath::new(b"f").unwrap() };
        let (to, named) = (view.clone(), entry.clone());
        let tell = move |size| {
            to.told(&at, &Entry { size, ..named.clone() });
        };
        tell(0);
        let opened = Opened { handle: 1, entry, born: Time::default(), settled: true };
        let mut file = OpenFile::new(view, OpenHow::READ, &opened, 1);
        (0..2).for_each(|n| file.note(n * PIECE, PIECE as u32));
        (file, tell)
    }

    fn bytes(byte: u8) -> Result<Answer, Fault> {
        Ok(Answer::Bytes(vec![byte; PIECE as usize]))
    }

    fn first(file: &mut OpenFile) -> Option<u8> {
        match file.find(2 * PIECE, 1) {
            Found::Piece(bytes, from) => Some(bytes[from]),
            _ => None,
        }
    }

    #[test]
    fn what_was_asked_for_before_the_kernel_was_told_of_another_content_is_not_given_to_it() {
        let (mut file, tell) = read();
        let old = file.begin().unwrap();
        file.add(old, bytes(1));
        assert_eq!(first(&mut file), Some(1));
        tell(0);
        assert_eq!(first(&mut file), Some(1), "it is the same");
        let later = file.begin().unwrap();
        tell(1);
        assert_eq!(first(&mut file), None);
        let new = file.begin().unwrap();
        assert_eq!(new.0, old.0);
        file.add((new.0, old.1), bytes(1));
        file.add(later, bytes(1));
        assert!(matches!(file.find(2 * PIECE, 1), Found::UnderWay));
        file.add(new, bytes(2));
        assert_eq!(first(&mut file), Some(2));
    }

    #[test]
    fn what_was_read_ahead_is_not_given_out_for_longer_than_a_minute() {
        let (mut file, _) = read();
        for n in 0..2 {
            let piece = file.begin().unwrap();
            file.add(piece, bytes(n));
        }
        let is_old = |ago: Duration| Instant::now().checked_sub(ago).unwrap();
        file.ahead[0].asked = is_old(FRESH / 2);
        assert_eq!(first(&mut file), Some(0));
        file.ahead[0].asked = is_old(FRESH);
        assert_eq!((first(&mut file), file.ahead.len()), (None, 1));
    }
}
