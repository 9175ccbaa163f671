//! One turn of a driving loop: progress, and what to do when nothing moves.

use std::hint;
use std::time::{Duration, Instant};

use crate::error::PerfError;
use crate::idle::Idle;
use crate::interrupt::{GRACE, Interrupt};
use crate::link::{Link, LinkError, WAIT_MAX};
use crate::spec::{SPIN, WaitMode};

/// Idle turns between two looks at the clock; one turn is 20 to 200 ns.
const LOOK: u32 = 64;

/// Busy turns between two looks at the clock.
const GLANCE: u32 = 1 << 12;

/// How much earlier a sleep ends than what is due: timers are late by the kernel's slack of 50 us (prctl(2),
/// PR_SET_TIMERSLACK) and a wake-up costs about 25 us.
const EARLY: Duration = Duration::from_micros(100);

/// Drives a link and keeps the deadline.
pub(crate) struct Turner {
    mode: WaitMode,
    deadline: Option<(Instant, Duration)>,
    /// Of a session, with whether progress of the link counts: bytes of a message that is not whole do not.
    session: Option<(Idle, bool)>,
    moved: bool,
    interrupt: Interrupt,
    /// When the interrupt was first seen.
    wished: Option<Instant>,
    /// What is left to come to an end after that.
    grace: Duration,
    idle: u32,
    idle_since: Instant,
    busy: u32,
    due: Option<Instant>,
}

impl Turner {
    pub(crate) fn new(mode: WaitMode, deadline: Option<(Instant, Duration)>, interrupt: &Interrupt) -> Turner {
        Turner {
            mode,
            deadline,
            session: None,
            moved: false,
            interrupt: interrupt.clone(),
            wished: None,
            grace: GRACE,
            idle: 0,
            idle_since: Instant::now(),
            busy: 0,
            due: None,
        }
    }

    /// An interrupt ends everything at once.
    pub(crate) fn abrupt(self) -> Turner {
        Turner { grace: Duration::ZERO, ..self }
    }

    /// Ends when nothing moves in this session for too long.
    pub(crate) fn moving(self, idle: &Idle) -> Turner {
        Turner { session: Some((idle.clone(), true)), ..self }
    }

    /// Ends when no message comes in this session for too long: see [`Turner::heard`].
    pub(crate) fn hearing(self, idle: &Idle) -> Turner {
        Turner { session: Some((idle.clone(), false)), ..self }
    }

    /// A whole message has come.
    pub(crate) fn heard(&self) {
        self.session.iter().for_each(|(idle, _)| idle.touch());
    }

    /// Whether the test is to end early.
    #[inline]
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupt.raised()
    }

    /// The caller has something to do at this time: sleep ends a little before it.
    pub(crate) fn due(&mut self, due: Option<Instant>) {
        self.due = due;
    }

    fn sleep<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<(), PerfError> {
        let most = match self.due {
            Some(due) => due.saturating_duration_since(Instant::now()).saturating_sub(EARLY),
            None => WAIT_MAX,
        };
        if !most.is_zero() {
            link.wait(most.min(WAIT_MAX))?;
        }
        self.check()
    }

    /// Progresses once; `moved` says whether the caller's own work did anything since the last turn.
    pub(crate) fn turn<L: Link + ?Sized>(&mut self, link: &mut L, moved: bool) -> Result<(), PerfError> {
        if link.progress()? || moved {
            self.idle = 0;
            self.moved = true;
            self.busy += 1;
            if self.busy >= GLANCE {
                self.busy = 0;
                self.check()?;
            }
            return Ok(());
        }
        self.idle += 1;
        match self.mode {
            WaitMode::Sleep => self.sleep(link),
            _ if !self.idle.is_multiple_of(LOOK) => {
                if self.idle == 1 && self.mode == WaitMode::Adaptive {
                    self.idle_since = Instant::now();
                }
                hint::spin_loop();
                Ok(())
            }
            WaitMode::Adaptive if self.idle_since.elapsed() >= SPIN => self.sleep(link),
            _ => self.check(),
        }
    }

    /// Keeps the deadline, and ends after an interrupt.
    pub(crate) fn check(&mut self) -> Result<(), PerfError> {
        // A peer that does not come to an end either is left behind.
        if self.interrupt.raised() && self.wished.get_or_insert_with(Instant::now).elapsed() >= self.grace {
            return Err(LinkError::Interrupted.into());
        }
        if let Some((idle, progress)) = &self.session {
            if std::mem::take(&mut self.moved) && *progress {
                idle.touch();
            } else if let Some(limit) = idle.over() {
                return Err(PerfError::Idle(limit));
            }
        }
        match self.deadline {
            Some((at, limit)) if Instant::now() >= at => Err(PerfError::Timeout(limit)),
            _ => Ok(()),
        }
    }
}
