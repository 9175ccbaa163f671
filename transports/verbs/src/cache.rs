//! Registered memory, kept.
//!
//! Registering pins pages and costs from tens of microseconds up; so a region stays registered until it is
//! invalidated or pushed out. A card goes on using the pages that it knows, whatever is mapped there by then. So what goes back to the
//! system is forgotten ([`gone`]): our own buffers say so. Other memory a domain may be told to watch ([`Domain::watching`]); what cannot be
//! watched, as pages of a file or shared ones, it registers for each chunk anew. Without the watch, code that unmaps memory that was ever posted says so
//! first ([`Domain::invalidate`]).
//!
//! The key of a target opens all of its region, to every queue pair of the protection domain, for as long as it is registered. So
//! its end is not left to the rails, which may be idle: a target that is forgotten is deregistered at once, whoever still knows it. Only where
//! it is not known what has gone, what is used stays until it is not: receives under way have their memory yet.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use linkspan_mem::gone;
use linkspan_transport::{Buf, DeviceReach, MemSlice, Refusal, Regions, Registrar, Registration};
use linkspan_uffd::Unmaps;
use linkspan_verbs_sys::{Access, AsyncEvent, Error, Keys, Mr, Nic};

/// Regions a domain keeps that no operation uses, and regions a rail knows before it begins anew.
const KEEP: usize = 1024;

/// A registered region.
pub(crate) struct CachedRegion<M> {
    keys: Keys,
    mem: MemSlice,
    target: bool,
    /// Later operations may use it too: somebody says when its memory goes, or holds it.
    kept: bool,
    /// `None`: it was deregistered before its last user was gone.
    mr: Mutex<Option<M>>,
    /// How many [`Hold`]s there are; changed under the domain's lock.
    holds: AtomicUsize,
    /// What it is of may have gone: it lives for those who use it already. Changed under the domain's lock.
    outdated: AtomicBool,
}

impl<M: Mr> CachedRegion<M> {
    fn new(mr: M, mem: MemSlice, target: bool, kept: bool) -> Arc<CachedRegion<M>> {
        let (keys, mr) = (mr.keys(), Mutex::new(Some(mr)));
        let (holds, outdated) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(CachedRegion { keys, mem, target, kept, mr, holds, outdated })
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Deregisters it, whoever knows it.
    fn end(&self) {
        drop(self.mr.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn is_held(&self) -> bool {
        self.holds.load(Ordering::Relaxed) > 0
    }

    fn covers(&self, mem: MemSlice) -> bool {
        let (addr, end) = (mem.as_ptr() as u64, (mem.as_ptr() as u64).saturating_add(mem.len() as u64));
        self.mem.place() == mem.place() && self.keys.addr() <= addr && end <= self.keys.addr() + self.keys.len()
    }

    fn meets(&self, addr: u64, len: u64) -> bool {
        self.keys.addr() < addr.saturating_add(len) && addr < self.keys.addr() + self.keys.len()
    }
}

/// Why a range is forgotten.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// It was unmapped.
    Gone,
    /// Its owner takes it back.
    TakenBack,
    /// It is not known what was unmapped.
    Unknown,
}

/// What a domain has registered.
struct Known<M> {
    /// Where operations look.
    regions: Regions<CachedRegion<M>>,
    /// All that was not forgotten, or is used yet: also what larger regions have taken the place of.
    live: Vec<Weak<CachedRegion<M>>>,
}

impl<M: Mr> Known<M> {
    fn add(&mut self, region: Arc<CachedRegion<M>>) {
        self.live.retain(|known| known.strong_count() > 0);
        self.live.push(Arc::downgrade(&region));
        if region.kept {
            self.show(region);
        }
    }

    /// Where no other of its kind covers it.
    fn show(&mut self, region: Arc<CachedRegion<M>>) {
        if self.regions.find(region.mem, region.target).is_some_and(|known| known.target == region.target) {
            return;
        }
        if self.regions.count() >= KEEP {
            self.regions.drop_unused();
        }
        let (mem, target) = (region.mem, region.target);
        self.regions.insert(mem, region, target);
    }

    /// Targets that somebody holds.
    fn held(&self) -> impl Iterator<Item = Arc<CachedRegion<M>>> {
        self.live().filter(|r| r.target && r.kept && r.is_held() && !r.outdated.load(Ordering::Relaxed))
    }

    /// The region for `mem`. Of targets the narrowest that is held: a wider one may be taken back while a peer writes by its key.
    fn find(&self, mem: MemSlice, target: bool) -> Option<Arc<CachedRegion<M>>> {
        let narrowest = || self.held().filter(|r| r.covers(mem)).min_by_key(|r| r.keys.len());
        let held = if target { narrowest() } else { None };
        held.or_else(|| self.regions.find(mem, target).cloned())
    }

    /// Whether it is not the right one for all of its memory.
    fn is_parted(&self, region: &Arc<CachedRegion<M>>) -> bool {
        region.target && self.held().any(|r| !Arc::ptr_eq(&r, region) && r.mem != region.mem && region.covers(r.mem))
    }

    /// Drops what nothing uses and nobody holds.
    fn shed(&mut self) {
        let mut before = usize::MAX;
        while self.regions.count() < before {
            before = self.regions.count();
            self.regions.drop_unused();
        }
    }

    fn live(&self) -> impl Iterator<Item = Arc<CachedRegion<M>>> {
        self.live.iter().filter_map(Weak::upgrade)
    }

    /// Forgets what shares a byte with the range: sources are deregistered with their last user, targets now, or also with their
    /// last user where it is unknown what has gone. Those that are held stay unless they are gone. Whether there were any.
    fn forget(&mut self, addr: u64, len: u64, cause: Cause) -> bool {
        let mut any = false;
        let stays = |region: &CachedRegion<M>| !region.meets(addr, len) || (cause != Cause::Gone && region.is_held());
        self.regions.retain(stays);
        self.live.retain(|known| {
            let region = known.upgrade();
            if region.as_ref().is_some_and(|region| stays(region)) {
                return true;
            }
            any = true;
            match region {
                Some(region) if cause == Cause::Unknown => region.outdated.store(true, Ordering::Relaxed),
                Some(region) if region.target => region.end(),
                _ => {}
            }
            cause == Cause::Unknown
        });
        let held: Vec<_> = self.live().filter(|region| region.is_held()).collect();
        held.into_iter().for_each(|region| self.show(region));
        any
    }
}

struct Shared<N: Nic> {
    nic: N,
    known: Mutex<Known<N::Mr>>,
    /// Counts invalidations, so that a rail's own copy of the map need not ask for the lock.
    generation: AtomicU64,
    registrations: AtomicU64,
    events: Arc<Events>,
    /// Set at most once, before anything is registered.
    unmaps: OnceLock<Result<&'static Unmaps, &'static str>>,
    /// What has gone so far and was forgotten.
    gone: Mutex<u64>,
}

/// What the device told by itself.
#[derive(Default)]
struct Events {
    /// Counts changes of addresses.
    addresses: AtomicU64,
    gone: AtomicBool,
}

/// A device and the memory registered with it in one protection domain, shared by its rails.
pub struct Domain<N: Nic>(Arc<Shared<N>>);

impl<N: Nic> Clone for Domain<N> {
    fn clone(&self) -> Domain<N> {
        Domain(self.0.clone())
    }
}

impl<N: Nic> Domain<N> {
    /// A domain of an opened device.
    pub fn new(nic: N) -> Domain<N> {
        Domain::over(nic, Arc::default())
    }

    fn over(nic: N, events: Arc<Events>) -> Domain<N> {
        let known = Mutex::new(Known { regions: Regions::default(), live: Vec::new() });
        let (generation, registrations) = (AtomicU64::new(0), AtomicU64::new(0));
        let (unmaps, gone) = (OnceLock::new(), Mutex::new(0));
        Domain(Arc::new(Shared { nic, known, generation, registrations, events, unmaps, gone }))
    }

    /// The same device with nothing registered, in another protection domain ([`Nic::isolated`]): peers of its rails reach no
    /// memory of this one. It does not watch.
    ///
    /// # Errors
    /// [`Error::System`]: the device refuses.
    pub fn isolated(&self) -> Result<Domain<N>, Error> {
        Ok(Domain::over(self.0.nic.isolated()?, self.0.events.clone()))
    }

    /// From now on memory that is unmapped, moved or given back to the kernel is forgotten by itself, before anything else can be
    /// mapped and posted there; memory of which the kernel does not tell, as of a file's or shared memory, is not kept, but where its owner tells
    /// ([`gone::promise`]). Costs a thread of the process, which is asleep, and a system call for each registration and each look-up.
    /// Before Linux 5.15 what one thread unmaps while others do may be missed where it is mapped and posted anew before the call has returned
    /// ([`Unmaps::settle`]).
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

    /// The number of what has gone so far: of watched memory all whose addresses are free, though the call that freed it has not returned.
    fn settled(&self) -> u64 {
        if let Some(unmaps) = self.unmaps() {
            unmaps.settle();
        }
        gone::settled()
    }

    /// Forgets what has gone; the number then.
    #[cold]
    fn catch_up(&self) -> u64 {
        let epoch = self.settled();
        let mut seen = self.0.gone.lock().unwrap_or_else(PoisonError::into_inner);
        // What is held or used stays where it is not known what has gone: its owner takes it back first.
        gone::since(&mut seen, |range| {
            let cause = if range == gone::ALL { Cause::Unknown } else { Cause::Gone };
            self.forget(range.0, range.1 - range.0, cause);
        });
        epoch
    }

    /// Whether both are the same opened device and protection domain.
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
                AsyncEvent::Addresses(_) => drop(self.0.events.addresses.fetch_add(1, Ordering::Relaxed)),
                AsyncEvent::DeviceGone => self.0.events.gone.store(true, Ordering::Relaxed),
                _ => {}
            }
        }
        (!self.0.events.gone.load(Ordering::Relaxed)).then(|| self.0.events.addresses.load(Ordering::Relaxed))
    }

    /// Whether its device answers no question: after a reset, what was opened before never will.
    pub(crate) fn is_silent(&self) -> bool {
        self.0.nic.port(1).is_err()
    }

    /// Regions registered so far.
    pub fn registrations(&self) -> u64 {
        self.0.registrations.load(Ordering::Relaxed)
    }

    /// Regions kept at the moment.
    pub fn kept(&self) -> usize {
        self.lock().regions.count()
    }

    fn lock(&self) -> MutexGuard<'_, Known<N::Mr>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets every region that shares a byte with `mem` and that nobody holds ([`Domain::hold`]); to be called before memory
    /// that was posted is unmapped. When it returns no peer writes there any more by a key of such a region, also where a rail
    /// is idle. A chunk that was under way ends its rail then, and so does a send from memory that was registered as a target
    /// only. Sources, which have no key for a peer, are deregistered when sends from them have ended.
    pub fn invalidate(&self, mem: MemSlice) {
        self.forget(mem.as_ptr() as u64, mem.len() as u64, Cause::TakenBack);
    }

    fn forget(&self, addr: u64, len: u64, cause: Cause) {
        // Under the lock until all are deregistered: who forgets the same at the same time returns no earlier.
        let mut regions = self.lock();
        if regions.forget(addr, len, cause) {
            self.0.generation.fetch_add(1, Ordering::Release);
        }
    }

    fn find(&self, mem: MemSlice, target: bool) -> Option<Arc<CachedRegion<N::Mr>>> {
        self.catch_up();
        self.lock().find(mem, target)
    }

    /// Whether somebody says when this memory goes: the kernel, or its owner, whose duty that is without the watch.
    fn is_told(&self, mem: MemSlice) -> bool {
        let from = mem.as_ptr() as u64;
        let promised = || gone::is_promised((from, from.saturating_add(mem.len() as u64)));
        self.unmaps().is_none_or(|unmaps| !mem.is_host() || unmaps.watch(mem).is_ok() || promised())
    }

    /// Registers exactly this memory, until the value is dropped. Holders of the same range with the same right share a region.
    ///
    /// # Errors
    /// [`Error::System`]: the device refuses; ENOMEM when no more memory may be locked.
    pub fn hold(&self, mem: MemSlice, target: bool) -> Result<Hold<N>, Error> {
        self.catch_up();
        let is = |r: &Arc<CachedRegion<N::Mr>>| {
            r.kept && r.target == target && r.mem == mem && !r.outdated.load(Ordering::Relaxed)
        };
        let regions = self.lock();
        if let Some(region) = regions.live().find(is) {
            region.holds.fetch_add(1, Ordering::Relaxed);
            self.part(&regions, &region);
            return Ok(Hold { domain: self.clone(), region });
        }
        drop(regions);
        Ok(Hold { domain: self.clone(), region: self.made(mem, target, true)? })
    }

    /// Rails that know a wider one than this that is held look anew.
    fn part(&self, known: &Known<N::Mr>, region: &Arc<CachedRegion<N::Mr>>) {
        if region.target && known.live().any(|r| r.target && r.mem != region.mem && r.covers(region.mem)) {
            self.0.generation.fetch_add(1, Ordering::Release);
        }
    }

    fn made(&self, mem: MemSlice, target: bool, held: bool) -> Result<Arc<CachedRegion<N::Mr>>, Error> {
        // Before it is registered: what goes from here on is told.
        let kept = self.is_told(mem) || held;
        let access = if target { Access::REMOTE_WRITE } else { Access::LOCAL_READ };
        let mr = match self.0.nic.register(mem, access) {
            // What is kept for later must not be in the way of what is needed now.
            Err(error) if is_short(&error) => {
                self.lock().shed();
                self.0.nic.register(mem, access)
            }
            mr => mr,
        };
        Ok(self.add(CachedRegion::new(mr?, mem, target, kept), held))
    }

    fn add(&self, region: Arc<CachedRegion<N::Mr>>, held: bool) -> Arc<CachedRegion<N::Mr>> {
        region.holds.store(held.into(), Ordering::Relaxed);
        let mut known = self.lock();
        known.add(region.clone());
        if held {
            self.part(&known, &region);
        }
        drop(known);
        // After the insertion: a reader that sees the number finds the region.
        self.0.registrations.fetch_add(1, Ordering::Release);
        region
    }
}

impl<N: Nic> Domain<N> {
    /// Registers device memory by its dma-buf until the value is dropped: `len` bytes at `offset` of it, known as the `len` bytes at
    /// `mem`. Chunks of that memory then go straight from and to the device.
    ///
    /// # Errors
    /// [`Error::Unsupported`] or [`Error::System`]: library, kernel or device cannot. The memory is to be staged
    /// through host memory then.
    pub fn hold_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        mem: MemSlice,
        target: bool,
    ) -> Result<Hold<N>, Error> {
        let access = if target { Access::REMOTE_WRITE } else { Access::LOCAL_READ };
        let (at, len) = (mem.as_ptr() as u64, mem.len() as u64);
        let mr = self.0.nic.register_dmabuf(dmabuf, offset, len, at, access)?;
        Ok(Hold { domain: self.clone(), region: self.add(CachedRegion::new(mr, mem, target, true), true) })
    }
}

impl<N: Nic> Registrar for Domain<N> {
    fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Also where its connections have not read yet that it was reset.
    fn is_over(&self) -> bool {
        self.watch().is_none() || self.is_silent()
    }

    fn register(&self, mem: MemSlice, target: bool) -> Result<Option<Registration>, Refusal> {
        Ok(Some(Box::new(self.hold(mem, target)?)))
    }

    fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        mem: MemSlice,
        target: bool,
    ) -> Result<Option<Registration>, Refusal> {
        Ok(Some(Box::new(self.hold_dmabuf(dmabuf, offset, mem, target)?)))
    }

    fn register_peer(&self, mem: MemSlice, target: bool) -> Result<Registration, Refusal> {
        Ok(Box::new(self.hold(mem, target)?))
    }

    fn invalidate(&self, mem: MemSlice) {
        Domain::invalidate(self, mem);
    }
}

/// Memory registered by [`Domain::hold`]. Dropping the last hold of a region takes it back before `drop` returns, as
/// [`Domain::invalidate`] does.
pub struct Hold<N: Nic> {
    domain: Domain<N>,
    region: Arc<CachedRegion<N::Mr>>,
}

impl<N: Nic> Drop for Hold<N> {
    fn drop(&mut self) {
        let regions = self.domain.lock();
        self.region.holds.fetch_sub(1, Ordering::Relaxed);
        drop(regions);
        self.domain.forget(self.region.keys.addr(), self.region.keys.len(), Cause::TakenBack);
    }
}

/// A rail's own copy of the map: looked up without a lock. It keeps nothing registered: the domain does, and what uses it.
pub(crate) struct Cache<N: Nic> {
    domain: Domain<N>,
    regions: Regions<Weak<CachedRegion<N::Mr>>>,
    generation: u64,
    epoch: u64,
    /// Something was registered that is not kept.
    pub(crate) unkept: bool,
    /// Something was not registered because no more memory may be locked.
    pub(crate) short: bool,
}

impl<N: Nic> Cache<N> {
    pub(crate) fn new(domain: Domain<N>) -> Cache<N> {
        Cache { domain, regions: Regions::default(), generation: 0, epoch: 0, unkept: false, short: false }
    }

    pub(crate) fn domain(&self) -> &Domain<N> {
        &self.domain
    }

    /// The region that holds `mem`. When it is known without a lock, and without a system call but [`Unmaps::settle`].
    pub(crate) fn get(&mut self, mem: MemSlice, target: bool) -> Result<Arc<CachedRegion<N::Mr>>, Error> {
        match self.known(self.domain.settled(), mem, target) {
            Some(region) => Ok(region),
            None => self.register(mem, target),
        }
    }

    /// Registers it before it is used, where it is kept until then.
    pub(crate) fn prepare(&mut self, mem: MemSlice, target: bool) {
        // Whoever uses it asks the kernel.
        if self.known(gone::epoch(), mem, target).is_none() {
            let _ = self.ahead(mem, target);
        }
    }

    /// The same before it is used; `None` where it would not be kept until then, or is refused.
    pub(crate) fn ahead(&mut self, mem: MemSlice, target: bool) -> Option<Arc<CachedRegion<N::Mr>>> {
        let known = self.known(self.domain.settled(), mem, target);
        if known.is_some() || !(self.domain.find(mem, target).is_some() || self.domain.is_told(mem)) {
            return known;
        }
        self.register(mem, target).ok()
    }

    fn known(&mut self, epoch: u64, mem: MemSlice, target: bool) -> Option<Arc<CachedRegion<N::Mr>>> {
        if epoch != self.epoch {
            self.epoch = self.domain.catch_up();
        }
        let generation = self.domain.0.generation.load(Ordering::Acquire);
        if generation != self.generation || self.regions.count() >= KEEP {
            self.regions = Regions::default();
            self.generation = generation;
        }
        self.regions.find(mem, target)?.upgrade()
    }

    #[cold]
    fn register(&mut self, mem: MemSlice, target: bool) -> Result<Arc<CachedRegion<N::Mr>>, Error> {
        let region = match self.domain.find(mem, target) {
            Some(region) => region,
            None => {
                let made = self.domain.made(mem, target, false);
                self.short |= made.as_ref().is_err_and(is_short);
                made?
            }
        };
        if region.kept && !self.domain.lock().is_parted(&region) {
            // What the domain has let go would hide what lies inside it.
            self.regions.retain(|known| known.strong_count() > 0);
            self.regions.insert(region.mem, Arc::new(Arc::downgrade(&region)), region.target);
        }
        self.unkept |= !region.kept;
        Ok(region)
    }
}

/// What of devices is registered, as it was when it was looked at last. It keeps nothing registered.
pub(crate) struct Registered<N: Nic> {
    domain: Domain<N>,
    regions: Regions<Weak<CachedRegion<N::Mr>>>,
    seen: (u64, u64),
}

impl<N: Nic> Registered<N> {
    pub(crate) fn new(domain: Domain<N>) -> Registered<N> {
        Registered { domain, regions: Regions::default(), seen: (0, 0) }
    }
}

#[allow(unsafe_code)]
// SAFETY: only addresses are compared.
unsafe impl<N: Nic> DeviceReach for Registered<N> {
    fn reaches(&mut self, mem: MemSlice, target: bool) -> bool {
        let shared = &self.domain.0;
        let now = (shared.generation.load(Ordering::Acquire), shared.registrations.load(Ordering::Acquire));
        if now != self.seen {
            let of_device = |r: &Arc<CachedRegion<N::Mr>>| (!r.mem.is_host()).then(|| Arc::downgrade(r));
            (self.regions, self.seen) = (self.domain.lock().regions.map(of_device), now);
        }
        self.regions.find(mem, target).is_some_and(|region| region.strong_count() > 0)
    }
}

/// Whether it may be registered when other memory is not any more.
pub(crate) fn is_short(error: &Error) -> bool {
    error.os() == Some(ENOMEM)
}

/// Linux, `asm-generic/errno-base.h`: no more memory may be locked.
const ENOMEM: i32 = 12;

#[cfg(test)]
mod tests;
