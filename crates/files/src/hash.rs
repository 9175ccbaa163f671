//! BLAKE3 of a file by chunks that are hashed in any order and on any processor: each chunk is a subtree, and merging
//! the subtrees gives the hash that `b3sum FILE` prints.

use std::collections::BTreeMap;

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

/// Bytes of a chunk. A power of two of at least 1024, so that every chunk is a whole subtree (BLAKE3 specification, 2.1).
pub const CHUNK: u64 = 1 << 20;

/// The chaining value of a chunk.
pub type Value = [u8; 32];

/// The value of the chunk at `offset` of a file that has more than this one.
pub fn value(offset: u64, bytes: &[u8]) -> Value {
    Hasher::new().set_input_offset(offset).update(bytes).finalize_non_root()
}

/// The hash of a file of one chunk at most.
pub fn whole(bytes: &[u8]) -> Value {
    *blake3::hash(bytes).as_bytes()
}

/// Merges the values of chunks, which come in any order within a window.
#[derive(Debug, Default)]
pub struct Merger {
    stack: Vec<Value>,
    merged: u64,
    early: BTreeMap<u64, Value>,
}

impl Merger {
    /// Takes the value of chunk `index`. One that was taken already is left out.
    pub fn push(&mut self, index: u64, value: Value) {
        if index < self.merged {
            return;
        }
        self.early.insert(index, value);
        while let Some(value) = self.early.remove(&self.merged) {
            // Subtrees are merged as late as can be: the last one of a file is merged by the root.
            while self.stack.len() > self.merged.count_ones() as usize {
                self.merge();
            }
            self.stack.push(value);
            self.merged += 1;
        }
    }

    fn merge(&mut self) {
        if let (Some(right), Some(left)) = (self.stack.pop(), self.stack.pop()) {
            self.stack.push(merge_subtrees_non_root(&left, &right, Mode::Hash));
        }
    }

    /// Chunks that were taken without a gap from the first.
    pub fn merged(&self) -> u64 {
        self.merged
    }

    /// The hash of a file of `chunks` chunks, at least two; `None` while values are missing.
    pub fn finish(&self, chunks: u64) -> Option<Value> {
        if self.merged != chunks || chunks < 2 {
            return None;
        }
        let mut stack = self.stack.clone();
        let mut right = stack.pop()?;
        while let Some(left) = stack.pop() {
            if stack.is_empty() {
                return Some(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes());
            }
            right = merge_subtrees_non_root(&left, &right, Mode::Hash);
        }
        None
    }
}

/// Hexadecimal digits, as b3sum prints them.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests;
