//! Batches: chunks of a few pages each that are copied directly together, one slice each of one transfer. Alone each would
//! cost the calls, lines of the map and looks of a transfer of its own; together, neighbours among them are one range for the kernel.

use linkspan_proto::Head;
use linkspan_shmring::slot::MAX_SLICES;
use linkspan_transport::{Buf, MemSlice};

use crate::caps::SLICE_MAX;

/// Most chunks of a batch.
pub(crate) const BATCH: usize = MAX_SLICES as usize;

/// Longest chunk that goes in a batch. Pieces of it that cannot be copied directly are numbered as if each chunk were as long.
pub(crate) const LONGEST: usize = 32 << 10;

/// Batches that a sender may have under way. A batch is heard of, copied and acknowledged in steps of half a batch's copying each: with four
/// of them the sender had nothing to copy for 7 % of its time; 4,096 pages in one call went from 0.78 of one piece to 0.87 with seven.
pub(crate) const BATCHES: usize = 7;

/// Chunks that are worth a call: of fewer, one side copies all.
const CALL: usize = 4;

/// How many chunks of a batch of `used` one call copies: half of it, so that both sides have some, and no more than the longest slice.
pub(crate) fn call(longest: usize, used: usize) -> u32 {
    used.div_ceil(2).max(CALL).min(SLICE_MAX / longest.max(1)) as u32
}

/// What the sender keeps of a batch.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) parts: [MemSlice; BATCH],
    pub(crate) used: usize,
    pub(crate) longest: usize,
}

impl Sources {
    pub(crate) fn new() -> Box<Sources> {
        Box::new(Sources { parts: [MemSlice::EMPTY; BATCH], used: 0, longest: 0 })
    }

    pub(crate) fn clear(&mut self) {
        (self.used, self.longest) = (0, 0);
    }

    /// One more. False: the batch is full.
    pub(crate) fn add(&mut self, part: MemSlice) -> bool {
        let Some(place) = self.parts.get_mut(self.used) else {
            return false;
        };
        *place = part;
        self.used += 1;
        self.longest = self.longest.max(part.len());
        true
    }
}

/// What the receiver keeps of a batch.
#[derive(Debug)]
pub(crate) struct Places {
    /// Head, place (`None`: its bytes go nowhere) and address in the sender of each chunk.
    pub(crate) chunks: [(Head, Option<MemSlice>, u64); BATCH],
    pub(crate) used: usize,
    pub(crate) longest: usize,
}

impl Places {
    pub(crate) fn new(head: Head) -> Box<Places> {
        Box::new(Places { chunks: [(head, None, 0); BATCH], used: 0, longest: 0 })
    }

    pub(crate) fn clear(&mut self) {
        (self.used, self.longest) = (0, 0);
    }

    /// One more. False: the batch is full.
    pub(crate) fn add(&mut self, head: Head, place: Option<MemSlice>, address: u64) -> bool {
        let Some(next) = self.chunks.get_mut(self.used) else {
            return false;
        };
        *next = (head, place, address);
        self.used += 1;
        self.longest = self.longest.max(head.len.get() as usize);
        true
    }
}
