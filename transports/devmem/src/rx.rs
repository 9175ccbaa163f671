//! The receiving half: from announced heads and the second stream's bytes to chunks in place.
//!
//! A chunk is cut into *runs*: bytes that the GPU puts in place with one batch. Most often a chunk is one run. Runs report in the
//! order of the stream, and with each its pages go back to the kernel.

mod kept;
mod linear;
mod run_slot;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use linkspan_gpu::devmem::{
    Assembly, BadControl, Fragment, Placed, RUNS, Run as TokenRun, Tokens, Unplaced, fragments,
};
use linkspan_gpu::unpack::CopyMode;
use linkspan_gpu::{Gpu, GpuError, Share, StageMemory};
use linkspan_netdev::CONTROL_LEN;
use linkspan_proto::Head;
use linkspan_transport::gpu::DeviceQueue;
use linkspan_transport::{Buf, MemSlice, Sink, Violation};
use zerocopy::IntoBytes;

use crate::planted::{self, Bug};
use crate::{Error, Pool, Socket};
use kept::Kept;
use linear::{LINEAR, LINEARS, Linears};
use run_slot::{RunSlot, TO_HOST};

/// Heads that may be announced before the control rail is left alone until their payload has come. One more poll of it may bring
/// some thousands.
const ANNOUNCED: usize = 1024;

/// Batches at a time: one that is filled and some that run.
const LANES: usize = 4;

/// Chunks placed at a time, below the 64 that the contract allows.
const PLACED: usize = 60;

/// Most bytes and most calls of one poll, as of the TCP transport.
const POLL_MOST: usize = 1 << 20;
const READS: usize = 32;

/// Most bytes of a call that goes straight into place.
const STRAIGHT: usize = 1 << 20;

/// Of the pool, held pages above this part are told as a lack of pages: the card drops what finds none.
const SCARCE: (u64, u64) = (7, 8);

/// Why receiving ended.
pub(crate) enum Fault {
    /// The end of the stream; `inside`: with payload missing.
    End {
        inside: bool,
    },
    System(io::Error),
    Violation(Violation),
    MemoryDomain {
        want: usize,
        got: usize,
    },
    Device(Error),
}

impl From<Violation> for Fault {
    fn from(v: Violation) -> Fault {
        Fault::Violation(v)
    }
}

impl From<Error> for Fault {
    fn from(e: Error) -> Fault {
        Fault::Device(e)
    }
}

impl From<GpuError> for Fault {
    fn from(e: GpuError) -> Fault {
        Fault::Device(e.into())
    }
}

impl From<BadControl> for Fault {
    fn from(e: BadControl) -> Fault {
        Fault::Device(e.into())
    }
}

/// The chunk whose bytes come next.
struct Current {
    head: Head,
    place: Option<MemSlice>,
    /// The receive of NCCL's queue that it is part of.
    receive: Option<u64>,
}

/// Bytes that report together.
struct Run {
    run_slot: Option<usize>,
    /// The chunk that ends with them.
    ends: Option<Head>,
}

/// Work of one device.
struct Device {
    gpu: Arc<dyn Gpu>,
    lanes: Vec<RunSlot>,
    free: Vec<usize>,
    _share: Share,
}

/// What chunks for a device take. Made before the card is asked: once it fills memory of the device, nothing may fail.
pub(crate) struct Means {
    share: Share,
    lanes: Vec<RunSlot>,
    linears: Linears,
}

impl Means {
    /// With or without a pool.
    pub(crate) fn new(
        gpu: &Arc<dyn Gpu>,
        pool: bool,
        way: Option<CopyMode>,
        memory: &StageMemory,
    ) -> Result<Means, GpuError> {
        let bounce = if pool && way.is_none_or(|w| w == CopyMode::Host) { LANES * TO_HOST } else { 0 };
        let share = memory.take(LINEARS * LINEAR + LANES * TO_HOST + bounce)?;
        let lanes = (0..LANES).map(|_| RunSlot::new(gpu, pool, way)).collect::<Result<Vec<_>, _>>()?;
        Ok(Means { share, lanes, linears: Linears::pinned(gpu)? })
    }
}

/// What was counted, for those who look after the rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Payload bytes that came in device memory, in the call's own buffer for a device, and for the host.
    pub(crate) device: u64,
    pub(crate) copied: u64,
    pub(crate) host: u64,
    /// Pieces of pages that we hold, and times that those of all streams were nearly all pages there are while this one was dry.
    held: u64,
    pub(crate) scarce: u64,
}

pub(crate) struct Intake {
    announced: VecDeque<Head>,
    /// Payload bytes that were announced and have not come.
    want: u64,
    current: Option<Current>,
    assembly: Assembly,
    /// The lane of the run that is being filled.
    open: Option<usize>,
    running: VecDeque<Run>,
    linears: Linears,
    control: Box<[u64]>,
    device: Option<Device>,
    pool: Option<Pool>,
    tokens: Tokens,
    /// Pages that NCCL's kernels read.
    kept: Option<Kept>,
    /// The last receive of its queue that a part of the fragment at hand went to.
    split: Option<u64>,
    pub(crate) counts: Counts,
    /// What the pool's other streams know that we hold.
    told: u64,
}

impl Intake {
    pub(crate) fn new() -> Intake {
        Intake {
            announced: VecDeque::with_capacity(ANNOUNCED),
            want: 0,
            current: None,
            assembly: Assembly::new(0, 0),
            open: None,
            running: VecDeque::with_capacity(2 * PLACED),
            linears: Linears::on_host(),
            control: vec![0; CONTROL_LEN / 8].into(),
            device: None,
            pool: None,
            tokens: Tokens::new(ANNOUNCED),
            kept: None,
            split: None,
            counts: Counts::default(),
            told: 0,
        }
    }

    /// From now on chunks may go to memory of this device. With a pool, for which `means` were made, the card fills it.
    pub(crate) fn attach(&mut self, gpu: &Arc<dyn Gpu>, means: Means, pool: Option<Pool>) {
        let Means { share, mut lanes, linears } = means;
        if let Some(pool) = &pool {
            lanes.iter_mut().for_each(|lane| lane.bind(pool.mem));
            self.assembly.bound(pool.id);
        }
        self.pool = pool;
        self.linears = linears;
        self.device = Some(Device { gpu: gpu.clone(), free: (0..lanes.len()).rev().collect(), lanes, _share: share });
    }

    /// From now on pieces may be left to NCCL's kernels, which this queue tells of them, where memory is bound.
    pub(crate) fn offload(&mut self, queue: &Arc<dyn DeviceQueue>) {
        if let Some(pool) = self.pool.as_ref().filter(|pool| !pool.mem.is_host()) {
            self.kept = Some(Kept::new(queue.clone(), pool));
        }
    }

    /// Where the card puts payload.
    pub(crate) fn bound(&self) -> Option<MemSlice> {
        self.pool.as_ref().map(|pool| pool.mem)
    }

    /// A chunk's head has come, its payload follows on the stream.
    pub(crate) fn announced(&mut self, head: Head) {
        self.want += u64::from(head.len.get());
        self.announced.push_back(head);
    }

    /// Whether more heads are welcome.
    pub(crate) fn open_for_heads(&self) -> bool {
        self.announced.len() < ANNOUNCED
    }

    /// Whether payload is missing.
    pub(crate) fn wants(&self) -> bool {
        self.want > 0
    }

    /// Whether the GPU works on what has come, or chunks wait to be reported.
    pub(crate) fn busy(&self) -> bool {
        !self.running.is_empty() || self.open.is_some() || self.announced.front().is_some_and(|h| h.len.get() == 0)
    }

    /// Reads and puts in place what has come, within bounds. Returns whether anything did.
    pub(crate) fn poll(&mut self, socket: &mut dyn Socket, sink: &mut dyn Sink) -> Result<bool, Fault> {
        let mut active = self.reap(sink, false)?;
        if let Some(kept) = &mut self.kept {
            kept.release(&mut self.tokens);
        }
        let (mut total, mut reads, mut dry) = (0, 0, false);
        let mut end = None;
        self.begin(sink)?;
        while self.want > 0 && total < POLL_MOST && reads < READS {
            match self.receive(socket, sink)? {
                None => {
                    dry = true;
                    break;
                }
                Some(0) => {
                    end = Some(Fault::End { inside: true });
                    break;
                }
                Some(n) => (total, reads, active) = (total + n, reads + 1, true),
            }
        }
        if dry && self.held() * 4096 * SCARCE.1 > self.pool_len() * SCARCE.0 {
            self.counts.scarce += 1;
        }
        // Nothing else runs and nothing more comes: then it is not worth waiting for the rest of the batch. And pages that
        // are never given back might be the very ones that the rest needs.
        if (dry || end.is_some() || self.want == 0) && self.open.is_some() && self.running.is_empty() {
            self.close(None)?;
        }
        active |= self.reap(sink, end.is_some())?;
        self.return_tokens(socket)?;
        self.held();
        end.map_or(Ok(active), Err)
    }

    /// Pieces of the pool that all streams hold; these are told of ours.
    pub(crate) fn held(&mut self) -> u64 {
        let Some(pool) = &self.pool else { return 0 };
        let more = self.counts.held.wrapping_sub(self.told);
        if more == 0 {
            return pool.held.load(Relaxed);
        }
        self.told = self.counts.held;
        pool.held.fetch_add(more, Relaxed).wrapping_add(more)
    }

    fn pool_len(&self) -> u64 {
        self.pool.as_ref().map_or(0, |p| p.mem.len() as u64)
    }

    /// One call: the bytes that it brought. `None`: nothing has come, or every buffer is in use.
    fn receive(&mut self, socket: &mut dyn Socket, sink: &mut dyn Sink) -> Result<Option<usize>, Fault> {
        if let (None, Some(Current { place: Some(place), .. })) = (&self.pool, &self.current)
            && place.is_host()
        {
            // Nothing is bound: all comes as host data, and there is one place for it.
            let len = self.assembly.left().min(STRAIGHT as u64);
            let part = place.sub(self.assembly.placed(), len).unwrap_or(MemSlice::NONE);
            let got = socket.receive(part, &mut self.control).map_err(Fault::System)?;
            let Some(got) = got else { return Ok(None) };
            self.digest(got.bytes, got.control, None, sink)?;
            return Ok(Some(got.bytes));
        }
        let Some((slot, linear)) = self.linears.free() else { return Ok(None) };
        let len = self.want.min(LINEAR as u64);
        let part = linear.sub(0, len).unwrap_or(MemSlice::NONE);
        let got = socket.receive(part, &mut self.control).map_err(Fault::System)?;
        let Some(got) = got else { return Ok(None) };
        self.digest(got.bytes, got.control, Some((slot, linear)), sink)?;
        Ok(Some(got.bytes))
    }

    /// Puts what one call has brought in place. Without a buffer the bytes are in place already.
    fn digest(
        &mut self,
        received: usize,
        control: usize,
        linear: Option<(usize, MemSlice)>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        // Taken out so that it can be read while everything else changes; no memory is allocated by that.
        let bytes = std::mem::take(&mut self.control);
        let result = self.digest_all(received, bytes.as_bytes().get(..control).unwrap_or_default(), linear, sink);
        self.control = bytes;
        result
    }

    fn digest_all(
        &mut self,
        received: usize,
        control: &[u8],
        linear: Option<(usize, MemSlice)>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        self.assembly.call();
        for fragment in fragments(received, control) {
            let mut rest = Some(fragment?);
            self.split = None;
            let mut first = true;
            if let Some(Fragment::Device { .. }) = rest {
                self.counts.held += 1;
            }
            if let Some(Fragment::Device { len: 0, token, .. }) = rest {
                self.tokens.push(token);
                continue;
            }
            while let Some(fragment) = rest {
                if fragment.is_empty() {
                    break;
                }
                let (part, then) = fragment.split(self.space(sink)?);
                let whole = then.is_none() || planted::is(Bug::SplitToken);
                self.place(part, (first, whole), linear, sink)?;
                (rest, first) = (then, false);
                if self.assembly.complete() {
                    self.complete(sink)?;
                }
            }
        }
        Ok(())
    }

    /// Bytes of the current chunk that may be placed with one fragment.
    fn space(&mut self, sink: &mut dyn Sink) -> Result<u32, Fault> {
        self.begin(sink)?;
        if self.current.is_none() {
            return Err(Fault::Violation(Violation("payload that no head has announced".into())));
        }
        let mut most = self.assembly.left();
        if let (Some(device), Some(run_slot)) = (&self.device, self.open) {
            let space = device.lanes[run_slot].space(self.assembly.placed());
            if space > 0 {
                return Ok(u32::try_from(most.min(space)).unwrap_or(u32::MAX));
            }
            self.close(None)?;
        }
        most = most.min(TO_HOST as u64);
        Ok(u32::try_from(most).unwrap_or(u32::MAX))
    }

    /// Places a part of a fragment; `first`: nothing of the fragment came before it; `whole`: nothing comes after it.
    fn place(
        &mut self,
        part: Fragment,
        (first, whole): (bool, bool),
        linear: Option<(usize, MemSlice)>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        if self.leave(part, whole)? {
            self.want -= u64::from(part.len());
            return Ok(());
        }
        let place = self.current.as_ref().and_then(|c| c.place);
        let on_host = place.is_none_or(MemSlice::is_host);
        // What follows bytes that the GPU still brings waits for its turn.
        let behind = self.pool.is_some() && (self.open.is_some() || !self.running.is_empty());
        let behind = behind && !planted::is(Bug::HostAhead);
        let needs_lane = place.is_some() && (matches!(part, Fragment::Device { .. }) || !on_host || behind);
        loop {
            let run_slot = if needs_lane { Some(self.run_slot(sink)?) } else { None };
            let placed = match (run_slot, &mut self.device) {
                (Some(run_slot), Some(device)) => self.assembly.place(part, Some(&mut device.lanes[run_slot].batch)),
                _ => self.assembly.place(part, None),
            };
            let ours = self.pool.as_ref().map_or(0, |p| p.id);
            match placed {
                Ok(Placed::Device { token }) => {
                    self.counts.device += u64::from(part.len());
                    match (run_slot, &mut self.device) {
                        (Some(run_slot), Some(device)) if whole => match self.split {
                            // NCCL reads the page too: it goes back when both are done.
                            Some(number) if !planted::is(Bug::SharedEarly) => {
                                device.lanes[run_slot].shared.push((number, token));
                            }
                            _ => device.lanes[run_slot].tokens.push(token),
                        },
                        (None, device) if whole => {
                            // A run may still read what came before in the page.
                            let run = if first { None } else { self.running.iter().rev().find_map(|run| run.run_slot) };
                            let run = run.zip(device.as_mut()).map(|(run, device)| &mut device.lanes[run]);
                            match (run, self.split, &mut self.kept) {
                                (Some(run), Some(number), _) => run.shared.push((number, token)),
                                (Some(run), None, _) => run.tokens.push(token),
                                (None, Some(number), Some(kept)) => kept.keep(number, token, &mut self.tokens),
                                (None, _, _) => self.tokens.push(token),
                            }
                        }
                        _ => {}
                    }
                }
                Ok(Placed::Host { from, to, len }) => self.host_bytes(place, run_slot, linear, (from, to, len))?,
                Err(Unplaced::Full) => {
                    self.close(None)?;
                    continue;
                }
                Err(why) => return Err(unplaced(why, ours)),
            }
            if let (Some(run_slot), Some(device)) = (run_slot, &mut self.device) {
                device.lanes[run_slot].grown(self.assembly.placed());
            }
            self.want -= u64::from(part.len());
            return Ok(());
        }
    }

    /// Leaves a part of a fragment to NCCL's kernel, where the chunk is of a receive that it puts in place.
    fn leave(&mut self, part: Fragment, whole: bool) -> Result<bool, Fault> {
        let Fragment::Device { offset, len, token, .. } = part else { return Ok(false) };
        let (Some(kept), Some(pool)) = (&mut self.kept, &self.pool) else { return Ok(false) };
        let Some(Current { receive: Some(number), place: Some(place), .. }) = self.current else { return Ok(false) };
        let inside = offset.checked_add(len.into()).is_some_and(|end| end <= pool.mem.len() as u64);
        if !inside || !kept.has_space(number) {
            return Ok(false);
        }
        let (to, mut assembly) = (self.assembly.placed(), self.assembly);
        assembly.place(part, None).map_err(|why| unplaced(why, pool.id))?;
        if !kept.push(number, pool.mem.as_ptr() as u64 + offset, len, place.as_ptr() as u64 + to) {
            return Ok(false);
        }
        self.assembly = assembly;
        self.counts.device += u64::from(len);
        let last = self.split.map_or(number, |earlier| earlier.max(number));
        self.split = Some(last);
        if whole {
            kept.keep(last, token, &mut self.tokens);
        }
        Ok(true)
    }

    /// Bytes of the call's own buffer go to their place.
    fn host_bytes(
        &mut self,
        place: Option<MemSlice>,
        run_slot: Option<usize>,
        linear: Option<(usize, MemSlice)>,
        (from, to, len): (usize, u64, u32),
    ) -> Result<(), Fault> {
        let (Some(place), Some((slot, buffer))) = (place, linear) else {
            self.counts.host += u64::from(len);
            return Ok(());
        };
        let (Some(src), Some(dst)) = (buffer.sub(from as u64, len.into()), place.sub(to, len.into())) else {
            return Err(Fault::Violation(Violation("payload beyond its place".into())));
        };
        match (run_slot, &mut self.device) {
            (Some(run_slot), Some(device)) if !place.is_host() => {
                self.counts.copied += u64::from(len);
                device.lanes[run_slot].copy_in(dst, src)?;
                self.linears.hold(slot, &mut device.lanes[run_slot].linears);
            }
            (Some(run_slot), Some(device)) => {
                self.counts.host += u64::from(len);
                let kept = device.lanes[run_slot].keep(src, to);
                debug_assert!(kept);
            }
            _ => {
                self.counts.host += u64::from(len);
                let copied = src.copy_to_host(dst);
                debug_assert!(copied);
            }
        }
        Ok(())
    }

    /// Makes the next announced chunk the current one, and reports those of no bytes.
    fn begin(&mut self, sink: &mut dyn Sink) -> Result<(), Fault> {
        while self.current.is_none() {
            let Some(head) = self.announced.pop_front() else { return Ok(()) };
            while self.running.len() >= PLACED {
                self.reap_one(sink, true)?;
            }
            let place = sink.place(&head)?;
            let want = head.len.get() as usize;
            if let Some(place) = place.filter(|p| p.len() != want) {
                return Err(Fault::MemoryDomain { want, got: place.len() });
            }
            if let Some(place) = place.filter(|p| !p.is_host() && !p.is_empty()) {
                self.covers(place)?;
            }
            self.assembly.begin(want as u64);
            let on_device = place.filter(|p| !p.is_host() && !p.is_empty());
            let receive = self.kept.as_ref().zip(on_device).and_then(|(kept, place)| kept.queue().of(place));
            self.current = Some(Current { head, place, receive });
            if want == 0 {
                self.complete(sink)?;
            }
        }
        Ok(())
    }

    /// Whether this memory is our device's.
    fn covers(&self, mem: MemSlice) -> Result<(), GpuError> {
        let gpu = &self.device.as_ref().ok_or(GpuError::NotAttached)?.gpu;
        if mem.place() == gpu.place() {
            return Ok(());
        }
        let (device, why) = (gpu.info().id(), "it is memory of another device than the connection's");
        Err(GpuError::Range { device, addr: mem.as_ptr() as u64, len: mem.len(), why })
    }

    /// The current chunk has all of its bytes.
    fn complete(&mut self, sink: &mut dyn Sink) -> Result<(), Fault> {
        let Some(current) = self.current.take() else { return Ok(()) };
        if self.open.is_none() && self.running.is_empty() {
            return Ok(sink.landed(&current.head)?);
        }
        self.close(Some(current.head))
    }

    /// The open run's lane, or a free one, for which older ones are waited for where need be.
    fn run_slot(&mut self, sink: &mut dyn Sink) -> Result<usize, Fault> {
        if let Some(run_slot) = self.open {
            return Ok(run_slot);
        }
        loop {
            let device = self.device.as_mut().ok_or(GpuError::NotAttached)?;
            if let Some(free) = device.free.pop() {
                let place = self.current.as_ref().and_then(|c| c.place).unwrap_or(MemSlice::NONE);
                device.lanes[free].begin(place, self.assembly.placed())?;
                self.open = Some(free);
                return Ok(free);
            }
            self.reap_one(sink, true)?;
        }
    }

    /// The open run is full, or its chunk ends: the GPU begins.
    fn close(&mut self, ends: Option<Head>) -> Result<(), Fault> {
        let run_slot = self.open.take();
        if let (Some(run_slot), Some(device)) = (run_slot, &mut self.device) {
            let pool = self.pool.as_ref().map_or(MemSlice::NONE, |p| p.mem);
            device.lanes[run_slot].start(pool)?;
            if planted::is(Bug::TokensEarly) {
                device.lanes[run_slot].tokens.drain(..).for_each(|token| self.tokens.push(token));
            }
            if planted::is(Bug::ReusedEarly) {
                self.linears.release(&mut device.lanes[run_slot].linears);
            }
        }
        self.running.push_back(Run { run_slot, ends });
        Ok(())
    }

    /// Reports the oldest run if it is done, or waits for that. False: nothing to report.
    fn reap_one(&mut self, sink: &mut dyn Sink, wait: bool) -> Result<bool, Fault> {
        let Some(run) = self.running.front() else { return Ok(false) };
        if let (Some(n), Some(device)) = (run.run_slot, &mut self.device) {
            let run_slot = &mut device.lanes[n];
            if !run_slot.done(wait)? && !planted::is(Bug::LandedEarly) {
                return Ok(false);
            }
            run_slot.finish();
            for token in run_slot.tokens.drain(..) {
                self.tokens.push(token);
            }
            for (number, token) in run_slot.shared.drain(..) {
                match &mut self.kept {
                    Some(kept) => kept.keep(number, token, &mut self.tokens),
                    None => self.tokens.push(token),
                }
            }
            self.linears.release(&mut run_slot.linears);
            device.free.push(n);
        }
        if let Some(Run { ends: Some(head), .. }) = self.running.pop_front() {
            sink.landed(&head)?;
        }
        Ok(true)
    }

    /// Reports what is done, in order; `all` waits for everything.
    pub(crate) fn reap(&mut self, sink: &mut dyn Sink, all: bool) -> Result<bool, Fault> {
        let mut any = false;
        while self.reap_one(sink, all)? {
            any = true;
        }
        Ok(any)
    }

    /// Gives pages back that are no longer needed.
    fn return_tokens(&mut self, socket: &mut dyn Socket) -> Result<(), Fault> {
        let mut runs = [TokenRun { start: 0, count: 0 }; RUNS];
        while self.tokens.waiting() > 0 {
            let n = self.tokens.next(&mut runs);
            let tokens: u64 = runs[..n].iter().map(|r| u64::from(r.count)).sum();
            let freed = socket.give_back(&runs[..n]);
            let freed = freed.map_err(|source| Error::System { call: "giving pages back", source })?;
            if freed == 0 || !self.tokens.freed(freed) {
                return Err(Error::Tokens { tokens }.into());
            }
            self.counts.held = self.counts.held.saturating_sub(freed);
        }
        Ok(())
    }

    /// Waits until the GPU reads no page and writes no place any more. Pages that NCCL's kernels have yet to read stay as they are.
    pub(crate) fn finish(&mut self) {
        for run_slot in self.device.iter_mut().flat_map(|d| &mut d.lanes) {
            run_slot.settle();
        }
        self.counts.held = 0;
        self.held();
        if let (Some(kept), Some(pool), Some(device)) = (self.kept.take(), self.pool.take(), &self.device) {
            kept.end(pool, &*device.gpu);
        }
    }
}

/// A fragment that has no place.
fn unplaced(why: Unplaced, ours: u32) -> Fault {
    match why {
        Unplaced::Foreign { dmabuf } => Error::Fragment { offset: 0, dmabuf, ours }.into(),
        Unplaced::Outside { offset } => Error::Fragment { offset, dmabuf: ours, ours }.into(),
        Unplaced::Beyond { .. } | Unplaced::Full => Fault::Violation(Violation("payload beyond its chunk".into())),
    }
}

#[cfg(test)]
mod tests;
