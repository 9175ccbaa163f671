//! The rail: heads and payloads one behind the other on a Unix socket.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use linkspan_transport::{
    Buf, Busy, Caps, Down, End, Head, Kind, MemSlice, Poll, Rail, RailInfo, Sink, Violation, WaitFd,
};

use crate::NAME;

/// Bytes of a head (docs/PROTOCOL.md).
const HEAD: usize = 40;

/// Bytes moved by a system call.
const PIECE: usize = 64 << 10;

/// Items that wait.
const QUEUE: usize = 64;

/// Pieces read by a poll.
const READS: usize = 16;

/// One message to be sent.
struct Item {
    head: [u8; HEAD],
    body: Body,
    /// Bytes that have left, of head and body.
    sent: usize,
}

enum Body {
    Copied(Vec<u8>),
    Lent(MemSlice),
}

/// What arrives.
enum Open {
    Head,
    Control(Head),
    Chunk(Head, Option<MemSlice>),
}

/// A rail over a Unix socket.
pub struct UnixRail {
    socket: UnixStream,
    info: RailInfo,
    out: VecDeque<Item>,
    /// Memory of control messages that have left.
    spare: Vec<Vec<u8>>,
    accepted: u64,
    open: Open,
    /// Bytes of what is open that have come.
    come: usize,
    held: Vec<u8>,
    piece: Box<[u8]>,
    /// The peer takes nothing more; what it had sent is still read.
    deaf: bool,
    end: Option<End>,
}

impl UnixRail {
    /// Over a socket that does not block.
    pub fn new(socket: UnixStream) -> UnixRail {
        let caps = Caps {
            one_sided: false,
            device_memory: false,
            ordered: true,
            chunk: 256 << 10,
            speed: 0,
            local: true,
            tells_end: true,
        };
        let path = format!("unix {}", socket.as_raw_fd());
        UnixRail {
            socket,
            info: RailInfo::new(NAME, path, "the list of transports has it".into(), caps),
            out: VecDeque::with_capacity(QUEUE),
            spare: Vec::with_capacity(QUEUE),
            accepted: 0,
            open: Open::Head,
            come: 0,
            held: Vec::with_capacity(PIECE),
            piece: vec![0; PIECE].into(),
            deaf: false,
            end: None,
        }
    }

    fn accept(&mut self, head: &Head, body: Body) -> Result<u64, Busy> {
        self.out.push_back(Item { head: *head.as_wire(), body, sent: 0 });
        self.accepted += 1;
        Ok(self.accepted)
    }

    fn down(&self) -> Result<(), Down> {
        self.end.as_ref().map_or(Ok(()), |end| Err(end.down(&self.info.path)))
    }

    /// Fills the piece with what leaves next; how much that is.
    fn gather(&mut self) -> usize {
        let mut n = 0;
        for item in &self.out {
            let skip = item.sent.min(HEAD);
            let head = &item.head[skip..][..(HEAD - skip).min(PIECE - n)];
            self.piece[n..n + head.len()].copy_from_slice(head);
            n += head.len();
            let from = item.sent.saturating_sub(HEAD);
            let len = match &item.body {
                Body::Copied(bytes) => bytes.len(),
                Body::Lent(mem) => mem.len(),
            };
            let rest = (len - from).min(PIECE - n);
            match &item.body {
                Body::Copied(bytes) => self.piece[n..n + rest].copy_from_slice(&bytes[from..from + rest]),
                Body::Lent(mem) => assert!(mem.read(from as u64, &mut self.piece[n..n + rest])),
            }
            n += rest;
            if n == PIECE {
                break;
            }
        }
        n
    }

    fn left(&mut self, mut n: usize) {
        while let Some(item) = self.out.front_mut() {
            let len = HEAD
                + match &item.body {
                    Body::Copied(bytes) => bytes.len(),
                    Body::Lent(mem) => mem.len(),
                };
            let some = (len - item.sent).min(n);
            item.sent += some;
            n -= some;
            if item.sent < len {
                return;
            }
            if let Some(Item { body: Body::Copied(mut bytes), .. }) = self.out.pop_front() {
                bytes.clear();
                self.spare.push(bytes);
            }
        }
    }

    /// Takes bytes that have come.
    fn take(&mut self, mut bytes: &[u8], sink: &mut dyn Sink) -> Result<(), Violation> {
        loop {
            let (have, len) = match &self.open {
                Open::Head => (self.held.len(), HEAD),
                Open::Control(head) => (self.held.len(), head.len.get() as usize),
                Open::Chunk(head, _) => (self.come, head.len.get() as usize),
            };
            if have < len {
                if bytes.is_empty() {
                    return Ok(());
                }
                let (some, rest) = bytes.split_at((len - have).min(bytes.len()));
                match &self.open {
                    Open::Head | Open::Control(_) => self.held.extend_from_slice(some),
                    Open::Chunk(_, place) => {
                        if place.is_some_and(|place| !place.fill(have as u64, some)) {
                            return Err(Violation("a place smaller than its chunk".into()));
                        }
                        self.come += some.len();
                    }
                }
                bytes = rest;
                continue;
            }
            match std::mem::replace(&mut self.open, Open::Head) {
                Open::Head => {
                    let head: &[u8; HEAD] = self.held.first_chunk().expect("as long as a head");
                    let (head, kind): (Head, Kind) = Head::decode(head).map_err(|bad| Violation(bad.to_string()))?;
                    self.open = match kind.is_payload() {
                        true => Open::Chunk(head, sink.place(&head)?),
                        false => Open::Control(head),
                    };
                }
                Open::Control(head) => sink.ctrl(&head, &self.held)?,
                Open::Chunk(head, _) => sink.landed(&head)?,
            }
            self.held.clear();
            self.come = 0;
        }
    }
}

#[allow(unsafe_code)]
// SAFETY: a source is read until its item has left, and a place written until it has landed, by the calls of the rail's owner alone; bodies
// of control messages are copied.
unsafe impl Rail for UnixRail {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        if self.out.len() == QUEUE {
            return Err(Busy);
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(body.len(), 0);
        assert!(body.read(0, &mut bytes));
        self.accept(head, Body::Copied(bytes))
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        if self.out.len() == QUEUE {
            return Err(Busy);
        }
        crate::depth::check();
        self.accept(head, Body::Lent(src))
    }

    fn taken(&self) -> u64 {
        self.accepted - self.out.len() as u64
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        self.down()?;
        let mut moved = Poll::Idle;
        while !self.out.is_empty() && !self.deaf {
            let n = self.gather();
            match self.socket.write(&self.piece[..n]) {
                Ok(some) => {
                    self.left(some);
                    moved = Poll::Active;
                    if some < n {
                        break;
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                // What the peer had sent before is still there to be read.
                Err(_) => self.deaf = true,
            }
        }
        Ok(moved)
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        self.down()?;
        let mut moved = Poll::Idle;
        for _ in 0..READS {
            let mut piece = std::mem::take(&mut self.piece);
            let read = self.socket.read(&mut piece);
            let taken = match &read {
                Ok(n) => self.take(&piece[..*n], sink),
                Err(_) => Ok(()),
            };
            self.piece = piece;
            match read {
                Ok(0) => self.end = Some(End::Gone("end of stream".into())),
                Ok(_) => moved = Poll::Active,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                Err(error) => self.end = Some(End::of_call("read", &error)),
            }
            if let Err(violation) = taken {
                self.end = Some(violation.into());
            }
            self.down()?;
        }
        Ok(moved)
    }

    fn arm(&mut self) -> Option<WaitFd> {
        let write = !self.out.is_empty() && !self.deaf;
        self.end.is_none().then(|| WaitFd { fd: self.socket.as_raw_fd(), read: true, write })
    }
}
