//! What drivers have in common: tables of handles that calls name by number, and memory that is handed out again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use linkspan_transport::{Buf, HostBuf, MemSlice, MemoryDomain};

use crate::pages::Pages;
use crate::unpack::PIECE_LEN;
use crate::{Ability, Event, Gpu, Stream, UnpackJob, pages_around};
use crate::{GpuError, Pointer};

/// Most streams, and most events, that a device hands out at a time: a staged rail has 2 and 128, and one that
/// copies directly 384.
pub const MOST: usize = 16 << 10;

/// Handles of a driver by number. Looking one up takes no lock; a number that was never given out finds nothing.
#[derive(Debug)]
pub struct Handles {
    slots: Box<[AtomicUsize]>,
    free: Mutex<(usize, Vec<u32>)>,
}

impl Default for Handles {
    fn default() -> Handles {
        let slots = (0..MOST).map(|_| AtomicUsize::new(0)).collect();
        Handles { slots, free: Mutex::new((0, Vec::new())) }
    }
}

impl Handles {
    /// A number that was taken back, or a new one for what `make` gives (which is not 0). `None`: none left.
    ///
    /// # Errors
    /// What `make` returned as `Err`, unchanged.
    pub fn take<E>(&self, make: impl FnOnce() -> Result<usize, E>) -> Result<Option<u32>, E> {
        let mut free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(number) = free.1.pop() {
            return Ok(Some(number));
        }
        let Some(slot) = self.slots.get(free.0) else { return Ok(None) };
        slot.store(make()?, Ordering::Release);
        free.0 += 1;
        Ok(Some((free.0 - 1) as u32))
    }

    /// Returns a number to the table; its handle is reused.
    pub fn give(&self, number: u32) {
        self.free.lock().unwrap_or_else(|e| e.into_inner()).1.push(number);
    }

    /// The handle of a number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<usize> {
        let handle = self.slots.get(number as usize)?.load(Ordering::Acquire);
        (handle != 0).then_some(handle)
    }
}

/// Device memory that came back, by size, for those who want as much.
#[derive(Debug, Default)]
pub struct Pool(Mutex<BTreeMap<usize, Vec<u64>>>);

/// Allocations are rounded to this, so that one serves again: the page of device memory.
const ROUND: usize = 64 << 10;

impl Pool {
    /// Memory of at least `len` bytes that was given back, or what `make` gives for the rounded size.
    ///
    /// # Errors
    /// What `make` returned as `Err`, unchanged.
    pub fn take<E>(&self, len: usize, make: impl FnOnce(usize) -> Result<u64, E>) -> Result<u64, E> {
        let size = len.max(1).next_multiple_of(ROUND);
        let found = self.0.lock().unwrap_or_else(|e| e.into_inner()).get_mut(&size).and_then(Vec::pop);
        found.map_or_else(|| make(size), Ok)
    }

    /// Returns memory that [`Pool::take`] gave out for `len` bytes.
    pub fn give(&self, len: usize, addr: u64) {
        let size = len.max(1).next_multiple_of(ROUND);
        self.0.lock().unwrap_or_else(|e| e.into_inner()).entry(size).or_default().push(addr);
    }

    /// All of it, which is kept here no more.
    pub fn drain(&self) -> Vec<u64> {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(|e| e.into_inner()));
        all.into_values().flatten().collect()
    }
}

/// Bytes of ordinary memory on their way to a device or back: through pinned memory and an event, as chunks go. Of ordinary memory a driver
/// may wait for all that the program has queued, with a lock that stops the process's other calls.
#[derive(Debug)]
pub struct Bounce {
    stream: Stream,
    event: Event,
    pinned: Mutex<HostBuf>,
}

/// Bytes that are copied at a time: several times what a small message has.
const BOUNCE: usize = 64 << 10;

impl Bounce {
    /// Pins the memory and makes a stream and an event.
    ///
    /// # Errors
    /// [`GpuError::Call`] where the driver refuses, [`GpuError::Exhausted`].
    pub fn new(gpu: &dyn Gpu) -> Result<Bounce, GpuError> {
        let pinned = HostBuf::new(BOUNCE);
        // First, for it fails most easily, and a device that is not opened can give the driver no stream back.
        gpu.pin(whole(&pinned))?;
        let (stream, event) = stream_and_event(gpu).inspect_err(|_| gpu.unpin(whole(&pinned)))?;
        Ok(Bounce { stream, event, pinned: Mutex::new(pinned) })
    }

    /// Unpins the memory, at the device's end.
    pub fn end(&self, gpu: &dyn Gpu) {
        gpu.unpin(whole(&self.pinned()));
    }

    /// Copies bytes to a range of the device that has as many, and waits for it.
    ///
    /// # Errors
    /// [`GpuError::Call`]: the device failed, or does not know the range.
    pub fn write(&self, gpu: &dyn Gpu, to: MemSlice, bytes: &[u8]) -> Result<(), GpuError> {
        let pinned = self.pinned();
        for (at, part) in (0..).step_by(BOUNCE).zip(bytes.chunks(BOUNCE)) {
            let filled = pinned.fill(0, part);
            debug_assert!(filled);
            self.copy(gpu, part_of(to, at, part.len()), part_of(whole(&pinned), 0, part.len()))?;
        }
        Ok(())
    }

    /// Copies a range of the device to `out`, which has as many bytes.
    ///
    /// # Errors
    /// [`GpuError::Call`]: the device failed, or does not know the range.
    pub fn read(&self, gpu: &dyn Gpu, from: MemSlice, out: &mut [u8]) -> Result<(), GpuError> {
        let pinned = self.pinned();
        for (at, part) in (0..).step_by(BOUNCE).zip(out.chunks_mut(BOUNCE)) {
            self.copy(gpu, part_of(whole(&pinned), 0, part.len()), part_of(from, at, part.len()))?;
            let inside = pinned.read(0, part);
            debug_assert!(inside);
        }
        Ok(())
    }

    fn copy(&self, gpu: &dyn Gpu, dst: MemSlice, src: MemSlice) -> Result<(), GpuError> {
        let started = gpu.copy(self.stream, dst, src);
        // Waited for whatever the start said: nothing may touch the memory after the return.
        gpu.record(self.event, self.stream).and_then(|()| gpu.wait(self.event)).and(started)
    }

    /// One copy at a time.
    fn pinned(&self) -> MutexGuard<'_, HostBuf> {
        self.pinned.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[allow(unsafe_code)]
fn whole(pinned: &HostBuf) -> MemSlice {
    // SAFETY: the device keeps it to its end, and is done with a part when the copy that names it returns.
    unsafe { pinned.slice() }
}

/// A stream and an event, or none of both.
///
/// # Errors
/// [`GpuError::Call`] where the driver refuses, [`GpuError::Exhausted`].
pub fn stream_and_event(gpu: &dyn Gpu) -> Result<(Stream, Event), GpuError> {
    let stream = gpu.stream()?;
    let event = gpu.event().inspect_err(|_| gpu.retire_stream(stream))?;
    Ok((stream, event))
}

fn part_of(mem: MemSlice, at: u64, len: usize) -> MemSlice {
    mem.sub(at, len as u64).unwrap_or(MemSlice::NONE)
}

/// What every driver keeps of a device beside the driver's own handles, and the checks before its calls.
#[derive(Debug)]
pub struct Shell {
    id: String,
    place: MemoryDomain,
    streams: Handles,
    events: Handles,
    pool: Pool,
    /// The unpack kernel's handle, or why there is none.
    kernel: OnceLock<Result<usize, String>>,
}

impl Shell {
    /// Tables of the device with this name (`cuda:0`), whose memory has no place yet.
    pub fn new(id: String) -> Shell {
        let (streams, events, pool, kernel) = Default::default();
        Shell { id, place: MemoryDomain::HOST, streams, events, pool, kernel }
    }

    /// Gives its memory a place. There are 4,096 for the process, none of which is used again: so only once nothing else can fail.
    pub fn put(&mut self, place: MemoryDomain) {
        self.place = place;
    }

    /// The device's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The place of its memory.
    pub fn place(&self) -> MemoryDomain {
        self.place
    }

    /// The error [`GpuError::Exhausted`] of this device.
    #[cold]
    pub fn exhausted(&self, what: &'static str) -> GpuError {
        GpuError::Exhausted { what, device: self.id.clone(), most: MOST }
    }

    /// The error [`GpuError::Range`] of this device.
    #[cold]
    pub fn range(&self, addr: u64, len: usize, why: &'static str) -> GpuError {
        GpuError::Range { device: self.id.clone(), addr, len, why }
    }

    /// The error [`GpuError::Unsupported`] of this device.
    #[cold]
    pub fn unsupported(&self, what: &'static str, why: String) -> GpuError {
        GpuError::Unsupported { device: self.id.clone(), what, why }
    }

    /// Memory for `len` bytes, made by `make` where none of that size has come back: its address.
    ///
    /// # Errors
    /// What `make` returned as `Err`, unchanged: [`GpuError::Exhausted`], [`GpuError::Call`].
    pub fn alloc(&self, len: usize, make: impl FnOnce(usize) -> Result<u64, GpuError>) -> Result<u64, GpuError> {
        self.pool.take(len, make)
    }

    /// Keeps memory of [`Shell::alloc`] for the next one.
    pub fn free(&self, mem: MemSlice) {
        self.pool.give(mem.len(), mem.as_ptr() as u64);
    }

    /// Takes what [`Shell::free`] has kept: memory that nobody has.
    pub fn spare(&self) -> Vec<u64> {
        self.pool.drain()
    }

    /// A retired stream, or one made by `make`.
    ///
    /// # Errors
    /// The error of `make`; [`GpuError::Exhausted`] where the table is full.
    pub fn stream(&self, make: impl FnOnce() -> Result<usize, GpuError>) -> Result<Stream, GpuError> {
        self.streams.take(make)?.map(Stream).ok_or_else(|| self.exhausted("streams"))
    }

    /// Returns a stream, to be reused.
    pub fn retire_stream(&self, stream: Stream) {
        self.streams.give(stream.0);
    }

    /// The driver's handle of a stream.
    ///
    /// # Errors
    /// [`GpuError::Range`]: the stream was not made by this device.
    #[inline]
    pub fn stream_of(&self, stream: Stream) -> Result<usize, GpuError> {
        self.streams.get(stream.0).ok_or_else(|| self.range(stream.0.into(), 0, "no such stream"))
    }

    /// A retired event, or one made by `make`.
    ///
    /// # Errors
    /// The error of `make`; [`GpuError::Exhausted`] where the table is full.
    pub fn event(&self, make: impl FnOnce() -> Result<usize, GpuError>) -> Result<Event, GpuError> {
        self.events.take(make)?.map(Event).ok_or_else(|| self.exhausted("events"))
    }

    /// Returns an event, to be reused.
    pub fn retire_event(&self, event: Event) {
        self.events.give(event.0);
    }

    /// The driver's handle of an event.
    ///
    /// # Errors
    /// [`GpuError::Range`]: the event was not made by this device.
    #[inline]
    pub fn event_of(&self, event: Event) -> Result<usize, GpuError> {
        self.events.get(event.0).ok_or_else(|| self.range(event.0.into(), 0, "no such event"))
    }

    /// Checks that source and target of a copy have the same length.
    ///
    /// # Errors
    /// [`GpuError::Range`]: the lengths differ.
    #[inline]
    pub fn same_length(&self, dst: MemSlice, src: MemSlice) -> Result<(), GpuError> {
        match dst.len() == src.len() {
            true => Ok(()),
            false => Err(self.range(dst.as_ptr() as u64, dst.len(), "source and target differ in length")),
        }
    }

    /// Checks that the memory is on the host and not empty, so that it can be pinned.
    ///
    /// # Errors
    /// [`GpuError::Range`]: the memory is empty or not the host's.
    pub fn pinnable(&self, mem: MemSlice) -> Result<(), GpuError> {
        match mem.is_host() && !mem.is_empty() {
            true => Ok(()),
            false => Err(self.range(mem.as_ptr() as u64, mem.len(), "only host memory is pinned")),
        }
    }

    /// The pages to export for this memory, which must lie inside of one allocation; `allocation` finds the one around an
    /// address.
    ///
    /// # Errors
    /// [`GpuError::Range`]: it is no device memory, or reaches beyond its allocation. The error of `allocation`.
    pub fn exportable(
        &self,
        mem: MemSlice,
        allocation: impl FnOnce(u64) -> Result<(u64, usize), GpuError>,
    ) -> Result<Pages, GpuError> {
        let addr = mem.as_ptr() as u64;
        if mem.is_host() || mem.is_empty() {
            return Err(self.range(addr, mem.len(), "only device memory is exported"));
        }
        let (base, len) = allocation(addr)?;
        if addr + mem.len() as u64 > base + len as u64 {
            return Err(self.range(addr, mem.len(), "it reaches beyond its allocation"));
        }
        Ok(pages_around(addr, mem.len()))
    }

    /// What is known of device memory at an address.
    ///
    /// # Errors
    /// What `allocation` holds as `Err`, unchanged.
    pub fn device_pointer(
        &self,
        ordinal: i32,
        allocation: Result<(u64, usize), GpuError>,
    ) -> Result<Pointer, GpuError> {
        let (base, len) = allocation?;
        Ok(Pointer::Device { ordinal: usize::try_from(ordinal).unwrap_or(0), base, len })
    }

    /// Whether the unpack kernel runs; the first call makes it ready with `load`.
    pub fn kernel(&self, load: impl FnOnce() -> Result<usize, String>) -> Ability {
        match self.kernel.get_or_init(load) {
            Ok(_) => Ability::Yes,
            Err(why) => Ability::No(why.clone()),
        }
    }

    /// The kernel's handle for this launch, after the launch was checked.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`]: the kernel was not loaded. [`GpuError::Range`]: memory that is not the device's, or
    /// not in whole lines of 16 bytes.
    pub fn launchable(&self, job: &UnpackJob) -> Result<usize, GpuError> {
        let Some(Ok(kernel)) = self.kernel.get() else {
            return Err(self.unsupported("run the unpack kernel", "the kernel was not made ready".to_owned()));
        };
        let lines = |mem: MemSlice| (mem.as_ptr() as usize).is_multiple_of(16);
        let device = [job.pool, job.dst, job.pieces].iter().all(|m| m.place() == self.place);
        let table = lines(job.pieces) && job.pieces.len() / PIECE_LEN >= job.count as usize;
        if !device || !lines(job.pool) || !job.pool.len().is_multiple_of(16) || !table {
            let why = "the kernel takes device memory, and a pool and a table in whole lines of 16 bytes";
            return Err(self.range(job.pool.as_ptr() as u64, job.pool.len(), why));
        }
        Ok(*kernel)
    }
}
