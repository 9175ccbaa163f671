//! Puts received pieces in place on the device.
//!
//! With device-memory TCP a network adapter leaves payload in pages of a pool, in pieces, while the message wants it in
//! one range. A [`Batch`] collects the pieces; an [`Unpacker`] puts a batch in place in one of three ways: a launch of a
//! kernel, a copy per piece, or a detour through host memory.

mod batch;
mod choice;

use std::sync::Arc;
use std::time::Instant;

use linkspan_transport::{Buf, MemSlice};

use crate::driver::stream_and_event;
use crate::{Ability, Event, Gpu, Stream, UnpackJob};
use crate::{GpuBuf, GpuError, Pinned};
use choice::{Choice, Class};

pub use batch::{Batch, Misfit, PIECE_LEN, PIECES, Piece};

/// The kernel's source, for CUDA and HIP alike.
pub const KERNEL: &str = include_str!("unpack/kernel.c");

/// The same for compute capability 7.5 and later as PTX 7.8, which drivers since 520 compile for the device at hand.
pub const PTX: &str = include_str!("unpack/kernel.ptx");

/// Name of the kernel.
pub const KERNEL_NAME: &std::ffi::CStr = c"linkspan_unpack";

/// How pieces are put in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMode {
    /// One launch of the kernel for a batch.
    Kernel,
    /// A copy on the device for each piece.
    D2d,
    /// To pinned host memory piece by piece, in order, and from there in runs.
    Host,
}

impl CopyMode {
    /// The way of this name: `kernel`, `d2d` or `host`.
    pub fn named(name: &str) -> Option<CopyMode> {
        match name {
            "kernel" => Some(CopyMode::Kernel),
            "d2d" => Some(CopyMode::D2d),
            "host" => Some(CopyMode::Host),
            _ => None,
        }
    }
}

/// Puts batches in place on one device, one at a time.
#[derive(Debug)]
pub struct Unpacker {
    gpu: Arc<dyn Gpu>,
    stream: Stream,
    event: Event,
    way: Option<CopyMode>,
    choice: Choice,
    /// The batch on its way, where the ways are still compared.
    running: Option<(CopyMode, Class, Instant)>,
    kernel: Ability,
    /// Descriptors on their way to the device, and there.
    table: Pinned,
    on_device: GpuBuf,
    bounce: Option<Pinned>,
}

/// Pinned memory of the bounce buffer: a message of NCCL's largest slice.
const BOUNCE: usize = 4 << 20;

impl Unpacker {
    /// For memory of this device. `way` forces one; `None` tries each with the first batches
    /// of a size and keeps the quickest.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] where the kernel was asked for and the device cannot run it; [`GpuError::Exhausted`]
    /// and [`GpuError::Call`] where the device has no stream, event or memory left.
    pub fn new(gpu: &Arc<dyn Gpu>, way: Option<CopyMode>) -> Result<Unpacker, GpuError> {
        Unpacker::with_bounce(gpu, way, BOUNCE)
    }

    /// The same with so many bytes of pinned memory for the bounce buffer through the host, where that may be taken.
    ///
    /// # Errors
    /// As [`Unpacker::new`].
    pub fn with_bounce(gpu: &Arc<dyn Gpu>, way: Option<CopyMode>, bounce_len: usize) -> Result<Unpacker, GpuError> {
        let kernel = match way {
            Some(CopyMode::D2d | CopyMode::Host) => Ability::No("another way was asked for".into()),
            _ => gpu.kernel(),
        };
        if let (Some(CopyMode::Kernel), Ability::No(why)) = (way, &kernel) {
            let (device, what) = (gpu.info().id(), "run the unpack kernel");
            return Err(GpuError::Unsupported { device, what, why: why.clone() });
        }
        let needs_bounce = way.is_none_or(|w| w == CopyMode::Host);
        let table = Pinned::new(gpu, PIECES * PIECE_LEN)?;
        let on_device = GpuBuf::new(gpu, PIECES * PIECE_LEN)?;
        let bounce = needs_bounce.then(|| Pinned::new(gpu, bounce_len.max(1))).transpose()?;
        let (stream, event) = stream_and_event(&**gpu)?;
        Ok(Unpacker {
            stream,
            event,
            table,
            on_device,
            bounce,
            gpu: gpu.clone(),
            way,
            choice: Choice::default(),
            running: None,
            kernel,
        })
    }

    /// From now on every piece is copied by the device ([`CopyMode::D2d`]).
    pub fn copies_only(&mut self) {
        self.way = Some(CopyMode::D2d);
    }

    /// Begins to put a batch in place: pieces of `pool` into `dst`. False: the one before is not done. The pool's pages
    /// may be used again when [`Unpacker::done`] says so, and not earlier.
    ///
    /// # Errors
    /// [`GpuError::Range`] for a batch made for longer ranges, [`GpuError::Call`] where the device failed.
    pub fn start(&mut self, pool: MemSlice, dst: MemSlice, batch: &Batch) -> Result<bool, GpuError> {
        if !self.done()? {
            return Ok(false);
        }
        if batch.pool() > pool.len() as u64 || batch.target() > dst.len() as u64 {
            let (device, addr, len) = (self.gpu.info().id(), dst.as_ptr() as u64, dst.len());
            return Err(GpuError::Range { device, addr, len, why: "the pieces were collected for longer ranges" });
        }
        if batch.pieces().is_empty() {
            return Ok(true);
        }
        let way = self.way.unwrap_or_else(|| self.choice.pick(&self.kernel, batch));
        if self.way.is_none() {
            self.running = Some((way, Class::of(batch), Instant::now()));
        }
        let started = match way {
            CopyMode::Kernel => self.by_kernel(pool, dst, batch),
            CopyMode::D2d => self.by_copies(pool, dst, batch),
            CopyMode::Host => self.by_host(pool, dst, batch),
        };
        // Recorded also when something failed: what was queued before it still runs.
        let marked = self.gpu.record(self.event, self.stream);
        started.and(marked).map(|()| true)
    }

    /// Whether the batch that was started last is in place.
    ///
    /// # Errors
    /// [`GpuError::Call`]: the device failed.
    pub fn done(&mut self) -> Result<bool, GpuError> {
        let done = self.gpu.done(self.event)?;
        if done && let Some((way, class, since)) = self.running.take() {
            self.choice.note(way, class, since.elapsed());
        }
        Ok(done)
    }

    /// The event behind the batch that was started last, for work that needs it.
    pub fn event(&self) -> Event {
        self.event
    }

    fn by_kernel(&self, pool: MemSlice, dst: MemSlice, batch: &Batch) -> Result<(), GpuError> {
        let len = batch.pieces().len() * PIECE_LEN;
        for (i, piece) in batch.pieces().iter().enumerate() {
            let inside = self.table.mem().fill((i * PIECE_LEN) as u64, &piece.to_bytes());
            debug_assert!(inside);
        }
        let (table, pieces) = (self.part(self.table.mem(), 0, len)?, self.part(self.on_device.mem(), 0, len)?);
        self.gpu.copy(self.stream, pieces, table)?;
        let count = batch.pieces().len() as u32;
        self.gpu.unpack(self.stream, &UnpackJob { pool, dst, pieces, count, longest: batch.longest() })
    }

    fn by_copies(&self, pool: MemSlice, dst: MemSlice, batch: &Batch) -> Result<(), GpuError> {
        for piece in batch.pieces() {
            let len = piece.len as usize;
            let (to, from) = (self.part(dst, piece.dst, len)?, self.part(pool, piece.src.into(), len)?);
            self.gpu.copy(self.stream, to, from)?;
        }
        Ok(())
    }

    /// Down in pieces to where they stand in the message, up in runs. A stream runs in order, so the way up of one round
    /// is done before the next round comes down into the same memory.
    fn by_host(&self, pool: MemSlice, dst: MemSlice, batch: &Batch) -> Result<(), GpuError> {
        let Some(bounce) = self.bounce.as_ref().map(Pinned::mem) else {
            return self.by_copies(pool, dst, batch);
        };
        let (space, mut used) = (bounce.len(), 0);
        let mut run: Option<(u64, usize, usize)> = None;
        for piece in batch.pieces() {
            let mut done = 0;
            while done < piece.len as usize {
                let to = piece.dst + done as u64;
                if let Some((at, start, len)) = run.filter(|r| r.0 + r.2 as u64 != to || used == space) {
                    self.gpu.copy(self.stream, self.part(dst, at, len)?, self.part(bounce, start as u64, len)?)?;
                    run = None;
                }
                if used == space {
                    used = 0;
                }
                let n = (piece.len as usize - done).min(space - used);
                let from = self.part(pool, u64::from(piece.src) + done as u64, n)?;
                self.gpu.copy(self.stream, self.part(bounce, used as u64, n)?, from)?;
                run = Some(run.map_or((to, used, n), |(at, start, len)| (at, start, len + n)));
                used += n;
                done += n;
            }
        }
        match run {
            Some((at, start, len)) => {
                self.gpu.copy(self.stream, self.part(dst, at, len)?, self.part(bounce, start as u64, len)?)
            }
            None => Ok(()),
        }
    }

    fn part(&self, mem: MemSlice, at: u64, len: usize) -> Result<MemSlice, GpuError> {
        mem.sub(at, len as u64).ok_or_else(|| GpuError::Range {
            device: self.gpu.info().id(),
            addr: mem.as_ptr() as u64 + at,
            len,
            why: "a piece outside of its range",
        })
    }
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        // A device that failed works on nothing any more.
        let _ = self.gpu.wait(self.event);
        self.gpu.retire_event(self.event);
        self.gpu.retire_stream(self.stream);
    }
}

#[cfg(test)]
mod tests;
