//! The replay log: control messages that the peer has not acknowledged, kept to be sent again over another rail.

use std::collections::VecDeque;

use crate::Head;

/// Body bytes kept: the eager credit and once more as much for inline puts.
const BYTES: usize = 128 << 10;

/// Messages kept; grants and acknowledgements have no body, so they are bounded by number.
const ENTRIES: usize = 2048;

#[derive(Clone, Copy, Debug)]
struct Entry {
    head: Head,
    start: usize,
    len: usize,
}

/// Bodies lie in a byte ring: live ones reach from `tail` to `head`, around the end if need be.
#[derive(Debug)]
pub(super) struct Log {
    bytes: Box<[u8]>,
    entries: VecDeque<Entry>,
    /// Where the body of the message lies that was offered to a rail last.
    offered: (usize, usize),
    bodies: usize,
    head: usize,
    tail: usize,
}

impl Log {
    pub(super) fn new() -> Log {
        Log {
            bytes: vec![0; BYTES].into_boxed_slice(),
            entries: VecDeque::with_capacity(ENTRIES),
            offered: (0, 0),
            bodies: 0,
            head: 0,
            tail: 0,
        }
    }

    /// Where `len` body bytes can go, or `None` when the log is full.
    fn space(&self, len: usize) -> Option<usize> {
        if self.entries.len() == ENTRIES {
            return None;
        }
        if self.bodies == 0 || len == 0 {
            return Some(0);
        }
        if self.head > self.tail {
            if self.head + len <= BYTES {
                return Some(self.head);
            }
            return (len <= self.tail).then_some(0);
        }
        (self.head + len <= self.tail).then_some(self.head)
    }

    /// Writes the body of a message that is to be offered to a rail where it would be kept. False: there is no space.
    #[inline]
    pub(super) fn offer(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let Some(start) = self.space(len) else { return false };
        write(&mut self.bytes[start..start + len]);
        self.offered = (start, len);
        true
    }

    /// The body of the message that was offered last.
    #[inline]
    pub(super) fn offered(&self) -> &[u8] {
        let (start, len) = self.offered;
        &self.bytes[start..start + len]
    }

    /// A rail has taken the message that was offered last: keeps it.
    #[inline]
    pub(super) fn keep(&mut self, head: &Head) {
        let (start, len) = self.offered;
        self.entries.push_back(Entry { head: *head, start, len });
        if len > 0 {
            if self.bodies == 0 {
                self.tail = start;
            }
            self.bodies += 1;
            self.head = start + len;
        }
    }

    /// Forgets everything up to and without sequence number `ack`.
    pub(super) fn trim(&mut self, ack: u32) {
        while let Some(first) = self.entries.front() {
            if (first.head.seq.get().wrapping_sub(ack) as i32) >= 0 {
                break;
            }
            if first.len > 0 {
                self.bodies -= 1;
                self.tail = first.start + first.len;
            }
            self.entries.pop_front();
        }
    }

    /// The n-th kept message.
    pub(super) fn get(&self, n: usize) -> Option<(&Head, &[u8])> {
        let entry = self.entries.get(n)?;
        Some((&entry.head, &self.bytes[entry.start..entry.start + entry.len]))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn head(seq: u32) -> Head {
        let mut head = Head::new(Kind::Eager);
        head.seq.set(seq);
        head
    }

    #[test]
    fn bodies_survive_wrapping_and_trimming() {
        let mut log = Log::new();
        let (mut first, mut next) = (0u32, 0u32);
        for round in 0..10_000u32 {
            let len = (round as usize * 7919) % 8192;
            // One that no rail takes leaves nothing behind.
            let _ = log.offer(8192 - len, |b| b.fill(0xEE));
            while !log.offer(len, |b| b.fill(next as u8)) {
                assert!(first < next, "an empty log has space");
                first += 1;
                log.trim(first);
            }
            log.keep(&head(next));
            next += 1;
            for n in 0..log.len() {
                let (h, body) = log.get(n).unwrap();
                assert_eq!(h.seq.get(), first + n as u32);
                assert!(body.iter().all(|&b| b == h.seq.get() as u8));
            }
        }
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut log = Log::new();
        for seq in [u32::MAX - 1, u32::MAX, 0, 1] {
            assert!(log.offer(3, |b| b.fill(1)));
            log.keep(&head(seq));
        }
        log.trim(0);
        assert_eq!(log.get(0).unwrap().0.seq.get(), 0);
    }
}
