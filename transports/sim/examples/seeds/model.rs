//! What each direction of traffic should bring: per tag a queue of messages whose length and content both ends know.

use linkspan_sim::Rng;
use linkspan_transport::conformance::{check_bytes, pattern};
use linkspan_transport::{Buf, MemSlice, StaticBuf, Ticket};

pub(crate) const TAGS: usize = 4;

/// One message: the n-th with its tag in its direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) tag: u32,
    pub(crate) len: usize,
    /// Its receive is posted too small, on purpose.
    pub(crate) truncation: bool,
    pub(crate) content: u64,
}

impl Message {
    pub(crate) fn new(seed: u64, from: usize, tag: u32, nth: u64) -> Message {
        let id = seed << 8 ^ u64::from(tag) << 1 ^ from as u64 ^ nth << 40;
        let mut rng = Rng::new(id);
        let len = match rng.below(12) {
            0 => 0,
            1..=5 => rng.below(400),
            6 | 7 => 8180 + rng.below(30),
            8..=10 => rng.below(30_000),
            _ => rng.below(200_000),
        } as usize;
        Message { tag, len, truncation: len > 1 && rng.one_in(30), content: id }
    }

    pub(crate) fn bytes(&self) -> StaticBuf {
        pattern(self.len, self.content)
    }

    /// Bytes its receive has space for.
    pub(crate) fn capacity(&self) -> usize {
        if self.truncation { self.len / 2 } else { self.len + 32 }
    }
}

pub(crate) struct Sent {
    pub(crate) ticket: Ticket,
    pub(crate) message: Message,
    pub(crate) src: StaticBuf,
}

pub(crate) struct Received {
    pub(crate) ticket: Ticket,
    pub(crate) parts: Vec<(Message, StaticBuf)>,
}

/// One direction.
#[derive(Default)]
pub(crate) struct DirectionModel {
    pub(crate) sent: [u64; TAGS],
    pub(crate) posted: [u64; TAGS],
    pub(crate) sends: Vec<Sent>,
    pub(crate) recvs: Vec<Received>,
    /// Messages longer than their receive that the sender has heard of, and those it has sent.
    pub(crate) truncation_reported: usize,
    pub(crate) truncation_sent: usize,
    pub(crate) delivered: u64,
}

impl DirectionModel {
    pub(crate) fn total_sent(&self) -> u64 {
        self.sent.iter().sum()
    }

    pub(crate) fn is_done(&self, messages: u64) -> bool {
        self.total_sent() >= messages
            && self.sent == self.posted
            && self.sends.is_empty()
            && self.recvs.is_empty()
            && self.truncation_reported == self.truncation_sent
    }
}

/// Memory that is the application's again: poisoned, and watched until the end.
#[derive(Default)]
pub(crate) struct Free {
    bufs: Vec<StaticBuf>,
}

const POISON: u8 = 0xEE;
/// Freed buffers watched at a time.
const WATCHED: usize = 24;

impl Free {
    pub(crate) fn add(&mut self, buf: StaticBuf) {
        assert!(buf.slice().fill(0, &vec![POISON; buf.len()]), "whole");
        if self.bufs.len() == WATCHED {
            check_free(self.bufs.remove(0).slice());
        }
        self.bufs.push(buf);
    }

    pub(crate) fn check(&self) {
        self.bufs.iter().for_each(|b| check_free(b.slice()));
    }
}

pub(crate) fn check_free(mem: MemSlice) {
    let bytes = mem.to_vec();
    if bytes == vec![POISON; bytes.len()] {
        return;
    }
    if let Some(at) = bytes.iter().position(|&b| b != POISON) {
        panic!("byte {at} of {} of memory that was free changed", bytes.len());
    }
}

/// Checks a delivered message and that nothing lies behind it.
pub(crate) fn check_message(message: &Message, buf: &StaticBuf, size: u64) {
    assert_eq!(size, message.len as u64, "size of {message:?}");
    let whole = buf.slice();
    check_bytes(whole.sub(0, size).expect("inside"), message.content);
    let rest = whole.sub(size, buf.len() as u64 - size).expect("inside");
    check_free(rest);
}

pub(crate) fn poisoned(len: usize) -> StaticBuf {
    let buf = StaticBuf::new(len);
    assert!(buf.slice().fill(0, &vec![POISON; len]), "whole");
    buf
}
