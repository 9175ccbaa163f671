//! Pinned memory through which device memory leaves that the card cannot send from.

use std::collections::VecDeque;
use std::sync::Arc;

use linkspan_gpu::{Event, Gpu, GpuError, Pinned, Share, StageMemory, Stream};
use linkspan_transport::{Buf, MemSlice};

/// Slots, and bytes of each: while one is on the wire the next are filled.
const SLOTS: usize = 4;
const SLOT: usize = 256 << 10;

/// A part of a chunk in a slot.
struct Part {
    slot: usize,
    len: usize,
    sent: usize,
}

pub(super) struct Staging {
    gpu: Arc<dyn Gpu>,
    stream: Stream,
    events: Vec<Event>,
    mem: MemSlice,
    _memory: Pinned,
    /// In the order of the stream; the slots of others are free.
    parts: VecDeque<Part>,
    next: usize,
    _share: Share,
}

impl Staging {
    pub(super) fn new(gpu: &Arc<dyn Gpu>, memory: &StageMemory) -> Result<Staging, GpuError> {
        let share = memory.take(SLOTS * SLOT)?;
        let memory = Pinned::new(gpu, SLOTS * SLOT)?;
        // From the stream on the value gives back what it has.
        let mut made = Staging {
            stream: gpu.stream()?,
            events: Vec::with_capacity(SLOTS),
            #[allow(unsafe_code)]
            // SAFETY: copies into it are waited for (`finish`) and the socket reads it within a call, before this is dropped.
            mem: unsafe { memory.slice() },
            _memory: memory,
            parts: VecDeque::with_capacity(SLOTS),
            next: 0,
            gpu: gpu.clone(),
            _share: share,
        };
        for _ in 0..SLOTS {
            made.events.push(gpu.event()?);
        }
        Ok(made)
    }

    /// Begins to copy the first bytes of `src`. Returns how many; 0: every slot is in use.
    pub(super) fn copy(&mut self, src: MemSlice) -> Result<usize, GpuError> {
        if self.parts.len() == SLOTS {
            return Ok(0);
        }
        let (slot, len) = (self.next, src.len().min(SLOT));
        let to = self.mem.sub((slot * SLOT) as u64, len as u64).unwrap_or(MemSlice::NONE);
        self.gpu.copy(self.stream, to, src.sub(0, len as u64).unwrap_or(MemSlice::NONE))?;
        self.gpu.record(self.events[slot], self.stream)?;
        self.parts.push_back(Part { slot, len, sent: 0 });
        self.next = (slot + 1) % SLOTS;
        Ok(len)
    }

    /// Bytes that come next on the stream, where they are here.
    pub(super) fn ready(&self) -> Result<Option<MemSlice>, GpuError> {
        let Some(part) = self.parts.front() else { return Ok(None) };
        if !self.gpu.done(self.events[part.slot])? {
            return Ok(None);
        }
        Ok(self.mem.sub((part.slot * SLOT + part.sent) as u64, (part.len - part.sent) as u64))
    }

    /// The stream took so many of them.
    pub(super) fn sent(&mut self, n: usize) {
        if let Some(part) = self.parts.front_mut() {
            part.sent += n;
            if part.sent >= part.len {
                self.parts.pop_front();
            }
        }
    }

    /// Waits until no copy runs.
    pub(super) fn finish(&mut self) {
        for part in self.parts.drain(..) {
            // A device that failed copies nothing any more.
            let _ = self.gpu.wait(self.events[part.slot]);
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.finish();
        for event in self.events.drain(..) {
            self.gpu.retire_event(event);
        }
        self.gpu.retire_stream(self.stream);
    }
}
