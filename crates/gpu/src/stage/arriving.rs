//! The way in: from the rail into pinned memory, from there to device memory, landing in the order of the rail.

use std::collections::VecDeque;

use linkspan_proto::Head;
use linkspan_transport::Buf;
use linkspan_transport::{MemSlice, Sink, Violation};

use super::arena::Arena;
use super::planted::{self, Bug};
use crate::device::AnyGpu;
use crate::{Event, Gpu, GpuError, Stream};

/// Chunks placed or being copied on at a time: the 64 that the contract allows, less one that is being asked for.
const CHUNKS: usize = 63;

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
pub(super) struct Arriving {
    stream: Stream,
    events: Vec<Event>,
    arena: Arena,
    /// Chunks that the rail is filling.
    placed: VecDeque<Placed>,
    /// Chunks whose bytes are all here, and the copies that run.
    landing: VecDeque<Landing>,
    gpu: AnyGpu,
}

impl Arriving {
    pub(super) fn new(gpu: &AnyGpu, arena: usize) -> Result<Arriving, GpuError> {
        Ok(Arriving {
            stream: gpu.stream()?,
            events: (0..CHUNKS).map(|_| gpu.event()).collect::<Result<_, _>>()?,
            arena: Arena::new(gpu, arena, CHUNKS + 1)?,
            placed: VecDeque::with_capacity(CHUNKS + 1),
            landing: VecDeque::with_capacity(CHUNKS + 1),
            gpu: gpu.clone(),
        })
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

impl Drop for Arriving {
    fn drop(&mut self) {
        for event in self.events.drain(..) {
            self.gpu.retire_event(event);
        }
        self.gpu.retire_stream(self.stream);
    }
}

/// The sink that the rail below sees.
pub(super) struct Port<'a, S> {
    inner: &'a mut Arriving,
    gpu: &'a dyn Gpu,
    sink: &'a mut S,
    fault: Option<GpuError>,
}

impl<'a, S: Sink> Port<'a, S> {
    pub(super) fn new(inner: &'a mut Arriving, gpu: &'a dyn Gpu, sink: &'a mut S) -> Port<'a, S> {
        Port { inner, gpu, sink, fault: None }
    }

    pub(super) fn into_fault(self) -> Option<GpuError> {
        self.fault
    }

    /// Reports the oldest chunk as landed if its copy is done, or waits for that. False: nothing to report.
    fn reap_one(&mut self, wait: bool) -> Result<bool, Violation> {
        let Some(oldest) = self.inner.landing.front() else { return Ok(false) };
        if let (Some(event), false) = (oldest.copied, planted::is(Bug::LandedEarly)) {
            let done = if wait { self.gpu.wait(event).map(|()| true) } else { self.gpu.done(event) };
            match done {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => {
                    self.fault.get_or_insert(error);
                    return Ok(false);
                }
            }
        }
        if let Some(Landing { head, copied }) = self.inner.landing.pop_front() {
            if let Some(event) = copied {
                self.inner.events.push(event);
                if !planted::is(Bug::ReusedEarly) {
                    self.inner.arena.give();
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

    /// A pinned range, after waiting for older ones to be copied on where need be.
    fn pinned(&mut self, len: usize) -> Result<MemSlice, Violation> {
        loop {
            if let Some(range) = self.inner.arena.take(len) {
                return Ok(range);
            }
            if !self.reap_one(true)? {
                let held = self.inner.placed.len();
                return Err(Violation(match &self.fault {
                    Some(error) => error.to_string(),
                    None => {
                        format!("a chunk of {len} bytes behind {held} unfinished ones: more than the staging memory")
                    }
                }));
            }
        }
    }
}

impl<S: Sink> Sink for Port<'_, S> {
    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        self.sink.ctrl(head, payload)
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        while self.inner.placed.len() + self.inner.landing.len() >= CHUNKS && self.reap_one(true)? {}
        let place = self.sink.place(head)?;
        let staged = match place {
            Some(dst) if !dst.is_host() && !dst.is_empty() => Some((dst, self.pinned(dst.len())?)),
            _ => None,
        };
        self.inner.placed.push_back(Placed { staged });
        Ok(staged.map(|(_, pinned)| pinned).or(place))
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        let placed =
            self.inner.placed.pop_front().ok_or_else(|| Violation("the end of a chunk that never began".into()))?;
        let copied = match placed.staged {
            None if self.inner.landing.is_empty() => return self.sink.landed(head),
            None => None,
            Some((dst, pinned)) => {
                // As many events as chunks.
                let event = self.inner.events.pop().ok_or_else(|| Violation("more chunks than events".into()))?;
                let stream = self.inner.stream;
                let started = self.gpu.copy(stream, dst, pinned).and_then(|()| self.gpu.record(event, stream));
                if planted::is(Bug::ReusedEarly) {
                    self.inner.arena.give();
                }
                if let Err(error) = started {
                    self.inner.events.push(event);
                    let why = error.to_string();
                    self.fault.get_or_insert(error);
                    return Err(Violation(why));
                }
                Some(event)
            }
        };
        self.inner.landing.push_back(Landing { head: *head, copied });
        Ok(())
    }
}
