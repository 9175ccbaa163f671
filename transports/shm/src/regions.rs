//! What we expose, as the peer sees it: it copies by itself while we sleep.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use linkspan_proto::conn::Access;
use linkspan_shmring::region::{REGIONS, Region};
use linkspan_shmring::{Map, Side, revoke};
use linkspan_transport::{Buf, MemSlice};

/// Rights in an entry.
const READ: u64 = 1;
const WRITE: u64 = 2;

/// Our table of the map.
#[derive(Debug)]
pub(crate) struct RegionTable {
    map: Arc<Map>,
    side: Side,
    /// The keys in it, by their place; 0: none. What stands in the map itself the peer may have overwritten.
    keys: Vec<u32>,
    /// The end of the peer's copies can be proven.
    allowed: bool,
    /// What the peer had copied when it was asked for last.
    told: [u64; 2],
}

impl RegionTable {
    pub(crate) fn new(map: &Arc<Map>, side: Side, allowed: bool) -> RegionTable {
        RegionTable { map: map.clone(), side, keys: Vec::new(), allowed, told: [0; 2] }
    }

    /// The peer may copy to or from `mem`.
    pub(crate) fn add(&mut self, key: u32, mem: MemSlice, access: Access) {
        let at = key as usize % REGIONS;
        if !self.allowed || !mem.is_host() || key == 0 {
            return;
        }
        if self.keys.len() <= at {
            self.keys.resize(at + 1, 0);
        }
        let rights = match access {
            Access::Read => READ,
            Access::Write => WRITE,
            Access::ReadWrite => READ | WRITE,
        };
        if let Some(place @ 0) = self.keys.get_mut(at) {
            *place = key;
            let region = Region { address: mem.as_ptr() as u64, len: mem.len() as u64, rights };
            self.map.region(self.side, key).publish(key, region);
        }
    }

    /// It may not any more. False: it may be copying still.
    pub(crate) fn remove(&mut self, key: u32) -> bool {
        if let Some(place) = self.keys.get_mut(key as usize % REGIONS).filter(|place| **place == key && key != 0) {
            *place = 0;
            self.map.region(self.side, key).withdraw();
        }
        let copying = || self.allowed && revoke::inside(self.map.inside(self.side.other())) != 0;
        // It may be another copy than into this region; that is soon over.
        let until = copying().then(|| Instant::now() + revoke::PATIENCE);
        while until.is_some_and(|until| Instant::now() < until) && copying() {
            std::hint::spin_loop();
        }
        until.is_none() || !copying()
    }

    /// Bytes that the peer says to have copied since the last call, into our regions and out of them.
    pub(crate) fn copied(&mut self) -> [u64; 2] {
        let now = self.map.copied(self.side.other()).map(|count| count.load(Ordering::Relaxed));
        let before = std::mem::replace(&mut self.told, now);
        std::array::from_fn(|n| now[n].wrapping_sub(before[n]))
    }

    /// Removes all; [`crate::memory::PeerMemory::quiesce`] follows.
    pub(crate) fn clear(&mut self) {
        for key in self.keys.drain(..).filter(|key| *key != 0) {
            self.map.region(self.side, key).withdraw();
        }
    }
}

/// Where `len` bytes at `offset` of the peer's region begin there, if it has them and lets us.
pub(crate) fn place(region: Region, offset: u64, len: usize, write: bool) -> Option<u64> {
    let end = offset.checked_add(len as u64)?;
    let right = if write { WRITE } else { READ };
    (end <= region.len && region.rights & right != 0).then(|| region.address.checked_add(offset)).flatten()
}

#[cfg(test)]
mod tests;
