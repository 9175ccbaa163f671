//! Whether lending payload to the kernel costs less than having it copied: both ways take turns, and are timed.
//!
//! Lending pins pages, needs calls of its own and a notice for each; copying costs by the byte and by the state of the
//! caches. Which is less differs between cards, drivers and processors (published figures cross between 10 and 100 KiB), so
//! neither is assumed.

use std::time::Duration;

/// Shortest payload that takes part, bytes: below, no published figure shows a gain of zero-copy.
pub(super) const LEAST: usize = 64 << 10;

/// Payloads in a row that go one way. Several, because one call may carry more than one of them.
const RUN: u32 = 16;

/// Payloads of a trial: four runs each way, 32 MiB of the usual chunks.
const ALL: u32 = 8 * RUN;

/// A trial under way.
#[derive(Default)]
pub(super) struct Trial {
    asked: u32,
    /// Nanoseconds in calls, and the bytes they took: copied, lent.
    spent: [(u64, u64); 2],
}

impl Trial {
    /// Whether the next payload is lent, or, behind the last, which way has cost less.
    pub(super) fn next(&mut self) -> Result<bool, bool> {
        if self.asked == ALL {
            let [(copied, copied_bytes), (lent, lent_bytes)] = self.spent;
            let cost = |ns: u64, other_bytes: u64| u128::from(ns) * u128::from(other_bytes);
            return Err(cost(lent, copied_bytes) < cost(copied, lent_bytes));
        }
        let zero_copy = self.asked / RUN % 2 == 1;
        self.asked += 1;
        Ok(zero_copy)
    }

    /// A call for payload of this way took so long and moved so much.
    pub(super) fn spent(&mut self, zero_copy: bool, took: Duration, bytes: usize) {
        let (ns, sum) = &mut self.spent[usize::from(zero_copy)];
        *ns += took.as_nanos() as u64;
        *sum += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict when copying and lending a payload cost so many nanoseconds.
    fn verdict(copy: u64, zero_copy: u64) -> bool {
        let mut trial = Trial::default();
        loop {
            match trial.next() {
                Ok(way) => trial.spent(way, Duration::from_nanos(if way { zero_copy } else { copy }), 1 << 19),
                Err(verdict) => return verdict,
            }
        }
    }

    #[test]
    fn the_cheaper_way_wins() {
        assert!(verdict(1000, 999));
        assert!(!verdict(1000, 1000), "where nothing is won, nothing is pinned");
        assert!(!verdict(1000, 3000));
    }

    #[test]
    fn both_ways_have_equal_turns_and_their_bytes_count() {
        let mut trial = Trial::default();
        let ways: Vec<bool> = std::iter::from_fn(|| trial.next().ok()).collect();
        assert_eq!(ways.len(), ALL as usize);
        assert_eq!(ways.iter().filter(|zero_copy| **zero_copy).count() * 2, ways.len());
        trial.spent(false, Duration::from_micros(10), 1 << 20);
        trial.spent(true, Duration::from_micros(10), 1 << 19);
        assert_eq!(trial.next(), Err(false), "as long for half the bytes");
    }
}
