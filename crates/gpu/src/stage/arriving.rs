//! The way in: from the rail into pinned memory, from there to device memory, landing in the order of the rail.

use std::collections::VecDeque;

use linkspan_proto::Head;
use linkspan_transport::Buf;
use linkspan_transport::{DeviceReach, MemSlice, Sink, Violation};

use super::arena::Arena;
use super::memory::Share;
use super::planted::{self, Bug};
use super::{Means, SEQUENTIAL, is_direct};
use crate::memory::AnyGpu;
use crate::{Event, Gpu, GpuError, Stream};

/// Chunks placed or being copied on at a time: the 512 that the contract allows, less one that is being asked for.
const CHUNKS: usize = 511;

/// Copies to the device under way at a time: where pages are moved, five batches of 64. Each takes an event, of which a device has
/// [`crate::driver::MOST`] for all rails; where more chunks land at once, the oldest copy is waited for.
const EVENTS: usize = 320;
const EVENTS_SEQUENTIAL: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Placed {
    /// Target and pinned range; `None` where the chunk went to host memory or nowhere.
    staged: Option<(MemSlice, MemSlice)>,
}

#[derive(Debug)]
struct Landing {
    head: Head,
    copied: Option<Event>,
}

#[derive(Debug)]
pub(super) struct StagedReceive {
    stream: Stream,
    events: Vec<Event>,
    arena: Arena,
    /// Chunks that the rail is filling.
    placed: VecDeque<Placed>,
    /// Chunks whose bytes are all here, and the copies that run.
    landing: VecDeque<Landing>,
    gpu: AnyGpu,
    /// Counts the arena for the process.
    _share: Share,
}

impl StagedReceive {
    /// `plain`: chunks for host memory that the rail is filling already.
    pub(super) fn new(gpu: &AnyGpu, share: Share, plain: usize) -> Result<StagedReceive, GpuError> {
        let mut placed = VecDeque::with_capacity(CHUNKS + 1);
        placed.extend((0..plain).map(|_| Placed { staged: None }));
        // Pinning fails most easily. From the stream on the value gives back what it has.
        let events = if share.bytes() > SEQUENTIAL { EVENTS } else { EVENTS_SEQUENTIAL };
        let arena = Arena::new(gpu, share.bytes(), CHUNKS + 1)?;
        let mut made = StagedReceive {
            stream: gpu.stream()?,
            events: Vec::with_capacity(events),
            arena,
            placed,
            landing: VecDeque::with_capacity(CHUNKS + 1),
            gpu: gpu.clone(),
            _share: share,
        };
        for _ in 0..events {
            made.events.push(gpu.event()?);
        }
        Ok(made)
    }

    /// Whether copies to the device run.
    pub(super) fn copying(&self) -> bool {
        !self.landing.is_empty()
    }

    /// Waits until no copy writes device memory any more.
    pub(super) fn finish(&mut self, gpu: &dyn Gpu) -> Result<(), GpuError> {
        for event in self.landing.drain(..).filter_map(|l| l.copied) {
            self.events.push(event);
            if !planted::is(Bug::DropWithoutWaiting) {
                gpu.wait(event)?;
            }
        }
        Ok(())
    }
}

impl Drop for StagedReceive {
    fn drop(&mut self) {
        for event in self.events.drain(..) {
            self.gpu.retire_event(event);
        }
        self.gpu.retire_stream(self.stream);
    }
}

/// The sink that the rail below sees.
pub(super) struct StagingSink<'a> {
    /// `None` as long as nothing has come for a device.
    inner: &'a mut Option<StagedReceive>,
    plain: &'a mut usize,
    means: &'a Means,
    reach: &'a mut Option<Box<dyn DeviceReach>>,
    sink: &'a mut dyn Sink,
    fault: Option<GpuError>,
}

impl<'a> StagingSink<'a> {
    pub(super) fn new(
        inner: &'a mut Option<StagedReceive>,
        plain: &'a mut usize,
        (means, reach): (&'a Means, &'a mut Option<Box<dyn DeviceReach>>),
        sink: &'a mut dyn Sink,
    ) -> StagingSink<'a> {
        StagingSink { inner, plain, means, reach, sink, fault: None }
    }

    pub(super) fn into_fault(self) -> Option<GpuError> {
        self.fault
    }

    /// Keeps the device's error; the rail is told that nothing can land any more.
    #[cold]
    fn failed(&mut self, error: GpuError) -> Violation {
        let why = error.to_string();
        self.fault.get_or_insert(error);
        Violation(why)
    }

    /// Reports the oldest chunk as landed if its copy is done, or waits for that. False: nothing to report.
    fn reap_one(&mut self, wait: bool) -> Result<bool, Violation> {
        let Some(inner) = self.inner.as_mut() else { return Ok(false) };
        let Some(oldest) = inner.landing.front() else { return Ok(false) };
        if let (Some(event), false) = (oldest.copied, planted::is(Bug::LandedEarly)) {
            let done = if wait { inner.gpu.wait(event).map(|()| true) } else { inner.gpu.done(event) };
            match done {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => {
                    self.fault.get_or_insert(error);
                    return Ok(false);
                }
            }
        }
        if let Some(Landing { head, copied }) = inner.landing.pop_front() {
            if let Some(event) = copied {
                inner.events.push(event);
                if !planted::is(Bug::ReusedEarly) {
                    inner.arena.give();
                }
            }
            self.sink.landed(&head)?;
        }
        Ok(true)
    }

    /// Reports what has landed, in order; `all` waits for every copy. True: something was reported.
    pub(super) fn reap(&mut self, all: bool) -> Result<bool, Violation> {
        let mut any = false;
        while self.reap_one(all)? {
            any = true;
        }
        Ok(any)
    }

    /// A pinned range for a chunk that goes to `dst`, after waiting for older ones to be copied on where need be.
    fn pinned(&mut self, dst: MemSlice) -> Result<MemSlice, Violation> {
        let len = dst.len();
        self.means.covers(dst).map_err(|error| self.failed(error))?;
        loop {
            let inner = match self.inner.as_mut() {
                Some(inner) => inner,
                None => {
                    let made = self.means.arriving(*self.plain).map_err(|error| self.failed(error))?;
                    self.inner.insert(made)
                }
            };
            if let Some(range) = inner.arena.take(len) {
                return Ok(range);
            }
            let held = inner.placed.len();
            if !self.reap_one(true)? {
                return Err(Violation(match &self.fault {
                    Some(error) => error.to_string(),
                    None => {
                        format!("a chunk of {len} bytes behind {held} unfinished ones: more than the staging memory")
                    }
                }));
            }
        }
    }

    /// Whether as many chunks are under way as there can be.
    fn full(&self) -> bool {
        self.inner.as_ref().is_some_and(|i| i.placed.len() + i.landing.len() >= CHUNKS)
    }
}

impl Sink for StagingSink<'_> {
    /// Not where all space is of chunks that the rail is still filling: no copy could be waited for.
    fn ready(&mut self, head: &Head) -> bool {
        let len = head.len.get() as usize;
        self.inner.as_ref().is_none_or(|i| i.placed.is_empty() || !i.landing.is_empty() || i.arena.has(len))
    }

    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        self.sink.ctrl(head, payload)
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        while self.full() && self.reap_one(true)? {}
        let place = self.sink.place(head)?;
        let staged = match place {
            Some(dst) if !dst.is_empty() && !is_direct(self.reach, dst, true) => Some((dst, self.pinned(dst)?)),
            _ => None,
        };
        match self.inner.as_mut() {
            Some(inner) => inner.placed.push_back(Placed { staged }),
            None => *self.plain += 1,
        }
        Ok(staged.map(|(_, pinned)| pinned).or(place))
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        while self.inner.as_ref().is_some_and(|inner| inner.events.is_empty()) && self.reap_one(true)? {}
        let Some(inner) = self.inner.as_mut() else {
            *self.plain = self.plain.saturating_sub(1);
            return self.sink.landed(head);
        };
        let placed = inner.placed.pop_front().ok_or_else(|| Violation("the end of a chunk that never began".into()))?;
        let copied = match placed.staged {
            None if inner.landing.is_empty() => return self.sink.landed(head),
            None => None,
            Some((dst, pinned)) => {
                let Some(event) = inner.events.pop() else {
                    let why =
                        self.fault.as_ref().map_or_else(|| "more copies than events".to_owned(), GpuError::to_string);
                    return Err(Violation(why));
                };
                let (gpu, stream) = (&inner.gpu, inner.stream);
                let started = gpu.copy(stream, dst, pinned).and_then(|()| gpu.record(event, stream));
                if planted::is(Bug::ReusedEarly) {
                    inner.arena.give();
                }
                if let Err(error) = started {
                    inner.events.push(event);
                    return Err(self.failed(error));
                }
                Some(event)
            }
        };
        inner.landing.push_back(Landing { head: *head, copied });
        Ok(())
    }
}
