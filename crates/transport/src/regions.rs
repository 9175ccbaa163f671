//! Registered memory by address: where a rail finds the region of what it moves.

use std::collections::BTreeMap;
use std::sync::Arc;

use linkspan_proto::Buf;

use crate::{MemSlice, MemoryDomain};

/// Registered regions, of which those that are only to be read here are kept apart: they were never registered for a peer to write.
#[derive(Debug)]
pub struct Regions<R> {
    sources: Map<R>,
    targets: Map<R>,
}

/// By place and first address, with the address behind its last byte. None lies inside another, so the one with the nearest start below
/// an address is also the one that reaches furthest, and if it does not cover a range none does.
type Map<R> = BTreeMap<(MemoryDomain, u64), (u64, Arc<R>)>;

impl<R> Default for Regions<R> {
    fn default() -> Regions<R> {
        Regions { sources: Map::new(), targets: Map::new() }
    }
}

impl<R> Clone for Regions<R> {
    fn clone(&self) -> Regions<R> {
        Regions { sources: self.sources.clone(), targets: self.targets.clone() }
    }
}

impl<R> Regions<R> {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sources.len() + self.targets.len()
    }

    /// The region that holds all of `mem`: one that may be received into where it is a `target`. Else a source first, where there are
    /// both: a target may be taken back while something is being sent from it.
    #[must_use]
    pub fn find(&self, mem: MemSlice, target: bool) -> Option<&Arc<R>> {
        let source = if target { None } else { nearest(&self.sources, mem) };
        source.or_else(|| nearest(&self.targets, mem))
    }

    /// Adds the one of `mem` in place of those of its kind that lie inside it. Where a longer one covers it already, that stays alone.
    pub fn insert(&mut self, mem: MemSlice, region: Arc<R>, target: bool) {
        let map = if target { &mut self.targets } else { &mut self.sources };
        let (place, from, to) = (mem.place(), start(mem), end(mem));
        let before = map.range((place, 0)..=(place, from)).next_back();
        if before.is_some_and(|(at, (last, _))| *last > to || *last == to && at.1 < from) {
            return;
        }
        map.retain(|at, (old, _)| at.0 != place || at.1 < from || *old > to);
        map.insert((place, from), (to, region));
    }

    /// The same ranges with what `f` makes of each, without those of which it makes nothing.
    #[must_use]
    pub fn map<T>(&self, f: impl Fn(&Arc<R>) -> Option<T>) -> Regions<T> {
        let map = |of: &Map<R>| {
            of.iter().filter_map(|(at, (last, region))| Some((*at, (*last, Arc::new(f(region)?))))).collect()
        };
        Regions { sources: map(&self.sources), targets: map(&self.targets) }
    }

    /// Drops all but those that `stays` says yes to.
    pub fn retain(&mut self, stays: impl Fn(&R) -> bool) {
        for map in [&mut self.sources, &mut self.targets] {
            map.retain(|_, (_, region)| stays(region));
        }
    }

    /// Drops one that nobody else knows, where there is one.
    pub fn drop_unused(&mut self) {
        for map in [&mut self.sources, &mut self.targets] {
            let unused = map.iter().find(|(_, (_, region))| Arc::strong_count(region) == 1).map(|(at, _)| *at);
            if unused.is_some_and(|at| map.remove(&at).is_some()) {
                return;
            }
        }
    }
}

fn nearest<R>(map: &Map<R>, mem: MemSlice) -> Option<&Arc<R>> {
    let (_, (last, region)) = map.range((mem.place(), 0)..=(mem.place(), start(mem))).next_back()?;
    (end(mem) <= *last).then_some(region)
}

fn start(mem: MemSlice) -> u64 {
    mem.as_ptr() as u64
}

fn end(mem: MemSlice) -> u64 {
    start(mem).saturating_add(mem.len() as u64)
}

#[cfg(test)]
mod tests;
