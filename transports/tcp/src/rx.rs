//! The receiving half of a rail: from stream bytes to messages and payload in place.

use std::io;
use std::os::fd::BorrowedFd;

use linkspan_proto::head::{BATCH_MAX, BadHead, EAGER_MAX, HEAD_LEN, padding};
use linkspan_transport::{Buf, Sink, Violation};

use crate::frames::{Frames, Next};
use crate::suppressor::AckSuppressor;

/// Line of the LL128 protocol and of most caches, bytes. Reads that begin with a head end after whole lines of the
/// payload behind it, so that what is copied and what the kernel writes meet at the end of a line.
const LINE: usize = 128;

/// Longest chunk that is read into scratch together with its head, and then copied, when the one before was as
/// short. One more system call costs about as much as copying this (on loopback, half a round trip of 16 KiB takes
/// 9.3 us through the scratch and 9.9 us with two calls; of 64 KiB 20.5 us and 17.2 us).
const COPY_MOST: usize = 16 << 10;

/// Bytes of scratch: what was read ahead with the login, or many control messages at once.
pub(crate) const SCRATCH: usize = (64 << 10) + HEAD_LEN + 32 * LINE;

/// First guess of what to read where a head is expected. Small, because payload that comes with it is copied once
/// more; it doubles with every read that it cut short and that brought only control messages.
const READ_LEAST: usize = HEAD_LEN + 8 * LINE;

/// What to read behind the end of a payload: control messages and the next head, few payload bytes.
const TAIL: usize = HEAD_LEN + 24 * LINE;

/// The same behind the end of a piece of at most [`PIECE`]: it comes among others of its kind, whose bytes would be copied once
/// more, a fifth of them where they are pages of 16 KiB.
const SHORT_TAIL: usize = HEAD_LEN + 2 * LINE;

/// See [`SHORT_TAIL`].
const PIECE: usize = 64 << 10;

/// The same behind a batch of payloads: the heads of the next batch, and none of its payload.
const ROW_TAIL: usize = HEAD_LEN + BATCH_MAX * HEAD_LEN + 8;

/// Most payload bytes of one system call.
const READ_MOST: usize = 1 << 20;

/// Most system calls of one poll: bounds the time until the caller gets to its other rails.
const READS: usize = 8;

/// The same while payload is placed: pages of 16 KiB until [`POLL_MOST`], so that one acknowledgement serves all of them.
const PLACING_READS: usize = 64;

/// Most payload bytes of one poll.
const POLL_MOST: usize = 1 << 20;

/// What to read where a head is expected, after a chunk of `len` bytes: the next is likely to be like it.
fn read_after(len: usize) -> usize {
    if len > COPY_MOST {
        return READ_LEAST;
    }
    // A little more than the chunk: its padding, and control messages behind it.
    (HEAD_LEN + len.next_multiple_of(LINE) + 2 * LINE).max(READ_LEAST)
}

/// Why receiving ended.
pub(crate) enum Fault {
    /// The peer closed its side; `inside`: in the middle of a message.
    End { inside: bool },
    /// The OS error.
    System(io::Error),
    /// Not a head.
    Head(BadHead),
    /// The sink's error.
    Violation(Violation),
    /// A batch of payloads that is none.
    ChunkBatch(&'static str),
    /// The sink offered a place of another length than it was asked for.
    Place { want: usize, got: usize },
}

impl From<Violation> for Fault {
    fn from(v: Violation) -> Fault {
        Fault::Violation(v)
    }
}

/// State of the receiving half.
pub(crate) struct Rx {
    /// `scratch[lo..hi]` was read and not used: less than one control message, unless it is `fresh`.
    scratch: Box<[u8]>,
    lo: usize,
    hi: usize,
    /// What to read where a head is expected.
    read: usize,
    frames: Frames,
    /// The scratch holds bytes that were never looked at, or messages for which the asynchronous sink was not ready.
    fresh: bool,
    /// The last chunk was short, and the next is likely to be: its grant, not ours, acknowledges what is read, so there
    /// is nothing to ask first (on loopback half a round trip of 16 KiB takes 8.6 us so and 9.3 us with the question).
    short: bool,
    suppressor: AckSuppressor,
}

impl Rx {
    /// Begins with bytes that were read already; at most [`SCRATCH`].
    pub(crate) fn new(read_ahead: &[u8]) -> Option<Rx> {
        let mut scratch: Box<[u8]> = vec![0; SCRATCH].into();
        scratch.get_mut(..read_ahead.len())?.copy_from_slice(read_ahead);
        Some(Rx {
            scratch,
            lo: 0,
            hi: read_ahead.len(),
            read: READ_LEAST,
            frames: Frames::new(),
            fresh: !read_ahead.is_empty(),
            short: false,
            suppressor: AckSuppressor::default(),
        })
    }

    /// Whether there is work without any further byte.
    pub(crate) fn ready(&self) -> bool {
        self.fresh
    }

    /// Something was sent over the same stream.
    pub(crate) fn answered(&mut self) {
        self.suppressor.answered();
    }

    /// Whether a byte was left in the socket, which would wake a sleeper at once. The next poll reads it.
    pub(crate) fn left(&mut self) -> bool {
        self.suppressor.hurry()
    }

    /// Reads and hands on what has come, within bounds. Returns whether anything did.
    pub(crate) fn poll<I: Sink + ?Sized>(&mut self, fd: BorrowedFd<'_>, sink: &mut I) -> Result<bool, Fault> {
        let mut active = false;
        if self.fresh {
            self.fresh = false;
            let before = self.lo;
            self.digest(sink)?;
            if self.frames.held() {
                self.fresh = true;
                return Ok(self.lo != before);
            }
            active = true;
        }
        let (mut total, mut reads) = (0, 0);
        loop {
            let most = match self.frames.inside() || self.short {
                true => self.suppressor.all(),
                false => match self.suppressor.ask(fd).map_err(Fault::System)? {
                    Some(most) => most,
                    None => return Ok(active),
                },
            };
            let (asked, got) = self.fill(fd, most).map_err(Fault::System)?;
            match got {
                None => return Ok(active),
                Some(0) => {
                    let inside = self.lo != self.hi || self.frames.inside();
                    return Err(Fault::End { inside });
                }
                Some(n) => {
                    // A byte alone is padding that was left behind.
                    active |= n > 1;
                    if n > 1 {
                        self.suppressor.came();
                    }
                    total += n;
                    let payload = self.digest(sink)?;
                    self.short &= payload;
                    if self.frames.held() {
                        self.fresh = true;
                        return Ok(active);
                    }
                    reads += 1;
                    let enough = if payload { PLACING_READS } else { READS };
                    if n == asked && asked < most && !payload {
                        self.read = (self.read * 2).min(SCRATCH);
                    }
                    // All that was there has been read.
                    if n < asked || asked == most || total >= POLL_MOST || reads >= enough {
                        return Ok(active);
                    }
                }
            }
        }
    }

    /// One system call for at most `most` bytes. Returns the bytes asked for and what came.
    fn fill(&mut self, fd: BorrowedFd<'_>, most: usize) -> io::Result<(usize, Option<usize>)> {
        if self.lo == self.hi {
            (self.lo, self.hi) = (0, 0);
        }
        match &self.frames.next {
            Next::Head { .. } => {
                // The largest control message must fit behind `lo` as a whole.
                if self.lo + HEAD_LEN + EAGER_MAX + padding(0) > SCRATCH {
                    self.scratch.copy_within(self.lo..self.hi, 0);
                    (self.lo, self.hi) = (0, self.hi - self.lo);
                }
                let asked = self.read.min(SCRATCH - self.hi).min(most);
                let got = linkspan_net::recv(fd, &mut self.scratch[self.hi..self.hi + asked])?;
                self.hi += got.unwrap_or(0);
                Ok((asked, got))
            }
            Next::Payload { rest, .. } => {
                let whole = rest.len() <= READ_MOST;
                let now = if whole { *rest } else { rest.sub(0, READ_MOST as u64).unwrap_or(*rest) };
                let (more, last) = self.frames.row_places();
                let suppressor = if now.len() <= PIECE { SHORT_TAIL } else { TAIL };
                let tail = match more {
                    _ if !whole || !last => 0,
                    [] => suppressor,
                    _ => ROW_TAIL,
                };
                let scratch = &mut self.scratch[..tail];
                let got = match more {
                    [] => linkspan_net::recv_two(fd, now, scratch),
                    more => linkspan_net::recv_row(fd, now, more, scratch),
                }?;
                let places = now.len() + more.iter().map(Buf::len).sum::<usize>();
                let n = got.unwrap_or(0);
                let placed = n.min(places);
                self.frames.arrived(placed);
                (self.lo, self.hi) = (0, n - placed);
                Ok((places + tail, got))
            }
            Next::Drain { rest, .. } => {
                let asked = rest.saturating_add(TAIL).min(SCRATCH);
                let got = linkspan_net::recv(fd, &mut self.scratch[..asked])?;
                (self.lo, self.hi) = (0, got.unwrap_or(0));
                Ok((asked, got))
            }
        }
    }

    /// Uses up the scratch as far as whole messages go. Returns whether there was payload.
    fn digest<I: Sink + ?Sized>(&mut self, sink: &mut I) -> Result<bool, Fault> {
        let inside = self.frames.inside();
        let (used, payload) = self.frames.take(&self.scratch[self.lo..self.hi], sink)?;
        self.lo += used;
        if let Some(len) = payload {
            self.read = read_after(len);
            self.short = len <= COPY_MOST;
        }
        Ok(inside || payload.is_some())
    }
}
