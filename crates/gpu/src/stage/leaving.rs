//! The way out: from device memory into pinned memory, from there to the rail, in the order in which it was accepted.

use std::collections::VecDeque;

use linkspan_proto::Head;
use linkspan_proto::head::EAGER_MAX;
use linkspan_transport::{Buf, HostBuf, MemSlice, Rail};

use super::arena::Arena;
use super::memory::Share;
use super::planted::{self, Bug};
use crate::memory::AnyGpu;
use crate::{Event, Gpu, GpuError, Stream};

/// Items that wait for a copy, or behind one.
const ITEMS: usize = 64;

/// Control messages among them; the next one is told busy, as by any rail that is full.
const BODIES: usize = 16;

#[derive(Debug)]
enum Item {
    Chunk { head: Head, src: MemSlice, copied: Option<Event> },
    Ctrl { head: Head, body: MemSlice },
}

#[derive(Debug)]
pub(super) struct StagedSend {
    stream: Stream,
    events: Vec<Event>,
    arena: Arena,
    queue: VecDeque<Item>,
    /// Items that the rail has as chunks out of the arena, by number.
    out: VecDeque<u64>,
    /// Number of the last item accepted.
    last: u64,
    bodies: HostBuf,
    bodies_used: usize,
    next_body: usize,
    scratch: HostBuf,
    gpu: AnyGpu,
    /// Counts the arena for the process.
    _share: Share,
}

impl StagedSend {
    /// `last`: number of the last item that the rail has accepted already.
    pub(super) fn new(gpu: &AnyGpu, share: Share, last: u64) -> Result<StagedSend, GpuError> {
        // Pinning fails most easily. From the stream on the value gives back what it has.
        let arena = Arena::new(gpu, share.bytes(), 2 * ITEMS)?;
        let mut made = StagedSend {
            stream: gpu.stream()?,
            events: Vec::with_capacity(ITEMS),
            arena,
            queue: VecDeque::with_capacity(ITEMS),
            out: VecDeque::with_capacity(2 * ITEMS),
            last,
            bodies: HostBuf::new(BODIES * EAGER_MAX),
            bodies_used: 0,
            next_body: 0,
            scratch: HostBuf::new(EAGER_MAX),
            gpu: gpu.clone(),
            _share: share,
        };
        for _ in 0..ITEMS {
            made.events.push(gpu.event()?);
        }
        Ok(made)
    }

    pub(super) fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Accepts a control message, directly where nothing waits before it. `None`: busy. Memory whose bytes cannot be had is an error: they
    /// cannot be had the next time either.
    pub(super) fn ctrl<R: Rail + ?Sized>(
        &mut self,
        rail: &mut R,
        head: &Head,
        body: MemSlice,
    ) -> Result<Option<u64>, GpuError> {
        if self.queue.is_empty() && body.is_host() {
            let Ok(number) = rail.ctrl(head, body) else { return Ok(None) };
            self.last = number;
            return Ok(Some(number));
        }
        #[allow(unsafe_code)]
        // SAFETY: handles on parts stay in the queue of this value, or with the rail within its call.
        let (scratch, bodies) = unsafe { (self.scratch.slice(), self.bodies.slice()) };
        let space = if self.queue.is_empty() {
            Some(scratch)
        } else if self.bodies_used == BODIES || self.queue.len() == ITEMS {
            return Ok(None);
        } else {
            bodies.sub((self.next_body * EAGER_MAX) as u64, EAGER_MAX as u64)
        };
        let to = space.and_then(|space| space.sub(0, body.len() as u64)).filter(|to| copy_small(body, *to));
        let Some(to) = to else {
            let (device, why) =
                (self.gpu.info().id(), "its bytes cannot be read: it was freed, or the device has failed");
            return Err(GpuError::Range { device, addr: body.as_ptr() as u64, len: body.len(), why });
        };
        if self.queue.is_empty() {
            let Ok(number) = rail.ctrl(head, to) else { return Ok(None) };
            self.last = number;
        } else {
            self.next_body = (self.next_body + 1) % BODIES;
            self.bodies_used += 1;
            self.queue.push_back(Item::Ctrl { head: *head, body: to });
            self.last += 1;
        }
        Ok(Some(self.last))
    }

    /// Accepts a chunk; `direct`: the rail reaches its memory. `None`: busy.
    pub(super) fn data<R: Rail + ?Sized>(
        &mut self,
        gpu: &dyn Gpu,
        rail: &mut R,
        head: &Head,
        src: MemSlice,
        direct: bool,
    ) -> Result<Option<u64>, GpuError> {
        if direct && self.queue.is_empty() {
            let Ok(number) = rail.data(head, src) else { return Ok(None) };
            self.last = number;
            return Ok(Some(number));
        }
        if self.queue.len() == ITEMS {
            return Ok(None);
        }
        let (src, copied) = if direct {
            (src, None)
        } else {
            if !self.arena.fits(src.len()) {
                let device = gpu.info().id();
                let why = "a chunk longer than the staging memory";
                return Err(GpuError::Range { device, addr: src.as_ptr() as u64, len: src.len(), why });
            }
            // The arena and `out` grow together.
            let Some(event) = self.events.pop() else { return Ok(None) };
            let Some(pinned) = self.arena.take(src.len()) else {
                self.events.push(event);
                return Ok(None);
            };
            let started = gpu.copy(self.stream, pinned, src).and_then(|()| gpu.record(event, self.stream));
            if let Err(error) = started {
                self.events.push(event);
                return Err(error);
            }
            (pinned, Some(event))
        };
        self.queue.push_back(Item::Chunk { head: *head, src, copied });
        self.last += 1;
        Ok(Some(self.last))
    }

    /// Hands on what is ready, and takes pinned memory back that the rail is done with. True: something moved.
    pub(super) fn hand_on<R: Rail + ?Sized>(&mut self, gpu: &dyn Gpu, rail: &mut R) -> Result<bool, GpuError> {
        let taken = rail.taken();
        while self.out.front().is_some_and(|&number| number <= taken) {
            self.out.pop_front();
            self.arena.give();
        }
        let mut moved = false;
        while let Some(item) = self.queue.front() {
            let number = match item {
                Item::Ctrl { head, body } => rail.ctrl(head, *body),
                Item::Chunk { head, src, copied } => {
                    if let Some(event) = copied
                        && !planted::is(Bug::SentEarly)
                        && !gpu.done(*event)?
                    {
                        break;
                    }
                    rail.data(head, *src)
                }
            };
            let Ok(number) = number else { break };
            match self.queue.pop_front() {
                Some(Item::Chunk { copied: Some(event), .. }) => {
                    self.events.push(event);
                    self.out.push_back(number);
                }
                Some(Item::Ctrl { .. }) => self.bodies_used -= 1,
                _ => {}
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Waits until no copy reads device memory any more.
    pub(super) fn finish(&mut self, gpu: &dyn Gpu) -> Result<(), GpuError> {
        for item in self.queue.drain(..) {
            if let Item::Chunk { copied: Some(event), .. } = item {
                self.events.push(event);
                gpu.wait(event)?;
            }
        }
        Ok(())
    }
}

/// Copies a small body, from a device by way of its driver.
fn copy_small(from: MemSlice, to: MemSlice) -> bool {
    let mut bytes = [0; EAGER_MAX];
    // A message of no bytes may have any address.
    from.is_empty() || bytes.get_mut(..from.len()).is_some_and(|bytes| from.read(0, bytes) && to.fill(0, bytes))
}

impl Drop for StagedSend {
    fn drop(&mut self) {
        for event in self.events.drain(..) {
            self.gpu.retire_event(event);
        }
        self.gpu.retire_stream(self.stream);
    }
}
