//! Memory that a side lets the other one copy by itself, named by a key: a table that both see.
//!
//! The owner publishes an entry and withdraws it. The other side looks it up between [`enter`](crate::revoke::enter) and
//! [`leave`](crate::revoke::leave), as the question that `enter` asks. So what shows that no copy of a transfer is under way shows the
//! same of these: the owner withdraws, fences, and reads the flag.

use crate::sync::{AtomicU64, Ordering, fence};

#[cfg(all(test, not(loom)))]
mod tests;

/// Entries of a table: a key's low bits name one.
pub const REGIONS: usize = 4096;

/// Words of an entry.
pub(crate) const WORDS: usize = 4;

/// What an entry tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Address of its first byte in its owner.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// What may be done with it, in the words of the two ends.
    pub rights: u64,
}

/// An entry: the key, 0 where there is none, and what it tells.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub(crate) words: [&'a AtomicU64; WORDS],
}

impl Entry<'_> {
    /// Owner: from now on the other side may copy. The entry was withdrawn, or never used.
    pub fn publish(&self, key: u32, region: Region) {
        let [name, address, len, rights] = self.words;
        // Whoever reads one of these sees that the key before is gone.
        fence(Ordering::Release);
        address.store(region.address, Ordering::Relaxed);
        len.store(region.len, Ordering::Relaxed);
        rights.store(region.rights, Ordering::Relaxed);
        name.store(key.into(), Ordering::Release);
    }

    /// Owner: no copy begins any more; one that has begun shows in the flag.
    pub fn withdraw(&self) {
        self.words[0].store(0, Ordering::Relaxed);
    }

    /// The other side: what the key names, if it does.
    pub fn find(&self, key: u32) -> Option<Region> {
        let [name, address, len, rights] = self.words;
        if key == 0 || name.load(Ordering::Acquire) != u64::from(key) {
            return None;
        }
        let region = Region {
            address: address.load(Ordering::Relaxed),
            len: len.load(Ordering::Relaxed),
            rights: rights.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (name.load(Ordering::Relaxed) == u64::from(key)).then_some(region)
    }
}
