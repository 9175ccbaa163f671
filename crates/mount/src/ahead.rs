//! An open file of the peer: reading from it, and ahead of whoever reads it from front to back. What several readers wait for, and what
//! is read ahead, is asked for at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fuser::Errno;
use linkspan_files::client::Client;
use linkspan_files::wire::{Answer, FaultKind, PeerPath, READ_MAX, Request};
use linkspan_files::{Error, lock};

use crate::courier::errno;
use crate::pending::{Pending, Reply, Ticket};

/// Pieces read ahead of one file, and of all files of a mount.
const PIECES: usize = 8;
const ALL_PIECES: usize = 64;

/// Reads this near to where the last one ended go on from it: the kernel has several under way, and they overtake each other.
const NEAR: u64 = 1 << 20;

/// Reads in a row after which a file is read ahead.
const RUN: u32 = 2;

/// A piece that was read ahead; counted while it lives.
#[derive(Debug)]
struct Piece {
    offset: u64,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

static HELD: AtomicUsize = AtomicUsize::new(0);

impl Drop for Piece {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    at: PeerPath,
    /// Device and number there.
    which: (u64, u64),
    handle: u32,
    epoch: u64,
    /// Where the last read ended, and how many in a row have begun there.
    next: u64,
    run: u32,
    ahead: VecDeque<Piece>,
    /// Nothing follows what was read ahead.
    ended: bool,
}

impl OpenFile {
    pub(crate) fn new(at: PeerPath, which: (u64, u64), handle: u32, epoch: u64) -> OpenFile {
        OpenFile { at, which, handle, epoch, next: 0, run: 0, ahead: VecDeque::new(), ended: false }
    }

    /// Its number in the session of this epoch, where it is open there.
    pub(crate) fn handle(&self, epoch: u64) -> Option<u32> {
        (self.epoch == epoch).then_some(self.handle)
    }

    /// Notes where it is read.
    fn note(&mut self, offset: u64, size: u32) {
        if offset + NEAR >= self.next && offset <= self.next + NEAR {
            self.run = self.run.saturating_add(1);
        } else {
            self.run = 0;
            self.ahead.clear();
            self.ended = false;
            self.next = offset;
        }
        self.next = self.next.max(offset + u64::from(size));
        if self.ahead.back().is_some_and(|last| last.end() < self.next) {
            self.ahead.clear();
        }
        // What is a little behind may still be asked for.
        let keep = self.next.saturating_sub(NEAR);
        self.ahead.retain(|piece| piece.end() > keep);
    }

    /// What was read ahead, from here on, without a gap.
    fn known(&self, offset: u64, size: u32) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < size as usize {
            let (at, left) = (offset + out.len() as u64, size as usize - out.len());
            let Some(piece) = self.ahead.iter().find(|piece| (piece.offset..piece.end()).contains(&at)) else { break };
            let from = (at - piece.offset) as usize;
            out.extend_from_slice(&piece.bytes[from..piece.bytes.len().min(from + left)]);
        }
        out
    }

    /// As many bytes as there are until the end of the file, a piece at a time.
    fn read(&mut self, client: &mut Client, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let mut out = self.known(offset, size);
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

    /// The first bytes of the pieces that are to be read ahead now.
    fn wants(&self) -> Vec<u64> {
        if self.run < RUN || self.ended {
            return Vec::new();
        }
        let from = self.ahead.back().map_or(self.next, Piece::end).max(self.next);
        let before = (from - self.next).div_ceil(u64::from(READ_MAX)) as usize;
        let left = ALL_PIECES.saturating_sub(HELD.load(Ordering::Relaxed));
        // In groups, so that each answer is worth its way.
        let count = PIECES.saturating_sub(before).min(left);
        if before * 2 > PIECES {
            return Vec::new();
        }
        (0..count as u64).map(|n| from + n * u64::from(READ_MAX)).collect()
    }

    fn add(&mut self, offset: u64, answer: Result<Answer, linkspan_files::wire::Fault>) {
        let next = self.ahead.back().map_or(offset, Piece::end);
        match answer {
            Ok(Answer::Bytes(bytes)) if !bytes.is_empty() && bytes.len() <= READ_MAX as usize && next == offset => {
                self.ended = bytes.len() < READ_MAX as usize;
                HELD.fetch_add(1, Ordering::Relaxed);
                self.ahead.push_back(Piece { offset, bytes });
            }
            // Whoever reads there is told.
            _ => self.ended = true,
        }
    }

    fn fetch(&mut self, client: &mut Client, offset: u64, len: u32) -> Result<Vec<u8>, Errno> {
        if self.epoch != client.epoch() {
            self.again(client)?;
        }
        match self.ask(client, offset, len) {
            // The session was made again while it was asked.
            Err(Error::Refused(fault)) if fault.kind == FaultKind::NotFound && self.epoch != client.epoch() => {
                self.again(client)?;
                self.ask(client, offset, len).map_err(|error| errno(&error))
            }
            other => other.map_err(|error| errno(&error)),
        }
    }

    fn ask(&self, client: &mut Client, offset: u64, len: u32) -> Result<Vec<u8>, Error> {
        match client.request(Request::Read { handle: self.handle, offset, len })? {
            Answer::Bytes(bytes) if bytes.len() <= len as usize => Ok(bytes),
            _ => Err(linkspan_files::engine::Violation("it gives an answer to another question").into()),
        }
    }

    /// Opens it in a new session: if it is the same file there, whoever reads it notices nothing.
    fn again(&mut self, client: &mut Client) -> Result<(), Errno> {
        match client.request(Request::Open(self.at.clone())) {
            Ok(Answer::Opened(handle, entry)) => {
                if (entry.dev, entry.ino) != self.which {
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
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) file: Arc<Mutex<OpenFile>>,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) ticket: Ticket,
}

impl Read {
    fn answer(&self, pending: &Pending, bytes: Result<Vec<u8>, Errno>) {
        match (pending.take(&self.ticket), bytes) {
            (Some(Reply::Data(reply)), Ok(bytes)) => reply.data(&bytes),
            (Some(reply), Err(error)) => reply.error(error),
            _ => {}
        }
    }
}

/// Answers these reads: from what was read ahead, and the others with one request each, all of them under way at once; behind them
/// those for what is read ahead.
pub(crate) fn read(client: &mut Client, pending: &Pending, reads: Vec<Read>) {
    let (mut open, mut asked, mut files) = (Vec::new(), Vec::new(), Vec::<Arc<Mutex<OpenFile>>>::new());
    for read in reads {
        let mut file = lock(&read.file);
        file.note(read.offset, read.size);
        let known = file.known(read.offset, read.size);
        if !files.iter().any(|other| Arc::ptr_eq(other, &read.file)) {
            files.push(read.file.clone());
        }
        let whole = known.len() == read.size as usize;
        // A request of the other kind goes through the steps that open the file anew.
        let simple = known.is_empty() && read.size <= READ_MAX && file.epoch == client.epoch();
        let handle = file.handle;
        drop(file);
        if whole {
            read.answer(pending, Ok(known));
        } else if simple {
            asked.push(Request::Read { handle, offset: read.offset, len: read.size });
            open.push(read);
        } else {
            let bytes = lock(&read.file).read(client, read.offset, read.size);
            read.answer(pending, bytes);
        }
    }
    let mut ahead = Vec::new();
    for file in files {
        let of = lock(&file);
        if of.epoch == client.epoch() {
            for offset in of.wants() {
                asked.push(Request::Read { handle: of.handle, offset, len: READ_MAX });
                ahead.push((file.clone(), offset));
            }
        }
    }
    if asked.is_empty() {
        return;
    }
    let mut answered = 0;
    let done = client.requests(asked, |n, answer| match (open.get(n), answer) {
        (Some(read), Ok(Answer::Bytes(bytes))) if bytes.len() <= read.size as usize => {
            read.answer(pending, Ok(bytes));
            answered = n + 1;
        }
        (Some(read), answer) => {
            let error = answer.map_or_else(|fault| errno(&Error::Refused(fault)), |_| Errno::EIO);
            read.answer(pending, Err(error));
            answered = n + 1;
        }
        (None, answer) => {
            let (file, offset) = &ahead[n - open.len()];
            lock(file).add(*offset, answer);
        }
    });
    if done.is_err() {
        // The connection was lost: these make it again, and open their files in the new session.
        for read in &open[answered.min(open.len())..] {
            let bytes = lock(&read.file).read(client, read.offset, read.size);
            read.answer(pending, bytes);
        }
    }
}
