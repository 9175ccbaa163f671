//! The rail.

use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_proto::head::{EAGER_MAX, HEAD_LEN};
use linkspan_proto::{Head, Kind};
use linkspan_transport::{
    Buf, Busy, Caps, DeviceReach, Down, End, Health, HostBuf, MemSlice, Poll, Rail, RailInfo, Registrar, Sink, WaitFd,
};
use linkspan_verbs_sys::{Completion, Cq, GidEntry, Nic, Port, PostError, Qp, RecvWr, Status};

use crate::cache::{Cache, Registered, is_short};
use crate::frame::{FRAME_LEN, Frame, SLOT, Say};
use crate::rx::{RECV, Rx, unregistered};
use crate::tx::{CHUNKS, Ring, Tx};
use crate::{Config, Domain};

/// Completions taken per poll.
const BATCH: usize = 32;

/// Idle polls between looks at the clock.
const LOOK: u32 = 256;

/// Chunks that are sent at a time where no more memory may be locked: what comes needs some too, or both sides would wait for each
/// other's places.
const SHORT: usize = 4;

/// How long a rail whose path is dead waits when it closes.
const DEAD_WAIT: Duration = Duration::from_millis(100);

/// A peer whose card does not answer for so many times [`Config::ask_after`] is not reached.
const UNANSWERED: u32 = 10;

/// What a rail has done, for tests of cost and for statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lists of requests handed to the device.
    pub doorbells: u64,
    /// Requests.
    pub requests: u64,
    /// ... that report.
    pub signalled: u64,
    /// ... of which at the end of a message, because nothing else that reports was under way.
    pub alone: u64,
    /// Completions taken.
    pub completions: u64,
    /// Control messages.
    pub frames: u64,
    /// Chunks written.
    pub chunks: u64,
    /// ... without asking for their place.
    pub direct: u64,
    /// ... that asked.
    pub asked: u64,
    /// Writes of nothing, to see whether the peer lives.
    pub probes: u64,
}

/// The transport.
pub(crate) const NAME: &str = "verbs";

/// A rail over one queue pair.
///
/// Dropping it sends GOAWAY, waits at most [`Config::close_wait`](field@Config::close_wait) for what was sent last to be acknowledged, and destroys
/// the queue pair: from then on nothing the peer sends lands.
pub struct VerbsRail<N: Nic> {
    // Dropped from the top: the queue pair before its queue, both before the memory they use.
    qp: N::Qp,
    cq: N::Cq,
    mr: N::Mr,
    ring: MemSlice,
    _memory: HostBuf,
    cache: Cache<N>,
    tx: Tx<N::Mr>,
    rx: Rx<N::Mr>,
    base: usize,
    port: u8,
    /// The address it sends from, and how often addresses had changed when that was last seen to be there.
    entry: Option<GidEntry>,
    addresses: u64,
    info: RailInfo,
    ask_after: Duration,
    close_wait: Duration,
    /// That memory is not kept registered was told, and that no more may be locked.
    told: [bool; 2],
    end: Option<End>,
    /// Completions taken by [`Rail::arm`] and not looked at.
    stash: [Completion; BATCH],
    stashed: usize,
    idle: u32,
    /// Completions, each of which is a frame of the peer, or of the next card on the way an acknowledgement; and a time before which the
    /// last of them did not come.
    heard: (u64, Instant),
    /// When that was looked at last.
    looked: Instant,
    /// When the peer was asked last.
    asked: Instant,
}

impl<N: Nic> VerbsRail<N> {
    pub(crate) fn new(
        domain: Domain<N>,
        config: Config,
        (port, entry): (Port, Option<GidEntry>),
        path: String,
        (qp, cq, mr, (ring, memory)): (N::Qp, N::Cq, N::Mr, (MemSlice, HostBuf)),
        own: u16,
        peer: u16,
    ) -> VerbsRail<N> {
        let caps = Caps {
            one_sided: true,
            device_memory: false,
            // Chunks that ask are overtaken by control messages.
            ordered: false,
            chunk: config.chunk.max(1),
            speed: port.speed,
            local: false,
            tells_end: false,
        };
        let close_wait = config.close_wait();
        let mut info = RailInfo::new(NAME, path, config.reason, caps);
        // The path names the device; the port is on an interface.
        if !config.interface.is_empty() {
            info.interface = config.interface;
        }
        let qp_caps = qp.caps();
        VerbsRail {
            tx: Tx::new(qp_caps.send, qp_caps.inline, port.max_message, own, peer),
            rx: Rx::new(own),
            base: usize::from(own) * SLOT,
            port: config.port,
            entry,
            addresses: 0,
            qp,
            cq,
            mr,
            ring,
            _memory: memory,
            cache: Cache::new(domain),
            info,
            ask_after: config.ask_after,
            close_wait,
            told: [false; 2],
            end: None,
            stash: [Completion::NONE; BATCH],
            stashed: 0,
            idle: 0,
            heard: (0, Instant::now()),
            looked: Instant::now(),
            asked: Instant::now(),
        }
    }

    /// Posts every receive of the ring for the first time.
    pub(crate) fn post_ring(qp: &mut N::Qp, mr: &N::Mr, slots: u16) -> Result<(), PostError> {
        let list: Vec<RecvWr> = (0..slots).map(|slot| Rx::request(mr, slot, 0)).collect();
        qp.post_recv(&list)
    }

    /// Number of its queue pair.
    pub fn qpn(&self) -> u32 {
        self.qp.number()
    }

    /// The device it is on, with its memory.
    pub fn domain(&self) -> &Domain<N> {
        self.cache.domain()
    }

    /// Receives of its ring.
    pub(crate) fn slots(&self) -> usize {
        self.base / SLOT
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.tx.counts
    }

    fn down(&self, end: &End) -> Down {
        end.down(&self.info.path)
    }

    #[cold]
    fn ended(&mut self, end: End) -> Down {
        let end = self.end.get_or_insert(end).clone();
        self.down(&end)
    }

    fn complete<I: Sink + ?Sized>(&mut self, completion: &Completion, sink: &mut I) -> Result<(), End> {
        if completion.status != Status::Success {
            return Err(fault(completion.status));
        }
        self.tx.counts.completions += 1;
        if completion.id & RECV == 0 {
            self.tx.completed(completion.id);
            return Ok(());
        }
        match self.rx.take(self.ring, &self.mr, completion.id, completion.bytes as usize) {
            Some(len) => self.frame(len, sink),
            None => Ok(()), // told twice
        }
    }

    /// A frame is in the scratch buffer.
    fn frame<I: Sink + ?Sized>(&mut self, len: usize, sink: &mut I) -> Result<(), End> {
        let bytes = std::mem::take(&mut self.rx.scratch);
        let result = self.read(&bytes[..len], sink);
        self.rx.scratch = bytes;
        result
    }

    fn read<I: Sink + ?Sized>(&mut self, bytes: &[u8], sink: &mut I) -> Result<(), End> {
        let (frame, say, rest) = Frame::decode(bytes).map_err(End::Protocol)?;
        self.tx.credited(frame.credits.get()).map_err(End::Protocol)?;
        let id = frame.id.get();
        let place = (frame.addr.get(), frame.rkey.get(), frame.len.get());
        let (head, body) = match rest.split_first_chunk::<HEAD_LEN>() {
            Some((head, body)) if say.has_head() => {
                let (head, kind) = Head::decode(head).map_err(|bad| End::Protocol(bad.to_string()))?;
                if kind.is_payload() != (say != Say::Ctrl) {
                    return Err(End::Protocol(format!("{kind:?} in a frame of {say:?}")));
                }
                (head, body)
            }
            _ => (Head::new(Kind::GoAway), rest),
        };
        let done = match say {
            Say::Ctrl => {
                if body.len() != head.len.get() as usize {
                    return Err(End::Protocol(format!(
                        "{} bytes of body, the head says {}",
                        body.len(),
                        head.len.get()
                    )));
                }
                if place.2 > 0 && head.kind == Kind::Grant as u8 && head.id.get() == id {
                    self.tx.granted(id, place.0, place.1, place.2);
                }
                sink.ctrl(&head, body).map_err(|v| v.0)
            }
            Say::Ask | Say::Written => {
                let ask = (say == Say::Ask).then_some(id);
                let (cache, tx) = (&mut self.cache, &self.tx);
                return self.rx.came(sink, ask, &head, || tx.has_placed(), |mem| cache.get(mem, true));
            }
            Say::Place => self.tx.answered(id, Some(place)),
            Say::Nowhere => self.tx.answered(id, None),
            Say::Landed => self.rx.landed(sink, id),
            Say::Granted => {
                self.tx.granted(id, place.0, place.1, place.2);
                Ok(())
            }
            Say::Credit => Ok(()),
            Say::Close => return Err(End::Gone("it closed the rail".into())),
        };
        done.map_err(End::Protocol)
    }

    /// Whether what came is the peer's last word.
    fn is_goaway(&mut self, completion: &Completion) -> bool {
        let len = self.rx.take(self.ring, &self.mr, completion.id, completion.bytes as usize);
        len.is_some_and(|len| matches!(Frame::decode(&self.rx.scratch[..len]), Ok((_, Say::Close, _))))
    }

    /// Posts receives again, all but `held`: the peer sends no more control messages than there are.
    fn repost(&mut self, held: usize) -> Result<(), End> {
        let free = self.rx.repost().len().saturating_sub(held);
        if free == 0 {
            return Ok(());
        }
        let (n, fault) = match self.qp.post_recv(&self.rx.repost()[..free]) {
            Ok(()) => (free, None),
            Err(PostError { taken, errno }) => (taken, Some(End::System("ibv_post_recv", errno))),
        };
        self.rx.reposted(n);
        self.tx.owe(n as u16).map_err(End::Protocol)?;
        fault.map_or(Ok(()), Err)
    }

    /// Looks at the clock now and then: a peer that is silent is asked.
    fn look(&mut self) {
        self.idle += 1;
        if self.idle < LOOK {
            return;
        }
        self.idle = 0;
        let now = Instant::now();
        if self.heard.0 != self.tx.counts.completions {
            self.heard = (self.tx.counts.completions, self.looked);
        } else if now.duration_since(self.heard.1.max(self.asked)) >= self.ask_after && !self.tx.probing() {
            self.tx.probe();
            self.asked = now;
        }
        self.looked = now;
    }

    /// [`Rail::poll`], but for [`VerbsRail::take_more`]; also for a sink that cannot always take more.
    pub(crate) fn take_in<I: Sink + ?Sized>(&mut self, sink: &mut I) -> Result<Poll, Down> {
        let mut list = [Completion::NONE; BATCH];
        let n = match std::mem::take(&mut self.stashed) {
            0 => match self.cq.poll(&mut list) {
                Ok(n) => n,
                Err(e) => return Err(self.ended(End::System("ibv_poll_cq", e.os().unwrap_or(0)))),
            },
            n => {
                list[..n].copy_from_slice(&self.stash[..n]);
                n
            }
        };
        if n == 0 {
            if let Some(end) = &self.end {
                return Err(self.down(end));
            }
            if self.tx.unreported() && !self.tx.probing() {
                self.tx.probe();
                self.asked = Instant::now();
            }
            self.look();
            return Ok(Poll::Idle);
        }
        for completion in &list[..n] {
            if let Err(end) = self.complete(completion, sink) {
                return Err(self.ended(end));
            }
        }
        Ok(Poll::Active)
    }

    /// Places for the chunks for which the sink is ready by now, and receives for all but the `held` messages that it keeps.
    pub(crate) fn take_more<I: Sink + ?Sized>(&mut self, sink: &mut I, held: usize) -> Result<(), Down> {
        if self.end.is_some() {
            return Ok(());
        }
        let (cache, tx) = (&mut self.cache, &self.tx);
        let seated = match self.rx.waits() {
            true => self.rx.assign(sink, || tx.has_placed(), |mem| cache.get(mem, true)),
            false => Ok(()),
        };
        seated.and_then(|()| self.repost(held)).map_err(|end| self.ended(end))
    }

    /// Whether the peer's card has not answered for so long that the path is dead, though our own goes on trying.
    fn unanswered(&self) -> bool {
        self.tx.probing() && self.asked.elapsed() >= UNANSWERED * self.ask_after
    }

    /// Looks at the clock at once; for callers that sleep between polls.
    fn look_now(&mut self) {
        self.idle = LOOK;
        self.look();
    }
}

/// Borrows the ring beside the sending half.
macro_rules! ring {
    ($self:ident) => {
        &Ring { mem: $self.ring, mr: &$self.mr, base: $self.base }
    };
}

#[allow(unsafe_code)]
// SAFETY: work requests name registered memory until their completion; dropping the queue pair ends what the device does before `drop` returns (`Qp`).
unsafe impl<N: Nic> Rail for VerbsRail<N> {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn into_any(self: Box<Self>) -> Option<Box<dyn std::any::Any + Send>> {
        Some(self)
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        debug_assert!(head.len.get() as usize == body.len() && body.len() <= EAGER_MAX);
        if self.end.is_some() {
            return Err(Busy);
        }
        self.tx.ctrl(ring!(self), head, body).map_err(|_| Busy)
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        debug_assert!(head.len.get() as usize == src.len());
        let most = if self.cache.short { SHORT } else { CHUNKS };
        if self.end.is_some() || !self.tx.takes(src) || self.tx.chunks() >= most {
            return Err(Busy);
        }
        match self.cache.get(src, false) {
            Ok(region) => Ok(self.tx.data(ring!(self), head, src, region)),
            // Those under way need nothing more, and the memory is free again when they are gone.
            Err(error) if is_short(&error) && (self.tx.chunks() > 0 || self.rx.is_arriving()) => Err(Busy),
            Err(error) => {
                self.end = Some(unregistered(&error));
                Err(Busy)
            }
        }
    }

    fn taken(&self) -> u64 {
        self.tx.taken()
    }

    fn prepare(&mut self, mem: MemSlice, target: bool) {
        // Where it fails, the chunk that needs it says so. One that has no space now comes again.
        let first = mem.sub(0, (mem.len() as u64).min(self.info.caps.chunk as u64)).unwrap_or(mem);
        if self.end.is_none() && !mem.is_empty() && (target || self.tx.takes(first)) {
            self.cache.prepare(mem, target);
        }
    }

    fn granted(&mut self, id: u32, mem: MemSlice) {
        if mem.is_empty() {
            self.rx.forget(id);
        } else if self.end.is_none()
            && self.rx.is_untold(id)
            && let Some(region) = self.cache.ahead(mem, true)
            && self.tx.tell(id, mem.as_ptr() as u64, region.keys().rkey(), mem.len() as u64)
        {
            self.rx.told(id, region);
        }
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        if let Some(end) = &self.end {
            return Err(self.down(end));
        }
        self.tx.gather(ring!(self), &mut self.rx.replies);
        match self.tx.post(&mut self.qp) {
            Ok(true) => Ok(Poll::Active),
            Ok(false) => Ok(Poll::Idle),
            Err(errno) => Err(self.ended(End::System("ibv_post_send", errno))),
        }
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        let moved = self.take_in(sink)?;
        self.take_more(sink, 0)?;
        Ok(moved)
    }

    fn stalled(&mut self) -> bool {
        self.look_now();
        // Long after the device should have given up: it goes on trying, or its timeout was set to be long.
        if self.unanswered() {
            return true;
        }
        let domain = self.cache.domain();
        let Some(addresses) = domain.watch() else { return true };
        if addresses != self.addresses
            && let Some(own) = self.entry
        {
            let kept = |table: Vec<GidEntry>| table.iter().any(|e| (e.index, e.gid) == (own.index, own.gid));
            if !domain.nic().gids(self.port).is_ok_and(kept) {
                return true;
            }
        }
        self.addresses = addresses;
        !domain.nic().port(self.port).is_ok_and(|port| port.active)
    }

    fn closed_by_peer(&mut self) {
        // Nobody acknowledges anything there.
        self.end.get_or_insert(End::Gone("it has closed its end".into()));
    }

    fn abandon(&mut self) {
        self.close_wait = self.close_wait.min(DEAD_WAIT);
    }

    fn health(&self) -> Health {
        let (counted, last) = self.heard;
        let heard = if counted == self.tx.counts.completions { last } else { self.looked };
        Health { dead: self.unanswered(), heard: Some(heard.elapsed()), ..Health::default() }
    }

    /// That some memory is registered over and over, or must wait, each once.
    fn event(&mut self) -> Option<String> {
        let path = &self.info.path;
        if self.cache.short && !std::mem::replace(&mut self.told[1], true) {
            return Some(format!(
                "{path}: no more memory may be locked (`ulimit -l`), so that large messages are registered in pieces that wait for those before them, \
                 which is slower"
            ));
        }
        let first = self.cache.unkept && !std::mem::replace(&mut self.told[0], true);
        first.then(|| {
            format!(
                "{path}: some memory is registered for each chunk anew, which is slower: nothing tells when it goes (a file that was mapped \
                 by other means than `Memory::map`, shared memory, or the process has half of the mappings that vm.max_map_count lets it have)"
            )
        })
    }

    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        Some(Arc::new(self.cache.domain().clone()))
    }

    fn reach(&self) -> Option<Box<dyn DeviceReach>> {
        Some(Box::new(Registered::new(self.cache.domain().clone())))
    }

    fn arm(&mut self) -> Option<WaitFd> {
        if self.end.is_some() || self.stashed > 0 || self.tx.pending() || self.tx.unreported() {
            return None;
        }
        self.cq.calm();
        self.cq.arm().ok()?;
        // What came before it was armed raises no event.
        self.stashed = self.cq.poll(&mut self.stash).ok()?;
        (self.stashed == 0).then(|| WaitFd { fd: self.cq.fd(), read: true, write: false })
    }
}

impl<N: Nic> Drop for VerbsRail<N> {
    fn drop(&mut self) {
        if self.end.is_some() {
            return;
        }
        let wait = if self.stalled() { self.close_wait.min(DEAD_WAIT) } else { self.close_wait };
        self.tx.close(ring!(self));
        let since = Instant::now();
        // What was read when it was armed comes first.
        let (mut list, mut read) = (self.stash, Some(self.stashed));
        while self.tx.post(&mut self.qp).is_ok() && self.tx.outstanding() && since.elapsed() < wait {
            let Ok(n) = read.take().map_or_else(|| self.cq.poll(&mut list), Ok) else { return };
            for completion in &list[..n] {
                if completion.status != Status::Success {
                    return;
                }
                if completion.id & RECV == 0 {
                    self.tx.completed(completion.id);
                } else if self.is_goaway(completion) {
                    return; // the peer does not acknowledge ours
                }
            }
            if n == 0 {
                std::thread::yield_now();
            }
        }
    }
}

fn fault(status: Status) -> End {
    End::Gone(
        match status {
            Status::RetryExceeded => "no acknowledgement after all retries: the path or the process is gone",
            Status::RnrExceeded => "it has no receives posted",
            Status::RemoteAccess => "it refused a write: the key is not valid any more",
            Status::Flushed => "the queue pair broke",
            Status::RemoteInvalid => "it found a request invalid",
            Status::LocalProtection => "memory of ours is not registered any more",
            other => return End::Gone(format!("a request ended with {other:?}")),
        }
        .into(),
    )
}

const _: () = assert!(FRAME_LEN + HEAD_LEN + EAGER_MAX <= SLOT);

#[cfg(test)]
mod tests;
