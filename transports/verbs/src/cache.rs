//! Registered memory, kept.
//!
//! Registering pins pages and costs from tens of microseconds up; so a region stays registered until it is
//! invalidated or pushed out. Whoever unmaps memory that was ever posted says so first ([`Domain::invalidate`]): a card
//! goes on using the pages that it knows.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use linkspan_transport::{Buf, MemSlice, Reach};
use linkspan_verbs_sys::{Access, AsyncEvent, Error, Keys, Mr, Nic};

/// Regions a domain keeps that no rail knows, and regions a rail knows before it begins anew.
const KEEP: usize = 1024;

/// A registered region.
pub struct Region<M> {
    mr: M,
    keys: Keys,
}

impl<M: Mr> Region<M> {
    fn new(mr: M) -> Region<M> {
        Region { keys: mr.keys(), mr }
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The region itself.
    pub fn mr(&self) -> &M {
        &self.mr
    }
}

/// Regions by address. None lies inside another, so the one with the nearest start below an address is also the
/// one that reaches furthest, and if it does not cover a range none does.
struct Map<M>(BTreeMap<u64, Arc<Region<M>>>);

impl<M: Mr> Map<M> {
    fn find(&self, mem: MemSlice) -> Option<&Arc<Region<M>>> {
        let addr = mem.as_ptr() as u64;
        let (_, region) = self.0.range(..=addr).next_back()?;
        region.keys.covers(addr, mem.len() as u64).then_some(region)
    }

    fn insert(&mut self, region: Arc<Region<M>>) {
        let (from, to) = (region.keys.addr(), region.keys.addr() + region.keys.len());
        self.0.retain(|_, old| !(old.keys.addr() >= from && old.keys.addr() + old.keys.len() <= to));
        if self.0.len() >= KEEP
            && let Some(idle) = self.0.iter().find(|(_, r)| Arc::strong_count(r) == 1).map(|(at, _)| *at)
        {
            self.0.remove(&idle);
        }
        self.0.insert(from, region);
    }

    fn remove(&mut self, addr: u64, len: u64) {
        self.0.retain(|_, r| r.keys.addr() + r.keys.len() <= addr || r.keys.addr() >= addr.saturating_add(len));
    }
}

/// Both kinds of region: what is only read here is never registered for the peer to write.
struct Maps<M> {
    sources: Map<M>,
    targets: Map<M>,
}

impl<M> Clone for Maps<M> {
    fn clone(&self) -> Maps<M> {
        Maps { sources: Map(self.sources.0.clone()), targets: Map(self.targets.0.clone()) }
    }
}

impl<M: Mr> Maps<M> {
    fn new() -> Maps<M> {
        Maps { sources: Map(BTreeMap::new()), targets: Map(BTreeMap::new()) }
    }

    fn len(&self) -> usize {
        self.sources.0.len() + self.targets.0.len()
    }

    fn find(&self, mem: MemSlice, target: bool) -> Option<&Arc<Region<M>>> {
        self.targets.find(mem).or_else(|| if target { None } else { self.sources.find(mem) })
    }

    fn insert(&mut self, region: Arc<Region<M>>, target: bool) {
        if target { self.targets.insert(region) } else { self.sources.insert(region) }
    }
}

struct Shared<N: Nic> {
    nic: N,
    maps: Mutex<Maps<N::Mr>>,
    /// Counts invalidations, so that a rail's own copy of the map need not ask for the lock.
    generation: AtomicU64,
    registrations: AtomicU64,
    /// Counts changes of addresses that the device told.
    addresses: AtomicU64,
    gone: AtomicBool,
}

/// A device and the memory registered with it, shared by its rails.
pub struct Domain<N: Nic>(Arc<Shared<N>>);

impl<N: Nic> Clone for Domain<N> {
    fn clone(&self) -> Domain<N> {
        Domain(self.0.clone())
    }
}

impl<N: Nic> Domain<N> {
    /// Over an opened device.
    pub fn new(nic: N) -> Domain<N> {
        let maps = Mutex::new(Maps::new());
        let (generation, registrations, addresses) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Domain(Arc::new(Shared { nic, maps, generation, registrations, addresses, gone: AtomicBool::new(false) }))
    }

    /// Whether both are the same opened device.
    pub fn is(&self, other: &Domain<N>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The device.
    pub fn nic(&self) -> &N {
        &self.0.nic
    }

    /// Takes what the device has to say by itself: how often addresses have changed so far, or `None` when it is gone.
    /// What concerns a queue pair or a port comes as a completion or is in the port's state.
    pub(crate) fn watch(&self) -> Option<u64> {
        while let Ok(Some(event)) = self.0.nic.event() {
            match event {
                AsyncEvent::Addresses(_) => drop(self.0.addresses.fetch_add(1, Ordering::Relaxed)),
                AsyncEvent::DeviceGone => self.0.gone.store(true, Ordering::Relaxed),
                _ => {}
            }
        }
        (!self.0.gone.load(Ordering::Relaxed)).then(|| self.0.addresses.load(Ordering::Relaxed))
    }

    /// Regions registered so far.
    pub fn registrations(&self) -> u64 {
        self.0.registrations.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Maps<N::Mr>> {
        self.0.maps.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Forgets every region that shares a byte with the `len` bytes at `mem`; to be called before memory that was
    /// posted is unmapped. Operations under way keep theirs until they end; rails let go at their next operation.
    pub fn invalidate(&self, mem: MemSlice) {
        let mut maps = self.lock();
        let (addr, len) = (mem.as_ptr() as u64, mem.len() as u64);
        maps.sources.remove(addr, len);
        maps.targets.remove(addr, len);
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// Registers ahead, so that the first operation does not have to.
    ///
    /// # Errors
    /// The device's word.
    pub fn register(&self, mem: MemSlice, target: bool) -> Result<Arc<Region<N::Mr>>, Error> {
        if let Some(region) = self.lock().find(mem, target) {
            return Ok(region.clone());
        }
        let access = if target { Access::REMOTE_WRITE } else { Access::LOCAL_READ };
        let region = Arc::new(Region::new(self.0.nic.register(mem, access)?));
        self.lock().insert(region.clone(), target);
        // Behind the insertion: whoever sees the number finds the region.
        self.0.registrations.fetch_add(1, Ordering::Release);
        Ok(region)
    }
}

impl<N: Nic> Domain<N> {
    /// Registers device memory by its dma-buf: `len` bytes at `offset` of it, known as the `len` bytes at `mem`. Chunks of
    /// that memory then go straight from and to the device.
    ///
    /// # Errors
    /// The kernel, the library or the device cannot; the memory is to be staged then.
    pub fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        mem: MemSlice,
        target: bool,
    ) -> Result<Arc<Region<N::Mr>>, Error> {
        let access = if target { Access::REMOTE_WRITE } else { Access::LOCAL_READ };
        let (at, len) = (mem.as_ptr() as u64, mem.len() as u64);
        let region = Arc::new(Region::new(self.0.nic.register_dmabuf(dmabuf, offset, len, at, access)?));
        self.lock().insert(region.clone(), target);
        // Behind the insertion: whoever sees the number finds the region.
        self.0.registrations.fetch_add(1, Ordering::Release);
        Ok(region)
    }
}

/// A rail's own copy of the map: looked up without a lock.
pub(crate) struct Cache<N: Nic> {
    domain: Domain<N>,
    maps: Maps<N::Mr>,
    generation: u64,
}

impl<N: Nic> Cache<N> {
    pub(crate) fn new(domain: Domain<N>) -> Cache<N> {
        Cache { domain, maps: Maps::new(), generation: 0 }
    }

    pub(crate) fn domain(&self) -> &Domain<N> {
        &self.domain
    }

    /// The region that holds `mem`. Without a system call and a lock when it is known.
    pub(crate) fn get(&mut self, mem: MemSlice, target: bool) -> Result<Arc<Region<N::Mr>>, Error> {
        let generation = self.domain.0.generation.load(Ordering::Acquire);
        if generation != self.generation || self.maps.len() >= KEEP {
            self.maps = Maps::new();
            self.generation = generation;
        }
        if let Some(region) = self.maps.find(mem, target) {
            return Ok(region.clone());
        }
        let region = self.domain.register(mem, target)?;
        self.maps.insert(region.clone(), target);
        Ok(region)
    }
}

/// What is registered, as it was when it was looked at last.
pub(crate) struct Registered<N: Nic> {
    domain: Domain<N>,
    maps: Maps<N::Mr>,
    seen: (u64, u64),
}

impl<N: Nic> Registered<N> {
    pub(crate) fn new(domain: Domain<N>) -> Registered<N> {
        Registered { domain, maps: Maps::new(), seen: (0, 0) }
    }
}

impl<N: Nic> Reach for Registered<N> {
    fn reaches(&mut self, mem: MemSlice, target: bool) -> bool {
        let shared = &self.domain.0;
        let now = (shared.generation.load(Ordering::Acquire), shared.registrations.load(Ordering::Acquire));
        if now != self.seen {
            (self.maps, self.seen) = (self.domain.lock().clone(), now);
        }
        self.maps.find(mem, target).is_some()
    }
}

#[cfg(test)]
mod tests;
