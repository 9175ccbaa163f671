//! What a peer can make grow, for tests and fuzzers that hold it against its bounds.

use super::rails::{MAX_RAILS, WINDOW_ALONE};
use super::{Engine, MAX_OPS, MAX_RECVS};
use crate::Buf;

/// Control messages queued for other reasons than posted receives: answers, refusals, words on rails.
const MAX_QUEUED: usize = 1024;

/// Chunks in flight on the rails of a connection, all to be sent again at worst.
const MAX_AGAIN: usize = MAX_RAILS * WINDOW_ALONE;

/// Notifications not taken yet.
const MAX_NOTIFIES: usize = 64 << 10;

impl<B: Buf> Engine<B> {
    /// Every queue and table that a peer can make grow: name, entries, bound.
    pub fn held(&self) -> [(&'static str, usize, usize); 6] {
        [
            ("messages queued", self.control.queue.len(), MAX_QUEUED + MAX_RECVS),
            ("grants", self.sends.grants.len(), MAX_RECVS),
            ("transfers", self.sends.segmenting.len(), MAX_OPS + MAX_RECVS),
            ("chunks to send again", self.sends.again.len(), MAX_AGAIN),
            ("notifications", self.onesided.notifies.len(), MAX_NOTIFIES),
            ("refused writes", self.onesided.disowned.len(), MAX_OPS),
        ]
    }
}
