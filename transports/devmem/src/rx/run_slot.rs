//! One run on its way to its place.

use std::sync::Arc;

use linkspan_gpu::driver::stream_and_event;
use linkspan_gpu::unpack::{Batch, CopyMode, PIECES, Unpacker};
use linkspan_gpu::{Event, Gpu, GpuError, Pinned, Stream};
use linkspan_transport::{Buf, MemSlice};

use crate::planted::{self, Bug};

/// Most bytes of a run whose chunk goes to the host, and of the unpack's own detour: a chunk as senders cut them.
pub(super) const TO_HOST: usize = 512 << 10;

/// What one run needs. In use by one at a time.
pub(super) struct RunSlot {
    gpu: Arc<dyn Gpu>,
    /// For copies; the unpack has a stream of its own.
    stream: Stream,
    event: Event,
    copies: bool,
    unpacker: Option<Unpacker>,
    unpacking: bool,
    pub(super) batch: Batch,
    /// Tokens of the pages it reads.
    pub(super) tokens: Vec<u32>,
    /// Tokens of pages that NCCL's kernel reads too, each with the receive of its queue: those at its beginning and its end.
    pub(super) shared: Vec<(u64, u32)>,
    /// Buffers of calls that it reads, one bit for each.
    pub(super) linears: u32,
    /// Where pages come to on their way to the host, made when first needed.
    bounce: Option<Pinned>,
    /// The chunk's place, and where in it the run begins and ends.
    dst: MemSlice,
    start: u64,
    end: u64,
}

impl RunSlot {
    /// For a pool; without one, for copies from the host alone.
    pub(super) fn new(gpu: &Arc<dyn Gpu>, pool: bool, way: Option<CopyMode>) -> Result<RunSlot, GpuError> {
        let unpacker = pool.then(|| Unpacker::with_bounce(gpu, way, TO_HOST)).transpose()?;
        let (stream, event) = stream_and_event(&**gpu)?;
        Ok(RunSlot {
            stream,
            event,
            copies: false,
            unpacker,
            unpacking: false,
            batch: Batch::new(0, 0),
            // One more for the page at its end, of which the rest goes nowhere.
            tokens: Vec::with_capacity(PIECES + 1),
            shared: Vec::with_capacity(2),
            linears: 0,
            bounce: None,
            dst: MemSlice::NONE,
            start: 0,
            end: 0,
            gpu: gpu.clone(),
        })
    }

    /// This is the pool.
    pub(super) fn bind(&mut self, pool: MemSlice) {
        self.batch = Batch::new(pool.len() as u64, 0);
        if let (Some(unpacker), true) = (&mut self.unpacker, pool.is_host()) {
            // Of a pool in host memory the unpack kernel knows no address.
            unpacker.copies_only();
        }
    }

    /// A run begins at `start` of the chunk that goes to `dst`.
    pub(super) fn begin(&mut self, dst: MemSlice, start: u64) -> Result<(), GpuError> {
        self.batch.clear(dst.len() as u64);
        (self.dst, self.start, self.end) = (dst, start, start);
        if dst.is_host() && self.bounce.is_none() {
            self.bounce = Some(Pinned::new(&self.gpu, TO_HOST)?);
        }
        Ok(())
    }

    /// Bytes that it takes beyond `placed` of the chunk.
    pub(super) fn space(&self, placed: u64) -> u64 {
        let most = if self.dst.is_host() { TO_HOST as u64 } else { u64::MAX };
        // Merged pieces count once, their pages each.
        let full = self.tokens.len() >= PIECES;
        if full { 0 } else { most.saturating_sub(placed - self.start) }
    }

    /// The run has come to there.
    pub(super) fn grown(&mut self, end: u64) {
        self.end = end;
    }

    /// The memory before the host's, or no bytes.
    #[allow(unsafe_code)]
    fn bounce(&self) -> MemSlice {
        // SAFETY: `settle` waits for every copy into it before it is dropped.
        self.bounce.as_ref().map_or(MemSlice::NONE, |bounce| unsafe { bounce.slice() })
    }

    /// Bytes of a call's buffer go to the host, at `to` of the chunk, in their turn.
    pub(super) fn keep(&mut self, src: MemSlice, to: u64) -> bool {
        let bounce = self.bounce();
        let place = to.checked_sub(self.start).and_then(|at| bounce.sub(at, src.len() as u64));
        place.is_some_and(|place| src.copy_to_host(place))
    }

    /// Bytes of a call's buffer go to the device.
    pub(super) fn copy_in(&mut self, dst: MemSlice, src: MemSlice) -> Result<(), GpuError> {
        self.copies = true;
        self.gpu.copy(self.stream, dst, src)
    }

    /// The run is complete: the GPU begins.
    pub(super) fn start(&mut self, pool: MemSlice) -> Result<(), GpuError> {
        let started = self.begin_work(pool);
        if self.copies {
            // Recorded also when something failed: what was queued before it still runs.
            self.gpu.record(self.event, self.stream)?;
        }
        started
    }

    fn begin_work(&mut self, pool: MemSlice) -> Result<(), GpuError> {
        if self.batch.pieces().is_empty() {
            return Ok(());
        }
        // What the card has written is there for work that begins now.
        if !planted::is(Bug::NoFlush) {
            self.gpu.flush_writes()?;
        }
        if self.dst.is_host() {
            let bounce = self.bounce();
            self.copies = true;
            for piece in self.batch.pieces() {
                let len = u64::from(piece.len);
                let to = bounce.sub(piece.dst - self.start, len);
                let (Some(to), Some(from)) = (to, pool.sub(piece.src.into(), len)) else { continue };
                self.gpu.copy(self.stream, to, from)?;
            }
            return Ok(());
        }
        if let Some(unpacker) = &mut self.unpacker {
            self.unpacking = true;
            let begun = unpacker.start(pool, self.dst, &self.batch)?;
            debug_assert!(begun, "the run before was waited for");
        }
        Ok(())
    }

    /// Whether everything is in place; `wait`: when it is.
    pub(super) fn done(&mut self, wait: bool) -> Result<bool, GpuError> {
        if self.copies {
            match wait {
                true => self.gpu.wait(self.event)?,
                false if !self.gpu.done(self.event)? => return Ok(false),
                false => {}
            }
        }
        if let (true, Some(unpacker)) = (self.unpacking, &mut self.unpacker) {
            if wait {
                self.gpu.wait(unpacker.event())?;
            }
            return unpacker.done();
        }
        Ok(true)
    }

    /// Everything has come: the host's part goes on to its place.
    pub(super) fn finish(&mut self) {
        if self.dst.is_host() && self.bounce.is_some() {
            // At once and lowest address first, whatever the pieces were: NCCL's LL kernels look at words of data and flag while
            // they come, and a segment may end inside of one.
            let len = self.end - self.start;
            if let (Some(from), Some(to)) = (self.bounce().sub(0, len), self.dst.sub(self.start, len)) {
                let copied = from.copy_to_host(to);
                debug_assert!(copied);
            }
        }
        (self.copies, self.unpacking) = (false, false);
    }
}

impl RunSlot {
    /// Waits until nothing of it reads or writes any more, also where its run was never started.
    pub(super) fn settle(&mut self) {
        // A device that failed works on nothing any more.
        if self.copies && self.gpu.record(self.event, self.stream).is_ok() {
            let _ = self.gpu.wait(self.event);
        }
        let _ = self.done(true);
        (self.copies, self.unpacking) = (false, false);
    }
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        self.settle();
        self.gpu.retire_event(self.event);
        self.gpu.retire_stream(self.stream);
    }
}
