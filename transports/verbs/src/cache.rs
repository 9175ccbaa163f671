//! Registered memory, kept.
//!
//! Registering pins pages and costs from tens of microseconds up; so a region stays registered until it is
//! invalidated or pushed out. A card goes on using the pages that it knows, whatever is mapped there by then. So a domain may be
//! told to watch what it registers ([`Domain::watching`]); without that, code that unmaps memory that was ever posted
//! says so first ([`Domain::invalidate`]).

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use linkspan_transport::{Buf, DeviceReach, MemSlice};
use linkspan_uffd::Unmaps;
use linkspan_verbs_sys::{Access, AsyncEvent, Error, Keys, Mr, Nic};

/// Regions a domain keeps that no rail knows, and regions a rail knows before it begins anew.
const KEEP: usize = 1024;

/// A registered region.
pub struct CachedRegion<M> {
    mr: M,
    keys: Keys,
}

impl<M: Mr> CachedRegion<M> {
    fn new(mr: M) -> CachedRegion<M> {
        CachedRegion { keys: mr.keys(), mr }
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
struct Map<M>(BTreeMap<u64, Arc<CachedRegion<M>>>);

impl<M: Mr> Map<M> {
    fn find(&self, mem: MemSlice) -> Option<&Arc<CachedRegion<M>>> {
        let addr = mem.as_ptr() as u64;
        let (_, region) = self.0.range(..=addr).next_back()?;
        region.keys.covers(addr, mem.len() as u64).then_some(region)
    }

    fn insert(&mut self, region: Arc<CachedRegion<M>>) {
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

    fn find(&self, mem: MemSlice, target: bool) -> Option<&Arc<CachedRegion<M>>> {
        self.targets.find(mem).or_else(|| if target { None } else { self.sources.find(mem) })
    }

    fn insert(&mut self, region: Arc<CachedRegion<M>>, target: bool) {
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
    /// Set at most once, before anything is registered.
    unmaps: OnceLock<Result<&'static Unmaps, &'static str>>,
    /// What it was heard to say so far.
    unmapped: Mutex<u64>,
}

/// A device and the memory registered with it, shared by its rails.
pub struct Domain<N: Nic>(Arc<Shared<N>>);

impl<N: Nic> Clone for Domain<N> {
    fn clone(&self) -> Domain<N> {
        Domain(self.0.clone())
    }
}

impl<N: Nic> Domain<N> {
    /// A domain of an opened device.
    pub fn new(nic: N) -> Domain<N> {
        let maps = Mutex::new(Maps::new());
        let (generation, registrations, addresses) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (gone, unmaps, unmapped) = (AtomicBool::new(false), OnceLock::new(), Mutex::new(0));
        Domain(Arc::new(Shared { nic, maps, generation, registrations, addresses, gone, unmaps, unmapped }))
    }

    /// From now on memory that is unmapped, moved or given back to the kernel is forgotten by itself, before anything else can be
    /// mapped and posted there. Costs a thread of the process, which is asleep, and a system call for each registration.
    #[must_use]
    pub fn watching(self) -> Domain<N> {
        self.0.unmaps.get_or_init(Unmaps::of_process);
        self
    }

    /// Whether registered memory is watched for being unmapped.
    ///
    /// # Errors
    /// A text: it was not asked to, or the kernel cannot.
    pub fn watches(&self) -> Result<(), &'static str> {
        self.0.unmaps.get().copied().unwrap_or(Err("not asked to")).map(drop)
    }

    fn unmaps(&self) -> Option<&'static Unmaps> {
        self.0.unmaps.get().copied().and_then(Result::ok)
    }

    /// Another number when memory has gone since; a load.
    #[inline]
    fn epoch(&self) -> u64 {
        self.unmaps().map_or(0, Unmaps::epoch)
    }

    /// Forgets what has gone; the number then.
    #[cold]
    fn catch_up(&self) -> u64 {
        let Some(unmaps) = self.unmaps() else { return 0 };
        let epoch = unmaps.settled();
        let mut seen = self.0.unmapped.lock().unwrap_or_else(|e| e.into_inner());
        unmaps.gone(&mut seen, |(from, to)| self.forget(from, to - from));
        epoch
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

    /// Regions kept at the moment.
    pub fn kept(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Maps<N::Mr>> {
        self.0.maps.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Forgets every region that shares a byte with the `len` bytes at `mem`; to be called before memory that was
    /// posted is unmapped. Operations under way keep theirs until they end; rails let go at their next operation.
    pub fn invalidate(&self, mem: MemSlice) {
        self.forget(mem.as_ptr() as u64, mem.len() as u64);
    }

    fn forget(&self, addr: u64, len: u64) {
        let mut maps = self.lock();
        maps.sources.remove(addr, len);
        maps.targets.remove(addr, len);
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// Registers ahead, so that the first operation does not have to.
    ///
    /// # Errors
    /// [`Error::System`]: the device refuses; ENOMEM when no more memory may be locked.
    pub fn register(&self, mem: MemSlice, target: bool) -> Result<Arc<CachedRegion<N::Mr>>, Error> {
        self.catch_up();
        if let Some(region) = self.lock().find(mem, target) {
            return Ok(region.clone());
        }
        if let (Some(unmaps), true) = (self.unmaps(), mem.is_host()) {
            // Where the kernel cannot (a file's pages, a device's), its owner says when it goes, as without the watch.
            let _ = unmaps.watch(mem);
        }
        let access = if target { Access::REMOTE_WRITE } else { Access::LOCAL_READ };
        let region = Arc::new(CachedRegion::new(self.0.nic.register(mem, access)?));
        self.lock().insert(region.clone(), target);
        // After the insertion: a reader that sees the number finds the region.
        self.0.registrations.fetch_add(1, Ordering::Release);
        Ok(region)
    }
}

impl<N: Nic> Domain<N> {
    /// Registers device memory by its dma-buf: `len` bytes at `offset` of it, known as the `len` bytes at `mem`. Chunks of
    /// that memory then go straight from and to the device.
    ///
    /// # Errors
    /// [`Error::Unsupported`] or [`Error::System`]: library, kernel or device cannot. The memory is to be staged
    /// through host memory then.
    pub fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        mem: MemSlice,
        target: bool,
    ) -> Result<Arc<CachedRegion<N::Mr>>, Error> {
        let access = if target { Access::REMOTE_WRITE } else { Access::LOCAL_READ };
        let (at, len) = (mem.as_ptr() as u64, mem.len() as u64);
        let region = Arc::new(CachedRegion::new(self.0.nic.register_dmabuf(dmabuf, offset, len, at, access)?));
        self.lock().insert(region.clone(), target);
        // After the insertion: a reader that sees the number finds the region.
        self.0.registrations.fetch_add(1, Ordering::Release);
        Ok(region)
    }
}

/// A rail's own copy of the map: looked up without a lock.
pub(crate) struct Cache<N: Nic> {
    domain: Domain<N>,
    maps: Maps<N::Mr>,
    generation: u64,
    epoch: u64,
}

impl<N: Nic> Cache<N> {
    pub(crate) fn new(domain: Domain<N>) -> Cache<N> {
        Cache { domain, maps: Maps::new(), generation: 0, epoch: 0 }
    }

    pub(crate) fn domain(&self) -> &Domain<N> {
        &self.domain
    }

    /// The region that holds `mem`. Without a system call and a lock when it is known.
    pub(crate) fn get(&mut self, mem: MemSlice, target: bool) -> Result<Arc<CachedRegion<N::Mr>>, Error> {
        if self.domain.epoch() != self.epoch {
            self.epoch = self.domain.catch_up();
        }
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

impl<N: Nic> DeviceReach for Registered<N> {
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
