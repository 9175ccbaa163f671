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

/// Which numbers of regions a table gives out: `first`, and from there every `step`th.
#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    first: usize,
    step: usize,
}

impl Numbers {
    /// All, for a transport of its own.
    pub(crate) const ALL: Numbers = Numbers { first: 0, step: 1 };
    /// For one peer of an endpoint, and for all of its peers: in turns, so that tables stay as short as they are full.
    pub(crate) const OF_PEER: Numbers = Numbers { first: 0, step: 2 };
    pub(crate) const OF_ENDPOINT: Numbers = Numbers { first: 1, step: 2 };

    fn most(self) -> usize {
        MAX_REGIONS / self.step
    }

    fn key(self, at: usize, generation: u32) -> u32 {
        generation << INDEX_BITS | (self.first + at * self.step) as u32
    }

    fn place(self, key: u32) -> Option<usize> {
        let index = (key & ((1 << INDEX_BITS) - 1)) as usize;
        let at = index.checked_sub(self.first)?;
        at.is_multiple_of(self.step).then_some(at / self.step)
    }
}

pub(crate) struct Regions {
    numbers: Numbers,
    table: Vec<ExposedRegion>,
    free: Vec<u16>,
    leaving: usize,
}

impl Regions {
    pub(crate) fn new(numbers: Numbers) -> Regions {
        Regions { numbers, table: Vec::new(), free: Vec::new(), leaving: 0 }
    }

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
                let key = self.numbers.key(index, region.generation);
                return Ok(Exposed { remote: remote(key), reused: true });
            }
        }
        let index = match self.free.pop() {
            Some(index) => usize::from(index),
            None if self.table.len() < self.numbers.most() => {
                self.table.push(ExposedRegion { generation: 0, live: None });
                self.table.len() - 1
            }
            None => return Err(Error::TooManyRegions(self.numbers.most())),
        };
        let region = &mut self.table[index];
        region.generation += 1;
        region.live = Some(Live { slice, access, uses: 1, leaving: false, hold: view.hold() });
        let key = self.numbers.key(index, region.generation);
        if let Some(ch) = ch {
            give_one(ch, key, slice, access);
        }
        Ok(Exposed { remote: remote(key), reused: false })
    }

    /// Takes over what another table of these numbers has given out: all of it, or the one of `key`.
    pub(crate) fn copy(&mut self, from: &Regions, key: Option<u32>, mut ch: Option<&mut Channel>) {
        let all = from.table.iter().enumerate().map(|(at, region)| (from.numbers.key(at, region.generation), region));
        for (at, (here, region)) in all.enumerate() {
            let Some(live) = region.live.as_ref().filter(|live| !live.leaving && key.is_none_or(|key| key == here))
            else {
                continue;
            };
            while self.table.len() <= at {
                self.table.push(ExposedRegion { generation: 0, live: None });
            }
            let (slice, access, hold) = (live.slice, live.access, live.hold.clone());
            let live = Some(Live { slice, access, uses: 1, leaving: false, hold });
            self.table[at] = ExposedRegion { generation: region.generation, live };
            if let Some(ch) = &mut ch {
                give_one(ch, here, slice, access);
            }
        }
        // The other table gives the numbers out.
        self.free.clear();
    }

    /// Gives a new path all regions.
    pub(crate) fn give(&self, ch: &mut Channel) {
        for (index, region) in self.table.iter().enumerate() {
            if let Some(live) = region.live.as_ref().filter(|l| !l.leaving) {
                give_one(ch, self.numbers.key(index, region.generation), live.slice, live.access);
            }
        }
    }

    /// Takes one use of a region back. True: it was the last.
    pub(crate) fn take_back(&mut self, key: u32) -> Result<bool, Error> {
        let at = self.numbers.place(key).and_then(|at| self.table.get_mut(at));
        let region = at.filter(|r| r.generation == key >> INDEX_BITS);
        let live = region.and_then(|r| r.live.as_mut()).filter(|l| !l.leaving).ok_or(Error::NotExposed(key))?;
        live.uses -= 1;
        live.leaving = live.uses == 0;
        self.leaving += usize::from(live.leaving);
        Ok(live.leaving)
    }

    /// Whether a region that was taken back is still being used.
    pub(crate) fn is_leaving(&self, key: u32) -> bool {
        let at = self.numbers.place(key).and_then(|at| self.table.get(at));
        let region = at.filter(|r| r.generation == key >> INDEX_BITS);
        region.and_then(|r| r.live.as_ref()).is_some_and(|l| l.leaving)
    }

    pub(crate) fn any_leaving(&self) -> bool {
        self.leaving > 0
    }

    /// Lets go of regions that nothing lands in any more; without a path that is all that were taken back.
    pub(crate) fn settle(&mut self, mut ch: Option<&mut Channel>, holds: &mut Vec<Hold>) {
        for at in 0..self.table.len() {
            let region = &self.table[at];
            if region.live.as_ref().is_none_or(|l| !l.leaving) {
                continue;
            }
            if ch.as_mut().is_some_and(|ch| !ch.unexpose(self.numbers.key(at, region.generation))) {
                continue;
            }
            self.let_go(at, holds);
        }
    }

    /// Lets go of the region of this key, which was taken back and left every path. Others may not have left theirs.
    pub(crate) fn release(&mut self, key: u32, holds: &mut Vec<Hold>) {
        if let Some(at) = self.numbers.place(key).filter(|_| self.is_leaving(key)) {
            self.let_go(at, holds);
        }
    }

    fn let_go(&mut self, at: usize, holds: &mut Vec<Hold>) {
        let region = &mut self.table[at];
        holds.extend(region.live.take().map(|l| l.hold));
        self.leaving -= 1;
        // A generation that has run through all its values retires its number rather than begin again.
        if region.generation < (1 << (32 - INDEX_BITS)) - 1 {
            self.free.push(at as u16);
        }
    }

    /// Ends all; nothing may be using them.
    pub(crate) fn clear(&mut self, holds: &mut Vec<Hold>) {
        holds.extend(self.table.drain(..).filter_map(|r| r.live).map(|l| l.hold));
        self.free.clear();
        self.leaving = 0;
    }
}

/// Gives a path a region. Where its number is in use there still the path ends: the next one is given what the table has now.
fn give_one(ch: &mut Channel, key: u32, slice: MemSlice, access: Access) {
    let fresh = ch.expose_at(key, slice, access);
    debug_assert!(fresh, "a key is used once");
    if !fresh {
        ch.cut("the number of a region was in use there still");
    }
}
