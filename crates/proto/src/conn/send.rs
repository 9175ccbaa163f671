//! The sending half of two-sided messages, and the chunks of everything that is large.

use std::collections::VecDeque;

use super::action::{CHUNKS, Post};
use super::credit::{Unpaired, first_at, take_at};
use super::ops::CompletionRule;
use super::rails::ChunkTx;
use super::waiting::{Held, Waiting};
use super::{Broken, Engine, MAX_OPS, MAX_RECVS, OpError, Refused, Ticket};
use crate::head::EAGER_MAX;
use crate::{Buf, Head, Kind};

/// Smallest chunk a message is cut into for the sake of several rails: below, the header and the system call cost
/// more than the second rail brings.
const MIN_STRIPE: u64 = 64 << 10;

#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) tag: u32,
    pub(super) id: u32,
    pub(super) capacity: u64,
}

/// A large transfer being cut into chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segmentation<B> {
    pub(super) ticket: Option<Ticket>,
    /// The region an answer to a read is taken from, 0 for everything else.
    pub(super) key: u32,
    pub(super) kind: Kind,
    pub(super) id: u32,
    pub(super) tag: u32,
    pub(super) src: B,
    /// Where in the target the first byte goes.
    pub(super) base: u64,
    pub(super) done: u64,
}

#[derive(Debug)]
pub(super) struct Sends<B> {
    pub(super) grants: VecDeque<Grant>,
    pub(super) segmenting: VecDeque<Segmentation<B>>,
    /// Chunks of lost rails, to be sent again before anything new.
    pub(super) again: VecDeque<ChunkTx<B>>,
    pub(super) waiting: Waiting<B>,
}

impl<B: Buf> Sends<B> {
    pub(super) fn new() -> Sends<B> {
        Sends {
            grants: VecDeque::with_capacity(MAX_RECVS),
            segmenting: VecDeque::with_capacity(MAX_OPS + MAX_RECVS),
            again: VecDeque::new(),
            waiting: Waiting::new(),
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.segmenting.is_empty() || !self.again.is_empty()
    }

    /// Where the oldest grant for this tag stands.
    #[inline]
    pub(super) fn grant_for(&self, tag: u32) -> Option<usize> {
        first_at(&self.grants, |g| g.tag == tag)
    }
}

impl<B: Buf> Engine<B> {
    /// Posts a tagged message. Its memory is in use until the ticket, which [`Engine::posted`] has once [`Engine::next_action`] has
    /// nothing more, has reported. Without a receive, or credit for a small message, it waits; see [`Engine::waiting`].
    ///
    /// # Errors
    /// [`Refused::Busy`]: too much in flight, or [`MAX_WAITING`](super::MAX_WAITING) sends wait already.
    /// [`Refused::Failed`] with [`OpError::Truncated`]: its receive is posted, and shorter.
    #[inline]
    pub fn post_send(&mut self, tag: u32, src: B) -> Result<(), Refused> {
        if self.ops.is_full() {
            return Err(Refused::Busy);
        }
        let grant = self.sends.grant_for(tag);
        let small = src.len() <= EAGER_MAX;
        let len = src.len() as u64;
        let ticket = if self.sends.waiting.is_ahead_of(tag, small && grant.is_none()) {
            self.wait(tag, src, Held::Receive)?
        } else if let Some(at) = grant.filter(|&at| len > self.sends.grants[at].capacity) {
            return Err(Refused::Failed(self.refuse_truncated(at, len)));
        } else if small && (grant.is_some() || self.credit.allows(src.len())) {
            self.post(Post::Send { tag, src, grant });
            return Ok(());
        } else if small {
            self.wait(tag, src, Held::Credit)?
        } else if let Some(at) = grant {
            let ticket = self.ops.start(len, 1, CompletionRule::Reported).ok_or(Refused::Busy)?;
            self.send_large(ticket, src, at);
            self.out.is_due(CHUNKS);
            ticket
        } else {
            self.wait(tag, src, Held::Receive)?
        };
        self.out.posted(ticket);
        Ok(())
    }

    /// Spends a grant on a message that is longer than its receive, and tells the peer.
    pub(super) fn refuse_truncated(&mut self, at: usize, sent: u64) -> OpError {
        let Grant { tag, id, capacity: posted } = self.sends.grants[at];
        take_at(&mut self.sends.grants, at);
        let mut head = Head::new(Kind::Truncated);
        head.tag.set(tag);
        head.id.set(id);
        head.total.set(sent);
        self.control.queue(head);
        OpError::Truncated { sent, posted, tag }
    }

    /// The head of a small message.
    #[inline]
    pub(super) fn eager_head(&self, tag: u32, src: B, grant: Option<usize>) -> Head {
        let mut head = Head::new(Kind::Eager);
        head.tag.set(tag);
        head.total.set(src.len() as u64);
        if let Some(at) = grant {
            head.id.set(self.sends.grants[at].id);
        }
        head
    }

    /// A small message has left: tells when it is done.
    #[inline]
    pub(super) fn eager_left(
        &mut self,
        tag: u32,
        len: usize,
        grant: Option<usize>,
        (rail, pos): (usize, u64),
        seq: u64,
    ) -> CompletionRule {
        match grant {
            Some(at) => drop(take_at(&mut self.sends.grants, at)),
            None => self.credit.spend(tag, len),
        }
        if self.cfg.acked { CompletionRule::Acked { seq } } else { CompletionRule::Taken { rail, pos } }
    }

    /// Begins a message that goes in chunks into the receive of a grant.
    pub(super) fn send_large(&mut self, ticket: Ticket, src: B, at: usize) {
        let Grant { id, tag, .. } = self.sends.grants[at];
        take_at(&mut self.sends.grants, at);
        self.ops.segmenting(ticket);
        self.sends.segmenting.push_back(Segmentation {
            ticket: Some(ticket),
            key: 0,
            kind: Kind::Chunk,
            id,
            tag,
            src,
            base: 0,
            done: 0,
        });
    }

    /// The next chunk, for the best of the rails that are not in `refused`, and with the first of a message all of it.
    pub(super) fn look_at_chunks(&mut self, refused: u32) -> Option<(usize, ChunkTx<B>, Option<B>)> {
        if let Some(&piece) = self.sends.again.front() {
            let rail = self.pick_rail(refused)?;
            return Some((rail, self.numbered(rail, piece), None));
        }
        while let Some(&cut) = self.sends.segmenting.front() {
            // A write that the peer has refused is not sent to its end.
            if let Some(ticket) = cut.ticket.filter(|&t| self.ops.is_failed(t)) {
                self.sends.segmenting.pop_front();
                self.ops.all_out(ticket, self.cfg.acked);
                continue;
            }
            let rail = self.pick_rail(refused)?;
            let len = cut.src.len() as u64;
            let carrying = self.rails.carrying() as u64;
            let stripe = if carrying > 1 { len.div_ceil(carrying).max(MIN_STRIPE) } else { len };
            let size = (len - cut.done).min(stripe).min(self.rails.chunk(rail) as u64);
            let src = cut.src.sub(cut.done, size)?;
            let mut head = Head::new(cut.kind);
            head.len.set(size as u32);
            head.id.set(cut.id);
            head.tag.set(cut.tag);
            head.offset.set(cut.base + cut.done);
            head.total.set(len);
            let piece = ChunkTx { head, src, ticket: cut.ticket, key: cut.key };
            return Some((rail, self.numbered(rail, piece), (cut.done == 0).then_some(cut.src)));
        }
        None
    }

    fn numbered(&self, rail: usize, mut piece: ChunkTx<B>) -> ChunkTx<B> {
        piece.head.seq.set(self.rails.next_seq(rail));
        piece
    }

    /// The rail with the fewest chunks in flight that may take one more, leaving out those in `not`.
    fn pick_rail(&self, not: u32) -> Option<usize> {
        (0..self.rails.used())
            .filter(|&r| not & (1 << r) == 0 && self.rails.has_window(r))
            .min_by_key(|&r| self.rails.in_flight(r))
    }

    /// A chunk has left as item `pos` of its rail.
    pub(super) fn chunk_left(&mut self, rail: usize, piece: ChunkTx<B>, pos: u64) {
        self.rails.sent(rail, pos, piece, self.cfg.acked);
        if self.sends.again.pop_front().is_some() {
            return;
        }
        let Some(cut) = self.sends.segmenting.front_mut() else { return };
        cut.done += piece.src.len() as u64;
        let (src, len, whole) = (cut.src, cut.src.len() as u64, cut.done == cut.src.len() as u64);
        if whole {
            self.sends.segmenting.pop_front();
        }
        let Some(ticket) = piece.ticket else {
            if whole {
                self.onesided.answered();
                self.ops.traffic.answered[usize::from(!src.is_host())] += len;
            }
            return;
        };
        if self.cfg.acked {
            self.ops.chunk_out(ticket);
        }
        if whole {
            self.ops.all_out(ticket, self.cfg.acked);
            if !self.cfg.acked {
                self.ops.set_rule(ticket, CompletionRule::Taken { rail, pos });
            }
        }
    }

    pub(super) fn on_grant(&mut self, head: &Head) -> Result<(), Broken> {
        let (tag, id, capacity) = (head.tag.get(), head.id.get(), head.total.get());
        let run = head.offset.get();
        if run >= MAX_RECVS as u64 || (run > 0 && id != 0) {
            return Err(Broken(format!("a grant of {run} receives more, with id {id:#x}")));
        }
        for _ in 0..=run {
            self.granted(tag, id, capacity)?;
        }
        Ok(())
    }

    fn granted(&mut self, tag: u32, id: u32, capacity: u64) -> Result<(), Broken> {
        self.sends.waiting.stir();
        if let Some(Unpaired { len, .. }) = self.credit.pair(tag) {
            if u64::from(len) > capacity {
                self.note_late(OpError::Truncated { sent: u64::from(len), posted: capacity, tag });
            }
            return Ok(());
        }
        if id == 0 {
            return Err(Broken(format!("a receive with tag {tag} was matched by a message that was never sent")));
        }
        if self.sends.grants.len() >= MAX_RECVS {
            return Err(Broken(format!("more than {MAX_RECVS} receives granted at a time")));
        }
        self.sends.grants.push_back(Grant { tag, id, capacity });
        Ok(())
    }
}
