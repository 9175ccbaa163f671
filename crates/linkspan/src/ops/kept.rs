//! Messages that came before their receives, over the end of their path.

use linkspan_proto::conn::{EAGER_CREDIT, deliver};

use super::{Fail, Kind, OpId, Ops};

/// Bytes kept at most, each message with [`EACH`] more: what sixteen paths may leave.
const MOST: usize = 16 * EAGER_CREDIT;
const EACH: usize = 64;

pub(super) struct Kept {
    /// Which control message of its path it was; 0: the peer knows that it has come.
    number: u64,
    tag: u32,
    bytes: Box<[u8]>,
}

impl Ops {
    /// Keeps a message of the path that ends.
    pub(crate) fn keep(&mut self, (number, tag, bytes): (u64, u32, &[u8])) {
        self.kept.push_back(Kept { number, tag, bytes: bytes.into() });
    }

    pub(crate) fn keeps(&self, tag: u32) -> bool {
        self.kept.iter().any(|kept| kept.tag == tag)
    }

    pub(crate) fn keeps_too_much(&self) -> bool {
        self.kept.iter().map(|kept| EACH + kept.bytes.len()).sum::<usize>() > MOST
    }

    /// The peer knows that the first `known` control messages of the last path have come. What came behind them it has reported as
    /// interrupted or timed out, so it must come no more.
    pub(crate) fn keep_known(&mut self, known: u64) {
        self.kept.retain_mut(|kept| {
            let keeps = kept.number <= known;
            kept.number = 0;
            keeps
        });
    }

    pub(crate) fn keep_nothing(&mut self) {
        self.kept.clear();
    }

    /// Gives what is kept to the receives that no path has taken.
    pub(crate) fn meet_all(&mut self) {
        let mut receives = std::mem::take(&mut self.receives);
        receives.retain(|&id| !self.meet(id));
        self.receives = receives;
    }

    /// Gives a receive the oldest message with its tag that is kept. False: there is none.
    pub(crate) fn meet(&mut self, id: OpId) -> bool {
        let Some(op) = self.open(id) else { return false };
        let (Kind::Recv(tag), Some(part)) = (op.kind, op.parts.first()) else { return false };
        let buf = part.local;
        let at = self.kept.iter().position(|kept| kept.tag == tag);
        let Some(kept) = at.and_then(|at| self.kept.remove(at)) else { return false };
        self.finish(id, deliver(buf, &kept.bytes, tag).map_err(Fail::Op));
        true
    }
}
