//! The asking side of a ping-pong.

use std::time::{Duration, Instant};

use linkspan_proto::Buf;
use linkspan_transport::MemSlice;

use super::{Budget, Check, Slots, Tally};
use crate::error::PerfError;
use crate::hist::Recorder;
use crate::link::Link;
use crate::pattern::Pattern;
use crate::spec::Stop;
use crate::wire::TAG_PING;

/// Sends a message, waits for the answer, records the round trip. With an interval each round begins at its
/// appointed time and is timed from there, so that a late answer counts against the rounds it delays
/// (no coordinated omission).
#[derive(Debug)]
pub(crate) struct Ping {
    send: Slots,
    recv: Slots,
    size: usize,
    budget: Budget,
    interval: Option<Duration>,
    seed: u64,
    check: Check,
    rounds: u64,
    waiting: bool,
    since: Instant,
    ends_out: u64,
    ends_in: u64,
    tally: Tally,
    rec: Recorder,
}

impl Ping {
    pub(crate) fn new<L: Link + ?Sized>(
        link: &L,
        size: usize,
        depth: u32,
        stop: Stop,
        interval: Option<Duration>,
        seed: u64,
        check: Check,
    ) -> Result<Ping, PerfError> {
        let recv = Slots::new(link, size, depth)?;
        Ok(Ping {
            send: Slots::new(link, size, 2)?,
            size,
            budget: Budget::new(Some(stop)),
            interval,
            seed,
            check,
            rounds: 0,
            waiting: false,
            since: Instant::now(),
            ends_out: recv.count(),
            ends_in: 0,
            tally: Tally::default(),
            rec: Recorder::new(),
            recv,
        })
    }

    pub(crate) fn start(&mut self, now: Instant) {
        self.budget.start(now);
        self.since = now;
    }

    /// Begins no further round.
    pub(crate) fn end(&mut self) {
        self.budget.end();
    }

    /// Whether no further round will begin.
    pub(crate) fn ending(&self) -> bool {
        self.budget.ended()
    }

    pub(crate) fn finished(&self) -> bool {
        self.ends_out == 0 && self.send.in_flight() == 0 && self.ends_in == self.recv.count()
    }

    pub(crate) fn into_results(self) -> (Recorder, Tally) {
        (self.rec, self.tally)
    }

    /// When the next round begins, where that is fixed and not yet so.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.interval.is_some() && !self.waiting && !self.budget.ended()).then_some(self.since)
    }

    /// Posts what is missing. True when all receives are posted.
    pub(crate) fn prime<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, PerfError> {
        while self.recv.in_flight() + self.ends_in < self.recv.count()
            && let Some((_, mem)) = self.recv.free()
        {
            let Some(ticket) = link.post_recv(TAG_PING, mem)? else { return Ok(false) };
            self.recv.posted(ticket);
        }
        Ok(true)
    }

    pub(crate) fn poll<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, PerfError> {
        let mut moved = false;
        if self.waiting {
            self.prime(link)?; // a receive that the link refused when the message left
            moved = self.answer(link)?;
        }
        while let Some((_, _, ticket)) = self.send.oldest() {
            if link.test(ticket)?.is_none() {
                break;
            }
            self.send.done();
            moved = true;
        }
        if !self.waiting {
            moved |= self.ask(link)?;
        }
        Ok(moved)
    }

    fn answer<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, PerfError> {
        let Some((number, mem, ticket)) = self.recv.oldest() else { return Ok(false) };
        let Some(len) = link.test(ticket)? else { return Ok(false) };
        let now = Instant::now();
        self.recv.done();
        if len != self.size {
            return Err(PerfError::Length { got: len, want: self.size });
        }
        self.rec.record(now.saturating_duration_since(self.since).as_nanos() as u64);
        self.tally.messages += 1;
        self.tally.bytes += len as u64;
        self.tally.last = Some(now);
        if self.check != Check::No {
            self.tally.wrong += Pattern::new(self.seed, number).stamp_wrong(mem);
        }
        self.rounds += 1;
        self.waiting = false;
        self.since = match self.interval {
            Some(interval) => self.since + interval,
            None => now,
        };
        Ok(true)
    }

    fn ask<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, PerfError> {
        if self.budget.ended() {
            return self.wind_down(link);
        }
        if self.interval.is_some() {
            let now = Instant::now();
            if now < self.since {
                return Ok(false);
            }
            if !self.budget.more_at(self.rounds, now) {
                return self.wind_down(link);
            }
        } else if !self.budget.more_at(self.rounds, self.since) {
            return self.wind_down(link);
        }
        let Some((number, mem)) = self.send.free() else { return Ok(false) };
        if self.check != Check::No {
            Pattern::new(!self.seed, number).stamp(mem);
        }
        let Some(ticket) = link.post_send(TAG_PING, mem)? else { return Ok(false) };
        self.send.posted(ticket);
        self.waiting = true;
        self.prime(link)?; // while the message is on its way
        Ok(true)
    }

    /// One empty message for each receive that the peer has posted, and one back for each of ours.
    fn wind_down<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, PerfError> {
        let mut moved = false;
        self.prime(link)?;
        while self.ends_out > 0 && self.send.free().is_some() {
            let Some(ticket) = link.post_send(TAG_PING, MemSlice::EMPTY)? else { break };
            self.send.posted(ticket);
            self.ends_out -= 1;
            moved = true;
        }
        while let Some((_, _, ticket)) = self.recv.oldest() {
            let Some(len) = link.test(ticket)? else { break };
            if len != 0 {
                return Err(PerfError::Length { got: len, want: 0 });
            }
            self.recv.done();
            self.ends_in += 1;
            moved = true;
        }
        Ok(moved)
    }
}
