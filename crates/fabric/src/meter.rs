//! What a connection counts: locally while it works, told to the statistics page every few dozen calls.

use std::sync::Arc;
use std::time::Instant;

use linkspan_setup::stats::{Counter, Slot, Stats, Tally};
use linkspan_transport::{Buf, MemSlice, Ticket, Traffic};

/// One operation in so many is timed; a look at the clock costs 24 ns.
const TIMED: u32 = 64;

#[derive(Debug)]
pub(crate) struct Meter {
    stats: Arc<Stats>,
    slot: Option<Slot>,
    tally: Tally,
    ops: u32,
    timed: Option<(Ticket, Instant)>,
    retries: u64,
    traffic: Traffic,
}

impl Meter {
    /// `peer`: what it is called, where it has a name. `reason`: why this transport.
    pub(crate) fn new(stats: &Arc<Stats>, device: &str, transport: &str, peer: &str, reason: &str) -> Meter {
        let slot = stats.slot(device, transport, peer);
        if let Some(slot) = slot {
            stats.chosen(slot, reason);
        }
        let mut meter = Meter {
            stats: stats.clone(),
            slot,
            tally: Tally::default(),
            ops: 0,
            timed: None,
            retries: 0,
            traffic: Traffic::default(),
        };
        meter.tally.add(Counter::Open, 1);
        meter.tally.add(Counter::Connections, 1);
        meter.report();
        meter
    }

    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, n: u64) {
        self.tally.add(counter, n);
    }

    /// A post was answered: counts what it `sent` where it was taken, and hands the answer on.
    #[inline]
    pub(crate) fn posted<E>(
        &mut self,
        answer: Result<Option<Ticket>, E>,
        sent: Option<MemSlice>,
    ) -> Result<Option<Ticket>, E> {
        // Taken apart and made anew: to copy it whole would wait for each of its parts to leave the store buffer.
        match answer {
            Ok(Some(ticket)) => {
                if let Some(src) = sent {
                    let counter = if src.is_host() { Counter::TxBytes } else { Counter::TxDeviceBytes };
                    self.tally.add(counter, src.len() as u64);
                    self.tally.add(Counter::TxOps, 1);
                }
                self.ops = self.ops.wrapping_add(1);
                if self.ops.is_multiple_of(TIMED) {
                    self.timed = Some((ticket, Instant::now()));
                }
                Ok(Some(ticket))
            }
            Ok(None) => {
                self.tally.add(Counter::Stalls, 1);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// An operation was done by a copy of ours alone.
    pub(crate) fn copied(&mut self, bytes: u64, write: bool) {
        let (counter, ops) =
            if write { (Counter::TxBytes, Counter::TxOps) } else { (Counter::RxBytes, Counter::RxOps) };
        self.tally.add(counter, bytes);
        self.tally.add(ops, 1);
    }

    /// An operation has reported.
    #[inline]
    pub(crate) fn done(&mut self, ticket: Ticket) {
        if let Some((_, since)) = self.timed.take_if(|(timed, _)| *timed == ticket) {
            self.tally.took(since.elapsed());
        }
    }

    /// TCP segments sent again on all rails that are up.
    pub(crate) fn retries(&mut self, sum: u64) {
        self.tally.add(Counter::Retries, sum.saturating_sub(self.retries));
        self.retries = sum;
    }

    /// What has moved in all without a call of ours, and what the peer has copied by itself since.
    pub(crate) fn traffic(&mut self, now: Traffic, copied: [u64; 2]) {
        self.tally.add(Counter::RxBytes, copied[0]);
        self.tally.add(Counter::TxBytes, copied[1]);
        let last = std::mem::replace(&mut self.traffic, now);
        for (counter, now, last) in [
            (Counter::RxBytes, now.received[0], last.received[0]),
            (Counter::RxDeviceBytes, now.received[1], last.received[1]),
            (Counter::RxOps, now.receives, last.receives),
            (Counter::TxBytes, now.left_later[0], last.left_later[0]),
            (Counter::TxDeviceBytes, now.left_later[1], last.left_later[1]),
            (Counter::TxOps, now.departures, last.departures),
            (Counter::TxBytes, now.answered[0], last.answered[0]),
            (Counter::TxDeviceBytes, now.answered[1], last.answered[1]),
        ] {
            self.tally.add(counter, now - last);
        }
    }

    pub(crate) fn report(&mut self) {
        if let Some(slot) = self.slot {
            self.stats.report(slot, &mut self.tally);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.tally.add(Counter::Open, u64::MAX); // minus one
        self.report();
    }
}
