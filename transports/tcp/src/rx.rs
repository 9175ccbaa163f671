//! The receiving half of a rail: from stream bytes to messages and payload in place.

use std::io;
use std::os::fd::BorrowedFd;

use linkspan_proto::head::{EAGER_MAX, HEAD_LEN, MAGIC};
use linkspan_proto::{Head, head::BadHead};
use linkspan_transport::{Buf, MemSlice, Sink, Violation};

/// Line of the LL128 protocol and of most caches, bytes. Reads that begin with a head end after whole lines of the
/// payload behind it, so that what is copied and what the kernel writes meet at the end of a line.
const LINE: usize = 128;

/// Longest chunk that is read into scratch together with its head, and then copied, when the one before was as
/// short. One more system call costs about as much as copying this (on loopback 64 KiB took 3 us through the scratch
/// and 5 us with two calls).
const COPY_MOST: usize = 64 << 10;

/// Bytes of scratch: such a chunk with its head, and some control messages behind it.
pub(crate) const SCRATCH: usize = COPY_MOST + HEAD_LEN + 32 * LINE;

/// First guess of what to read where a head is expected. Small, because payload that comes with it is copied once
/// more; it doubles with every read that it cut short and that brought only control messages.
const READ_LEAST: usize = HEAD_LEN + 8 * LINE;

/// What to read behind the end of a payload: control messages and the next head, few payload bytes.
const TAIL: usize = HEAD_LEN + 24 * LINE;

/// Most payload bytes of one system call.
const READ_MOST: usize = 1 << 20;

/// Most system calls of one poll: bounds the time until the caller gets to its other rails.
const READS: usize = 8;

/// Most payload bytes of one poll.
const POLL_MOST: usize = 1 << 20;

/// What to read where a head is expected, after a chunk of `len` bytes: the next is likely to be like it.
fn read_after(len: usize) -> usize {
    if len > COPY_MOST {
        return READ_LEAST;
    }
    // A little more than the chunk: a read that is not filled tells that the socket is empty.
    (HEAD_LEN + len.next_multiple_of(LINE) + 2 * LINE).max(READ_LEAST)
}

/// Why receiving ended.
pub(crate) enum Fault {
    /// The peer closed its side; `inside`: in the middle of a message.
    End { inside: bool },
    /// The system's word.
    System(io::Error),
    /// Not a head.
    Head(BadHead),
    /// The sink's word.
    Violation(Violation),
    /// The sink offered a place of another length than it was asked for.
    Place { want: usize, got: usize },
}

impl From<Violation> for Fault {
    fn from(v: Violation) -> Fault {
        Fault::Violation(v)
    }
}

/// What the next bytes of the stream are.
enum Expect {
    /// A head.
    Head,
    /// The rest of a payload, and where it goes.
    Payload { head: Head, rest: MemSlice },
    /// The rest of a payload that nobody wants any more.
    Drain { head: Head, rest: usize },
}

/// State of the receiving half.
pub(crate) struct Rx {
    /// `scratch[lo..hi]` was read and not used: less than one control message, except before the first poll.
    scratch: Box<[u8]>,
    lo: usize,
    hi: usize,
    /// What to read where a head is expected.
    read: usize,
    expect: Expect,
    /// The scratch holds bytes that were never looked at.
    fresh: bool,
}

impl Rx {
    /// Begins with bytes that were read already; at most [`SCRATCH`].
    pub(crate) fn new(read_ahead: &[u8]) -> Option<Rx> {
        let mut scratch: Box<[u8]> = vec![0; SCRATCH].into();
        scratch.get_mut(..read_ahead.len())?.copy_from_slice(read_ahead);
        let fresh = !read_ahead.is_empty();
        Some(Rx { scratch, lo: 0, hi: read_ahead.len(), read: READ_LEAST, expect: Expect::Head, fresh })
    }

    /// Whether there is work without any further byte.
    pub(crate) fn ready(&self) -> bool {
        self.fresh
    }

    /// Reads and hands on what has come, within bounds. Returns whether anything did.
    pub(crate) fn poll<S: Sink>(&mut self, fd: BorrowedFd<'_>, sink: &mut S) -> Result<bool, Fault> {
        let mut active = false;
        if self.fresh {
            self.fresh = false;
            active = true;
            self.digest(sink)?;
        }
        let mut total = 0;
        for _ in 0..READS {
            let (asked, got) = self.fill(fd).map_err(Fault::System)?;
            match got {
                None => return Ok(active),
                Some(0) => {
                    let inside = self.lo != self.hi || !matches!(self.expect, Expect::Head);
                    return Err(Fault::End { inside });
                }
                Some(n) => {
                    active = true;
                    total += n;
                    let payload = self.digest(sink)?;
                    if n == asked && !payload {
                        self.read = (self.read * 2).min(SCRATCH);
                    }
                    // A short read has emptied the socket.
                    if n < asked || total >= POLL_MOST {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(active)
    }

    /// One system call. Returns the bytes asked for and what came.
    fn fill(&mut self, fd: BorrowedFd<'_>) -> io::Result<(usize, Option<usize>)> {
        if self.lo == self.hi {
            (self.lo, self.hi) = (0, 0);
        }
        match &mut self.expect {
            Expect::Head => {
                // The largest control message must fit behind `lo` as a whole.
                if self.lo + HEAD_LEN + EAGER_MAX > SCRATCH {
                    self.scratch.copy_within(self.lo..self.hi, 0);
                    (self.lo, self.hi) = (0, self.hi - self.lo);
                }
                let end = (self.hi + self.read).min(SCRATCH);
                let got = linkspan_net::recv(fd, &mut self.scratch[self.hi..end])?;
                let asked = end - self.hi;
                self.hi += got.unwrap_or(0);
                Ok((asked, got))
            }
            Expect::Payload { rest, .. } => {
                let whole = rest.len() <= READ_MOST;
                let now = if whole { *rest } else { rest.sub(0, READ_MOST as u64).unwrap_or(*rest) };
                let tail = if whole { TAIL } else { 0 };
                let got = linkspan_net::recv_two(fd, now, &mut self.scratch[..tail])?;
                let n = got.unwrap_or(0);
                let placed = n.min(now.len());
                *rest = rest.sub(placed as u64, (rest.len() - placed) as u64).unwrap_or(MemSlice::EMPTY);
                (self.lo, self.hi) = (0, n - placed);
                Ok((now.len() + tail, got))
            }
            Expect::Drain { rest, .. } => {
                let asked = rest.saturating_add(TAIL).min(SCRATCH);
                let got = linkspan_net::recv(fd, &mut self.scratch[..asked])?;
                (self.lo, self.hi) = (0, got.unwrap_or(0));
                Ok((asked, got))
            }
        }
    }

    /// Uses up the scratch as far as whole messages go. Returns whether there was payload.
    fn digest<S: Sink>(&mut self, sink: &mut S) -> Result<bool, Fault> {
        let mut payload = false;
        loop {
            let there = &self.scratch[self.lo..self.hi];
            match &mut self.expect {
                Expect::Head => {
                    let Some((wire, behind)) = there.split_first_chunk::<HEAD_LEN>() else {
                        return match there.first() {
                            Some(&byte) if byte != MAGIC => Err(Fault::Head(BadHead::Magic(byte))),
                            _ => Ok(payload),
                        };
                    };
                    let (head, kind) = Head::decode(wire).map_err(Fault::Head)?;
                    let len = head.len.get() as usize;
                    if kind.is_payload() {
                        payload = true;
                        self.lo += HEAD_LEN;
                        self.read = read_after(len);
                        self.expect = match sink.place(&head)? {
                            Some(place) if place.len() == len => Expect::Payload { head, rest: place },
                            Some(place) => {
                                return Err(Fault::Place { want: len, got: place.len() });
                            }
                            None => Expect::Drain { head, rest: len },
                        };
                    } else {
                        let Some(body) = behind.get(..len) else {
                            return Ok(payload);
                        };
                        sink.ctrl(&head, body)?;
                        self.lo += HEAD_LEN + len;
                    }
                }
                Expect::Payload { head, rest } => {
                    payload = true;
                    let n = rest.len().min(there.len());
                    let fits = linkspan_net::fill_ascending(*rest, 0, &there[..n]);
                    debug_assert!(fits);
                    self.lo += n;
                    *rest = rest.sub(n as u64, (rest.len() - n) as u64).unwrap_or(MemSlice::EMPTY);
                    if !rest.is_empty() {
                        return Ok(payload);
                    }
                    let head = *head;
                    self.expect = Expect::Head;
                    sink.landed(&head)?;
                }
                Expect::Drain { head, rest } => {
                    payload = true;
                    let n = (*rest).min(there.len());
                    self.lo += n;
                    *rest -= n;
                    if *rest > 0 {
                        return Ok(payload);
                    }
                    let head = *head;
                    self.expect = Expect::Head;
                    sink.landed(&head)?;
                }
            }
        }
    }
}
