//! The receiving half: from stream bytes to records, opened where they lie.
//!
//! ```text
//! buffer   ....| left |head| text ... |tag|head| text ...      (the text of a record that is not yet whole)
//!              left.start  start                       end
//! ```
//!
//! `left` is opened text that belongs to a message which goes on in the next record. Before that record is opened,
//! `left` is moved up to its text, over the tag and the head between them.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use linkspan_proto::login::{Opener, RECORD_HEAD, RECORD_MAX, RECORD_TAG, RecordError};
use linkspan_transport::Sink;

use crate::frames::{Frames, LEFT_MOST};
use crate::rx;

/// Where records begin in an empty buffer; before it is space for what was left.
const BEGIN: usize = LEFT_MOST.next_multiple_of(4096);

/// What to read behind a record: the whole of many small ones, so that they arrive with few calls.
const TAIL: usize = 64 << 10;

/// Text from which on only the next record's head is read behind a record: more would be moved before it is opened.
const LARGE: usize = 16 << 10;

/// The buffer: the largest record that the protocol allows, and a tail.
const BUFFER: usize = BEGIN + RECORD_HEAD + RECORD_MAX + RECORD_TAG + TAIL;

/// Most system calls of one poll: bounds the time until the caller gets to its other rails.
const READS: usize = 8;

/// Most bytes of one poll, but for the last call's.
const POLL_MOST: usize = 1 << 20;

/// Why receiving ended.
pub(super) enum Fault {
    /// As on a plain rail.
    Plain(rx::Fault),
    /// A record that cannot be, or does not authenticate.
    Record(RecordError),
    /// The peer closed its side in the middle of a record.
    Cut,
}

/// State of the receiving half.
pub(super) struct SealedRx {
    opener: Opener,
    buffer: Box<[u8]>,
    /// Read and not opened.
    start: usize,
    end: usize,
    /// Opened and not used: less than one control message. Ends at or before `start`.
    left: Range<usize>,
    frames: Frames,
}

impl SealedRx {
    pub(super) fn new(opener: Opener) -> SealedRx {
        let buffer = vec![0; BUFFER].into();
        SealedRx { opener, buffer, start: BEGIN, end: BEGIN, left: BEGIN..BEGIN, frames: Frames::new() }
    }

    /// Reads, opens and hands on what has come, within bounds. Returns whether anything did.
    pub(super) fn poll(&mut self, fd: BorrowedFd<'_>, sink: &mut dyn Sink) -> Result<bool, Fault> {
        let (mut active, mut total) = (false, 0);
        for _ in 0..READS {
            let (asked, got) = self.fill(fd).map_err(|e| Fault::Plain(rx::Fault::System(e)))?;
            let n = match got {
                None => break,
                Some(0) if self.start != self.end => return Err(Fault::Cut),
                Some(0) => {
                    let inside = !self.left.is_empty() || self.frames.inside();
                    return Err(Fault::Plain(rx::Fault::End { inside }));
                }
                Some(n) => n,
            };
            active = true;
            total += n;
            while self.open()? {
                let text = self.left.clone();
                let (used, _) = self.frames.take(&self.buffer[text], sink).map_err(Fault::Plain)?;
                self.left.start += used;
            }
            // A short read has emptied the socket.
            if n < asked || total >= POLL_MOST {
                break;
            }
        }
        Ok(active)
    }

    /// Bytes of the next record and of its text, once its head is here.
    fn next(&self) -> Option<Result<(usize, usize), RecordError>> {
        let head = self.buffer[self.start..self.end].first_chunk::<RECORD_HEAD>()?;
        Some(Opener::text_len(*head).map(|text| (RECORD_HEAD + text + RECORD_TAG, text)))
    }

    /// One system call. Returns the bytes asked for and what came.
    fn fill(&mut self, fd: BorrowedFd<'_>) -> io::Result<(usize, Option<usize>)> {
        let there = self.end - self.start;
        let asked = match self.next() {
            Some(Ok((whole, text))) => whole - there + if text < LARGE { TAIL } else { RECORD_HEAD },
            // A wrong length was found when its bytes came, so it is not there now.
            None | Some(Err(_)) => TAIL,
        };
        // Near the front the buffer stays within the cache; a part of a large record is moved only when it must be.
        if there <= RECORD_HEAD || self.end + asked > BUFFER {
            self.move_to_front();
        }
        let got = linkspan_net::recv(fd, &mut self.buffer[self.end..self.end + asked])?;
        self.end += got.unwrap_or(0);
        Ok((asked, got))
    }

    fn move_to_front(&mut self) {
        if self.start == BEGIN {
            return;
        }
        let left = BEGIN - self.left.len();
        self.buffer.copy_within(self.left.clone(), left);
        self.left = left..BEGIN;
        self.buffer.copy_within(self.start..self.end, BEGIN);
        (self.start, self.end) = (BEGIN, BEGIN + self.end - self.start);
    }

    /// Opens the next record, if it is whole; `left` then holds its text behind what was left.
    fn open(&mut self) -> Result<bool, Fault> {
        let Some(next) = self.next() else { return Ok(false) };
        let (whole, text) = next.map_err(Fault::Record)?;
        if self.end - self.start < whole {
            return Ok(false);
        }
        let from = self.start + RECORD_HEAD;
        let left = from - self.left.len();
        self.buffer.copy_within(self.left.clone(), left);
        let (text, behind) = self.buffer[from..].split_at_mut(text);
        let mut tag = [0; RECORD_TAG];
        tag.copy_from_slice(&behind[..RECORD_TAG]);
        self.opener.open(text, tag).map_err(Fault::Record)?;
        self.left = left..from + text.len();
        self.start += whole;
        Ok(true)
    }
}
