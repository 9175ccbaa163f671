//! A card that runs out of pages, noticed while its queues are lent.

use std::time::{Duration, Instant};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(5);

/// What was seen last.
#[derive(Debug)]
pub(super) struct Watch {
    /// Queues that are lent: from this on.
    first: u32,
    looked: Option<Instant>,
    seen: Option<u64>,
}

impl Watch {
    pub(super) fn new(first: u32) -> Watch {
        Watch { first, looked: None, seen: None }
    }

    /// Whether it is time to look.
    pub(super) fn due(&mut self, now: Instant) -> bool {
        let due = self.looked.is_none_or(|before| now - before >= EVERY);
        if due {
            self.looked = Some(now);
        }
        due
    }

    /// Of each queue, how often it had no page for a packet. A line where that has grown.
    pub(super) fn look(&mut self, starved: &[(u32, u64)]) -> Option<String> {
        let lent = starved.iter().filter(|(queue, _)| *queue >= self.first);
        let now = lent.map(|(_, count)| *count).fold(0, u64::saturating_add);
        let before = self.seen.replace(now)?;
        let more = now.checked_sub(before).filter(|&n| n > 0)?;
        Some(format!(
            "the card found no page of GPU memory for {more} packets, {now} so far, and dropped them: processes hold too many, or \
             LINKSPAN_DEVMEM_POOL is too small"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_with_its_number_and_nothing_else_is() {
        let mut watch = Watch::new(4);
        // What was before we came is not ours to tell.
        assert_eq!(watch.look(&[(3, 9), (4, 10), (5, 0)]), None);
        assert_eq!(watch.look(&[(3, 900), (4, 10), (5, 0)]), None, "queues that are not lent");
        let told = watch.look(&[(3, 900), (4, 12), (5, 5)]).unwrap();
        assert!(told.contains("for 7 packets, 17 so far") && told.contains("LINKSPAN_DEVMEM_POOL"), "{told}");
        assert_eq!(watch.look(&[(4, 12), (5, 5)]), None);
        // A driver that was restarted counts from 0.
        assert_eq!(watch.look(&[(4, 0)]), None);
        assert!(watch.look(&[(4, 1)]).is_some());
    }

    #[test]
    fn it_looks_now_and_then() {
        let (mut watch, now) = (Watch::new(0), Instant::now());
        assert!(watch.due(now) && !watch.due(now + EVERY / 2) && watch.due(now + EVERY));
    }
}
