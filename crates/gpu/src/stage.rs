//! Device memory over rails that reach host memory only.
//!
//! A [`StagedRail`] stands between the protocol and a rail. A chunk that leaves from device memory is first copied into
//! a pinned buffer and handed to the rail when that copy is done; a chunk for device memory lands in a pinned buffer and
//! counts as landed when it has been copied on. Chunks are [`CHUNK`] long at most, so the copy of one runs while the one
//! before is on the wire. Nothing of this shows on the wire: either side may stage, or both, or none. Ranges on the host
//! pass through untouched.
//!
//! Each direction has an arena of a fixed size, made when its first chunk of device memory comes: a connection that only
//! receives pins nothing for sending, one that carries host memory alone pins nothing. When the arena for leaving chunks
//! is full, the rail says busy; when the one for arriving chunks is full, the oldest copy is waited for, which takes as
//! long as a copy of 512 KiB takes. Memory that the rail reaches by itself after all ([`linkspan_transport::DeviceReach`]: registered
//! with its card) goes past the staging. All arenas of a process together stay within its [`StageMemory`].

mod arena;
mod arriving;
mod leaving;
mod memory;
pub(crate) mod planted;

use std::sync::Arc;

use linkspan_proto::Head;
use linkspan_proto::conn::{Access, RemoteSlice};
use linkspan_transport::{
    Buf, Busy, DeviceReach, Down, Health, MemSlice, Poll, Rail, RailInfo, Registrar, Sink, WaitFd,
};

use crate::{Gpu, GpuError, Kind};
use arriving::{StagedReceive, StagingSink};
use leaving::StagedSend;
pub use memory::{Share, StageMemory};

/// Longest chunk that a staged rail sends: long enough that starting a copy (some microseconds) does not count, short
/// enough that its copy hides behind the wire. NCCL stages in steps of the same size.
pub const CHUNK: usize = 512 << 10;

/// Arena of one direction for rails that bring one chunk after the other: the longest chunk of any transport (1 MiB) several
/// times.
const SEQUENTIAL: usize = 8 << 20;

/// The same for rails that copy directly and begin on up to 32 chunks of 1 MiB at once, or seven batches of 2 MiB in place of as many
/// (shared memory with cross-memory attach): 39 MiB, with space for what is being copied on.
const DIRECT: usize = 44 << 20;

/// How a rail stages.
#[derive(Clone, Debug)]
pub struct Staging {
    /// The device.
    pub gpu: Arc<dyn Gpu>,
    /// Pinned host memory for each direction, bytes; `None` chooses by the rail (8 MiB, or 44 MiB for rails that begin on
    /// many chunks at once).
    pub arena: Option<usize>,
    /// What it is taken from.
    pub memory: StageMemory,
}

impl Staging {
    /// Staging for memory of this device, without a limit on the process's pinned memory.
    pub fn new(gpu: Arc<dyn Gpu>) -> Staging {
        Staging { gpu, arena: None, memory: StageMemory::default() }
    }
}

/// Why memory of this device is staged on a path that does not reach it; for people.
fn reason(gpu: &dyn Gpu, reaches: bool) -> String {
    let info = gpu.info();
    if reaches {
        return format!("{} by dma-buf where it is registered, else staged through pinned host memory", info.id());
    }
    let why = match (&info.direct, info.kind) {
        (crate::Ability::No(why), _) => why.clone(),
        (_, Kind::Sim) => "simulated".to_owned(),
        _ => "this path has no access to device memory".to_owned(),
    };
    format!("{} staged through pinned host memory: {why}", info.id())
}

/// A rail that moves device memory by way of pinned host memory. See the module's text.
pub struct StagedRail<R: Rail + ?Sized = dyn Rail + Send> {
    rail: Box<R>,
    info: RailInfo,
    means: Means,
    reach: Option<Box<dyn DeviceReach>>,
    leaving: Option<StagedSend>,
    arriving: Option<StagedReceive>,
    /// Number of the last item that was handed through, as long as nothing leaves from a device.
    last: u64,
    /// Chunks that the rail is filling without us, as long as nothing arrives for a device.
    plain: usize,
    fault: Option<GpuError>,
}

/// What a way in or out is made of.
#[derive(Debug)]
pub(crate) struct Means {
    gpu: Option<Arc<dyn Gpu>>,
    arena: usize,
    memory: StageMemory,
}

impl Means {
    fn gpu(&self) -> Result<&Arc<dyn Gpu>, GpuError> {
        self.gpu.as_ref().ok_or(GpuError::NotAttached)
    }

    /// Whether this memory is our device's.
    fn covers(&self, mem: MemSlice) -> Result<(), GpuError> {
        let gpu = self.gpu()?;
        if mem.place() == gpu.place() {
            return Ok(());
        }
        let (device, why) = (gpu.info().id(), "it is memory of another device than the connection's");
        Err(GpuError::Range { device, addr: mem.as_ptr() as u64, len: mem.len(), why })
    }

    #[cold]
    fn leaving(&self, last: u64) -> Result<StagedSend, GpuError> {
        StagedSend::new(self.gpu()?, self.memory.take(self.arena)?, last)
    }

    #[cold]
    fn arriving(&self, plain: usize) -> Result<StagedReceive, GpuError> {
        StagedReceive::new(self.gpu()?, self.memory.take(self.arena)?, plain)
    }
}

/// Whether these bytes go past the staging.
fn is_direct(reach: &mut Option<Box<dyn DeviceReach>>, mem: MemSlice, target: bool) -> bool {
    mem.is_host() || reach.as_mut().is_some_and(|reach| reach.reaches(mem, target))
}

impl<R: Rail + ?Sized> std::fmt::Debug for StagedRail<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StagedRail").field(&self.info).finish()
    }
}

impl<R: Rail + ?Sized> StagedRail<R> {
    /// Puts staging for one device before a rail and makes all that it needs: pins memory and makes streams.
    ///
    /// # Errors
    /// [`GpuError::StageMemory`] where [`StageMemory`] allows no more, [`GpuError::Exhausted`] and [`GpuError::Call`]
    /// where the device has no more streams or events, or the OS refuses to pin so much memory (`ulimit -l`).
    pub fn new(rail: impl Into<Box<R>>, staging: &Staging) -> Result<StagedRail<R>, GpuError> {
        let mut staged = StagedRail::late(rail, staging.memory.clone());
        staged.means.arena = staging.arena.unwrap_or(staged.means.arena).max(2 * CHUNK);
        staged.attach(&staging.gpu)?;
        staged.leaving = Some(staged.means.leaving(0)?);
        staged.arriving = Some(staged.means.arriving(0)?);
        Ok(staged)
    }

    /// Puts staging before a rail whose device is not known yet. Until [`StagedRail::attach`] it carries host memory, and
    /// pins none until the first chunk of device memory.
    pub fn late(rail: impl Into<Box<R>>, memory: StageMemory) -> StagedRail<R> {
        let rail = rail.into();
        let mut info = rail.info().clone();
        let arena = if info.caps.local && !info.caps.ordered { DIRECT } else { SEQUENTIAL };
        info.caps.device_memory = true;
        info.caps.chunk = info.caps.chunk.min(CHUNK);
        // A control message is handed on while the copy of a chunk before it still runs.
        info.caps.ordered = false;
        StagedRail {
            reach: rail.reach(),
            rail,
            info,
            means: Means { gpu: None, arena, memory },
            leaving: None,
            arriving: None,
            last: 0,
            plain: 0,
            fault: None,
        }
    }

    #[cold]
    fn down(&self, error: &GpuError) -> Down {
        Down::Device { path: self.info.path.clone(), why: error.to_string() }
    }

    /// Keeps a fault of the device for the next call that can report it.
    fn note<T>(&mut self, result: Result<T, GpuError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.fault.get_or_insert(error);
                None
            }
        }
    }

    fn check(&self) -> Result<(), Down> {
        self.fault.as_ref().map_or(Ok(()), |error| Err(self.down(error)))
    }

    /// The way out, made where there is none yet.
    fn way_out(&mut self) -> Option<&mut StagedSend> {
        if self.leaving.is_none() {
            let made = self.means.leaving(self.last);
            self.leaving = self.note(made);
        }
        self.leaving.as_mut()
    }
}

#[allow(unsafe_code)]
// SAFETY: the GPU copies between the memory and pinned buffers of this rail; a handle is dropped when the event behind its copy is done, and the drop of the rail waits for the copies under way.
unsafe impl<R: Rail + ?Sized> Rail for StagedRail<R> {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        if self.leaving.is_none() && body.is_host() {
            self.last = self.rail.ctrl(head, body)?;
            return Ok(self.last);
        }
        self.way_out().ok_or(Busy)?;
        let Some(leaving) = &mut self.leaving else { return Err(Busy) };
        let posted = leaving.ctrl(&mut *self.rail, head, body);
        self.note(posted).flatten().ok_or(Busy)
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        let direct = is_direct(&mut self.reach, src, false);
        if !direct {
            let covered = self.means.covers(src);
            self.note(covered).ok_or(Busy)?;
            self.way_out().ok_or(Busy)?;
        }
        match (&mut self.leaving, &self.means.gpu) {
            (Some(leaving), Some(gpu)) => {
                let posted = leaving.data(&**gpu, &mut *self.rail, head, src, direct);
                self.note(posted).flatten().ok_or(Busy)
            }
            _ => {
                self.last = self.rail.data(head, src)?;
                Ok(self.last)
            }
        }
    }

    fn prepare(&mut self, mem: MemSlice, target: bool) {
        if is_direct(&mut self.reach, mem, target) {
            self.rail.prepare(mem, target);
        } else if !target {
            self.way_out();
        }
    }

    fn granted(&mut self, id: u32, mem: MemSlice) {
        // A peer that writes by itself would write past the staging.
        if is_direct(&mut self.reach, mem, true) {
            self.rail.granted(id, mem);
        }
    }

    fn exposed(&mut self, key: u32, mem: MemSlice, access: Access) {
        self.rail.exposed(key, mem, access);
    }

    fn unexposed(&mut self, key: u32) -> bool {
        self.rail.unexposed(key)
    }

    fn copy_alone(&mut self, mem: MemSlice, place: RemoteSlice, write: bool) -> bool {
        self.rail.copy_alone(mem, place, write)
    }

    fn copied_by_peer(&mut self) -> [u64; 2] {
        self.rail.copied_by_peer()
    }

    fn taken(&self) -> u64 {
        self.rail.taken()
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        self.check()?;
        let moved = match (&mut self.leaving, &self.means.gpu) {
            (Some(leaving), Some(gpu)) => {
                let moved = leaving.hand_on(&**gpu, &mut *self.rail);
                self.note(moved)
            }
            _ => None,
        };
        self.check()?;
        let out = self.rail.flush()?;
        Ok(if moved == Some(true) { Poll::Active } else { out })
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        self.check()?;
        let mut port = StagingSink::new(&mut self.arriving, &mut self.plain, (&self.means, &mut self.reach), sink);
        let mut found = self.rail.poll(&mut port);
        // What has landed in host memory counts, however the rail ends.
        let reaped = port.reap(found.is_err());
        let fault = port.into_fault();
        if let Some(error) = fault {
            self.fault.get_or_insert(error);
        }
        self.check()?;
        let path = &self.info.path;
        let landed = reaped.map_err(|v| Down::Protocol { path: path.clone(), why: v.0 })?;
        let copying = self.arriving.as_ref().is_some_and(StagedReceive::copying);
        if let (Ok(poll), true) = (&mut found, landed || copying) {
            *poll = Poll::Active;
        }
        found
    }

    fn arm(&mut self) -> Option<WaitFd> {
        let busy = self.leaving.as_ref().is_some_and(StagedSend::waits);
        if busy || self.arriving.as_ref().is_some_and(StagedReceive::copying) { None } else { self.rail.arm() }
    }

    fn stalled(&mut self) -> bool {
        self.rail.stalled()
    }

    fn abandon(&mut self) {
        self.rail.abandon();
    }

    fn closed_by_peer(&mut self) {
        self.rail.closed_by_peer();
    }

    fn health(&self) -> Health {
        self.rail.health()
    }

    fn catch_up(&mut self) {
        self.rail.catch_up();
    }

    fn event(&mut self) -> Option<String> {
        self.rail.event()
    }

    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        self.rail.registrar()
    }

    /// The rail's reason says so.
    fn attach(&mut self, gpu: &Arc<dyn Gpu>) -> Result<(), GpuError> {
        match &self.means.gpu {
            None => {
                self.info.reason = format!("{}; {}", self.info.reason, reason(&**gpu, self.reach.is_some()));
                self.means.gpu = Some(gpu.clone());
                Ok(())
            }
            Some(ours) if ours.place() == gpu.place() => Ok(()),
            Some(ours) => Err(GpuError::OtherDevice { ours: ours.info().id(), other: gpu.info().id() }),
        }
    }
}

impl<R: Rail + ?Sized> Drop for StagedRail<R> {
    fn drop(&mut self) {
        // A device that failed copies nothing any more.
        if let Some(gpu) = &self.means.gpu {
            let _ = self.leaving.as_mut().map(|l| l.finish(&**gpu));
            let _ = self.arriving.as_mut().map(|a| a.finish(&**gpu));
        }
    }
}
