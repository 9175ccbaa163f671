//! Operations that no path carries: waits for notifications and for the peer.

use std::time::Instant;

use super::{Kind, Numbered, OpId, Ops};

impl Ops {
    /// Whether a wait for a notification is open; closed ones are forgotten.
    pub(crate) fn has_wait(&mut self) -> bool {
        while let Some(&id) = self.waits.front() {
            if self.is_open(id) {
                return true;
            }
            self.waits.pop_front();
        }
        false
    }

    /// Gives a notification to the oldest wait, which has its number from then on.
    pub(crate) fn notified(&mut self, number: u64, value: u64) {
        if let Some(id) = self.waits.pop_front() {
            if let Some(op) = self.open(id) {
                op.seq = number;
            }
            self.finish(id, Ok(value));
        }
    }

    /// The notification that was given to a wait, with its number.
    pub(crate) fn given(&self, id: OpId) -> Option<Numbered> {
        let op = self.get(id).filter(|op| op.kind == Kind::Wait)?;
        Some((op.seq, op.result?.ok()?))
    }

    /// Of those that wait for a peer, the one that does so longest.
    pub(crate) fn longest_connect(&self) -> Option<(OpId, Instant)> {
        let open =
            self.table.iter().zip(0..).filter(|(op, _)| op.live && op.result.is_none() && op.kind == Kind::Connect);
        let dated = open.filter_map(|(op, index)| Some((OpId { index, generation: op.generation }, op.deadline?)));
        dated.max_by_key(|one| one.1)
    }

    /// Reports the waits for a peer.
    pub(crate) fn connected(&mut self) {
        for index in 0..self.table.len() {
            let op = &self.table[index];
            if op.live && op.kind == Kind::Connect {
                let id = OpId { index: index as u32, generation: op.generation };
                self.finish(id, Ok(0));
            }
        }
    }
}
