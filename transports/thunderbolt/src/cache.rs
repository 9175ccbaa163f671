//! Registered memory, kept: registering pins pages, which costs more than sending them.
//!
//! Host memory is registered by the rail that uses it, when it does. Memory of a device is registered by its owner, as a
//! dma-buf. Code that unmaps memory that was ever posted says so first ([`CableMemory`]):
//! the driver goes on using the pages that it knows. Our own buffers say so themselves ([`gone`]). A rail that watches ([`Cache::watch`])
//! is told by the kernel of other memory too; what cannot be watched it does not keep, but where its owner tells ([`gone::promise`]).

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use linkspan_mem::gone;
use linkspan_tbring::{Access, Error};
use linkspan_transport::{Buf, DeviceReach, MemSlice, Refusal, Regions, Registration};
use linkspan_uffd::Unmaps;

use crate::device::{Registrar, RingDevice};

/// Regions that a rail keeps before it begins anew; a file has at most 1,024, with dma-bufs and with those that chunks under way hold then.
const KEEP: usize = 384;

/// Most dma-bufs that are registered with a rail: what is left of a file's regions.
const DMABUFS: usize = 448;

/// What a rail knows of registered memory, for those who register some or unmap some. It keeps nothing alive: after the rail it does
/// nothing.
#[derive(Clone)]
pub(crate) struct CableMemory(Arc<Mutex<Option<Arc<dyn RegisteredCables>>>>);

impl CableMemory {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn RegisteredCables>>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl linkspan_transport::Registrar for CableMemory {
    fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn is_over(&self) -> bool {
        self.lock().is_none()
    }

    fn register(&self, _mem: MemSlice, _target: bool) -> Result<Option<Registration>, Refusal> {
        Ok(None)
    }

    /// Chunks from there, and with `target` those for there, then go straight between the cable's controller and the device. Refused with
    /// `EOPNOTSUPP` where the controller cannot reach it, `ERANGE` where the dma-buf is shorter, `ENOSPC` where 448 are registered.
    fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        mem: MemSlice,
        target: bool,
    ) -> Result<Option<Registration>, Refusal> {
        self.lock().as_ref().ok_or(Error::Gone)?.register_dmabuf(dmabuf, offset, mem, target)?;
        Ok(None)
    }

    fn register_peer(&self, _mem: MemSlice, _target: bool) -> Result<Registration, Refusal> {
        Err("drivers of cables do not support it".into())
    }

    /// Operations under way keep theirs; a rail lets go of host memory at its next operation.
    fn invalidate(&self, mem: MemSlice) {
        if let Some(cables) = &*self.lock() {
            cables.invalidate(mem);
        }
    }
}

trait RegisteredCables: Send + Sync {
    /// Lets go of host memory that no operation uses.
    fn shed(&self);
    fn invalidate(&self, mem: MemSlice);
    fn register_dmabuf(&self, fd: BorrowedFd<'_>, offset: u64, mem: MemSlice, target: bool) -> Result<(), Error>;
}

/// A region, the memory that it is of, and where in it that begins.
pub(crate) struct Held<R> {
    region: R,
    mem: MemSlice,
    head: u64,
}

impl<R> Held<R> {
    pub(crate) fn region(&self) -> &R {
        &self.region
    }

    /// Offset of memory that lies in it.
    pub(crate) fn offset(&self, mem: MemSlice) -> u64 {
        mem.as_ptr() as u64 - self.mem.as_ptr() as u64 + self.head
    }

    /// Whether it has a byte of a range of addresses.
    fn meets(&self, from: u64, to: u64) -> bool {
        let first = self.mem.as_ptr() as u64;
        first < to && from < first.saturating_add(self.mem.len() as u64)
    }
}

/// The caches of the process: what may be locked is a limit of them all.
static CACHES: Mutex<Vec<Weak<dyn RegisteredCables>>> = Mutex::new(Vec::new());

/// What a rail and its owner share, and other rails where no more memory may be locked.
struct Shared<R> {
    registrar: Arc<dyn Registrar<R>>,
    /// Memory of devices.
    devices: Mutex<Regions<Held<R>>>,
    /// Host memory that is kept registered.
    host: Mutex<Regions<Held<R>>>,
    /// Counts invalidations, so that a rail need not ask for the lock.
    generation: AtomicU64,
    /// Counts registrations.
    registrations: AtomicU64,
}

impl<R> Shared<R> {
    fn lock(&self) -> MutexGuard<'_, Regions<Held<R>>> {
        self.devices.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn host(&self) -> MutexGuard<'_, Regions<Held<R>>> {
        self.host.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// How often it has changed.
    fn now(&self) -> (u64, u64) {
        (self.generation.load(Ordering::Acquire), self.registrations.load(Ordering::Acquire))
    }
}

impl<R: Send + Sync> RegisteredCables for Shared<R> {
    fn shed(&self) {
        *self.host() = Regions::default();
    }

    fn invalidate(&self, mem: MemSlice) {
        let from = mem.as_ptr() as u64;
        let to = from.saturating_add(mem.len() as u64);
        self.lock().retain(|held| held.mem.place() != mem.place() || !held.meets(from, to));
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn register_dmabuf(&self, fd: BorrowedFd<'_>, offset: u64, mem: MemSlice, target: bool) -> Result<(), Error> {
        if self.lock().count() >= DMABUFS {
            let source = std::io::Error::from_raw_os_error(ENOSPC);
            return Err(Error::Refused { call: "registering memory", source, hint: "" });
        }
        // The bytes before, which are in the same page of the same dma-buf, are registered with it and never used.
        let head = offset % linkspan_mem::page_size() as u64;
        let access = if target { Access::Both } else { Access::Send };
        let region = self.registrar.register_dmabuf(fd, offset - head, head, mem, access)?;
        self.lock().insert(mem, Arc::new(Held { region, mem, head }), target);
        // After the insertion: a reader that sees the number finds the region.
        self.registrations.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// `errno.h`: no space.
const ENOSPC: i32 = 28;

/// Memory of devices as it was when it was looked at last. It keeps nothing registered.
struct Seen<R> {
    shared: Arc<Shared<R>>,
    regions: Regions<Weak<Held<R>>>,
    when: (u64, u64),
}

impl<R> Seen<R> {
    fn new(shared: &Arc<Shared<R>>) -> Seen<R> {
        Seen { shared: shared.clone(), regions: Regions::default(), when: (0, 0) }
    }

    fn find(&mut self, mem: MemSlice, target: bool) -> Option<Arc<Held<R>>> {
        let now = self.shared.now();
        if now != self.when {
            (self.regions, self.when) = (self.shared.lock().map(|held| Some(Arc::downgrade(held))), now);
        }
        self.regions.find(mem, target)?.upgrade()
    }
}

#[allow(unsafe_code)]
// SAFETY: only addresses are compared.
unsafe impl<R: Send + Sync> DeviceReach for Seen<R> {
    fn reaches(&mut self, mem: MemSlice, target: bool) -> bool {
        self.find(mem, target).is_some()
    }
}

/// Who says that host memory is unmapped.
#[derive(Clone, Copy)]
enum UnmapSource {
    /// Its owner.
    Owner,
    /// The kernel.
    Kernel(&'static Unmaps),
    /// Nothing: the kernel cannot.
    Nobody,
}

pub(crate) struct Cache<D: RingDevice> {
    /// What is kept of the host's, found without a lock.
    host: Regions<Weak<Held<D::Region>>>,
    told: UnmapSource,
    /// What has gone so far and was forgotten.
    epoch: u64,
    seen: u64,
    devices: Seen<D::Region>,
    memory: CableMemory,
    generation: u64,
    /// No more memory could be locked at some time.
    pub(crate) short: bool,
}

impl<D: RingDevice> Cache<D> {
    pub(crate) fn new(device: &D) -> Cache<D> {
        let shared = Arc::new(Shared {
            registrar: device.registrar(),
            devices: Mutex::new(Regions::default()),
            host: Mutex::new(Regions::default()),
            generation: AtomicU64::new(0),
            registrations: AtomicU64::new(0),
        });
        let devices = Seen::new(&shared);
        let mut caches = CACHES.lock().unwrap_or_else(|e| e.into_inner());
        caches.retain(|cache| cache.strong_count() > 0);
        let cache: Arc<dyn RegisteredCables> = shared.clone();
        caches.push(Arc::downgrade(&cache));
        drop(caches);
        let memory = CableMemory(Arc::new(Mutex::new(Some(shared))));
        Cache {
            host: Regions::default(),
            told: UnmapSource::Owner,
            epoch: 0,
            seen: 0,
            devices,
            memory,
            generation: 0,
            short: false,
        }
    }

    /// From now on unmapped host memory is noticed without a call. `Err`: why none is kept.
    pub(crate) fn watch(&mut self) -> Result<(), &'static str> {
        let unmaps = Unmaps::of_process();
        self.told = unmaps.map_or(UnmapSource::Nobody, UnmapSource::Kernel);
        unmaps.map(drop)
    }

    /// Forgets what has gone back to the system.
    #[cold]
    fn catch_up(&mut self) {
        self.epoch = gone::settled();
        let (kept, host) = (&self.devices.shared, &mut self.host);
        gone::since(&mut self.seen, |(from, to)| {
            kept.host().retain(|held| !held.meets(from, to));
            host.retain(|held| held.upgrade().is_some_and(|held| !held.meets(from, to)));
        });
    }

    pub(crate) fn memory(&self) -> CableMemory {
        self.memory.clone()
    }

    /// Which memory of devices the rail moves by itself.
    pub(crate) fn reach(&self) -> Box<dyn DeviceReach> {
        Box::new(Seen::new(&self.devices.shared))
    }

    /// The region that holds `mem`; when it is known without a system call but [`Unmaps::settle`].
    pub(crate) fn get(&mut self, device: &mut D, mem: MemSlice, target: bool) -> Result<Arc<Held<D::Region>>, Error> {
        if !mem.is_host() {
            return self.devices.find(mem, target).ok_or_else(|| Error::Refused {
                call: "looking device memory up",
                source: std::io::Error::from_raw_os_error(EFAULT),
                hint: "; its owner has not registered it with this rail, or has taken it back",
            });
        }
        if let Some(held) = self.known(mem, target) {
            return Ok(held);
        }
        let keep = self.is_told(mem);
        let held = self.register(device, mem, target)?;
        if keep {
            self.keep(&held, target);
        }
        Ok(held)
    }

    /// Registers host memory before it is used, where it would be kept until then and is not refused.
    pub(crate) fn prepare(&mut self, device: &mut D, mem: MemSlice, target: bool) {
        if self.known(mem, target).is_none()
            && self.is_told(mem)
            && let Ok(held) = self.register(device, mem, target)
        {
            self.keep(&held, target);
        }
    }

    fn known(&mut self, mem: MemSlice, target: bool) -> Option<Arc<Held<D::Region>>> {
        if let UnmapSource::Kernel(unmaps) = self.told {
            unmaps.settle();
        }
        if gone::epoch() != self.epoch {
            self.catch_up();
        }
        let generation = self.devices.shared.generation.load(Ordering::Acquire);
        if generation != self.generation || self.host.count() >= KEEP {
            self.devices.shared.shed();
            (self.host, self.generation) = (Regions::default(), generation);
        }
        self.host.find(mem, target)?.upgrade()
    }

    fn keep(&mut self, held: &Arc<Held<D::Region>>, target: bool) {
        // What was let go of would hide what lies inside it.
        self.host.retain(|known| known.strong_count() > 0);
        self.host.insert(held.mem, Arc::new(Arc::downgrade(held)), target);
        self.devices.shared.host().insert(held.mem, held.clone(), target);
    }

    /// Whether somebody says when this host memory goes: from here on, so before it is registered.
    fn is_told(&self, mem: MemSlice) -> bool {
        let from = mem.as_ptr() as u64;
        let promised = || gone::is_promised((from, from.saturating_add(mem.len() as u64)));
        match self.told {
            UnmapSource::Owner => true,
            UnmapSource::Kernel(unmaps) => unmaps.watch(mem).is_ok() || promised(),
            UnmapSource::Nobody => promised(),
        }
    }

    fn register(&mut self, device: &mut D, mem: MemSlice, target: bool) -> Result<Arc<Held<D::Region>>, Error> {
        // What is received into is often sent from later; what is sent from may be memory that cannot be written.
        let access = if target { Access::Both } else { Access::Send };
        let region = match device.register(mem, access) {
            // What is kept for later must not be in the way of what is needed now, whichever rail keeps it.
            Err(error) if error.errno() == Some(ENOMEM) => {
                self.short = true;
                let caches = CACHES.lock().unwrap_or_else(|e| e.into_inner()).clone();
                caches.iter().filter_map(Weak::upgrade).for_each(|cache| cache.shed());
                device.register(mem, access)?
            }
            region => region?,
        };
        Ok(Arc::new(Held { region, mem, head: 0 }))
    }
}

impl<D: RingDevice> Drop for Cache<D> {
    fn drop(&mut self) {
        // A registration that runs at this moment is waited for: the device is closed with the rail, not when that is done.
        *self.memory.lock() = None;
    }
}

/// `errno.h`: a bad address.
const EFAULT: i32 = 14;
/// No more memory may be locked.
const ENOMEM: i32 = 12;

#[cfg(test)]
mod tests;
