//! Eager messages without a known receive: what the sender may still send, and where the receiver keeps them.

use std::collections::VecDeque;

use super::EAGER_CREDIT;
use super::planted::{self, Bug};
use crate::head::EAGER_MAX;

/// What an eager message of `len` bytes costs of the credit: its bytes rounded up to a cache line, and one line for
/// keeping it, so that empty messages are bounded too.
pub(super) fn cost(len: usize) -> usize {
    64 + len.next_multiple_of(64)
}

/// Takes the entry at `at`, most often the first: that one without what [`VecDeque::remove`] does to close a gap.
#[inline]
pub(super) fn take_at<T>(queue: &mut VecDeque<T>, at: usize) -> Option<T> {
    if at == 0 { queue.pop_front() } else { queue.remove(at) }
}

/// Where the oldest entry stands that `fits`: most often in front, which is found without a search.
#[inline]
pub(super) fn first_at<T>(queue: &VecDeque<T>, fits: impl Fn(&T) -> bool) -> Option<usize> {
    match queue.front() {
        None => None,
        Some(first) if fits(first) => Some(0),
        Some(_) => queue.iter().position(fits),
    }
}

/// Most unexpected messages at a time, from the cheapest one's cost.
const MAX_UNEXPECTED: usize = EAGER_CREDIT / 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Unpaired {
    pub(super) tag: u32,
    pub(super) len: u32,
}

/// The sender's view: eager messages sent without knowing their receive, oldest first.
#[derive(Debug)]
pub(super) struct Credit {
    left: usize,
    unpaired: VecDeque<Unpaired>,
}

impl Credit {
    pub(super) fn new() -> Credit {
        Credit { left: EAGER_CREDIT, unpaired: VecDeque::with_capacity(MAX_UNEXPECTED) }
    }

    pub(super) fn allows(&self, len: usize) -> bool {
        cost(len) <= self.left
    }

    pub(super) fn is_low(&self) -> bool {
        self.left < EAGER_CREDIT / 2
    }

    pub(super) fn spend(&mut self, tag: u32, len: usize) {
        self.left -= cost(len);
        self.unpaired.push_back(Unpaired { tag, len: len as u32 });
    }

    /// A grant has come for this tag: strikes off the oldest message it belongs to, if there is one.
    pub(super) fn pair(&mut self, tag: u32) -> Option<Unpaired> {
        let at = first_at(&self.unpaired, |u| u.tag == tag)?;
        let found = take_at(&mut self.unpaired, at)?;
        if !planted::is(Bug::CreditLeak) {
            self.left += cost(found.len as usize);
        }
        Some(found)
    }
}

#[derive(Clone, Copy, Debug)]
struct Stored {
    tag: u32,
    len: u32,
    start: usize,
    /// Which control message it was, counted from 1.
    number: u64,
}

/// The receiver's store of eager messages that came before their receive. Fixed memory; a peer that overdraws its
/// credit breaks the protocol.
#[derive(Debug)]
pub(super) struct Unexpected {
    bytes: Box<[u8]>,
    end: usize,
    used: usize,
    entries: VecDeque<Stored>,
}

impl Unexpected {
    pub(super) fn new() -> Unexpected {
        Unexpected {
            bytes: vec![0; EAGER_CREDIT].into_boxed_slice(),
            end: 0,
            used: 0,
            entries: VecDeque::with_capacity(MAX_UNEXPECTED),
        }
    }

    /// Keeps a message. False: the peer has overdrawn its credit.
    pub(super) fn store(&mut self, number: u64, tag: u32, payload: &[u8]) -> bool {
        if payload.len() > EAGER_MAX || self.used + cost(payload.len()) > EAGER_CREDIT {
            return false;
        }
        if self.end + payload.len() > self.bytes.len() {
            self.compact();
        }
        self.bytes[self.end..self.end + payload.len()].copy_from_slice(payload);
        self.entries.push_back(Stored { tag, len: payload.len() as u32, start: self.end, number });
        self.end += payload.len();
        self.used += cost(payload.len());
        true
    }

    /// Takes the oldest message with this tag.
    pub(super) fn take(&mut self, tag: u32) -> Option<&[u8]> {
        let at = first_at(&self.entries, |e| e.tag == tag)?;
        let Stored { start, len, .. } = take_at(&mut self.entries, at)?;
        let len = len as usize;
        self.used -= cost(len);
        if self.entries.is_empty() {
            self.end = 0;
        }
        Some(&self.bytes[start..start + len])
    }

    /// Takes the oldest message: its number, its tag and its bytes.
    pub(super) fn take_oldest(&mut self) -> Option<(u64, u32, &[u8])> {
        let Stored { number, tag, .. } = *self.entries.front()?;
        self.take(tag).map(|payload| (number, tag, payload))
    }

    /// Closes the gaps that messages taken out of order have left.
    fn compact(&mut self) {
        let mut end = 0;
        for entry in &mut self.entries {
            let len = entry.len as usize;
            self.bytes.copy_within(entry.start..entry.start + len, end);
            entry.start = end;
            end += len;
        }
        self.end = end;
    }
}
