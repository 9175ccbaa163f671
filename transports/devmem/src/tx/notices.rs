//! Calls whose memory the card still reads.

use crate::planted::{self, Bug};

/// Calls open at a time.
const CALLS: usize = 256;

/// Numbers of calls that took bytes from device memory, modulo 2^32, and which of them are settled.
pub(super) struct Notices {
    made: u32,
    settled: u32,
    /// Slot = number modulo CALLS.
    done: [bool; CALLS],
}

impl Default for Notices {
    fn default() -> Notices {
        Notices { made: 0, settled: 0, done: [false; CALLS] }
    }
}

impl Notices {
    /// Calls whose notice is missing.
    pub(super) fn open(&self) -> u32 {
        self.made.wrapping_sub(self.settled)
    }

    /// Whether as many are open as there can be.
    pub(super) fn full(&self) -> bool {
        self.open() as usize == CALLS
    }

    /// A call took bytes.
    pub(super) fn made(&mut self) {
        self.done[self.made as usize % CALLS] = false;
        self.made = self.made.wrapping_add(1);
    }

    /// Calls made so far.
    pub(super) fn calls(&self) -> u32 {
        self.made
    }

    /// Whether all calls before this count are settled.
    pub(super) fn settled(&self, calls: u32) -> bool {
        // Between the two there are at most CALLS.
        self.settled.wrapping_sub(calls) <= u32::MAX / 2 || planted::is(Bug::TakenEarly)
    }

    /// The kernel's notice for a range of calls, in any order; checked against the calls that are open.
    pub(super) fn settle(&mut self, first: u32, last: u32) {
        let mut number = first;
        for _ in 0..CALLS {
            if number.wrapping_sub(self.settled) < self.open() {
                self.done[number as usize % CALLS] = true;
            }
            if number == last {
                break;
            }
            number = number.wrapping_add(1);
        }
        while self.open() > 0 && self.done[self.settled as usize % CALLS] {
            self.done[self.settled as usize % CALLS] = false;
            self.settled = self.settled.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_settle_in_any_order_and_lies_settle_nothing_else() {
        let mut notices = Notices { made: u32::MAX - 2, settled: u32::MAX - 2, ..Notices::default() };
        let begin = notices.calls();
        for _ in 0..10 {
            notices.made();
        }
        assert!(notices.settled(begin) && !notices.settled(begin.wrapping_add(1)));
        notices.settle(begin.wrapping_add(4), begin.wrapping_add(6));
        assert_eq!(notices.open(), 10);
        // Beyond what was made.
        notices.settle(begin.wrapping_add(10), begin.wrapping_add(2000));
        assert_eq!(notices.open(), 10);
        notices.settle(begin, begin.wrapping_add(3));
        assert_eq!(notices.open(), 3);
        assert!(notices.settled(begin.wrapping_add(7)) && !notices.settled(begin.wrapping_add(8)));
        // Twice is once.
        notices.settle(begin, begin.wrapping_add(6));
        assert_eq!(notices.open(), 3);
        notices.settle(begin.wrapping_add(7), begin.wrapping_add(9));
        assert_eq!(notices.open(), 0);
        for _ in 0..CALLS {
            assert!(!notices.full());
            notices.made();
        }
        assert!(notices.full());
    }
}
