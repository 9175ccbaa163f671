//! An open file of the peer: reading from it, and ahead of whoever reads it from front to back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use fuser::Errno;
use linkspan_files::Error;
use linkspan_files::client::Client;
use linkspan_files::wire::{Answer, FaultKind, PeerPath, READ_MAX, Request};

use crate::courier::errno;

/// Pieces read ahead of one file, and of all files of a mount.
const PIECES: usize = 8;
const ALL_PIECES: usize = 64;

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

    /// As many bytes as there are until the end of the file.
    pub(crate) fn read(&mut self, client: &mut Client, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let known = offset == self.next || self.ahead.iter().any(|piece| (piece.offset..piece.end()).contains(&offset));
        if known {
            self.run = self.run.saturating_add(1);
        } else {
            self.run = 0;
            self.ahead.clear();
            self.ended = false;
        }
        let mut out = Vec::with_capacity(size as usize);
        while out.len() < size as usize {
            let (at, left) = (offset + out.len() as u64, size as usize - out.len());
            if let Some(piece) = self.ahead.iter().find(|piece| (piece.offset..piece.end()).contains(&at)) {
                let from = (at - piece.offset) as usize;
                out.extend_from_slice(&piece.bytes[from..piece.bytes.len().min(from + left)]);
                continue;
            }
            let bytes = self.fetch(client, at, left.min(READ_MAX as usize) as u32)?;
            if bytes.is_empty() {
                break;
            }
            out.extend_from_slice(&bytes);
        }
        self.next = offset + out.len() as u64;
        self.ahead.retain(|piece| piece.end() > self.next);
        Ok(out)
    }

    /// Whether more should be read ahead.
    pub(crate) fn wants(&self) -> bool {
        self.run >= RUN && !self.ended && self.ahead.len() < PIECES && HELD.load(Ordering::Relaxed) < ALL_PIECES
    }

    /// Reads one piece ahead.
    pub(crate) fn read_ahead(&mut self, client: &mut Client) {
        if !self.wants() {
            return;
        }
        let offset = self.ahead.back().map_or(self.next, Piece::end);
        match self.fetch(client, offset, READ_MAX) {
            Ok(bytes) if !bytes.is_empty() => {
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
