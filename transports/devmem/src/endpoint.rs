//! The rail.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_gpu::unpack::CopyMode;
use linkspan_gpu::{CHUNK, Gpu, GpuError, StageMemory};
use linkspan_net::{WaitPair, queued, tcp_info};
use linkspan_proto::Head;
use linkspan_stream::health::{health, is_stalled};
use linkspan_transport::gpu::DeviceQueue;
use linkspan_transport::{
    Buf, Busy, Caps, Down, End, Health, HostBuf, MemSlice, MemoryDomain, Poll, Rail, RailInfo, Registrar, Sink, WaitFd,
    peer_gone,
};

use crate::notices::{NoticeSink, announcement};
use crate::rx::{Fault, Intake, Means};
use crate::tx::{Outgoing, Trouble};
use crate::{Error, Socket};

/// What the fabric knows of a rail beyond its streams.
#[derive(Clone, Default)]
pub struct RailConfig {
    /// Why this path was taken.
    pub reason: String,
    /// How received pieces are put in place; `None`: by measured size.
    pub unpack: Option<CopyMode>,
    /// What pinned memory is taken from.
    pub memory: StageMemory,
    /// A GPU to which payload cannot come directly is an error, not a downgrade.
    pub strict: bool,
    /// What registers memory with the card.
    pub registrar: Option<Arc<dyn Registrar>>,
}

/// Half of how many times there was a lack of pages before it is told first: a rare burst is not worth a message.
const SCARCE_FIRST: u64 = 32;

/// How long no payload may come after the end of the control stream: both end together, and this is some round trips with a loss.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The stream of payload, and what leaves over it.
struct Data {
    out: Outgoing,
    socket: Box<dyn Socket>,
}

impl Drop for Data {
    fn drop(&mut self) {
        self.out.finish();
        if self.out.lent() {
            // Its memory is the owner's again when this returns.
            self.socket.cut();
            self.out.wait_given_back(&mut *self.socket);
        }
    }
}

/// A rail whose payload lands in device memory.
pub struct DevmemRail<C> {
    // In this order they end: the peer sees the end of the control stream first.
    control: C,
    intake: Intake,
    data: Data,
    info: RailInfo,
    config: RailConfig,
    gpu: Option<Arc<dyn Gpu>>,
    wake: WaitPair,
    /// Where a head stands that goes as the body of another.
    body: HostBuf,
    /// Sending payload ended: the peer is gone. What it sent before is still delivered.
    deaf: Option<String>,
    /// The control rail is down, and when something came last since; what came before over the other stream is still delivered.
    control_down: Option<Instant>,
    /// It has been armed, and nothing has come since.
    armed: bool,
    end: Option<End>,
    /// What the user should be told.
    events: VecDeque<String>,
    reported_scarce: u64,
}

impl<C: Rail> DevmemRail<C> {
    /// A rail of two streams between the same hosts, both authenticated. Payload goes over `socket`; heads and control messages
    /// over `control`. The peer has the same pair.
    ///
    /// # Errors
    /// [`Error::System`]: the OS refuses a descriptor.
    pub fn new(control: C, socket: Box<dyn Socket>, config: RailConfig) -> Result<DevmemRail<C>, Error> {
        let wake = WaitPair::new().map_err(|source| Error::System { call: "epoll_create1", source })?;
        let below = control.info();
        let caps = Caps {
            one_sided: false,
            device_memory: true,
            // Payload and control messages come over different streams.
            ordered: false,
            chunk: CHUNK,
            ..below.caps
        };
        let path = format!("{} with {}", below.path, socket.path());
        let info = RailInfo::new("devmem", path, config.reason.clone(), caps);
        Ok(DevmemRail {
            control,
            intake: Intake::new(),
            data: Data { out: Outgoing::new(config.memory.clone()), socket },
            info,
            gpu: None,
            wake,
            body: HostBuf::new(linkspan_proto::head::HEAD_LEN),
            deaf: None,
            control_down: None,
            armed: false,
            end: None,
            events: VecDeque::new(),
            reported_scarce: SCARCE_FIRST,
            config,
        })
    }

    /// Says that device memory is not sent from where it lies.
    fn report_refusal(&mut self) {
        let Some(why) = self.data.out.refused.take() else { return };
        if self.config.strict {
            self.end.get_or_insert(End::Device(format!("{why} (LINKSPAN_STRICT)")));
        }
        self.info.reason = format!("{}; sends through host memory: {why}", self.info.reason);
        self.events.push_back(format!("downgrade: {why}; it is copied to the host and sent from there"));
    }

    /// Payload bytes that the card put into device memory, that were copied to the device from the host, and that went to
    /// the host.
    pub fn landed(&self) -> (u64, u64, u64) {
        let counts = self.intake.counts;
        (counts.device, counts.copied, counts.host)
    }

    /// The rail of heads and control messages.
    pub fn control(&self) -> &C {
        &self.control
    }

    fn down(&self, end: &End) -> Down {
        end.down(&self.info.path)
    }

    #[cold]
    fn ended(&mut self, end: End) -> Down {
        let down = self.down(&end);
        self.end = Some(end);
        down
    }

    #[cold]
    fn fault(&mut self, fault: Fault) -> Down {
        let end = match fault {
            Fault::End { inside: true } => End::Gone("end of stream in the middle of a chunk".into()),
            Fault::End { inside: false } => End::Gone("end of stream".into()),
            Fault::System(e) => End::of_call("recvmsg", &e),
            Fault::Violation(v) => End::Protocol(v.0),
            Fault::MemoryDomain { want, got } => End::Protocol(format!("a chunk of {want} bytes met a place of {got}")),
            Fault::Device(e) => End::Device(with_sources(&e)),
        };
        self.ended(end)
    }

    /// Whether the stream of payload has ended while nobody reads or writes it.
    fn is_reset(&self) -> bool {
        let used = self.intake.wants() || self.data.out.pending() || self.data.out.lent();
        let fd = self.data.socket.fd();
        // What came before waits for its head.
        !used && tcp_info(fd).is_ok_and(|info| info.closed) && queued(fd).is_ok_and(|bytes| bytes == 0)
    }

    fn check(&self) -> Result<(), Down> {
        self.end.as_ref().map_or(Ok(()), |end| Err(self.down(end)))
    }
}

#[allow(unsafe_code)]
// SAFETY: the stream of heads is a rail; payload is sent by `Tx`, which keeps handles until the kernel's notices, and placed by `Rx` until it has landed; the drop cuts the streams.
unsafe impl<C: Rail> Rail for DevmemRail<C> {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        self.control.ctrl(head, body)
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        if !self.data.out.has_space() {
            return Err(Busy);
        }
        if let Err(error) = self.data.out.covers(src) {
            self.end.get_or_insert(End::Device(error.to_string()));
            return Err(Busy);
        }
        let filled = self.body.fill(0, head.as_wire());
        debug_assert!(filled);
        // SAFETY: a body is read within the call.
        let number = self.control.ctrl(&announcement(), unsafe { self.body.slice() })?;
        self.data.out.push(number, src);
        Ok(number)
    }

    fn prepare(&mut self, mem: MemSlice, target: bool) {
        if !target {
            self.data.out.prepare(&mut *self.data.socket, mem);
            self.report_refusal();
        }
    }

    fn taken(&self) -> u64 {
        let control = self.control.taken();
        self.data.out.gone_before().map_or(control, |n| n.min(control))
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        self.check()?;
        if self.control_down.is_some() {
            return Ok(Poll::Idle);
        }
        let mut poll = self.control.flush()?;
        if self.deaf.is_none()
            && (self.data.out.pending() || self.data.out.lent() || self.data.out.gone_before().is_some())
        {
            match self.data.out.flush(&mut *self.data.socket) {
                Ok(true) => {
                    self.report_refusal();
                    poll = Poll::Active;
                }
                Ok(false) => {}
                Err(Trouble::Gpu(e)) => return Err(self.ended(End::Device(e.to_string()))),
                Err(Trouble::Send(e) | Trouble::Recv(e)) => match peer_gone(&e) {
                    Some(why) => {
                        self.deaf = Some(why.into());
                        poll = Poll::Active;
                    }
                    None => return Err(self.ended(End::of_call("sendmsg", &e))),
                },
            }
        }
        Ok(poll)
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        self.check()?;
        let mut poll = Poll::Idle;
        if self.control_down.is_none() && self.intake.open_for_heads() {
            match self.control.poll(&mut NoticeSink { intake: &mut self.intake, sink }) {
                Ok(found) => poll = found,
                Err(Down::PeerGone { .. }) => self.control_down = Some(Instant::now()),
                Err(down) => return Err(down),
            }
        }
        match self.intake.poll(&mut *self.data.socket, sink) {
            Ok(true) => {
                poll = Poll::Active;
                self.control_down = self.control_down.map(|_| Instant::now());
            }
            Ok(false) => {}
            Err(Fault::End { .. } | Fault::System(_)) if self.control_down.is_some() => {
                return Err(self.control_end(sink));
            }
            Err(fault) => {
                let down = self.fault(fault);
                let reaped = self.intake.reap(sink, true);
                return Err(reaped.err().map_or(down, |later| self.fault(later)));
            }
        }
        if poll == Poll::Active || self.intake.busy() {
            self.armed = false;
            return Ok(Poll::Active);
        }
        if let Some(since) = self.control_down
            && (!self.intake.wants() || since.elapsed() > LAST_WORDS)
        {
            return Err(self.control_end(sink));
        }
        if let (Some(why), None) = (&self.deaf, self.control_down) {
            let why = why.clone();
            return Err(self.ended(End::Gone(why)));
        }
        Ok(poll)
    }

    fn arm(&mut self) -> Option<WaitFd> {
        // Woken for nothing: it may be the payload's stream, which is asked for nothing at the moment. One that was reset wakes without end.
        if std::mem::replace(&mut self.armed, true) && self.is_reset() {
            self.deaf.get_or_insert_with(|| "the stream of payload was reset".into());
        }
        let control = self.control.arm();
        let work = self.intake.busy()
            || self.data.out.copying()
            || self.deaf.is_some()
            || self.control_down.is_some()
            || self.end.is_some()
            || self.events.front().is_some();
        let control = control.filter(|_| !work)?;
        let data =
            WaitFd { fd: self.data.socket.fd().as_raw_fd(), read: self.intake.wants(), write: self.data.out.pending() };
        // A set that cannot be made is no reason to sleep forever: the caller looks again.
        self.wake.arm([Some(control), Some(data)]).ok()
    }

    fn stalled(&mut self) -> bool {
        self.control.stalled() || tcp_info(self.data.socket.fd()).is_ok_and(|info| is_stalled(&info))
    }

    fn health(&self) -> Health {
        let control = self.control.health();
        let Ok(data) = tcp_info(self.data.socket.fd()).map(|info| health(&info)) else { return control };
        Health {
            dead: control.dead || data.dead,
            retransmitted: control.retransmitted + data.retransmitted,
            heard: control.heard.into_iter().chain(data.heard).min(),
        }
    }

    fn catch_up(&mut self) {
        self.control.catch_up();
    }

    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        self.config.registrar.clone()
    }

    /// Downgrades, and a lack of pages.
    fn event(&mut self) -> Option<String> {
        let scarce = self.intake.counts.scarce;
        if scarce >= self.reported_scarce * 2 {
            self.reported_scarce = scarce;
            let held = self.intake.held();
            return Some(format!(
                "{}: {held} pieces of device memory wait for the GPU and the card has next to no page left, {scarce} times so \
                 far; what finds none is dropped and sent again (LINKSPAN_DEVMEM_POOL makes the pool larger)",
                self.info.path
            ));
        }
        self.events.pop_front()
    }

    /// Has the card fill memory of this GPU. Where that cannot be, payload comes to the host and is copied from there, and
    /// [`Rail::event`] and the rail's reason say so.
    fn attach(&mut self, gpu: &Arc<dyn Gpu>) -> Result<(), GpuError> {
        if let Some(ours) = &self.gpu {
            return if ours.place() == gpu.place() {
                Ok(())
            } else {
                Err(GpuError::OtherDevice { ours: ours.info().id(), other: gpu.info().id() })
            };
        }
        let device = gpu.info().id();
        // What the card has written is flushed before the GPU looks: one that cannot is not written by the card.
        let (way, memory) = (self.config.unpack, &self.config.memory);
        let able = gpu.flush_writes().and_then(|()| Means::new(gpu, true, way, memory)).map_err(Error::from);
        let bound =
            able.and_then(|means| Ok((means, Some(self.data.socket.bind(gpu)?)))).map_err(|why| with_sources(&why));
        let (means, pool) = match bound {
            Ok(bound) => bound,
            Err(why) if self.config.strict => {
                return Err(GpuError::Unsupported { device, what: "be filled by the network card", why });
            }
            Err(why) => {
                let means = Means::new(gpu, false, way, memory)?;
                self.events.push_back(format!("downgrade: {why}; it comes to the host and is copied to the GPU"));
                self.info.reason = format!("{}; {device} through host memory: {why}", self.info.reason);
                (means, None)
            }
        };
        if let Some(pool) = &pool {
            let (mib, id, reason) = (pool.mem.len() >> 20, pool.id, &self.info.reason);
            self.info.reason = format!("{reason}; payload lands in {mib} MiB of {device}, binding {id}");
        }
        self.intake.attach(gpu, means, pool);
        self.data.out.attach(gpu);
        self.gpu = Some(gpu.clone());
        Ok(())
    }

    fn writes_devices(&self) -> bool {
        self.intake.bound().is_some()
    }

    fn pool(&self) -> Option<(MemoryDomain, u64)> {
        self.intake.bound().map(|pool| (pool.place(), pool.as_ptr() as u64))
    }

    fn offload(&mut self, queue: &Arc<dyn DeviceQueue>) {
        self.intake.offload(queue);
    }
}

impl<C: Rail> DevmemRail<C> {
    /// The end that the control rail told, once everything that came before is delivered.
    #[cold]
    fn control_end(&mut self, sink: &mut dyn Sink) -> Down {
        let reaped = self.intake.reap(sink, true);
        let ended = self.control.poll(&mut NoticeSink { intake: &mut self.intake, sink }).err();
        match (reaped, ended) {
            (Err(fault), _) => self.fault(fault),
            (Ok(_), Some(down)) => down,
            (Ok(_), None) => self.ended(End::Gone("end of stream".into())),
        }
    }
}

impl<C> Drop for DevmemRail<C> {
    fn drop(&mut self) {
        // The GPU first: pages that a closed socket had are the card's again.
        self.intake.finish();
    }
}

/// An error with everything behind it, for one line.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(&format!(": {source}"));
        next = source.source();
    }
    text
}
