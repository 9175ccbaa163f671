//! The rail.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use linkspan_net::TcpInfo;
use linkspan_proto::Head;
use linkspan_proto::head::EAGER_MAX;
use linkspan_transport::{Buf, Busy, Caps, Down, End, Health, MemSlice, Poll, Rail, RailInfo, Sink, WaitFd, peer_gone};

use crate::rx::{Fault, Rx, SCRATCH};
use crate::tx::Tx;
use crate::zerocopy::{ZeroCopy, ZeroCopyPolicy};
use linkspan_stream::health::{health, is_stalled};
use linkspan_stream::{Stream, closing};

use crate::Error;

/// Chunk size a TCP rail likes best, bytes.
///
/// 512 KiB: on loopback 1 MiB is no faster, 256 KiB costs about a tenth (more system calls), and the copy out of
/// the kernel still finds the bytes in the second-level cache.
pub const CHUNK: usize = 512 << 10;

/// What the fabric knows of a rail beyond its stream.
#[derive(Clone, Debug)]
pub struct RailConfig {
    /// Why this path was taken, for [`RailInfo`].
    pub reason: String,
    /// Expected speed as the link reports it, bytes per second; 0 when unknown.
    pub speed: u64,
    /// Chunk size for [`Caps`], bytes.
    pub chunk: usize,
    /// Which payloads are lent to the kernel and not copied. Not used on a stream inside this machine; the rail gives it up for
    /// good when the kernel says that it copied after all.
    pub zero_copy: ZeroCopyPolicy,
    /// It stands by behind better rails; see [`RailInfo::standby`].
    pub standby: bool,
}

impl Default for RailConfig {
    fn default() -> RailConfig {
        RailConfig {
            reason: "asked for".into(),
            speed: 0,
            chunk: CHUNK,
            zero_copy: ZeroCopyPolicy::Never,
            standby: false,
        }
    }
}

/// Polls in a row that found nothing before only one in [`IDLE_TURNS`] asks the kernel. Asking costs a system call; 64
/// of them last 10 us or more, after which a few turns of the caller's loop matter little.
pub(crate) const IDLE_POLLS: u32 = 64;

/// See [`IDLE_POLLS`]: three turns in four are a few dozen ns each.
pub(crate) const IDLE_TURNS: u32 = 4;

/// A rail over one TCP stream.
pub struct TcpRail {
    stream: Stream,
    info: RailInfo,
    tx: Tx,
    rx: Rx,
    /// Polls in a row that found nothing.
    idle: u32,
    /// Sending ended: the peer is gone. What it sent before is still delivered.
    deaf: Option<&'static str>,
    end: Option<End>,
}

impl From<Fault> for End {
    fn from(fault: Fault) -> End {
        match fault {
            Fault::End { inside: false } => End::Gone("end of stream".into()),
            Fault::End { inside: true } => End::Gone("end of stream in the middle of a message".into()),
            Fault::System(e) => End::of_call("recv", &e),
            Fault::Head(bad) => End::Protocol(bad.to_string()),
            Fault::Violation(v) => End::Protocol(v.0),
            Fault::ChunkBatch(why) => End::Protocol(format!("a chunk batch is not valid: {why}")),
            Fault::Place { want, got } => End::Protocol(format!("a chunk of {want} bytes met a place of {got}")),
        }
    }
}

impl TcpRail {
    /// A rail over `stream`, which has been authenticated. `read_ahead`: bytes behind the login that were read
    /// already, at least 64 KiB of which fit.
    ///
    /// # Errors
    /// [`Error::ReadAhead`]: more bytes than a rail takes over.
    pub fn new(stream: Stream, config: RailConfig, read_ahead: &[u8]) -> Result<TcpRail, Error> {
        let rx = Rx::new(read_ahead).ok_or(Error::ReadAhead { len: read_ahead.len(), max: SCRATCH })?;
        let local = stream.is_local();
        let zerocopy = ZeroCopy::new(stream.as_fd(), if local { ZeroCopyPolicy::Never } else { config.zero_copy });
        Ok(TcpRail::with(stream, config, rx, zerocopy))
    }

    fn with(stream: Stream, config: RailConfig, rx: Rx, zerocopy: ZeroCopy) -> TcpRail {
        let caps = Caps {
            one_sided: false,
            device_memory: false,
            ordered: true,
            chunk: config.chunk.max(1),
            speed: config.speed,
            local: stream.is_local(),
            tells_end: true,
        };
        let mut info = RailInfo::new("tcp", stream.path(), config.reason, caps);
        info.standby = config.standby;
        TcpRail { stream, info, tx: Tx::new(zerocopy), rx, idle: 0, deaf: None, end: None }
    }

    /// What the kernel knows of the stream, for statistics. A system call.
    ///
    /// # Errors
    /// The error of `getsockopt(TCP_INFO)`.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        self.stream.tcp_info()
    }

    /// The same rail with another description.
    #[must_use]
    pub fn with_info(mut self, info: RailInfo) -> TcpRail {
        self.info = info;
        self
    }

    /// The stream beneath.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// [`Rail::poll`], also for a sink that cannot always take more.
    pub(crate) fn take_in<I: Sink + ?Sized>(&mut self, sink: &mut I) -> Result<Poll, Down> {
        if let Some(end) = &self.end {
            return Err(self.down(end));
        }
        if self.idle >= IDLE_POLLS {
            self.idle = IDLE_POLLS + (self.idle + 1 - IDLE_POLLS) % IDLE_TURNS;
            if self.idle != IDLE_POLLS {
                return Ok(Poll::Idle);
            }
        }
        match self.rx.poll(self.stream.as_fd(), sink) {
            Ok(true) => {
                self.idle = 0;
                Ok(Poll::Active)
            }
            Ok(false) => match self.deaf {
                Some(why) if !self.rx.ready() => Err(self.ended(End::Gone(why.into()))),
                _ => {
                    if self.idle < IDLE_POLLS {
                        self.idle += 1;
                    }
                    Ok(Poll::Idle)
                }
            },
            Err(fault) => Err(self.fault(fault)),
        }
    }

    /// Why it is down, if it is.
    pub(crate) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// [`Rail::arm`] while the sink takes nothing: only what waits to be sent is a reason to wake.
    pub(crate) fn arm_sending(&self) -> Option<WaitFd> {
        let write = self.tx.pending() && self.deaf.is_none() && self.end.is_none();
        write.then(|| WaitFd { fd: self.stream.as_fd().as_raw_fd(), read: false, write })
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
            // Sending failed first: that says more than the end of the stream behind it.
            Fault::End { .. } | Fault::System(_) if self.deaf.is_some() => {
                End::Gone(self.deaf.unwrap_or_default().into())
            }
            fault => fault.into(),
        };
        self.ended(end)
    }
}

#[allow(unsafe_code)]
// SAFETY: `Tx` has a handle on a payload until the kernel took its bytes and, where it lends pages, until the notice of that came; `Rx` on a place until it has landed. Dropping the rail resets streams that still lend.
unsafe impl Rail for TcpRail {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    #[inline]
    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        debug_assert!(head.len.get() as usize == body.len() && body.len() <= EAGER_MAX);
        self.tx.ctrl(head, body)
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        debug_assert!(head.len.get() as usize == src.len());
        self.tx.data(head, src)
    }

    #[inline]
    fn taken(&self) -> u64 {
        self.tx.taken()
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        if !self.tx.pending() && !self.tx.lent() {
            return Ok(Poll::Idle);
        }
        if let Some(end) = &self.end {
            return Err(self.down(end));
        }
        if self.deaf.is_some() {
            return Ok(Poll::Idle);
        }
        match self.tx.flush(self.stream.as_fd()) {
            Ok(true) => {
                self.rx.answered();
                Ok(Poll::Active)
            }
            Ok(false) => Ok(Poll::Idle),
            Err(e) => match peer_gone(&e) {
                Some(why) => {
                    self.deaf = Some(why);
                    Ok(Poll::Active)
                }
                None => Err(self.ended(End::of_call("sendmsg", &e))),
            },
        }
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        self.take_in(sink)
    }

    fn stalled(&mut self) -> bool {
        self.stream.tcp_info().is_ok_and(|info| is_stalled(&info))
    }

    /// The next look is not one of those that are left out.
    fn catch_up(&mut self) {
        self.idle = 0;
    }

    fn health(&self) -> Health {
        self.stream.tcp_info().map_or_else(|_| Health::default(), |info| health(&info))
    }

    fn arm(&mut self) -> Option<WaitFd> {
        self.idle = 0;
        let work = self.rx.ready() || self.rx.left() || self.deaf.is_some() || self.end.is_some();
        // An error queue with notices (MSG_ZEROCOPY) wakes poll(2) without being asked for.
        (!work).then(|| WaitFd { fd: self.stream.as_fd().as_raw_fd(), read: true, write: self.tx.pending() })
    }
}

impl Drop for TcpRail {
    fn drop(&mut self) {
        if self.tx.lent() {
            // The kernel may still read payload that is ours no longer. Dying connections promise nothing to the
            // peer, so reset it: the queue is dropped, and what is on its way to the card gives its memory back soon.
            self.stream.reset();
            self.tx.wait_given_back(self.stream.as_fd());
        } else if self.end.is_none() {
            closing::close(&self.stream);
        }
    }
}

#[cfg(test)]
mod tests;
