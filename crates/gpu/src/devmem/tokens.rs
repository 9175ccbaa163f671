//! Tokens on their way back to the kernel.

use std::collections::VecDeque;

/// Most runs in one call (`MAX_DONTNEED_TOKENS`); more is EINVAL.
pub const RUNS: usize = 128;

/// Most pages that one call gives back (`MAX_DONTNEED_FRAGS`); of more the kernel leaves the rest and says how many it took.
pub const PER_CALL: u32 = 1024;

/// `struct dmabuf_token`: tokens that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Run {
    /// The first.
    pub start: u32,
    /// How many.
    pub count: u32,
}

/// Tokens whose pages are no longer needed, oldest first. Tokens belong to one socket; the kernel gives out the lowest free
/// number, so neighbours are often consecutive and travel as runs.
#[derive(Debug)]
pub struct Tokens {
    runs: VecDeque<Run>,
    waiting: u64,
}

impl Tokens {
    /// None yet, with space for `runs` of them before memory is allocated.
    pub fn new(runs: usize) -> Tokens {
        Tokens { runs: VecDeque::with_capacity(runs), waiting: 0 }
    }

    /// Queues a token whose page can be given back to the kernel.
    pub fn push(&mut self, token: u32) {
        self.waiting += 1;
        if let Some(last) = self.runs.back_mut()
            && last.count < PER_CALL
            && last.start.checked_add(last.count) == Some(token)
        {
            last.count += 1;
            return;
        }
        self.runs.push_back(Run { start: token, count: 1 });
    }

    /// Tokens queued to be given back.
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// What the next call gives back: at most [`RUNS`] runs and [`PER_CALL`] tokens. Writes the runs to `out` and returns
    /// how many; [`Tokens::freed`] says what came of it.
    pub fn next(&self, out: &mut [Run; RUNS]) -> usize {
        let (mut n, mut left) = (0, PER_CALL);
        for run in self.runs.iter().take(RUNS) {
            if left == 0 {
                break;
            }
            let count = run.count.min(left);
            out[n] = Run { start: run.start, count };
            n += 1;
            left -= count;
        }
        n
    }

    /// The call took this many tokens, the first of those it was given (setsockopt's return value, which is positive here).
    /// False: more than it was given, which no kernel does.
    #[must_use]
    pub fn freed(&mut self, mut tokens: u64) -> bool {
        if tokens > self.waiting {
            return false;
        }
        self.waiting -= tokens;
        while let Some(front) = self.runs.front_mut().filter(|_| tokens > 0) {
            // At most a run's count.
            let n = tokens.min(front.count.into()) as u32;
            front.start = front.start.wrapping_add(n);
            front.count -= n;
            tokens -= u64::from(n);
            if front.count == 0 {
                self.runs.pop_front();
            }
        }
        true
    }
}
