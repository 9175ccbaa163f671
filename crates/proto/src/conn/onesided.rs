//! One-sided operations: writes and reads of regions that the peer has exposed, and notifications.

use std::collections::VecDeque;

use super::action::{CHUNKS, Offered, Post};
use super::ops::CompletionRule;
use super::planted::{self, Bug};
use super::send::Segmentation;
use super::{Broken, Engine, MAX_OPS, MAX_RECVS, OpError, Refused, Ticket};
use crate::head::EAGER_MAX;
use crate::{Buf, Head, Kind};

/// Regions exposed to one peer at a time.
pub(super) const MAX_REGIONS: usize = 4096;

/// Notifications kept for a waiter that does not come for them. A peer that sends more breaks the protocol.
const MAX_NOTIFIES: usize = 64 << 10;

/// Answers to reads under way at a time: as many reads as a peer can have posted.
const MAX_ANSWERS: usize = MAX_RECVS;

/// Words of the bitmap of refused notifications: a bit for each write that a peer can have under way.
pub(super) const REFUSED_WORDS: usize = MAX_OPS / 64;

const INDEX_BITS: u32 = 12;
const _: () = assert!(MAX_REGIONS == 1 << INDEX_BITS);

/// What the peer may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only.
    Read,
    /// Write only.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    fn allows(self, write: bool) -> bool {
        match self {
            Access::ReadWrite => true,
            Access::Read => !write,
            Access::Write => write,
        }
    }
}

/// A place in a region of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSlice {
    /// Key that the peer gave out: index and generation.
    pub key: u32,
    /// Offset in the region, bytes.
    pub offset: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ExposureSlot<B> {
    pub(super) generation: u32,
    live: Option<(B, Access)>,
}

#[derive(Debug)]
pub(super) struct OneSided<B> {
    pub(super) regions: Vec<ExposureSlot<B>>,
    pub(super) free: Vec<u16>,
    pub(super) notifies: VecDeque<u64>,
    /// Writes whose notification waits for their chunks.
    waiting: VecDeque<Waiting>,
    /// Small writes of the peer that were refused, and whose notification is not to be believed when it comes.
    pub(super) disowned: VecDeque<u32>,
    answers: usize,
    /// Notifications that have come, those of refused writes included.
    seen: u64,
    /// Of the last ones those of refused writes: bit `n % MAX_OPS` for the one with number `n`, from 0.
    refused: [u64; REFUSED_WORDS],
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: Ticket,
    value: u64,
    /// One more than the number of the [`Kind::InlinePut`] it follows; 0 for a large write.
    inline_put: u64,
}

/// The answer to a read that gets none.
pub(super) fn read_refused(key: u32, id: u32) -> Head {
    let mut head = Head::new(Kind::Refused);
    head.id.set(key);
    head.tag.set(id);
    head.total.set(1);
    head
}

impl<B: Buf> OneSided<B> {
    pub(super) fn new() -> OneSided<B> {
        OneSided {
            regions: Vec::new(),
            free: Vec::new(),
            notifies: VecDeque::new(),
            waiting: VecDeque::new(),
            disowned: VecDeque::new(),
            answers: 0,
            seen: 0,
            refused: [0; REFUSED_WORDS],
        }
    }

    /// A notification has come: what becomes of its write.
    fn came(&mut self, refused: bool) {
        let (word, bit) = (self.seen as usize % MAX_OPS / 64, 1 << (self.seen % 64));
        self.seen += 1;
        self.refused[word] &= !bit;
        if refused {
            self.refused[word] |= bit;
        }
    }

    /// The range, if the key is current, the right is there and the bounds hold.
    fn find(&self, key: u32, offset: u64, len: u64, write: bool) -> Option<B> {
        let region = self.regions.get((key & ((1 << INDEX_BITS) - 1)) as usize)?;
        let current = region.generation == key >> INDEX_BITS || planted::is(Bug::StaleGeneration);
        let (buf, access) = region.live.filter(|_| current)?;
        if !access.allows(write) {
            return None;
        }
        buf.sub(offset, len)
    }

    /// Whether the key is current.
    pub(super) fn is_live(&self, key: u32) -> bool {
        let region = self.regions.get((key & ((1 << INDEX_BITS) - 1)) as usize);
        region.is_some_and(|r| r.live.is_some() && r.generation == key >> INDEX_BITS)
    }

    pub(super) fn place(&mut self, head: &Head) -> Result<Option<B>, Broken> {
        let len = u64::from(head.len.get());
        if len == 0 {
            return Err(Broken("an empty chunk".into()));
        }
        Ok(self.find(head.id.get(), head.offset.get(), len, true))
    }

    /// Whether notifications wait for their writes.
    pub(super) fn has_notifies(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn answered(&mut self) {
        self.answers = self.answers.saturating_sub(1);
    }
}

impl<B: Buf> Engine<B> {
    /// Gives the peer access to a region; the key goes to the peer by any way the caller likes. `None`: all
    /// 4096 are in use.
    pub fn expose(&mut self, buf: B, access: Access) -> Option<u32> {
        let regions = &mut self.onesided.regions;
        let index = match self.onesided.free.pop() {
            Some(index) => usize::from(index),
            None if regions.len() < MAX_REGIONS => {
                regions.push(ExposureSlot { generation: 1, live: None });
                regions.len() - 1
            }
            None => return None,
        };
        regions[index].live = Some((buf, access));
        Some(regions[index].generation << INDEX_BITS | index as u32)
    }

    /// Gives access under a key that the caller has chosen: its low 12 bits are the index of the region, the rest is a
    /// generation above zero that was never used with it. For callers whose keys outlive a connection; such a caller
    /// never calls [`Engine::expose`]. False: the generation is zero, or the region is in use.
    #[must_use]
    pub fn expose_at(&mut self, key: u32, buf: B, access: Access) -> bool {
        let (index, generation) = ((key & ((1 << INDEX_BITS) - 1)) as usize, key >> INDEX_BITS);
        let regions = &mut self.onesided.regions;
        if generation == 0 || regions.get(index).is_some_and(|r| r.live.is_some()) {
            return false;
        }
        while regions.len() <= index {
            regions.push(ExposureSlot { generation: 0, live: None });
        }
        regions[index] = ExposureSlot { generation, live: Some((buf, access)) };
        // The caller gives the indices out.
        self.onesided.free.clear();
        true
    }

    /// What is exposed: its key, where it is, and what the peer may do with it.
    pub fn exposures(&self) -> impl Iterator<Item = (u32, B, Access)> {
        let regions = self.onesided.regions.iter().enumerate();
        regions.filter_map(|(index, region)| {
            region.live.map(|(buf, access)| (region.generation << INDEX_BITS | index as u32, buf, access))
        })
    }

    /// Takes access back. From this call on nothing new lands in the region and nothing new is read from it; `false`
    /// means that a chunk is still arriving in it, or that one read from it is not known to have arrived: progress and
    /// ask again before the memory is used otherwise. Reads that were not answered to their end are refused.
    pub fn unexpose(&mut self, key: u32) -> bool {
        let index = (key & ((1 << INDEX_BITS) - 1)) as usize;
        if let Some(region) = self.onesided.regions.get_mut(index) {
            let current = region.live.is_some() && region.generation == key >> INDEX_BITS;
            if current {
                region.live = None;
            }
            // A generation that has run through all its values retires its index rather than begin again.
            if current && region.generation < (1 << (32 - INDEX_BITS)) - 1 {
                region.generation += 1;
                self.onesided.free.push(index as u16);
            }
            if current {
                self.refuse_answers(key);
            }
        }
        !self.rails.is_arriving_into(key) && !self.rails.is_leaving_from(key)
    }

    /// Stops the answers being read from a region that was taken back.
    fn refuse_answers(&mut self, key: u32) {
        let (control, onesided) = (&mut self.control, &mut self.onesided);
        self.sends.segmenting.retain(|cut| {
            let drop = cut.key == key;
            if drop {
                control.queue(read_refused(key, cut.id));
                onesided.answered();
            }
            !drop
        });
        self.sends.again.retain(|piece| {
            let drop = piece.key == key;
            if drop {
                control.queue(read_refused(key, piece.head.id.get()));
            }
            !drop
        });
    }

    /// Writes into a region of the peer, then notifies it if asked. Its ticket is done when the peer has acknowledged the bytes;
    /// [`Engine::posted`] has it, or, for a small write that no rail took, none.
    ///
    /// # Errors
    /// [`Refused::Busy`]: too much in flight, try again after progress. [`Refused::Failed`] with [`OpError::NotAcked`]
    /// or [`OpError::Range`]. A refusal by the peer fails the operation later.
    pub fn post_write(&mut self, src: B, to: RemoteSlice, notify: Option<u64>) -> Result<(), Refused> {
        let len = src.len() as u64;
        self.check_onesided(to.offset, len)?;
        // Of small writes that it has refused the peer keeps as many whose notifications are still to come.
        if self.ops.is_full() || notify.is_some() && self.onesided.waiting.len() >= MAX_OPS {
            return Err(Refused::Busy);
        }
        if src.len() > EAGER_MAX {
            let mark = if notify.is_some() { CompletionRule::Notify } else { CompletionRule::Reported };
            let ticket = self.ops.start(len, 1, mark).ok_or(Refused::Busy)?;
            let tag = ticket.index() as u32;
            self.ops.is_write(ticket);
            self.ops.segmenting(ticket);
            self.sends.segmenting.push_back(Segmentation {
                ticket: Some(ticket),
                key: 0,
                kind: Kind::Put,
                id: to.key,
                tag,
                src,
                base: to.offset,
                done: 0,
            });
            if let Some(value) = notify {
                let inline_put = 0;
                self.onesided.waiting.push_back(Waiting { ticket, value, inline_put });
            }
            self.out.is_due(CHUNKS);
            self.out.posted(ticket);
            return Ok(());
        }
        self.post(Post::Write { src, to, notify });
        Ok(())
    }

    /// The notification that a small write carries itself. They leave in order: behind one that waits for its chunks it has to
    /// wait too.
    fn carried(&self, notify: Option<u64>) -> Option<u64> {
        notify.filter(|_| self.onesided.waiting.is_empty())
    }

    pub(super) fn inline_put_head(&self, to: RemoteSlice, notify: Option<u64>) -> Head {
        let carried = self.carried(notify);
        let mut head = Head::new(if carried.is_some() { Kind::InlinePutNotify } else { Kind::InlinePut });
        head.id.set(to.key);
        head.tag.set(self.ops.next_index());
        head.offset.set(to.offset);
        head.total.set(carried.unwrap_or(u64::from(notify.is_some())));
        head
    }

    /// A small write has left.
    pub(super) fn inline_put_left(&mut self, src: B, notify: Option<u64>, seq: u64) -> Option<Ticket> {
        let follows = notify.filter(|_| self.carried(notify).is_none());
        let rule = if follows.is_some() { CompletionRule::Notify } else { CompletionRule::Acked { seq } };
        let ticket = self.ops.start(src.len() as u64, 1, rule)?;
        self.ops.is_write(ticket);
        if let Some(value) = follows {
            self.ops.all_out(ticket, true);
            let inline_put = 1 + u64::from(seq as u32);
            self.onesided.waiting.push_back(Waiting { ticket, value, inline_put });
        }
        Some(ticket)
    }

    /// Reads from a region of the peer. [`Engine::posted`] has the ticket, or none if no rail took the request.
    ///
    /// # Errors
    /// As [`Engine::post_write`].
    pub fn post_read(&mut self, dst: B, from: RemoteSlice) -> Result<(), Refused> {
        self.check_onesided(from.offset, dst.len() as u64)?;
        if !self.recvs.has_free(1) || self.ops.is_full() {
            return Err(Refused::Busy);
        }
        self.post(Post::Read { dst, from });
        Ok(())
    }

    pub(super) fn read_head(&self, dst: B, from: RemoteSlice) -> Head {
        let mut head = Head::new(Kind::Read);
        head.id.set(from.key);
        head.tag.set(self.recvs.next_id());
        head.offset.set(from.offset);
        head.total.set(dst.len() as u64);
        head
    }

    /// The request of a read has left.
    pub(super) fn read_left(&mut self, dst: B) -> Option<Ticket> {
        let ticket = self.ops.start(0, 1, CompletionRule::Reported)?;
        let id = self.recvs.take_slot(0, dst, ticket, 0);
        self.recvs.expect(id, dst.len() as u64);
        Some(ticket)
    }

    /// The oldest notification not taken yet.
    pub fn take_notify(&mut self) -> Option<u64> {
        self.onesided.notifies.pop_front()
    }

    /// Notifications that have come from the peer so far, taken or not, those of refused small writes included. They come in
    /// the order in which the peer's engine sent them, so the count tells which of them have.
    pub fn notifies_seen(&self) -> u64 {
        self.onesided.seen
    }

    /// Which of the last notifications of [`Engine::notifies_seen`] were of writes that were refused: of the one with number `n`, from
    /// 0, bit `n % 64` of word `n / 64 % 8`. A peer that has not heard the refusal yet has no more writes under way than there are bits.
    pub fn notifies_refused(&self) -> [u64; REFUSED_WORDS] {
        self.onesided.refused
    }

    fn check_onesided(&self, offset: u64, len: u64) -> Result<(), Refused> {
        if !self.cfg.acked {
            return Err(Refused::Failed(OpError::NotAcked));
        }
        if offset.checked_add(len).is_none() {
            return Err(Refused::Failed(OpError::Range { offset, len }));
        }
        Ok(())
    }

    /// The next notification whose write has landed. They leave in order.
    pub(super) fn look_at_notifies(&mut self) -> Option<(Offered, Head, B)> {
        while let Some(&Waiting { ticket, value, inline_put }) = self.onesided.waiting.front() {
            if !self.ops.chunks_are_back(ticket) && !planted::is(Bug::EarlyNotify) {
                return None;
            }
            // The peer drops the notification of a small write that it has refused, and waits for it.
            if inline_put == 0 && self.ops.is_failed(ticket) {
                self.onesided.waiting.pop_front();
                continue;
            }
            let mut head = Head::new(Kind::Notify);
            head.total.set(value);
            head.offset.set(inline_put);
            return Some((Offered::Notify, head, B::EMPTY));
        }
        None
    }

    /// It has left.
    pub(super) fn notify_left(&mut self, seq: u64) {
        if let Some(Waiting { ticket, .. }) = self.onesided.waiting.pop_front() {
            self.ops.set_rule(ticket, CompletionRule::Acked { seq });
        }
    }

    pub(super) fn on_inline_put(&mut self, head: &Head, payload: &[u8], notifies: bool) -> Result<(), Broken> {
        match self.onesided.find(head.id.get(), head.offset.get(), payload.len() as u64, true) {
            Some(buf) if buf.fill(0, payload) => {
                self.ops.traffic.received(buf, payload.len() as u64);
                if notifies {
                    self.onesided.came(false);
                    self.notified(head.total.get())
                } else {
                    Ok(())
                }
            }
            _ => {
                if notifies {
                    self.onesided.came(true);
                } else if head.total.get() != 0 {
                    if self.onesided.disowned.len() >= MAX_OPS {
                        return Err(Broken(format!(
                            "more than {MAX_OPS} small writes refused before their notifications"
                        )));
                    }
                    self.onesided.disowned.push_back(head.seq.get());
                }
                self.refuse(head, 0)
            }
        }
    }

    pub(super) fn put_landed(&mut self, head: &Head, placed: bool) -> Result<(), Broken> {
        let len = u64::from(head.len.get());
        match self.onesided.find(head.id.get(), head.offset.get(), len, true) {
            Some(buf) if placed => {
                self.ops.traffic.received(buf, len);
                Ok(())
            }
            _ => self.refuse(head, 0),
        }
    }

    pub(super) fn on_notify(&mut self, head: &Head) -> Result<(), Broken> {
        let disowned = &mut self.onesided.disowned;
        let follows = |&seq: &u32| head.offset.get() == 1 + u64::from(seq);
        let refused = disowned.iter().position(follows).and_then(|at| disowned.remove(at)).is_some();
        self.onesided.came(refused);
        if refused { Ok(()) } else { self.notified(head.total.get()) }
    }

    fn notified(&mut self, value: u64) -> Result<(), Broken> {
        if self.onesided.notifies.len() >= MAX_NOTIFIES {
            return Err(Broken(format!("more than {MAX_NOTIFIES} notifications that were not waited for")));
        }
        self.onesided.notifies.push_back(value);
        Ok(())
    }

    pub(super) fn on_read(&mut self, head: &Head) -> Result<(), Broken> {
        let (len, id) = (head.total.get(), head.tag.get());
        let Some(src) = self.onesided.find(head.id.get(), head.offset.get(), len, false) else {
            return self.refuse(head, 1);
        };
        if self.onesided.answers >= MAX_ANSWERS || self.control.queue_is_full() {
            return Err(Broken(format!("more than {MAX_ANSWERS} reads at a time")));
        }
        if len == 0 {
            let mut answer = Head::new(Kind::Eager);
            answer.id.set(id);
            self.control.queue(answer);
            return Ok(());
        }
        self.onesided.answers += 1;
        self.sends.segmenting.push_back(Segmentation {
            ticket: None,
            key: head.id.get(),
            kind: Kind::Chunk,
            id,
            tag: 0,
            src,
            base: 0,
            done: 0,
        });
        Ok(())
    }

    fn refuse(&mut self, head: &Head, read: u64) -> Result<(), Broken> {
        if self.control.queue_is_full() {
            return Err(Broken("more refused operations than answers read".into()));
        }
        let mut answer = Head::new(Kind::Refused);
        answer.id.set(head.id.get());
        answer.tag.set(head.tag.get());
        answer.total.set(read);
        self.control.queue(answer);
        Ok(())
    }

    pub(super) fn on_refused(&mut self, head: &Head) -> Result<(), Broken> {
        let error = OpError::RemoteAccess { key: head.id.get() };
        if head.total.get() == 1 {
            self.recvs.fail(head.tag.get(), &mut self.ops, error);
        } else if !self.ops.fail_index(head.tag.get() as usize, error) {
            // Each refusal leaves before the acknowledgement that would end the write.
            return Err(Broken(format!("refusal of write {}, which is not in flight", head.tag.get())));
        }
        Ok(())
    }
}
