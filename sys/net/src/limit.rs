//! What others can make a process use: how much of it at a time, and how many lines about it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Something of which there is so much for all who ask: bytes, threads, places. Clones share it.
#[derive(Clone, Debug)]
pub struct Quota(Arc<AtomicU64>);

impl Quota {
    /// So much.
    pub fn new(all: u64) -> Quota {
        Quota(Arc::new(AtomicU64::new(all)))
    }

    /// Takes a part of it, before what it stands for is made. `None`: less is left.
    pub fn take(&self, part: u64) -> Option<Share> {
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(part));
        taken.ok().map(|_| Share { left: self.0.clone(), part })
    }

    /// What is left.
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A part of a [`Quota`]. Dropping it gives it back: after what it stands for has ended.
#[derive(Debug)]
#[must_use]
pub struct Share {
    left: Arc<AtomicU64>,
    part: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.left.fetch_add(self.part, Ordering::AcqRel);
    }
}

/// The time that a [`LineLimit`] looks back.
const SPAN: Duration = Duration::from_secs(60);

/// A bound on the lines that others cause: so many a minute in all, and one a minute about the same matter.
#[derive(Debug)]
pub struct LineLimit {
    most: usize,
    /// What was said in the last minute, and when; the oldest first.
    lately: VecDeque<(String, Instant)>,
    left_out: u64,
}

impl LineLimit {
    /// At most so many lines a minute.
    pub const fn new(most: usize) -> LineLimit {
        LineLimit { most, lately: VecDeque::new(), left_out: 0 }
    }

    /// Whether a line may be written now: then how many were left out since the last one. Lines about no `matter` (empty) are never
    /// the same.
    pub fn admit(&mut self, matter: &str, now: Instant) -> Option<u64> {
        while self.lately.front().is_some_and(|(_, at)| now.saturating_duration_since(*at) >= SPAN) {
            self.lately.pop_front();
        }
        let again = !matter.is_empty() && self.lately.iter().any(|(said, _)| said == matter);
        if again || self.lately.len() >= self.most {
            self.left_out += 1;
            return None;
        }
        self.lately.push_back((matter.to_owned(), now));
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_gives_what_it_has_and_takes_it_back() {
        let quota = Quota::new(3);
        let two = quota.take(2).unwrap();
        assert!(quota.clone().take(2).is_none() && quota.left() == 1);
        let one = quota.take(1);
        assert!(one.is_some() && quota.take(1).is_none());
        drop(two);
        assert_eq!(quota.left(), 2);
    }

    #[test]
    fn lines_are_bounded_and_what_is_left_out_is_counted() {
        let mut lines = LineLimit::new(60);
        let start = Instant::now();
        let admitted = (0..1000).filter(|_| lines.admit("", start).is_some()).count();
        assert_eq!(admitted, 60);
        assert_eq!(lines.admit("", start + SPAN), Some(940));
        assert_eq!(lines.admit("", start + SPAN), Some(0));
    }

    #[test]
    fn one_matter_has_one_line_a_minute() {
        let mut lines = LineLimit::new(2);
        let start = Instant::now();
        assert_eq!(lines.admit("a", start), Some(0));
        assert_eq!(lines.admit("a", start), None);
        assert_eq!(lines.admit("b", start + SPAN / 2), Some(1));
        assert_eq!(lines.admit("c", start + SPAN / 2), None, "no more matters than lines");
        assert_eq!(lines.admit("a", start + SPAN), Some(1));
        assert_eq!(lines.admit("b", start + SPAN), None);
    }
}
