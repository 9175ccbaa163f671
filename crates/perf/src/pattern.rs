//! The bytes that tests send: a seeded pattern in which no two messages and no two words of a message are alike.

use linkspan_proto::Buf;
use linkspan_transport::MemSlice;

/// Bytes made and compared at a time; fits the innermost cache.
const BLOCK: usize = 4096;

/// The pattern of one message of one test.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    base: u64,
}

impl Pattern {
    /// Pattern of message `message` under `seed`.
    pub fn new(seed: u64, message: u64) -> Pattern {
        // splitmix64 (Steele, Lea, Flood 2014): neighbouring messages get unrelated bases.
        let mut z = seed.wrapping_add(message.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Pattern { base: z ^ (z >> 31) }
    }

    fn word(self, index: u64) -> u64 {
        let mixed = self.base.wrapping_add(index).wrapping_mul(0xD134_2543_DE82_EF95);
        mixed ^ (mixed >> 29)
    }

    fn block(self, offset: usize, out: &mut [u8; BLOCK]) {
        let first = (offset / 8) as u64;
        for (index, word) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = self.word(first + index as u64).to_le_bytes();
        }
    }

    /// The whole pattern: a device's memory is copied at once, for each copy is waited for.
    fn bytes(self, len: usize) -> Vec<u8> {
        let (mut all, mut block) = (vec![0; len], [0; BLOCK]);
        for (at, part) in all.chunks_mut(BLOCK).enumerate() {
            self.block(at * BLOCK, &mut block);
            part.copy_from_slice(&block[..part.len()]);
        }
        all
    }

    /// Writes the pattern over all of `mem`.
    pub fn fill(self, mem: MemSlice) {
        if !mem.is_host() {
            let inside = mem.fill(0, &self.bytes(mem.len()));
            debug_assert!(inside);
            return;
        }
        let mut block = [0; BLOCK];
        for offset in (0..mem.len()).step_by(BLOCK) {
            self.block(offset, &mut block);
            let len = BLOCK.min(mem.len() - offset);
            let inside = mem.fill(offset as u64, &block[..len]);
            debug_assert!(inside);
        }
    }

    /// Bytes of `mem` that differ from the pattern.
    pub fn wrong(self, mem: MemSlice) -> u64 {
        if !mem.is_host() {
            let mut got = vec![0; mem.len()];
            if !mem.read(0, &mut got) {
                return mem.len() as u64;
            }
            return got.iter().zip(self.bytes(mem.len())).filter(|(got, want)| **got != *want).count() as u64;
        }
        let (mut want, mut got) = ([0; BLOCK], [0; BLOCK]);
        let mut wrong = 0;
        for offset in (0..mem.len()).step_by(BLOCK) {
            self.block(offset, &mut want);
            let len = BLOCK.min(mem.len() - offset);
            let inside = mem.read(offset as u64, &mut got[..len]);
            debug_assert!(inside);
            if got[..len] != want[..len] {
                wrong += got[..len].iter().zip(&want).filter(|(got, want)| got != want).count() as u64;
            }
        }
        wrong
    }

    /// Writes the pattern's first word (as far as it fits) over the beginning of `mem`: cheap enough for a timed loop.
    pub fn stamp(self, mem: MemSlice) {
        let word = self.word(0).to_le_bytes();
        let inside = mem.fill(0, &word[..mem.len().min(8)]);
        debug_assert!(inside);
    }

    /// Bytes of the stamp that differ.
    pub fn stamp_wrong(self, mem: MemSlice) -> u64 {
        let mut got = [0; 8];
        let len = mem.len().min(8);
        let inside = mem.read(0, &mut got[..len]);
        debug_assert!(inside);
        let want = self.word(0).to_le_bytes();
        got[..len].iter().zip(&want).filter(|(got, want)| got != want).count() as u64
    }
}

#[cfg(test)]
mod tests;
