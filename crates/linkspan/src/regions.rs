//! The regions a transport exposes: their keys outlive the paths.

use linkspan_fabric::{Access, Channel, MemSlice};

use crate::memory::{Hold, View};
use crate::remote::INDEX_BITS;
use crate::{Error, RemoteBuffer};

/// Regions exposed at a time on one transport, as many as a connection takes.
const MAX_REGIONS: usize = 1 << INDEX_BITS;

struct Live {
    slice: MemSlice,
    access: Access,
    /// How often it was exposed and not taken back.
    uses: u32,
    /// Taken back, but something may still be landing.
    leaving: bool,
    hold: Hold,
}

struct ExposedRegion {
    generation: u32,
    live: Option<Live>,
}

/// A region that was exposed, with what the peer needs to use it.
#[derive(Clone, Copy, Debug)]
pub struct Exposed {
    pub(crate) remote: RemoteBuffer,
    pub(crate) reused: bool,
}

impl Exposed {
    /// What to send to the peer.
    pub fn remote(&self) -> RemoteBuffer {
        self.remote
    }

    /// The same range was exposed with the same rights already: this is that region again, with its key.
    pub fn reused_registration(&self) -> bool {
        self.reused
    }
}

#[derive(Default)]
pub(crate) struct Regions {
    table: Vec<ExposedRegion>,
    free: Vec<u16>,
    leaving: usize,
}

impl Regions {
    pub(crate) fn expose(
        &mut self,
        domain: u64,
        view: &View<'_>,
        access: Access,
        ch: Option<&mut Channel>,
    ) -> Result<Exposed, Error> {
        let (slice, len) = (view.raw(), view.len() as u64);
        let remote = |key| RemoteBuffer { domain, key, access, offset: 0, len };
        for (index, region) in self.table.iter_mut().enumerate() {
            if let Some(live) = region.live.as_mut().filter(|l| l.slice == slice && l.access == access && !l.leaving) {
                live.uses += 1;
                return Ok(Exposed { remote: remote(key(index, region.generation)), reused: true });
            }
        }
        let index = match self.free.pop() {
            Some(index) => usize::from(index),
            None if self.table.len() < MAX_REGIONS => {
                self.table.push(ExposedRegion { generation: 0, live: None });
                self.table.len() - 1
            }
            None => return Err(Error::TooManyRegions(MAX_REGIONS)),
        };
        let region = &mut self.table[index];
        region.generation += 1;
        region.live = Some(Live { slice, access, uses: 1, leaving: false, hold: view.hold() });
        let key = key(index, region.generation);
        if let Some(ch) = ch {
            let fresh = ch.expose_at(key, slice, access);
            debug_assert!(fresh, "a key is used once");
        }
        Ok(Exposed { remote: remote(key), reused: false })
    }

    /// Gives a new path all regions.
    pub(crate) fn give(&self, ch: &mut Channel) {
        for (index, region) in self.table.iter().enumerate() {
            if let Some(live) = region.live.as_ref().filter(|l| !l.leaving) {
                let fresh = ch.expose_at(key(index, region.generation), live.slice, live.access);
                debug_assert!(fresh, "a new path has no regions");
            }
        }
    }

    /// Takes one use of a region back. True: it was the last.
    pub(crate) fn take_back(&mut self, key: u32) -> Result<bool, Error> {
        let region = self.table.get_mut(index(key)).filter(|r| r.generation == key >> INDEX_BITS);
        let live = region.and_then(|r| r.live.as_mut()).filter(|l| !l.leaving).ok_or(Error::NotExposed(key))?;
        live.uses -= 1;
        live.leaving = live.uses == 0;
        self.leaving += usize::from(live.leaving);
        Ok(live.leaving)
    }

    /// Whether a region that was taken back is still being used.
    pub(crate) fn is_leaving(&self, key: u32) -> bool {
        let region = self.table.get(index(key)).filter(|r| r.generation == key >> INDEX_BITS);
        region.and_then(|r| r.live.as_ref()).is_some_and(|l| l.leaving)
    }

    pub(crate) fn any_leaving(&self) -> bool {
        self.leaving > 0
    }

    /// Lets go of regions that nothing lands in any more; without a path that is all that were taken back.
    pub(crate) fn settle(&mut self, mut ch: Option<&mut Channel>, holds: &mut Vec<Hold>) {
        for (n, region) in self.table.iter_mut().enumerate() {
            if region.live.as_ref().is_none_or(|l| !l.leaving) {
                continue;
            }
            if ch.as_mut().is_some_and(|ch| !ch.unexpose(key(n, region.generation))) {
                continue;
            }
            holds.extend(region.live.take().map(|l| l.hold));
            self.leaving -= 1;
            // A generation that has run through all its values retires its number rather than begin again.
            if region.generation < (1 << (32 - INDEX_BITS)) - 1 {
                self.free.push(n as u16);
            }
        }
    }

    /// Ends all; nothing may be using them.
    pub(crate) fn clear(&mut self, holds: &mut Vec<Hold>) {
        holds.extend(self.table.drain(..).filter_map(|r| r.live).map(|l| l.hold));
        self.free.clear();
        self.leaving = 0;
    }
}

fn key(index: usize, generation: u32) -> u32 {
    generation << INDEX_BITS | index as u32
}

fn index(key: u32) -> usize {
    (key & ((1 << INDEX_BITS) - 1)) as usize
}
