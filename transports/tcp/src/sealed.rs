//! The rail over one TCP stream whose bytes travel in AES-256-GCM records.

mod rx;
mod tx;

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use linkspan_net::TcpInfo;
use linkspan_proto::Head;
use linkspan_proto::head::EAGER_MAX;
use linkspan_proto::login::{Opener, Sealer};
use linkspan_transport::{Buf, Busy, Caps, Down, End, Health, MemSlice, Poll, Rail, RailInfo, Sink, WaitFd, peer_gone};

use crate::RailConfig;
use crate::endpoint::{IDLE_POLLS, IDLE_TURNS};
use crate::rx::Fault as PlainFault;
use linkspan_stream::health::{health, is_stalled};
use linkspan_stream::{Stream, closing};
use rx::{Fault, SealedRx};
use tx::SealedTx;

/// Chunk size an encrypted rail likes best, bytes: two full records. Bytes are opened a record at a time, so larger
/// chunks bring nothing and make control messages wait longer.
pub const SEALED_CHUNK: usize = 2 * tx::TEXT;

/// A rail over one TCP stream, encrypted.
///
/// What was accepted is copied, sealed and only then sent; what comes is opened, and only then looked at. A record that
/// does not authenticate ends the rail, and nothing of it is delivered.
pub struct SealedRail {
    stream: Stream,
    info: RailInfo,
    tx: SealedTx,
    rx: SealedRx,
    /// Polls in a row that found nothing.
    idle: u32,
    /// Sending ended: the peer is gone. What it sent before is still delivered.
    deaf: Option<&'static str>,
    end: Option<End>,
}

impl SealedRail {
    /// A rail over `stream`, which has been authenticated, with the ciphers of its session; both ends must have sealed
    /// and opened the same records before. Of `config`, `zero_copy` means nothing here: every byte is copied once, into
    /// its record. Chunks are no longer than [`SEALED_CHUNK`].
    pub fn new(stream: Stream, config: RailConfig, (sealer, opener): (Sealer, Opener)) -> SealedRail {
        let caps = Caps {
            one_sided: false,
            device_memory: false,
            ordered: true,
            chunk: config.chunk.clamp(1, SEALED_CHUNK),
            speed: config.speed,
            local: stream.is_local(),
            tells_end: true,
        };
        let reason = format!("{}; encrypted with AES-256-GCM", config.reason);
        let info = RailInfo::new("tcp", stream.path(), reason, caps);
        let (tx, rx) = (SealedTx::new(sealer), SealedRx::new(opener));
        SealedRail { stream, info, tx, rx, idle: 0, deaf: None, end: None }
    }

    /// What the kernel knows of the stream, for statistics. A system call.
    ///
    /// # Errors
    /// The error of `getsockopt(TCP_INFO)`.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        self.stream.tcp_info()
    }

    /// The stream beneath.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    #[cold]
    fn ended(&mut self, end: End) -> Down {
        let down = end.down(&self.info.path);
        self.end = Some(end);
        down
    }

    #[cold]
    fn fault(&mut self, fault: Fault) -> Down {
        let end = match fault {
            Fault::Record(error) => End::Protocol(error.to_string()),
            // Sending failed first: that says more than the end of the stream behind it.
            Fault::Cut | Fault::Plain(PlainFault::End { .. } | PlainFault::System(_)) if self.deaf.is_some() => {
                End::Gone(self.deaf.unwrap_or_default().into())
            }
            Fault::Cut => End::Gone("end of stream in the middle of an encrypted record".into()),
            Fault::Plain(fault) => fault.into(),
        };
        self.ended(end)
    }
}

#[allow(unsafe_code)]
// SAFETY: payload is copied into records by `Tx`, which forgets its handle then; `Rx` writes to a place until it has landed.
unsafe impl Rail for SealedRail {
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
        if !self.tx.pending() {
            return Ok(Poll::Idle);
        }
        if let Some(end) = &self.end {
            return Err(end.down(&self.info.path));
        }
        if self.deaf.is_some() {
            return Ok(Poll::Idle);
        }
        match self.tx.flush(self.stream.as_fd()) {
            Ok(true) => Ok(Poll::Active),
            Ok(false) => Ok(Poll::Idle),
            Err(tx::Fault::Record(error)) => Err(self.ended(End::Protocol(error.to_string()))),
            Err(tx::Fault::System(e)) => match peer_gone(&e) {
                Some(why) => {
                    self.deaf = Some(why);
                    Ok(Poll::Active)
                }
                None => Err(self.ended(End::of_call("send", &e))),
            },
        }
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        if self.idle >= IDLE_POLLS {
            self.idle = IDLE_POLLS + (self.idle + 1 - IDLE_POLLS) % IDLE_TURNS;
            if self.idle != IDLE_POLLS {
                return Ok(Poll::Idle);
            }
        }
        if let Some(end) = &self.end {
            return Err(end.down(&self.info.path));
        }
        match self.rx.poll(self.stream.as_fd(), sink) {
            Ok(true) => {
                self.idle = 0;
                Ok(Poll::Active)
            }
            Ok(false) => match self.deaf {
                Some(why) => Err(self.ended(End::Gone(why.into()))),
                None => {
                    if self.idle < IDLE_POLLS {
                        self.idle += 1;
                    }
                    Ok(Poll::Idle)
                }
            },
            Err(fault) => Err(self.fault(fault)),
        }
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
        let work = self.deaf.is_some() || self.end.is_some();
        (!work).then(|| WaitFd { fd: self.stream.as_fd().as_raw_fd(), read: true, write: self.tx.pending() })
    }
}

impl Drop for SealedRail {
    fn drop(&mut self) {
        if self.end.is_none() {
            closing::close(&self.stream);
        }
    }
}
