//! Device memory over rails that reach host memory only.
//!
//! A [`StagedRail`] stands between the protocol and a rail. A chunk that leaves from device memory is first copied into
//! a pinned buffer and handed to the rail when that copy is done; a chunk for device memory lands in a pinned buffer and
//! counts as landed when it has been copied on. Chunks are [`CHUNK`] long at most, so the copy of one runs while the one
//! before is on the wire. Nothing of this shows on the wire: either side may stage, or both, or none. Ranges on the host
//! pass through untouched.
//!
//! Both directions have an arena of a fixed size. When the one for leaving chunks is full, the rail says busy; when the
//! one for arriving chunks is full, the oldest copy is waited for, which takes as long as a copy of 512 KiB takes.

mod arena;
mod arriving;
mod leaving;
pub(crate) mod planted;

use std::sync::Arc;

use linkspan_proto::Head;
use linkspan_transport::{Busy, Down, MemSlice, Poll, Rail, RailInfo, Sink, WaitFd};

use crate::{Gpu, GpuError, Kind};
use arriving::{Arriving, Port};
use leaving::Leaving;

/// Longest chunk that a staged rail sends: long enough that starting a copy (some microseconds) does not count, short
/// enough that its copy hides behind the wire. NCCL stages in steps of the same size.
pub const CHUNK: usize = 512 << 10;

/// Arena of one direction for rails that bring one chunk after the other: the longest chunk of any room (1 MiB) several
/// times.
const SEQUENTIAL: usize = 8 << 20;

/// The same for rails that copy directly and begin on up to 32 chunks of 1 MiB at once (shared memory with
/// cross-memory attach), with room for what is being copied on.
const DIRECT: usize = 40 << 20;

/// How a rail stages.
#[derive(Clone, Debug)]
pub struct Staging {
    /// The device.
    pub gpu: Arc<dyn Gpu>,
    /// Pinned host memory for each direction, bytes; `None` chooses by the rail (8 MiB, or 40 MiB for rails that begin on
    /// many chunks at once).
    pub arena: Option<usize>,
}

impl Staging {
    /// Staging for memory of this device.
    pub fn new(gpu: Arc<dyn Gpu>) -> Staging {
        Staging { gpu, arena: None }
    }

    /// Whether this device needs a copy at all, and why; one line for people.
    pub fn reason(&self) -> String {
        let info = self.gpu.info();
        let why = match (&info.direct, info.kind) {
            (crate::Ability::No(why), _) => why.clone(),
            (_, Kind::Sim) => "simulated".to_owned(),
            _ => "this path has no access to device memory".to_owned(),
        };
        format!("{} staged through pinned host memory: {why}", info.id())
    }
}

/// A rail that moves device memory by way of pinned host memory. See the module's text.
#[derive(Debug)]
pub struct StagedRail<R> {
    rail: R,
    info: RailInfo,
    leaving: Leaving,
    arriving: Arriving,
    gpu: Arc<dyn Gpu>,
    fault: Option<GpuError>,
}

impl<R: Rail> StagedRail<R> {
    /// Puts staging before a rail. Pins memory and makes streams: for set-up, not for the data path.
    ///
    /// # Errors
    /// The device has none left, or the system refuses to pin so much memory.
    pub fn new(rail: R, staging: &Staging) -> Result<StagedRail<R>, GpuError> {
        let mut info = rail.info().clone();
        let usual = if info.caps.local && !info.caps.ordered { DIRECT } else { SEQUENTIAL };
        let arena = staging.arena.unwrap_or(usual).max(2 * CHUNK);
        info.reason = format!("{}; {}", info.reason, staging.reason());
        info.caps.device_memory = true;
        info.caps.chunk = info.caps.chunk.min(CHUNK);
        // A control message is handed on while the copy of a chunk before it still runs.
        info.caps.ordered = false;
        let gpu = staging.gpu.clone();
        Ok(StagedRail {
            rail,
            info,
            leaving: Leaving::new(&gpu, arena)?,
            arriving: Arriving::new(&gpu, arena)?,
            gpu,
            fault: None,
        })
    }

    /// The rail below.
    pub fn inner(&self) -> &R {
        &self.rail
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
}

impl<R: Rail> Rail for StagedRail<R> {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        self.leaving.ctrl(&mut self.rail, head, body)
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        let posted = self.leaving.data(&*self.gpu, &mut self.rail, head, src);
        self.note(posted).flatten().ok_or(Busy)
    }

    fn taken(&self) -> u64 {
        self.rail.taken()
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        self.check()?;
        let moved = self.leaving.hand_on(&*self.gpu, &mut self.rail);
        let moved = self.note(moved);
        self.check()?;
        let out = self.rail.flush()?;
        Ok(if moved == Some(true) { Poll::Active } else { out })
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<Poll, Down> {
        self.check()?;
        let mut port = Port::new(&mut self.arriving, &*self.gpu, sink);
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
        if let (Ok(poll), true) = (&mut found, landed || self.arriving.copying()) {
            *poll = Poll::Active;
        }
        found
    }

    fn arm(&mut self) -> Option<WaitFd> {
        if self.leaving.waits() || self.arriving.copying() { None } else { self.rail.arm() }
    }

    fn stalled(&mut self) -> bool {
        self.rail.stalled()
    }
}

impl<R> Drop for StagedRail<R> {
    fn drop(&mut self) {
        // A device that failed copies nothing any more.
        let _ = self.leaving.finish(&*self.gpu);
        let _ = self.arriving.finish(&*self.gpu);
    }
}
