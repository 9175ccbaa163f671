//! Sends that were accepted and of which nothing has left: they wait, by reference, for a receive, for credit or for a rail.
//!
//! The k-th send with a tag still meets the k-th receive with it. So a send waits behind an older one with its tag, whatever it
//! lacks itself: a small one that went ahead would meet the receive that the older one was meant for. And those that lack credit
//! leave in the order of their posts, or large ones among them might never find enough.

use std::collections::VecDeque;

use super::action::Offered;
use super::credit::take_at;
use super::ops::CompletionRule;
use super::{Engine, MAX_WAITING, OpError, Refused, Ticket};
use crate::head::EAGER_MAX;
use crate::{Buf, Head};

/// What a send lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// A receive, or its turn.
    Receive,
    /// Credit.
    Credit,
    /// A rail that takes it.
    Rail,
}

#[derive(Clone, Copy, Debug)]
struct WaitingSend<B> {
    ticket: Ticket,
    tag: u32,
    src: B,
}

/// In the order of their posts.
#[derive(Debug)]
pub(super) struct Waiting<B> {
    sends: VecDeque<WaitingSend<B>>,
    /// Something has changed since they were looked at, or a rail was busy then.
    stirred: bool,
    /// One of them lacked credit then.
    starved: bool,
    /// How far the look under way has come, and whether one lacked credit so far.
    at: usize,
    short: bool,
}

impl<B: Buf> Waiting<B> {
    pub(super) fn new() -> Waiting<B> {
        Waiting { sends: VecDeque::with_capacity(MAX_WAITING), stirred: false, starved: false, at: 0, short: false }
    }

    pub(super) fn len(&self) -> usize {
        self.sends.len()
    }

    /// Whether a new send has to wait behind one of them; `needs_credit`: it would leave without a grant.
    #[inline]
    pub(super) fn is_ahead_of(&self, tag: u32, needs_credit: bool) -> bool {
        !self.sends.is_empty() && (self.starved && needs_credit || self.sends.iter().any(|send| send.tag == tag))
    }

    /// They are looked at from the first.
    pub(super) fn look(&mut self) {
        (self.at, self.short) = (0, false);
    }

    /// The look ends before the last one: a rail is busy.
    pub(super) fn interrupt(&mut self) {
        self.starved |= self.short;
    }

    /// A grant has come, or credit was given back.
    #[inline]
    pub(super) fn stir(&mut self) {
        self.stirred = true;
    }
}

/// What became of a send that was to be withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// Nothing of it has left and nothing will. The ticket is dead, the memory is free.
    Withdrawn,
    /// It does not wait: it is under way or done, which its ticket tells.
    UnderWay,
}

impl<B: Buf> Engine<B> {
    /// Less than half of the credit for small messages is left: the peer has said by now what gives some back, or soon will.
    #[inline]
    pub fn credit_is_low(&self) -> bool {
        self.credit.is_low()
    }

    /// Sends that were accepted and of which nothing has left, at most [`MAX_WAITING`].
    pub fn waiting(&self) -> usize {
        self.sends.waiting.len()
    }

    /// Withdraws a send that waits, without a word to the peer. Those behind it with its tag move up.
    pub fn cancel(&mut self, ticket: Ticket) -> Cancel {
        let waiting = &mut self.sends.waiting;
        let Some(at) = waiting.sends.iter().position(|send| send.ticket == ticket) else {
            return Cancel::UnderWay;
        };
        waiting.sends.remove(at);
        waiting.stir();
        self.ops.cancel(ticket);
        Cancel::Withdrawn
    }

    /// Accepts a send that lacks something.
    #[cold]
    pub(super) fn wait(&mut self, tag: u32, src: B, lacks: Held) -> Result<Ticket, Refused> {
        let waiting = &mut self.sends.waiting;
        if waiting.sends.len() >= MAX_WAITING {
            return Err(Refused::Busy);
        }
        let ticket = self.ops.start(src.len() as u64, 1, CompletionRule::Reported).ok_or(Refused::Busy)?;
        waiting.starved |= lacks == Held::Credit;
        waiting.stirred |= lacks == Held::Rail;
        waiting.sends.push_back(WaitingSend { ticket, tag, src });
        Ok(ticket)
    }

    /// Whether one of those that wait may be able to leave. On a connection that this side has closed none is.
    #[inline]
    pub(super) fn some_may_leave(&self) -> bool {
        self.sends.waiting.stirred && !self.sends.waiting.sends.is_empty() && !self.sent_goaway
    }

    /// Goes on to the first of those that wait that can leave in a control message. Those on the way there that have a receive and go
    /// in chunks, or are too long for it, wait no longer.
    pub(super) fn look_at_waiting(&mut self) -> Option<(Offered, Head, B)> {
        while let Some(&WaitingSend { ticket, tag, src }) = self.sends.waiting.sends.get(self.sends.waiting.at) {
            let at = self.sends.waiting.at;
            let grant = self.sends.grant_for(tag);
            let small = src.len() <= EAGER_MAX;
            let held = grant.is_none() && (!small || self.sends.waiting.short);
            if held || self.sends.waiting.sends.iter().take(at).any(|w| w.tag == tag) {
                self.sends.waiting.at += 1;
                continue;
            }
            let len = src.len() as u64;
            if let Some(grant) = grant.filter(|&grant| len > self.sends.grants[grant].capacity) {
                let error = self.refuse_truncated(grant, len);
                self.ops.fail(ticket, error);
            } else if let Some(grant) = grant.filter(|_| !small) {
                self.send_large(ticket, src, grant);
                self.ops.traffic.left(src);
            } else if grant.is_some() || self.credit.allows(src.len()) {
                return Some((Offered::Waiting(at, grant), self.eager_head(tag, src, grant), src));
            } else {
                self.sends.waiting.short = true;
                self.sends.waiting.at += 1;
                continue;
            }
            take_at(&mut self.sends.waiting.sends, at);
        }
        let waiting = &mut self.sends.waiting;
        (waiting.stirred, waiting.starved) = (false, waiting.short);
        None
    }

    /// One that waited will never leave.
    pub(super) fn waiting_failed(&mut self, at: usize, error: OpError) {
        if let Some(WaitingSend { ticket, .. }) = take_at(&mut self.sends.waiting.sends, at) {
            self.ops.fail(ticket, error);
        }
    }

    /// One that waited has left.
    pub(super) fn waiting_left(&mut self, at: usize, grant: Option<usize>, item: (usize, u64), seq: u64) {
        let Some(WaitingSend { ticket, tag, src }) = take_at(&mut self.sends.waiting.sends, at) else { return };
        let rule = self.eager_left(tag, src.len(), grant, item, seq);
        self.ops.set_rule(ticket, rule);
        self.ops.traffic.left(src);
    }
}
