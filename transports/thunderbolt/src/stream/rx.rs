//! The receiving half: from segments to messages, and payload in place.

use linkspan_proto::Head;
use linkspan_proto::head::{EAGER_MAX, HEAD_LEN};
use linkspan_transport::{Buf, End, MemSlice, Sink};

use super::segment::{Kind, SEGMENT_LEN, Segment};
use super::tx::Tx;
use super::{FRAME, system};
use crate::device::StreamDevice;

/// Bytes read ahead of what they are.
const SCRATCH: usize = 64 << 10;

/// What is read behind a payload: the next segment, a head, a short message.
const TAIL: usize = 256;

/// What the next bytes of the inner stream are.
enum Inner {
    /// Of a head, or of a control message's body: so many are there.
    Message(usize),
    /// Of a payload that goes here.
    Payload(Head, MemSlice),
    /// Of a payload that goes nowhere, so many of them.
    Drain(Head, usize),
}

pub(crate) struct Rx {
    scratch: Box<[u8]>,
    lo: usize,
    hi: usize,
    /// Bytes of the segment that is being read.
    segment: usize,
    inner: Inner,
    message: Box<[u8; HEAD_LEN + EAGER_MAX]>,
    /// What was read before there were segments.
    pub(crate) early: Vec<u8>,
    /// Bytes taken from the device.
    read: u64,
    /// Of those since the last acknowledgement, and pieces since then: together at least as many frames as the peer counts,
    /// which begins one for each write, and a write with a segment or with a head.
    bytes: usize,
    pieces: u32,
    /// Frames after which to acknowledge.
    often: u32,
    /// The peer has said that nothing comes any more.
    ended: bool,
    /// What comes is not wanted.
    deaf: bool,
}

impl Rx {
    pub(crate) fn new(window: u32) -> Rx {
        Rx {
            scratch: vec![0; SCRATCH].into(),
            lo: 0,
            hi: 0,
            segment: 0,
            inner: Inner::Message(0),
            message: Box::new([0; HEAD_LEN + EAGER_MAX]),
            early: Vec::new(),
            read: 0,
            bytes: 0,
            pieces: 0,
            often: (window / 4).max(1),
            ended: false,
            deaf: false,
        }
    }

    /// Bytes before the first segment.
    pub(crate) fn early(&mut self, bytes: &[u8]) {
        self.early.extend_from_slice(bytes);
        self.read += bytes.len() as u64;
    }

    /// Whether the peer is to be told how much was read.
    pub(crate) fn owes(&self) -> bool {
        self.pieces + (self.bytes / FRAME) as u32 >= self.often
    }

    /// The position to tell; told now.
    pub(crate) fn acknowledge(&mut self) -> u64 {
        (self.bytes, self.pieces) = (0, 0);
        self.read
    }

    /// Reads once and hands on what came. False: nothing had come.
    pub(crate) fn read(
        &mut self,
        device: &mut dyn StreamDevice,
        tx: &mut Tx,
        sink: &mut dyn Sink,
    ) -> Result<bool, End> {
        if self.ended {
            return Err(End::Gone("it closed the rail".into()));
        }
        let place = match &self.inner {
            Inner::Payload(_, rest) if self.lo == self.hi && self.segment > 0 => {
                rest.sub(0, rest.len().min(self.segment) as u64).unwrap_or(MemSlice::NONE)
            }
            _ => MemSlice::NONE,
        };
        if self.lo > 0 {
            self.scratch.copy_within(self.lo..self.hi, 0);
            (self.lo, self.hi) = (0, self.hi - self.lo);
        }
        let most = if place.is_empty() { SCRATCH } else { TAIL };
        let n = match device.read(place, &mut self.scratch[self.hi..most]) {
            Ok(Some(0)) => return Err(End::Gone("the stream ended without an end mark".into())),
            Ok(Some(n)) => n,
            Ok(None) => return Ok(false),
            Err(error) => return Err(system("read", &error)),
        };
        self.read += n as u64;
        self.bytes += n;
        let placed = n.min(place.len());
        self.hi += n - placed;
        self.segment -= placed;
        if placed > 0 {
            self.advance(placed, sink)?;
        }
        self.digest(tx, sink)?;
        Ok(true)
    }

    /// Reads acknowledgements alone, and drops everything else.
    pub(crate) fn acknowledged(&mut self, device: &mut dyn StreamDevice, tx: &mut Tx) -> Result<(), End> {
        self.deaf = true;
        self.read(device, tx, &mut Nobody).map(|_| ())
    }

    /// So many bytes of the payload are in place.
    fn advance(&mut self, n: usize, sink: &mut dyn Sink) -> Result<(), End> {
        let Inner::Payload(head, rest) = &mut self.inner else { return Ok(()) };
        *rest = rest.sub(n as u64, (rest.len() - n) as u64).unwrap_or(MemSlice::NONE);
        if rest.is_empty() {
            let head = *head;
            self.inner = Inner::Message(0);
            if !self.deaf {
                sink.landed(&head)?;
            }
        }
        Ok(())
    }

    /// Uses up the scratch as far as it goes.
    fn digest(&mut self, tx: &mut Tx, sink: &mut dyn Sink) -> Result<(), End> {
        while !self.ended {
            if self.segment == 0 {
                let Some(header) = self.scratch[self.lo..self.hi].first_chunk::<SEGMENT_LEN>() else { break };
                let (kind, len, acked) = Segment::decode(header).map_err(End::Protocol)?;
                tx.acked(acked).map_err(End::Protocol)?;
                self.lo += SEGMENT_LEN;
                self.segment = len;
                self.pieces += 1;
                self.ended = kind == Kind::End;
                continue;
            }
            let n = self.segment.min(self.hi - self.lo);
            if n == 0 {
                break;
            }
            let used = if self.deaf { n } else { self.take(n, sink)? };
            self.lo += used;
            self.segment -= used;
        }
        Ok(())
    }

    /// Takes some of the next `n` bytes of the scratch, which belong to one segment.
    fn take(&mut self, n: usize, sink: &mut dyn Sink) -> Result<usize, End> {
        let bytes = &self.scratch[self.lo..self.lo + n];
        match &mut self.inner {
            Inner::Message(had) => {
                let whole = match self.message.first_chunk::<HEAD_LEN>().filter(|_| *had >= HEAD_LEN) {
                    Some(head) => HEAD_LEN + Head::decode(head).map_or(0, |(head, _)| head.len.get() as usize),
                    None => HEAD_LEN,
                };
                let now = n.min(whole - *had);
                self.message[*had..*had + now].copy_from_slice(&bytes[..now]);
                *had += now;
                let had = *had;
                self.message(had, sink)?;
                Ok(now)
            }
            Inner::Payload(_, rest) => {
                let now = n.min(rest.len());
                let inside = rest.fill(0, &bytes[..now]);
                debug_assert!(inside);
                self.advance(now, sink)?;
                Ok(now)
            }
            Inner::Drain(head, rest) => {
                let now = n.min(*rest);
                *rest -= now;
                if *rest == 0 {
                    let head = *head;
                    self.inner = Inner::Message(0);
                    sink.landed(&head)?;
                }
                Ok(now)
            }
        }
    }

    /// `had` bytes of a message are there: hands it on when it is whole.
    fn message(&mut self, had: usize, sink: &mut dyn Sink) -> Result<(), End> {
        let Some(head) = self.message.first_chunk::<HEAD_LEN>().filter(|_| had >= HEAD_LEN) else { return Ok(()) };
        let (head, kind) = Head::decode(head).map_err(|bad| End::Protocol(bad.to_string()))?;
        let len = head.len.get() as usize;
        if kind.is_payload() {
            self.pieces += 1;
            self.inner = match sink.place(&head)? {
                Some(mem) if mem.len() == len => Inner::Payload(head, mem),
                Some(mem) => {
                    return Err(End::Protocol(format!("a chunk of {len} bytes met a place of {}", mem.len())));
                }
                None => Inner::Drain(head, len),
            };
            if len == 0 {
                self.inner = Inner::Message(0);
                sink.landed(&head)?;
            }
        } else if had == HEAD_LEN + len {
            self.pieces += 1;
            self.inner = Inner::Message(0);
            sink.ctrl(&head, &self.message[HEAD_LEN..had])?;
        }
        Ok(())
    }
}

/// Where nothing goes.
struct Nobody;

impl Sink for Nobody {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), linkspan_transport::Violation> {
        Ok(())
    }

    fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, linkspan_transport::Violation> {
        Ok(None)
    }

    fn landed(&mut self, _: &Head) -> Result<(), linkspan_transport::Violation> {
        Ok(())
    }
}

/// Reads any bytes as what a peer sends; for the fuzz target. How many messages and chunks they held.
#[doc(hidden)]
pub fn reads_any_bytes(bytes: &[u8]) -> usize {
    struct Bytes<'a>(&'a [u8]);
    #[allow(unsafe_code)]
    // SAFETY: bytes are copied within the call.
    unsafe impl StreamDevice for Bytes<'_> {
        fn read(&mut self, place: MemSlice, tail: &mut [u8]) -> std::io::Result<Option<usize>> {
            let n = self.0.len().min(place.len());
            assert!(place.fill(0, &self.0[..n]), "a place is as long as it says");
            let m = (self.0.len() - n).min(tail.len());
            tail[..m].copy_from_slice(&self.0[n..n + m]);
            self.0 = &self.0[n + m..];
            Ok(Some(n + m).filter(|n| *n > 0))
        }
        fn write(&mut self, _: &[MemSlice]) -> std::io::Result<Option<usize>> {
            Ok(None)
        }
        fn wait_fd(&self) -> std::os::fd::RawFd {
            -1
        }
    }
    struct Count(usize, MemSlice);
    impl Sink for Count {
        fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), linkspan_transport::Violation> {
            assert_eq!(head.len.get() as usize, payload.len(), "a body is as long as its head says");
            self.0 += 1;
            Ok(())
        }
        fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, linkspan_transport::Violation> {
            self.0 += 1;
            Ok(self.1.sub(0, head.len.get().into()))
        }
        fn landed(&mut self, _: &Head) -> Result<(), linkspan_transport::Violation> {
            Ok(())
        }
    }
    let (mut rx, mut tx) = (Rx::new(252), Tx::new(252));
    let buf = linkspan_transport::HostBuf::new(8192);
    #[allow(unsafe_code)]
    // SAFETY: the handle is used in this function alone.
    let (mut device, mut sink) = (Bytes(bytes), Count(0, unsafe { buf.slice() }));
    while let Ok(true) = rx.read(&mut device, &mut tx, &mut sink) {}
    sink.0
}
