//! Tier 1: messages over the ring driver.
//!
//! A rail has two channels. Control messages and the heads of chunks travel on the first, each one message, into receives
//! that were posted before; so does a chunk that fits behind its head. The payload of a longer one is a message on the
//! second, for which the receiver posts the place itself when it has seen the head: the driver moves it from page to page.

mod rx;
mod tx;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_proto::head::{EAGER_MAX, HEAD_LEN};
use linkspan_proto::{Head, Kind};
use linkspan_tbring::{Access, Completion};
use linkspan_transport::{
    Buf, Busy, Caps, DeviceReach, Down, End, HostBuf, MemSlice, Poll, Rail, RailInfo, Registrar, Sink, WaitFd,
};

use crate::cache::{Cache, Held};
use crate::device::RingDevice;
use crate::end::lost;
use crate::rail::{About, CableRail, NAME};
use crate::setup::{Config, NONCE_LEN};
use crate::stream::HELLO;
use rx::Rx;
use tx::Tx;

/// Bytes of a slot: the longest control message, to the next multiple of a cache line.
pub(crate) const SLOT: usize = (HEAD_LEN + EAGER_MAX).next_multiple_of(64);

/// Control messages under way to the peer, and receives posted for the peer's.
pub(crate) const SLOTS: usize = 32;

/// Chunks under way: what a [`Sink`] lets be placed at a time.
pub(crate) const CHUNKS: usize = 64;

/// Longest chunk that travels behind its head, so that both are one short message of the driver.
pub(crate) const INLINE: usize = linkspan_tbring::abi::EAGER_BYTES as usize - HEAD_LEN;

/// Longest chunk: what goes through scratch that stays registered.
pub(crate) const CHUNK: usize = 512 << 10;

/// Completions taken per poll.
const BATCH: usize = 64;

/// How long a rail that closes waits for what it accepted last to leave.
const CLOSE_WAIT: Duration = Duration::from_millis(200);

/// What a completion is of: the highest byte of its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Sent,
    Received,
    DataSent,
    DataReceived,
}

impl Of {
    pub(crate) fn cookie(self, n: u64) -> u64 {
        (self as u64) << 56 | n
    }

    fn split(cookie: u64) -> Option<(Of, u64)> {
        let of = *[Of::Sent, Of::Received, Of::DataSent, Of::DataReceived].get((cookie >> 56) as usize)?;
        Some((of, cookie & ((1 << 56) - 1)))
    }
}

/// The registered memory of a rail: slots to send from, slots to receive into, scratch to receive into, scratch to send from.
pub(crate) struct Slots<D: RingDevice> {
    pub(crate) region: D::Region,
    pub(crate) mem: MemSlice,
    _memory: HostBuf,
}

impl<D: RingDevice> Slots<D> {
    /// Where a slot is: the first [`SLOTS`] are sent from, the next received into.
    pub(crate) fn at(slot: usize) -> u64 {
        (slot * SLOT) as u64
    }

    /// Where scratch is that is received into.
    pub(crate) const SCRATCH: u64 = (2 * SLOTS * SLOT) as u64;

    /// Where scratch is that is sent from: apart, for each side's receiving may wait for the other's sending.
    pub(crate) const SEND_SCRATCH: u64 = Self::SCRATCH + CHUNK as u64;
}

/// What moves bytes: the device, its channels and its memory.
pub(crate) struct RingIo<D: RingDevice> {
    pub(crate) device: D,
    pub(crate) control: u32,
    pub(crate) data: u32,
    pub(crate) slots: Slots<D>,
    pub(crate) cache: Cache<D>,
    /// Something was put since the last doorbell.
    pub(crate) rang: bool,
}

impl<D: RingDevice> RingIo<D> {
    /// The registered memory that holds `mem`; `None`: no more may be locked.
    pub(crate) fn region(&mut self, mem: MemSlice, target: bool) -> Result<Option<Arc<Held<D::Region>>>, End> {
        match self.cache.get(&mut self.device, mem, target) {
            Err(error) if error.errno() == Some(ENOMEM) => Ok(None),
            held => held.map(Some).map_err(lost),
        }
    }

    /// What was put fits always: the queues hold more than all that may be under way.
    pub(crate) fn put(&mut self, put: Result<bool, linkspan_tbring::Error>) -> Result<(), End> {
        self.rang = true;
        match put {
            Ok(true) => Ok(()),
            Ok(false) => Err(End::Gone("the device takes no more than it should hold".into())),
            Err(error) => Err(lost(error)),
        }
    }
}

/// A rail over two channels of the ring driver.
///
/// Dropping it waits a moment for what was accepted to leave, then closes the device, which returns when nothing of it
/// touches memory any more.
pub struct RingRail<D: RingDevice> {
    port: RingIo<D>,
    tx: Tx<D>,
    rx: Rx<D>,
    info: RailInfo,
    /// The device is asked without waiting for its interrupt.
    busy: bool,
    /// It has said hello, and its handshake is not over.
    joining: bool,
    /// That little memory may be locked was told.
    told: bool,
    end: Option<End>,
}

impl<D: RingDevice> RingRail<D> {
    /// Over `device`, whose link is up, on two channels that are open on it. `busy`: ask the device at every poll.
    ///
    /// # Errors
    /// Those of [`linkspan_tbring::Ring::register`], [`linkspan_tbring::Ring::open_channel`] and
    /// [`linkspan_tbring::Ring::receive`].
    pub fn new(
        mut device: D,
        (control, data): (u32, u32),
        path: String,
        reason: String,
        speed: u64,
        busy: bool,
    ) -> Result<RingRail<D>, linkspan_tbring::Error> {
        let memory = HostBuf::new(2 * SLOTS * SLOT + 2 * CHUNK);
        #[allow(unsafe_code)]
        // SAFETY: device and region are dropped before the buffer, by the order of the fields.
        let mem = unsafe { memory.slice() };
        let slots = Slots { region: device.register(mem, Access::Both)?, mem, _memory: memory };
        let cache = Cache::new(&device);
        let mut port = RingIo { device, control, data, slots, cache, rang: false };
        for slot in 0..SLOTS {
            let at = Slots::<D>::at(SLOTS + slot);
            let cookie = Of::Received.cookie(slot as u64);
            port.device.receive(control, &port.slots.region, at, SLOT as u64, cookie)?;
        }
        port.device.doorbell(0, Duration::ZERO, false)?;
        let caps = Caps {
            one_sided: false,
            // Some of it, see `reach`.
            device_memory: false,
            // Payload is overtaken by control messages.
            ordered: false,
            chunk: CHUNK,
            speed,
            local: false,
            tells_end: false,
        };
        let info = RailInfo::new(NAME, path, reason, caps);
        Ok(RingRail { port, tx: Tx::new(), rx: Rx::new(), info, busy, joining: false, told: false, end: None })
    }

    /// The same, for owners of memory who do not say when they unmap it: the kernel does, by userfaultfd; memory of which it
    /// cannot is registered for each operation anew.
    #[must_use]
    pub fn watching(mut self) -> RingRail<D> {
        if let Err(why) = self.port.cache.watch() {
            self.info.reason.push_str(&format!("; memory is registered for each operation anew: {why}"));
        }
        self
    }

    #[cold]
    fn ended(&mut self, end: End) -> Down {
        self.end.get_or_insert(end).down(&self.info.path)
    }

    fn complete(&mut self, done: &Completion, sink: &mut dyn Sink) -> Result<(), End> {
        let Some((of, n)) = Of::split(done.cookie) else {
            return Err(End::Gone("the device reports an operation that was not posted".into()));
        };
        if let Err(code) = done.result {
            return self.failed(of, n, code);
        }
        match of {
            Of::Sent => self.tx.sent(n),
            Of::DataSent => self.tx.data_sent(n),
            Of::Received => self.rx.received(&mut self.port, n, done.length, sink)?,
            Of::DataReceived => self.rx.landed(&mut self.port, n, done.length, sink)?,
        }
        Ok(())
    }

    fn failed(&mut self, of: Of, n: u64, code: i32) -> Result<(), End> {
        match code {
            // The peer has closed: what it sent before comes first, and the receives for control messages tell the end of it.
            EPIPE if of == Of::Received => self.rx.closed(n),
            EPIPE => {
                self.tx.deaf = true;
                self.rx.lost |= of == Of::DataReceived;
                Ok(())
            }
            ENODEV => Err(lost(linkspan_tbring::Error::Gone)),
            EMSGSIZE => Err(End::Protocol("a message longer than its head says".into())),
            code => Err(End::System("a send or receive", code)),
        }
    }
}

/// `errno.h`: no more memory may be locked.
const ENOMEM: i32 = 12;
/// The other side has closed.
const EPIPE: i32 = 32;
/// A signal came.
const EINTR: i32 = 4;
/// The link was lost.
const ENODEV: i32 = 19;
/// A message was longer than the receive it met.
const EMSGSIZE: i32 = 90;

#[allow(unsafe_code)]
// SAFETY: sends and receives name registered regions until their completion; dropping the device ends what the driver does.
unsafe impl<D: RingDevice> Rail for RingRail<D> {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        debug_assert!(head.len.get() as usize == body.len() && body.len() <= EAGER_MAX);
        if self.end.is_some() || self.tx.deaf {
            return Err(Busy);
        }
        self.tx.message(&mut self.port, head, body).or_else(|end| self.busy(end))
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        debug_assert!(head.len.get() as usize == src.len());
        if self.end.is_some() || self.tx.deaf {
            return Err(Busy);
        }
        let done = match src.len() <= INLINE {
            true => self.tx.message(&mut self.port, head, src),
            false => self.tx.chunk(&mut self.port, head, src),
        };
        done.or_else(|end| self.busy(end))
    }

    fn prepare(&mut self, mem: MemSlice, target: bool) {
        // Where it fails, the chunk that needs it says so.
        if self.end.is_none() && mem.len() > INLINE && mem.is_host() && (target || self.tx.takes()) {
            self.port.cache.prepare(&mut self.port.device, mem, target);
        }
    }

    fn taken(&self) -> u64 {
        self.tx.taken()
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        if let Some(end) = &self.end {
            return Err(end.down(&self.info.path));
        }
        if !self.port.rang && !self.port.device.waiting() {
            return Ok(Poll::Idle);
        }
        let rang = std::mem::take(&mut self.port.rang);
        match self.port.device.doorbell(0, Duration::ZERO, false) {
            Ok(()) => Ok(if rang { Poll::Active } else { Poll::Idle }),
            // What had come before is still there to be taken.
            Err(linkspan_tbring::Error::Gone) => Ok(Poll::Idle),
            Err(error) => Err(self.ended(lost(error))),
        }
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        if let Some(end) = &self.end {
            return Err(end.down(&self.info.path));
        }
        let mut found = 0;
        while found < BATCH {
            let done = match self.port.device.pop() {
                Ok(Some(done)) => done,
                Ok(None) if found == 0 && self.busy => {
                    // Asks the rings, then looks once more.
                    match self.port.device.doorbell(1, Duration::ZERO, true).and_then(|()| self.port.device.pop()) {
                        Ok(Some(done)) => done,
                        Ok(None) => break,
                        // A signal of the program's.
                        Err(error) if error.errno() == Some(EINTR) => break,
                        Err(error) => return Err(self.ended(lost(error))),
                    }
                }
                Ok(None) => break,
                Err(error) => return Err(self.ended(lost(error))),
            };
            found += 1;
            if let Err(end) = self.complete(&done, sink) {
                return Err(self.ended(end));
            }
            if self.rx.one && self.rx.hello.is_some() {
                break;
            }
        }
        if let Err(end) = self.rx.go_on(&mut self.port, sink) {
            return Err(self.ended(end));
        }
        if self.rx.is_over() {
            return Err(self.ended(End::Gone("it closed the rail".into())));
        }
        Ok(if found > 0 { Poll::Active } else { Poll::Idle })
    }

    /// That memory is registered over and over, once.
    fn event(&mut self) -> Option<String> {
        let first = self.port.cache.short && !self.told;
        self.told |= first;
        first.then(|| {
            format!(
                "{}: no more memory may be locked (`ulimit -l`), so that it is registered for each message or chunk anew, which is slower",
                self.info.path
            )
        })
    }

    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        Some(Arc::new(self.port.cache.memory()))
    }

    fn reach(&self) -> Option<Box<dyn DeviceReach>> {
        Some(self.port.cache.reach())
    }

    fn arm(&mut self) -> Option<WaitFd> {
        let work = self.end.is_some() || self.port.rang || self.rx.is_over();
        (!work).then(|| WaitFd { fd: self.wait_fd(), read: true, write: false })
    }
}

impl<D: RingDevice> CableRail for RingRail<D> {
    fn hello(&mut self, nonce: &[u8; NONCE_LEN]) -> Result<(), Down> {
        self.joining = true;
        let mut message = [HELLO; 1 + NONCE_LEN];
        message[1..].copy_from_slice(nonce);
        self.tx.raw(&mut self.port, &message).map_err(|end| self.ended(end))?;
        self.flush().map(|_| ())
    }

    fn heard(&mut self) -> Result<Option<[u8; NONCE_LEN]>, Down> {
        struct Nobody;
        impl Sink for Nobody {
            fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), linkspan_transport::Violation> {
                Err(linkspan_transport::Violation("a message before its first".into()))
            }
            fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, linkspan_transport::Violation> {
                Err(linkspan_transport::Violation("a chunk before its first message".into()))
            }
            fn landed(&mut self, _: &Head) -> Result<(), linkspan_transport::Violation> {
                Ok(())
            }
        }
        self.rx.one = true;
        let polled = self.poll(&mut Nobody);
        self.rx.one = false;
        polled?;
        self.flush()?;
        Ok(self.rx.hello.take())
    }

    fn joined(&mut self) {
        self.joining = false;
    }
}

/// A ring driver's device that is open and carries no rail yet.
pub(crate) trait OpenRing: Send {
    /// Takes two channels, or none.
    fn open_pair(&mut self, pair: (u32, u32)) -> Result<(), linkspan_tbring::Error>;

    /// A rail over two channels that were taken.
    fn into_rail(
        self: Box<Self>,
        pair: (u32, u32),
        about: About,
        config: &Config,
    ) -> Result<Box<dyn CableRail>, linkspan_tbring::Error>;
}

impl<D: RingDevice + 'static> OpenRing for D {
    fn open_pair(&mut self, (first, second): (u32, u32)) -> Result<(), linkspan_tbring::Error> {
        self.open_channel(first)?;
        self.open_channel(second).inspect_err(|_| {
            let _ = self.close_channel(first);
        })
    }

    fn into_rail(
        self: Box<Self>,
        pair: (u32, u32),
        about: About,
        config: &Config,
    ) -> Result<Box<dyn CableRail>, linkspan_tbring::Error> {
        let mut rail = RingRail::new(*self, pair, about.path, about.reason, about.speed, config.busy)?;
        rail.info.plug = Some(about.plug);
        Ok(Box::new(if config.watch { rail.watching() } else { rail }))
    }
}

impl<D: RingDevice> RingRail<D> {
    fn busy(&mut self, end: Option<End>) -> Result<u64, Busy> {
        if let Some(end) = end {
            self.end.get_or_insert(end);
        }
        Err(Busy)
    }

    fn wait_fd(&self) -> RawFd {
        self.port.device.wait_fd()
    }
}

impl<D: RingDevice> Drop for RingRail<D> {
    fn drop(&mut self) {
        if self.end.is_some() || self.tx.deaf || self.joining {
            return;
        }
        let since = Instant::now();
        while self.tx.under_way() && since.elapsed() < CLOSE_WAIT {
            match self.port.device.doorbell(1, Duration::from_millis(1), false) {
                Err(error) if error.errno() != Some(EINTR) => return,
                _ => {}
            }
            while let Ok(Some(done)) = self.port.device.pop() {
                match (Of::split(done.cookie), done.result) {
                    (Some((Of::Sent, n)), Ok(())) => self.tx.sent(n),
                    (Some((Of::DataSent, n)), Ok(())) => self.tx.data_sent(n),
                    (Some((Of::Sent | Of::DataSent, _)), Err(_)) => return,
                    _ => {}
                }
            }
        }
    }
}

/// A driver has not copied a short chunk: that of host memory is always copied.
#[cold]
fn uncopied(direction: &str) -> End {
    End::Device(format!("its driver did not copy {direction} its memory: that was freed, or the device has failed"))
}

/// A head as it travels, and whether its payload is elsewhere.
pub(crate) fn is_apart(kind: Kind, head: &Head) -> bool {
    kind.is_payload() && head.len.get() as usize > INLINE
}

const _: () = assert!(4 * SLOTS + 2 * CHUNKS <= 256, "the queues hold all that may be under way");
