//! Registered memory, kept: registering pins pages, which costs more than sending them.
//!
//! Whoever unmaps memory that was ever posted says so first ([`Memory::invalidate`]): the device goes on using the pages
//! that it knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use linkspan_tbring::{Access, Error};
use linkspan_transport::MemSlice;

use crate::device::RingDevice;

/// Regions that a rail keeps before it begins anew; a file has at most 1,024.
const KEEP: usize = 512;

/// What a rail knows of registered memory, for those who unmap some. Cheap to copy.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<AtomicU64>);

impl Memory {
    /// Has the rail forget what it registered, before memory that was posted is unmapped. Operations under way keep theirs.
    pub fn invalidate(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// Whether both are of the same rail.
    pub fn is(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A region and where it begins.
pub(crate) struct Held<R> {
    region: R,
    addr: u64,
    len: u64,
}

impl<R> Held<R> {
    pub(crate) fn region(&self) -> &R {
        &self.region
    }

    /// Offset of memory that lies in it.
    pub(crate) fn offset(&self, mem: MemSlice) -> u64 {
        mem.as_ptr() as u64 - self.addr
    }
}

/// By address. None lies inside another, so if the one with the nearest start below an address does not cover a range, none
/// does.
struct Map<R>(BTreeMap<u64, Arc<Held<R>>>);

impl<R> Map<R> {
    fn find(&self, addr: u64, len: u64) -> Option<&Arc<Held<R>>> {
        let (_, held) = self.0.range(..=addr).next_back()?;
        (addr + len <= held.addr + held.len).then_some(held)
    }

    fn insert(&mut self, held: Arc<Held<R>>) {
        let (from, to) = (held.addr, held.addr + held.len);
        self.0.retain(|_, old| !(old.addr >= from && old.addr + old.len <= to));
        self.0.insert(from, held);
    }
}

pub(crate) struct Cache<D: RingDevice> {
    sources: Map<D::Region>,
    targets: Map<D::Region>,
    memory: Memory,
    generation: u64,
}

impl<D: RingDevice> Cache<D> {
    pub(crate) fn new() -> Cache<D> {
        Cache { sources: Map(BTreeMap::new()), targets: Map(BTreeMap::new()), memory: Memory::default(), generation: 0 }
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The region that holds `mem`; without a system call when it is known.
    pub(crate) fn get(&mut self, device: &mut D, mem: MemSlice, target: bool) -> Result<Arc<Held<D::Region>>, Error> {
        let generation = self.memory.0.load(Ordering::Acquire);
        if generation != self.generation || self.sources.0.len() + self.targets.0.len() >= KEEP {
            (self.sources, self.targets) = (Map(BTreeMap::new()), Map(BTreeMap::new()));
            self.generation = generation;
        }
        let (addr, len) = (mem.as_ptr() as u64, linkspan_transport::Buf::len(&mem) as u64);
        let known = self.targets.find(addr, len).or_else(|| match target {
            true => None,
            false => self.sources.find(addr, len),
        });
        if let Some(held) = known {
            return Ok(held.clone());
        }
        // What is received into is often sent from later; what is sent from may be memory that cannot be written.
        let region = device.register(mem, if target { Access::Both } else { Access::Send })?;
        let held = Arc::new(Held { region, addr, len });
        if target {
            self.targets.insert(held.clone())
        } else {
            self.sources.insert(held.clone())
        }
        Ok(held)
    }
}
