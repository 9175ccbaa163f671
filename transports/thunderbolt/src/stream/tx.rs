//! The sending half: what was accepted, cut into segments, inside the window.
//!
//! The inner stream is a sequence of bytes, counted from 0. Heads and bodies are copied into a ring; payloads stay where they
//! are and are remembered with the position of their first byte.

use std::collections::VecDeque;
use std::io;

use linkspan_proto::Head;
use linkspan_proto::head::HEAD_LEN;
use linkspan_transport::{Buf, Busy, HostBuf, MemSlice};

use super::FRAME;
use super::rx::Rx;
use super::segment::{Kind, SEGMENT_LEN, Segment};
use crate::device::StreamDevice;

/// Bytes of heads and bodies under way.
const RING: usize = 128 << 10;

/// Items under way.
const ITEMS: usize = 1024;

/// Frames that only acknowledgements and the end mark use, so that two full windows cannot wait for each other.
const RESERVE: u32 = 4;

/// Most bytes of a segment with its header: eight frames.
const SEGMENT_MOST: usize = 8 * FRAME;

/// Pieces of a segment: its header, two of the ring, a payload.
const PIECES: usize = linkspan_tbring::PIECES;

const _: () = assert!(RING.is_power_of_two() && SEGMENT_MOST - SEGMENT_LEN <= u16::MAX as usize);

/// A payload under way.
#[derive(Clone, Copy)]
struct Payload {
    /// Position of its first byte.
    at: u64,
    mem: MemSlice,
}

pub(crate) struct Tx {
    /// The ring, and behind it space for the header of the segment that is being written.
    ring: HostBuf,
    ring_in: u64,
    ring_out: u64,
    payloads: VecDeque<Payload>,
    /// Position behind each item, oldest first.
    ends: VecDeque<u64>,
    taken: u64,
    /// Positions of the inner stream: behind all that was accepted, behind all that was written.
    end: u64,
    sent: u64,
    /// What is left of the segment being written: bytes of its header, bytes of the inner stream.
    open: (usize, usize),
    /// Bytes given to the device, and for each write that the peer has not acknowledged the position behind it and its frames.
    written: u64,
    flights: VecDeque<(u64, u32)>,
    under_way: u32,
    window: u32,
    /// The device has said that it is full.
    full: bool,
    /// 0 no, 1 the end mark is to be written, 2 it has been.
    finishing: u8,
}

impl Tx {
    pub(crate) fn new(window: u32) -> Tx {
        Tx {
            ring: HostBuf::new(RING + SEGMENT_LEN),
            ring_in: 0,
            ring_out: 0,
            payloads: VecDeque::with_capacity(ITEMS),
            ends: VecDeque::with_capacity(ITEMS),
            taken: 0,
            end: 0,
            sent: 0,
            open: (0, 0),
            written: 0,
            flights: VecDeque::with_capacity(window as usize + 1),
            under_way: 0,
            window,
            full: false,
            finishing: 0,
        }
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    fn transport(&self, bytes: usize) -> Result<(), Busy> {
        let ring = RING - (self.ring_in - self.ring_out) as usize >= bytes;
        if ring && self.ends.len() < ITEMS { Ok(()) } else { Err(Busy) }
    }

    /// Copies into the ring.
    fn put(&mut self, bytes: &[u8]) {
        let at = self.ring_in as usize & (RING - 1);
        let first = bytes.len().min(RING - at);
        let inside = self.ring.fill(at as u64, &bytes[..first]) && self.ring.fill(0, &bytes[first..]);
        debug_assert!(inside);
        self.ring_in += bytes.len() as u64;
    }

    fn accept(&mut self, bytes: usize) -> u64 {
        self.end += bytes as u64;
        self.ends.push_back(self.end);
        self.taken + self.ends.len() as u64
    }

    pub(crate) fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        self.transport(HEAD_LEN + body.len())?;
        self.put(head.as_wire());
        let mut piece = [0; 1024];
        let mut at = 0;
        while at < body.len() {
            let n = piece.len().min(body.len() - at);
            let inside = body.read(at as u64, &mut piece[..n]);
            debug_assert!(inside);
            self.put(&piece[..n]);
            at += n;
        }
        Ok(self.accept(HEAD_LEN + body.len()))
    }

    pub(crate) fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        self.transport(HEAD_LEN)?;
        self.put(head.as_wire());
        if !src.is_empty() {
            self.payloads.push_back(Payload { at: self.end + HEAD_LEN as u64, mem: src });
        }
        Ok(self.accept(HEAD_LEN + src.len()))
    }

    /// The first bytes, outside of every segment.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.put(bytes);
        self.end += bytes.len() as u64;
        self.open = (0, bytes.len());
    }

    /// The peer has read up to this position of ours.
    pub(crate) fn acked(&mut self, position: u64) -> Result<(), String> {
        if position > self.written {
            return Err(format!("{position} bytes acknowledged of {}", self.written));
        }
        while let Some(&(behind, frames)) = self.flights.front() {
            if behind > position {
                break;
            }
            self.under_way -= frames;
            self.flights.pop_front();
        }
        Ok(())
    }

    /// Frames that may be written now.
    fn budget(&self, reserve: u32) -> u32 {
        self.window.saturating_sub(reserve).saturating_sub(self.under_way)
    }

    /// Whether the device was full when it was written to last.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Whether there is something to write and space for it in the window.
    pub(crate) fn can_send(&self, rx: &Rx) -> bool {
        let begun = self.open != (0, 0);
        (begun && self.budget(0) > 0)
            || (self.end > self.sent && self.budget(RESERVE) > 0)
            || (rx.owes() && self.budget(0) > 0)
    }

    /// An end mark behind all that was accepted.
    pub(crate) fn finish(&mut self) {
        self.finishing = 1;
    }

    pub(crate) fn unfinished(&self) -> bool {
        self.finishing == 1 || self.open != (0, 0)
    }

    /// Writes as much as the window and the device take. Whether anything was.
    pub(crate) fn flush(&mut self, device: &mut dyn StreamDevice, rx: &mut Rx) -> io::Result<bool> {
        let mut active = false;
        self.full = false;
        while !self.full {
            if self.open == (0, 0) && !self.begin(rx) {
                break;
            }
            if self.budget(0) == 0 || !self.write(device)? {
                break;
            }
            active = true;
        }
        Ok(active)
    }

    /// Begins the next segment, if there is something to say and space for it.
    fn begin(&mut self, rx: &mut Rx) -> bool {
        let left = self.end - self.sent;
        let frames = self.budget(RESERVE) as usize;
        // One write takes one payload, and each write begins a frame: a segment with more of them would take frames that are kept free for
        // acknowledgements, and two sides that wait for those would stand still.
        let left = self.payloads.front().map_or(left, |first| left.min(first.at + first.mem.len() as u64 - self.sent));
        let bytes = (frames * FRAME).min(SEGMENT_MOST).saturating_sub(SEGMENT_LEN).min(left as usize);
        let (kind, len) = if bytes > 0 {
            (Kind::Bytes, bytes)
        } else if self.finishing == 1 && left == 0 && self.budget(0) > 0 {
            self.finishing = 2;
            (Kind::End, 0)
        } else if rx.owes() && self.budget(0) > 0 {
            (Kind::Ack, 0)
        } else {
            return false;
        };
        let header = Segment::new(kind, len as u16, rx.acknowledge());
        let inside = self.ring.fill(RING as u64, header.as_wire());
        debug_assert!(inside);
        self.open = (SEGMENT_LEN, len);
        true
    }

    /// Writes once. False: the device is full.
    fn write(&mut self, device: &mut dyn StreamDevice) -> io::Result<bool> {
        let (header, left) = self.open;
        let most = (self.budget(0) as usize * FRAME).saturating_sub(header);
        let mut left = left.min(most);
        let payload = self.payloads.front().copied();
        // Bytes of the ring up to the next payload, then that payload.
        let until = payload.map_or(self.end, |p| p.at.max(self.sent));
        let n = left.min((until - self.sent) as usize);
        let slot = self.ring_out as usize & (RING - 1);
        let first = n.min(RING - slot);
        left -= n;
        #[allow(unsafe_code)]
        // SAFETY: `write` copies within the call.
        let ring = unsafe { self.ring.slice() };
        let last = payload.filter(|_| left > 0).and_then(|p| {
            let done = self.sent + n as u64 - p.at;
            p.mem.sub(done, left.min(p.mem.len() - done as usize) as u64)
        });
        let all: [Option<MemSlice>; PIECES] = [
            ring.sub((RING + SEGMENT_LEN - header) as u64, header as u64),
            ring.sub(slot as u64, first as u64),
            ring.sub(0, (n - first) as u64),
            last,
        ];
        let mut pieces = [MemSlice::NONE; PIECES];
        let mut used = 0;
        for piece in all.into_iter().flatten().filter(|piece| !piece.is_empty()) {
            pieces[used] = piece;
            used += 1;
        }
        match device.write(&pieces[..used])? {
            Some(n) if n > 0 => {
                self.gone(n);
                Ok(true)
            }
            _ => {
                self.full = true;
                Ok(false)
            }
        }
    }

    /// The device has taken `n` bytes, each write in frames of its own.
    fn gone(&mut self, n: usize) {
        let frames = n.div_ceil(FRAME) as u32;
        self.written += n as u64;
        self.under_way += frames;
        self.flights.push_back((self.written, frames));
        let header = n.min(self.open.0);
        self.open.0 -= header;
        let mut left = n - header;
        self.open.1 -= left;
        while left > 0 {
            let payload = self.payloads.front().copied();
            let until = payload.map_or(self.end, |p| p.at.max(self.sent));
            let ring = left.min((until - self.sent) as usize);
            self.sent += ring as u64;
            self.ring_out += ring as u64;
            left -= ring;
            if let Some(payload) = payload.filter(|_| left > 0) {
                let n = left.min(payload.mem.len() - (self.sent - payload.at) as usize);
                self.sent += n as u64;
                left -= n;
            }
            if payload.is_some_and(|p| self.sent == p.at + p.mem.len() as u64) {
                self.payloads.pop_front();
            }
        }
        while self.ends.front().is_some_and(|&end| end <= self.sent) {
            self.ends.pop_front();
            self.taken += 1;
        }
    }
}
