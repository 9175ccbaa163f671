//! What one transport has done.

use crate::ops::{Fail, Kind};

/// What a transport has done since it was made: operations that have reported, by kind, and the bytes that they moved. A batch or a list
/// of pages is one operation. Numbers only grow, but for `pending`. `lspan stats` has those of the whole process, by interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportStats {
    /// Writes done.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Reads done.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Messages sent.
    pub sends: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages received.
    pub receives: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Notifications of the peer that were taken.
    pub notifications: u64,
    /// Operations that failed, waits that found nothing in time aside.
    pub failures: u64,
    /// Paths to the peer so far: one, and one more for every revocation and every loss.
    pub paths: u64,
    /// Operations that have begun and not reported.
    pub pending: u64,
}

impl TransportStats {
    /// An operation has reported.
    #[inline]
    pub(crate) fn count(&mut self, kind: Kind, result: Result<u64, Fail>) {
        let bytes = match (kind, result) {
            (Kind::Connect, _) | (Kind::Wait, Err(Fail::Timeout)) => return,
            (_, Ok(bytes)) => bytes,
            (_, Err(_)) => {
                self.failures += 1;
                return;
            }
        };
        let (number, sum) = match kind {
            Kind::Write => (&mut self.writes, &mut self.written_bytes),
            Kind::Read => (&mut self.reads, &mut self.read_bytes),
            Kind::Send(_) => (&mut self.sends, &mut self.sent_bytes),
            Kind::Recv(_) => (&mut self.receives, &mut self.received_bytes),
            Kind::Wait | Kind::Connect => {
                self.notifications += 1;
                return;
            }
        };
        *number += 1;
        *sum = sum.wrapping_add(bytes);
    }
}
