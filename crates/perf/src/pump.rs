//! The moving parts of a test. Each is polled by the driving loop and does what it can without waiting.

mod ping;
mod pong;
mod recv;
mod send;
mod slots;

pub(crate) use ping::Ping;
pub(crate) use pong::Pong;
pub(crate) use recv::BulkRecv;
pub(crate) use send::BulkSend;
pub(crate) use slots::Slots;

use std::time::{Duration, Instant};

use crate::spec::Stop;

/// What is checked of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Nothing.
    No,
    /// Its first word: order and identity, at no cost that can be measured.
    Stamp,
    /// Every byte.
    Full,
}

/// Messages beside whose time that of a look at the clock is nothing, bytes.
const LARGE: usize = 64 << 10;

/// Decides when the sending side has sent enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    stop: Option<Stop>,
    until: Option<Instant>,
    looks: u32,
    over: bool,
}

impl Budget {
    /// `None`: until [`Budget::end`].
    pub(crate) fn new(stop: Option<Stop>) -> Budget {
        Budget { stop, until: None, looks: 0, over: false }
    }

    /// Starts the clock.
    pub(crate) fn start(&mut self, now: Instant) {
        if let Some(Stop::After(time)) = self.stop {
            self.until = Some(now + time);
        }
    }

    pub(crate) fn end(&mut self) {
        self.over = true;
    }

    pub(crate) fn ended(&self) -> bool {
        self.over
    }

    /// Whether message number `sent` (from 0), of so many bytes, may still go. At least one always may.
    pub(crate) fn more(&mut self, sent: u64, size: usize) -> bool {
        if self.over {
            return false;
        }
        match (self.stop, self.until) {
            (Some(Stop::Messages(n)), _) => self.over = sent >= n,
            (Some(Stop::After(_)), Some(until)) if sent > 0 => {
                // A look at the clock costs 25 ns, as much as a small message: for those every eighth time is often enough.
                self.looks += 1;
                if size >= LARGE || self.looks.is_multiple_of(8) {
                    self.over = Instant::now() >= until;
                }
            }
            _ => {}
        }
        !self.over
    }

    /// As [`Budget::more`] where the time is known anyway.
    pub(crate) fn more_at(&mut self, sent: u64, now: Instant) -> bool {
        if !self.over && sent > 0 && self.until.is_some_and(|until| now >= until) {
            self.over = true;
        }
        self.over = self.over || matches!(self.stop, Some(Stop::Messages(n)) if sent >= n);
        !self.over
    }
}

/// When data last came in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) wrong: u64,
    pub(crate) last: Option<Instant>,
}

impl Tally {
    pub(crate) fn since(&self, start: Instant) -> Duration {
        self.last.map_or(Duration::ZERO, |last| last.saturating_duration_since(start))
    }
}
