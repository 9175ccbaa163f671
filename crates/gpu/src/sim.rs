//! A GPU that is simulated: its own memory, streams that run late and in pieces, and poison where reads are not allowed.
//!
//! It is as unkind as the contract allows, and always in the same way for the same seed, so that work in a wrong order
//! is found on machines without a GPU:
//!
//! * Queued work runs only while events are queried, after seeded delays, streams in a seeded order, long copies
//!   in pieces. A source is read as late as that: reusing it before the event sends wrong bytes.
//! * The host side of a copy from the device holds poison until it has run: an early read returns poison.
//! * Fresh and freed device memory is poison; work that touches freed or foreign memory, or host memory that is not
//!   pinned, is a fault that stays ([`GpuError::Order`]).
//! * What a network adapter writes ([`SimGpu::nic_write`]) is invisible until [`Gpu::flush_writes`] or some time later.

mod handle;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use linkspan_transport::{Buf, DeviceMemory, MemSlice, MemoryDomain, register_device};

use crate::ForeignStream;
use crate::GpuError;
use crate::{Ability, DmaBuf, Event, Gpu, GpuInfo, Kind, Pointer, Stream, Unified, UnpackJob};
use state::{Op, SimState};

/// How a simulated GPU behaves.
#[derive(Clone, Copy, Debug)]
pub struct SimConfig {
    /// Everything that looks like chance comes from it.
    pub seed: u64,
    /// Longest delay before a piece of work, in questions after events.
    pub delay: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// It has a call that flushes what network adapters wrote, as CUDA has and HIP has not.
    pub flushes: bool,
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig { seed: 1, delay: 4, memory: 4 << 30, flushes: true }
    }
}

/// A simulated GPU.
pub struct SimGpu {
    info: GpuInfo,
    place: MemoryDomain,
    state: Mutex<SimState>,
}

impl std::fmt::Debug for SimGpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimGpu({})", self.info.id())
    }
}

impl SimGpu {
    /// A device of this behaviour.
    ///
    /// # Errors
    /// [`GpuError::Exhausted`]: the process has registered 4096 devices, the most that it can.
    pub fn new(config: SimConfig) -> Result<Arc<SimGpu>, GpuError> {
        let mut place = None;
        let gpu = Arc::new_cyclic(|me: &Weak<SimGpu>| {
            place = register_device(me.clone());
            let at = place.unwrap_or(MemoryDomain::HOST);
            let why = |what: &str| Ability::No(format!("a simulated GPU has no {what}"));
            let info = GpuInfo {
                kind: Kind::Sim,
                ordinal: 0,
                name: format!("simulated GPU, seed {}", config.seed),
                arch: String::new(),
                pci: None,
                numa: None,
                memory: config.memory,
                driver: env!("CARGO_PKG_VERSION").to_owned(),
                unified: Unified::default(),
                dma_buf: why("dma-buf"),
                direct: why("PCI address"),
            };
            SimGpu { info, place: at, state: Mutex::new(SimState::new(config)) }
        });
        place.ok_or(GpuError::Exhausted { what: "places", device: "sim".into(), most: 4096 })?;
        Ok(gpu)
    }

    fn state(&self) -> MutexGuard<'_, SimState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The fault that ended its work, if there was one.
    pub fn fault(&self) -> Option<String> {
        self.state().fault.clone()
    }

    /// Lets everything that is queued run.
    pub fn settle(&self) {
        let mut state = self.state();
        while state.busy() && state.fault.is_none() {
            state.step();
        }
    }

    /// Writes as a network adapter does: the bytes are on their way to the memory when this returns.
    ///
    /// # Panics
    /// `to` is shorter than `bytes`.
    pub fn nic_write(&self, to: MemSlice, bytes: &[u8]) {
        assert!(bytes.len() <= to.len(), "a write beyond its range");
        self.state().post(to.as_ptr() as u64, bytes);
    }

    fn checked(&self, state: &SimState) -> Result<(), GpuError> {
        match &state.fault {
            Some(what) => Err(GpuError::Order { device: self.info.id(), what: what.clone() }),
            None => Ok(()),
        }
    }

    fn exhausted(&self, what: &'static str) -> GpuError {
        GpuError::Exhausted { what, device: self.info.id(), most: state::MOST }
    }

    /// Queues work, and says what was wrong with it or with what came before.
    fn queue(&self, on: Stream, op: Op) -> Result<(), GpuError> {
        let mut state = self.state();
        state.queue(on.0 as usize, op);
        self.checked(&state)
    }
}

#[allow(unsafe_code)]
// SAFETY: the copy is over when the call returns, and no handle is kept.
unsafe impl DeviceMemory for SimGpu {
    fn write(&self, to: MemSlice, bytes: &[u8]) -> bool {
        self.state().write(to.as_ptr() as u64, bytes)
    }

    fn read(&self, from: MemSlice, out: &mut [u8]) -> bool {
        self.state().read(from.as_ptr() as u64, out)
    }
}

#[allow(unsafe_code)]
// SAFETY: copies run in the order of their streams, and no handle is kept beside them.
unsafe impl Gpu for SimGpu {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn place(&self) -> MemoryDomain {
        self.place
    }

    fn alloc(&self, len: usize) -> Result<MemSlice, GpuError> {
        let mut state = self.state();
        let addr = state.alloc(len).ok_or_else(|| GpuError::Call {
            call: "alloc",
            device: self.info.id(),
            code: 2,
            text: format!("out of memory: {len} bytes"),
        })?;
        Ok(handle::of(self.place, addr, len))
    }

    unsafe fn free(&self, mem: MemSlice) {
        self.state().free(mem.as_ptr() as u64);
    }

    fn pin(&self, mem: MemSlice) -> Result<(), GpuError> {
        let (device, addr) = (self.info.id(), mem.as_ptr() as u64);
        if !mem.is_host() || mem.is_empty() {
            return Err(GpuError::Range { device, addr, len: mem.len(), why: "only host memory is pinned" });
        }
        self.state().pinned.insert(addr, mem.len());
        Ok(())
    }

    fn unpin(&self, mem: MemSlice) {
        self.state().pinned.remove(&(mem.as_ptr() as u64));
    }

    fn stream(&self) -> Result<Stream, GpuError> {
        self.state().stream().map(Stream).ok_or_else(|| self.exhausted("streams"))
    }

    fn retire_stream(&self, stream: Stream) {
        self.state().retire_stream(stream.0 as usize);
    }

    fn native(&self, stream: Stream) -> Result<u64, GpuError> {
        Ok(u64::from(stream.0) + 3)
    }

    /// Of all streams, since it has no others.
    fn finish(&self, _stream: ForeignStream) -> Result<(), GpuError> {
        self.settle();
        self.checked(&self.state())
    }

    fn event(&self) -> Result<Event, GpuError> {
        self.state().event().map(Event).ok_or_else(|| self.exhausted("events"))
    }

    fn retire_event(&self, event: Event) {
        self.state().retire_event(event.0 as usize);
    }

    fn copy(&self, on: Stream, dst: MemSlice, src: MemSlice) -> Result<(), GpuError> {
        if dst.len() != src.len() {
            let (addr, len) = (dst.as_ptr() as u64, dst.len());
            return Err(GpuError::Range {
                device: self.info.id(),
                addr,
                len,
                why: "source and target differ in length",
            });
        }
        self.queue(on, Op::Copy { dst, src, at: 0 })
    }

    fn record(&self, event: Event, on: Stream) -> Result<(), GpuError> {
        let mut state = self.state();
        state.record(event.0 as usize, on.0 as usize);
        self.checked(&state)
    }

    fn done(&self, event: Event) -> Result<bool, GpuError> {
        let mut state = self.state();
        state.step();
        self.checked(&state)?;
        Ok(state.is_done(event.0 as usize))
    }

    fn after(&self, on: Stream, event: Event) -> Result<(), GpuError> {
        let mut state = self.state();
        state.after(on.0 as usize, event.0 as usize);
        self.checked(&state)
    }

    fn kernel(&self) -> Ability {
        Ability::Yes
    }

    fn unpack(&self, on: Stream, job: &UnpackJob) -> Result<(), GpuError> {
        self.queue(on, Op::Unpack(*job))
    }

    fn flush_writes(&self) -> Result<(), GpuError> {
        let mut state = self.state();
        if !state.config.flushes {
            let why = "a simulated GPU without a call for it".to_owned();
            return Err(GpuError::Unsupported { device: self.info.id(), what: "flush network writes", why });
        }
        state.land_posted(true);
        self.checked(&state)
    }

    fn pointer(&self, addr: u64) -> Result<Pointer, GpuError> {
        let state = self.state();
        Ok(match state.holds(addr) {
            Some((base, len)) => Pointer::Device { ordinal: 0, base, len },
            None if state.is_pinned(addr, 1) => Pointer::Pinned,
            None => Pointer::Host,
        })
    }

    fn export(&self, _mem: MemSlice) -> Result<DmaBuf, GpuError> {
        let why = "a simulated GPU has no dma-buf".to_owned();
        Err(GpuError::Unsupported { device: self.info.id(), what: "export memory", why })
    }
}

#[cfg(test)]
mod tests;
