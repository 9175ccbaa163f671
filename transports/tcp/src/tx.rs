//! The sending half of a rail: what was accepted, and how it leaves.
//!
//! The stream to be sent is a sequence of bytes, counted from 0 by positions that never wrap. Heads and the bodies
//! of control messages are copied into a ring; payloads stay where they are and are remembered with the position of
//! their first byte. So any prefix of the sequence can be handed to the kernel, and wherever it stops we go on.

mod drain;

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use linkspan_net::Gather;
use linkspan_proto::head::{BATCH_MAX, HEAD_LEN, ROW_PAYLOAD_MAX, padding};
use linkspan_proto::{Head, Kind};
use linkspan_transport::{Buf, Busy, MemSlice};

use crate::zerocopy::ZeroCopy;

/// Bytes of heads and control bodies under way. 256 KiB: 31 control messages of the largest size, or every head
/// that [`ITEMS`] allows; fits a core's L2 cache.
pub(crate) const RING: usize = 256 << 10;

/// Items under way.
pub(crate) const ITEMS: usize = 4096;

/// Payloads under way.
const PAYLOADS: usize = 1024;

/// Once a system call carries this many bytes, nothing is added; and most of one payload that it carries. Of 256 KiB
/// to 1 MiB the copy into the kernel takes 20 to 100 us, which is as long as the other direction may wait.
const BATCH: usize = 1024 << 10;

/// Least payload that goes into a batch: below, a reader copies it out of its scratch anyway.
const ROW_LEAST: usize = 4096;

/// Payload bytes from which on a batch is closed: as much as the largest chunk of a stream, so that control messages wait no longer
/// behind it.
const ROW_BYTES: usize = 512 << 10;

const _: () = assert!(RING.is_power_of_two() && ITEMS.is_power_of_two());

/// A payload under way.
#[derive(Clone, Copy)]
struct Payload {
    /// Position of its first byte.
    at: u64,
    mem: MemSlice,
    /// It is lent to the kernel.
    zero_copy: bool,
}

/// Payloads accepted last, which may still become one batch: they have no position yet.
struct ChunkBatch {
    items: [(Head, MemSlice); BATCH_MAX],
    count: usize,
    bytes: usize,
}

/// Items accepted and not yet taken by the kernel.
pub(crate) struct Tx {
    ring: Box<[u8]>,
    /// Bytes ever put into the ring and ever taken from it; slot = count modulo RING.
    ring_in: u64,
    ring_out: u64,
    /// Position behind each item; slot = item number modulo ITEMS.
    ends: Box<[u64]>,
    accepted: u64,
    taken: u64,
    /// Payloads that have not left as a whole.
    payloads: VecDeque<Payload>,
    /// Positions: behind all that was accepted, and behind all that the kernel took.
    end: u64,
    sent: u64,
    batch: ChunkBatch,
    zerocopy: ZeroCopy,
}

/// Part of a round buffer of a power of two: the bytes from count `from` on, in up to two pieces.
fn pieces(ring: &[u8], from: u64, len: usize) -> (&[u8], &[u8]) {
    let at = from as usize & (ring.len() - 1);
    let first = len.min(ring.len() - at);
    (&ring[at..at + first], &ring[..len - first])
}

impl Tx {
    pub(crate) fn new(zerocopy: ZeroCopy) -> Tx {
        Tx {
            ring: vec![0; RING].into(),
            ring_in: 0,
            ring_out: 0,
            ends: vec![0; ITEMS].into(),
            accepted: 0,
            taken: 0,
            payloads: VecDeque::with_capacity(PAYLOADS),
            end: 0,
            sent: 0,
            batch: ChunkBatch { items: [(Head::new(Kind::Put), MemSlice::EMPTY); BATCH_MAX], count: 0, bytes: 0 },
            zerocopy,
        }
    }

    /// Accepts a control message; its body is copied.
    pub(crate) fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        let len = body.len();
        let whole = HEAD_LEN + len + padding(len);
        self.space_for(whole)?;
        self.close_row();
        let at = self.ring_in as usize & (RING - 1);
        if let Some(slot) = self.ring.get_mut(at..at + whole) {
            let (wire, behind) = slot.split_at_mut(HEAD_LEN);
            wire.copy_from_slice(head.as_wire());
            let (to, rest) = behind.split_at_mut(len);
            let inside = body.read(0, to);
            debug_assert!(inside);
            rest.fill(0);
            self.ring_in += whole as u64;
        } else {
            self.ctrl_in_pieces(head, body);
        }
        Ok(self.accept(whole))
    }

    /// [`Tx::ctrl`] over the end of the ring.
    #[cold]
    fn ctrl_in_pieces(&mut self, head: &Head, body: MemSlice) {
        let len = body.len();
        self.put_head(head);
        let at = self.ring_in as usize & (RING - 1);
        let first = len.min(RING - at);
        let inside = body.read(0, &mut self.ring[at..at + first])
            && (first == len || body.read(first as u64, &mut self.ring[..len - first]));
        debug_assert!(inside);
        self.ring_in += len as u64;
        self.put_padding(padding(len));
    }

    /// Accepts a payload behind its head; it is read later.
    pub(crate) fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        // A batch has one head more, and padding.
        self.space_for(2 * HEAD_LEN + 8)?;
        if self.payloads.len() + self.batch.count == PAYLOADS {
            return Err(Busy);
        }
        let zero_copy = self.zerocopy.wants(src.len());
        if zero_copy || !(ROW_LEAST..=ROW_PAYLOAD_MAX).contains(&src.len()) {
            self.close_row();
            self.accepted += 1;
            self.put_alone(head, src, zero_copy);
            return Ok(self.accepted);
        }
        if self.batch.count == BATCH_MAX || self.batch.bytes + src.len() > ROW_BYTES {
            self.close_row();
        }
        self.batch.items[self.batch.count] = (*head, src);
        self.batch.count += 1;
        self.batch.bytes += src.len();
        self.accepted += 1;
        Ok(self.accepted)
    }

    /// A payload right behind its head, as the last item accepted.
    fn put_alone(&mut self, head: &Head, src: MemSlice, zero_copy: bool) {
        let padding = padding(src.len());
        self.put_head(head);
        if !src.is_empty() {
            self.payloads.push_back(Payload { at: self.end + HEAD_LEN as u64, mem: src, zero_copy });
        }
        self.put_padding(padding);
        self.end += (HEAD_LEN + src.len() + padding) as u64;
        self.ends[self.accepted as usize & (ITEMS - 1)] = self.end;
    }

    /// Nothing joins the payloads accepted last any more: now they get their positions.
    #[inline]
    fn close_row(&mut self) {
        if self.batch.count > 0 {
            self.place_row();
        }
    }

    fn place_row(&mut self) {
        let (count, bytes) = (std::mem::take(&mut self.batch.count), std::mem::take(&mut self.batch.bytes));
        if count < 2 {
            if count == 1 {
                let (head, src) = self.batch.items[0];
                self.put_alone(&head, src, false);
            }
            return;
        }
        let mut all = Head::new(Kind::BatchHeads);
        all.len.set((count * HEAD_LEN) as u32);
        all.total.set(bytes as u64);
        self.put_head(&all);
        let (mut at, mut item) = (self.end + ((count + 1) * HEAD_LEN) as u64, self.accepted - count as u64);
        for n in 0..count {
            let (head, mem) = self.batch.items[n];
            self.put_head(&head);
            self.payloads.push_back(Payload { at, mem, zero_copy: false });
            at += mem.len() as u64;
            item += 1;
            self.ends[item as usize & (ITEMS - 1)] = at;
        }
        self.put_padding(padding(bytes));
        self.end = at + padding(bytes) as u64;
        self.ends[item as usize & (ITEMS - 1)] = self.end;
    }

    #[inline]
    fn space_for(&self, bytes: usize) -> Result<(), Busy> {
        let batch = if self.batch.count == 0 { 0 } else { (self.batch.count + 1) * HEAD_LEN + 8 };
        let ring = RING - (self.ring_in - self.ring_out) as usize >= bytes + batch;
        let items = self.accepted - self.taken < ITEMS as u64;
        if ring && items { Ok(()) } else { Err(Busy) }
    }

    fn put_head(&mut self, head: &Head) {
        let at = self.ring_in as usize & (RING - 1);
        let wire = head.as_wire();
        if let Some(slot) = self.ring.get_mut(at..at + HEAD_LEN) {
            slot.copy_from_slice(wire);
        } else {
            let first = RING - at;
            self.ring[at..].copy_from_slice(&wire[..first]);
            self.ring[..HEAD_LEN - first].copy_from_slice(&wire[first..]);
        }
        self.ring_in += HEAD_LEN as u64;
    }

    fn put_padding(&mut self, len: usize) {
        for _ in 0..len {
            self.ring[self.ring_in as usize & (RING - 1)] = 0;
            self.ring_in += 1;
        }
    }

    #[inline]
    fn accept(&mut self, bytes: usize) -> u64 {
        self.end += bytes as u64;
        self.accepted += 1;
        self.ends[self.accepted as usize & (ITEMS - 1)] = self.end;
        self.accepted
    }

    /// Number of the last item that is gone for good.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether bytes wait for the kernel.
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.sent != self.end || self.batch.count > 0
    }

    /// Whether the kernel still reads memory of sent payloads.
    #[inline]
    pub(crate) fn lent(&self) -> bool {
        self.zerocopy.lent()
    }

    /// After a reset: until the kernel has given back what it was lent.
    pub(crate) fn wait_given_back(&mut self, fd: BorrowedFd<'_>) {
        self.zerocopy.wait_given_back(fd);
    }

    /// Whether payload may still be lent to the kernel.
    #[cfg(test)]
    pub(crate) fn lends(&self) -> bool {
        self.zerocopy.on()
    }

    /// Hands the kernel what it takes now with one call. Returns whether it took anything.
    pub(crate) fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let mut active = false;
        if self.zerocopy.lent() && self.zerocopy.collect(fd)? {
            self.settle();
            active = true;
        }
        if !self.pending() {
            return Ok(active);
        }
        // While the kernel takes no more a batch goes on growing.
        if self.end - self.sent < BATCH as u64 {
            self.close_row();
        }
        let Some(n) = self.send(fd)? else {
            return Ok(active);
        };
        self.advance(n as u64);
        Ok(true)
    }

    fn send(&mut self, fd: BorrowedFd<'_>) -> io::Result<Option<usize>> {
        // Most often only control messages wait, and in one piece: spare the vector.
        if self.payloads.is_empty() {
            let (first, then) = pieces(&self.ring, self.ring_out, (self.end - self.sent) as usize);
            if then.is_empty() {
                return linkspan_net::send(fd, first);
            }
        }
        let mut gather = Gather::new();
        if self.zerocopy.on() && self.collect_lent(&mut gather) {
            return self.zerocopy.send(fd, &gather, self.sent);
        }
        let more = self.collect(&mut gather);
        if more { gather.send_more(fd) } else { gather.send(fd) }
    }

    /// Lists the payload whose bytes come next, where it is to be lent to the kernel. Returns whether it is.
    fn collect_lent(&self, gather: &mut Gather<'_>) -> bool {
        let Some(p) = self.payloads.front().filter(|p| p.zero_copy && p.at <= self.sent) else {
            return false;
        };
        let done = self.sent - p.at;
        let len = (p.mem.len() as u64 - done).min(BATCH as u64);
        p.mem.sub(done, len).is_some_and(|part| gather.push_mem(part))
    }

    /// Lists what comes next. Returns whether it stopped before a payload that goes alone.
    fn collect<'a>(&'a self, gather: &mut Gather<'a>) -> bool {
        let (mut pos, mut ring, mut payloads) = (self.sent, self.ring_out, self.payloads.iter());
        // The padding behind a payload goes with it, not as a packet of its own.
        let mut behind = false;
        let mut payload = payloads.next();
        while (gather.bytes() < BATCH || behind) && gather.capacity() >= 2 {
            let until = payload.map_or(self.end, |p| p.at);
            if pos < until {
                let (first, then) = pieces(&self.ring, ring, (until - pos) as usize);
                let fits = gather.push(first) && gather.push(then);
                debug_assert!(fits);
                ring += until - pos;
                pos = until;
                behind = false;
            } else if let Some(p) = payload {
                if p.zero_copy && self.zerocopy.on() {
                    return true;
                }
                let done = pos - p.at;
                let len = (p.mem.len() as u64 - done).min(BATCH as u64);
                let fits = p.mem.sub(done, len).is_some_and(|part| gather.push_mem(part));
                debug_assert!(fits);
                if done + len < p.mem.len() as u64 {
                    break;
                }
                pos = p.at + p.mem.len() as u64;
                payload = payloads.next();
                behind = true;
            } else {
                break;
            }
        }
        false
    }

    /// The kernel took the next `n` bytes.
    fn advance(&mut self, mut n: u64) {
        while n > 0 {
            let payload = self.payloads.front();
            let step = match payload {
                Some(p) if p.at <= self.sent => {
                    let rest = p.at + p.mem.len() as u64 - self.sent;
                    if n >= rest {
                        self.payloads.pop_front();
                    }
                    n.min(rest)
                }
                _ => {
                    let run = n.min(payload.map_or(self.end, |p| p.at) - self.sent);
                    self.ring_out += run;
                    run
                }
            };
            self.sent += step;
            n -= step;
        }
        if self.ring_in == self.ring_out {
            // An empty ring begins anew, so that light traffic stays within one part of the cache.
            (self.ring_in, self.ring_out) = (0, 0);
        }
        if self.payloads.is_empty() {
            self.payloads.clear();
        }
        self.settle();
    }

    fn settle(&mut self) {
        let gone = self.zerocopy.first_lent().unwrap_or(self.sent);
        let placed = self.accepted - self.batch.count as u64;
        while self.taken < placed && self.ends[(self.taken + 1) as usize & (ITEMS - 1)] <= gone {
            self.taken += 1;
        }
    }
}

#[cfg(test)]
mod tests;
