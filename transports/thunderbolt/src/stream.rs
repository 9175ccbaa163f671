//! Tier 2: messages over the kernel's byte stream.
//!
//! The device says neither whether what it took has arrived nor, for sure, that the other side has gone; what it has not sent
//! when it is closed, it drops after half a second, and frames that no receive buffer waits for stay with it. So the bytes
//! travel in segments, each with the position up to which its sender has read, and no more frames are ever under way than
//! the peer's receive ring holds: what was written arrives without further calls. An end mark tells the end.

mod rx;
mod segment;
mod tx;

use std::io;
use std::time::{Duration, Instant};

use linkspan_proto::Head;
use linkspan_proto::head::EAGER_MAX;
use linkspan_transport::{Buf, Busy, Caps, Down, End, MemSlice, Poll, Rail, RailInfo, Sink, WaitFd};

use crate::device::StreamDevice;
use crate::rail::{About, CableRail, NAME};
use crate::setup::NONCE_LEN;
use rx::Rx;
pub use rx::reads_any_bytes;
pub use segment::is_segment;
use tx::Tx;

/// First byte of a rail's first message; no head and no segment begins so.
pub(crate) const HELLO: u8 = 0x4c;

/// Bytes of a frame of the host interface.
pub(crate) const FRAME: usize = 4096;

/// Frames of a receive ring that are left to the device itself: the one its index needs and its own close mark, and two for
/// good measure.
const SPARE: u32 = 4;

/// Least entries of a ring (`TBSTREAM_DEV_MIN_RING_SIZE`).
const LEAST: u32 = 32;

/// Chunk size: control messages never wait longer than this behind payload.
const CHUNK: usize = 256 << 10;

/// How long a rail that closes waits for space for its end mark and for what is before it.
const CLOSE_WAIT: Duration = Duration::from_millis(200);

/// Reads of one poll.
const READS: usize = 16;

/// A rail over one stream device.
///
/// Dropping it sends what was accepted and an end mark, as far as the peer's ring takes them in a moment.
pub(crate) struct StreamRail {
    device: Box<dyn StreamDevice>,
    tx: Tx,
    rx: Rx,
    info: RailInfo,
    /// Nothing can be sent any more.
    deaf: bool,
    /// It has said hello, and its handshake is not over.
    joining: bool,
    end: Option<End>,
}

impl StreamRail {
    /// Over `device`, which the peer has opened too. `rings`: entries of our receive ring, as the peer was told, and of the peer's.
    pub(crate) fn new(device: Box<dyn StreamDevice>, rings: [u32; 2], about: About) -> StreamRail {
        let caps = Caps {
            one_sided: false,
            device_memory: false,
            ordered: true,
            chunk: CHUNK,
            speed: about.speed,
            local: false,
            tells_end: false,
        };
        let info = RailInfo { plug: Some(about.plug), ..RailInfo::new(NAME, about.path, about.reason, caps) };
        // What the peer may have under way, and what we may.
        let [theirs, ours] = rings.map(|ring| ring.max(LEAST) - SPARE);
        StreamRail { device, tx: Tx::new(ours), rx: Rx::new(theirs), info, deaf: false, joining: false, end: None }
    }

    #[cold]
    fn ended(&mut self, end: End) -> Down {
        self.end.get_or_insert(end).down(&self.info.path)
    }
}

#[allow(unsafe_code)]
// SAFETY: bytes are copied by `read` and `write` within the call; handles are dropped when a payload was written or has landed.
unsafe impl Rail for StreamRail {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        debug_assert!(head.len.get() as usize == body.len() && body.len() <= EAGER_MAX);
        self.tx.ctrl(head, body)
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        debug_assert!(head.len.get() as usize == src.len());
        self.tx.data(head, src)
    }

    fn taken(&self) -> u64 {
        self.tx.taken()
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        if let Some(end) = &self.end {
            return Err(end.down(&self.info.path));
        }
        if self.deaf {
            return Ok(Poll::Idle);
        }
        match self.tx.flush(&mut *self.device, &mut self.rx) {
            Ok(true) => Ok(Poll::Active),
            Ok(false) => Ok(Poll::Idle),
            // The peer has closed, or the cable is gone: what it sent before is still read.
            Err(error) if error.raw_os_error() == Some(ENXIO) => {
                self.deaf = true;
                Ok(Poll::Active)
            }
            Err(error) => Err(self.ended(system("write", &error))),
        }
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        if let Some(end) = &self.end {
            return Err(end.down(&self.info.path));
        }
        let mut active = false;
        for _ in 0..READS {
            match self.rx.read(&mut *self.device, &mut self.tx, sink) {
                Ok(true) => active = true,
                Ok(false) if self.deaf => {
                    return Err(self.ended(End::Gone("the stream was closed, or the cable is gone".into())));
                }
                Ok(false) => break,
                Err(end) => return Err(self.ended(end)),
            }
        }
        Ok(if active { Poll::Active } else { Poll::Idle })
    }

    fn arm(&mut self) -> Option<WaitFd> {
        let full = self.tx.is_full();
        let work = self.end.is_some() || self.deaf || (self.tx.can_send(&self.rx) && !full);
        (!work).then(|| WaitFd { fd: self.device.wait_fd(), read: true, write: full })
    }
}

impl CableRail for StreamRail {
    fn hello(&mut self, nonce: &[u8; NONCE_LEN]) -> Result<(), Down> {
        self.joining = true;
        let mut message = [HELLO; 1 + NONCE_LEN];
        message[1..].copy_from_slice(nonce);
        self.tx.raw(&message);
        self.flush().map(|_| ())
    }

    fn heard(&mut self) -> Result<Option<[u8; NONCE_LEN]>, Down> {
        self.flush()?;
        let mut bytes = [0; 1 + NONCE_LEN];
        let had = self.rx.early.len();
        match self.device.read(MemSlice::NONE, &mut bytes[had..]) {
            Ok(Some(0)) => return Err(self.ended(End::Gone("the stream ended".into()))),
            Ok(Some(n)) => self.rx.early(&bytes[had..had + n]),
            Ok(None) => {}
            Err(error) => return Err(self.ended(system("read", &error))),
        }
        match self.rx.early.split_first() {
            Some((&HELLO, nonce)) => Ok(nonce.try_into().ok()),
            Some(_) => Err(self.ended(End::Protocol("first bytes that are none".into()))),
            None => Ok(None),
        }
    }

    fn joined(&mut self) {
        self.joining = false;
    }
}

impl Drop for StreamRail {
    fn drop(&mut self) {
        if self.end.is_some() || self.deaf || self.joining {
            return;
        }
        self.tx.finish();
        let since = Instant::now();
        while self.tx.unfinished() && since.elapsed() < CLOSE_WAIT {
            match self.tx.flush(&mut *self.device, &mut self.rx) {
                Ok(true) => {}
                // The peer frees space when it reads; its acknowledgements are all that is looked at.
                Ok(false) => match self.rx.acknowledged(&mut *self.device, &mut self.tx) {
                    Ok(()) => std::thread::yield_now(),
                    Err(_) => return,
                },
                Err(_) => return,
            }
        }
    }
}

/// `errno.h`: no such device or address; what the device says when its peer or its cable is gone.
const ENXIO: i32 = 6;

fn system(call: &'static str, error: &io::Error) -> End {
    match error.raw_os_error() {
        Some(ENXIO) | None => End::Gone(format!("the cable is gone: {error}")),
        Some(code) => End::System(call, code),
    }
}

#[cfg(test)]
mod tests;
