//! A bare TCP loop: the same sizes, buffers and way of waiting as a test, with nothing between it and the kernel.
//!
//! The serving side listens on the link's own address for one visitor who must know the token that came over the
//! link; it serves rounds until the visitor leaves.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::clock::thread_cpu_ns;
use crate::error::PerfError;
use crate::hist::Recorder;
use crate::link::LinkDesc;
use crate::spec::{SPIN, WaitMode};
use crate::units::SIZE_MAX;
use crate::wire::WINDOW_MAX;

/// How long the listener waits for its visitor, and the visitor for the listener.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes per system call: the fastest chunk on loopback (bench/records).
const CHUNK: usize = 1 << 20;

/// The congestion control that rooms prefer, so that both loops run under the same one: BBR costs 3x on loopback.
const CONGESTION: &str = "cubic";

/// First message of a round.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Round {
    /// 1 ping-pong, 2 stream.
    kind: u8,
    /// 1 spin, 2 adaptive, 3 sleep.
    wait: u8,
    zero: [u8; 2],
    window: U32,
    size: U64,
    count: U64,
}

/// The server's word after a stream.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Done {
    elapsed_ns: U64,
    cpu_ns: U64,
}

/// What a stream took.
#[derive(Clone, Copy, Debug)]
pub struct BareFlow {
    /// From the receiver's readiness to its last byte, ns.
    pub elapsed_ns: u64,
    /// Processor time of this side, ns.
    pub cpu_local_ns: u64,
    /// Processor time of the peer, ns.
    pub cpu_peer_ns: u64,
}

/// A bare connection, asking side.
#[derive(Debug)]
pub struct Bare {
    socket: Socket,
    congestion: String,
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> PerfError {
    move |source| PerfError::Baseline { what, source }
}

/// Opens the listener on this side of the link and serves its visitor on a thread of its own. Returns the port.
pub(crate) fn listen(desc: &LinkDesc, token: [u8; 16], memory: u64) -> io::Result<u16> {
    let listener = TcpListener::bind((desc.local.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    thread::Builder::new().name("bare".into()).spawn(move || {
        // The visitor sees the end of the connection when a round fails, and reports it.
        let _ = visit(&listener, token).and_then(|mut socket| serve(&mut socket, memory));
    })?;
    Ok(port)
}

/// The first visitor who knows the token. A stranger costs one look.
fn visit(listener: &TcpListener, token: [u8; 16]) -> io::Result<Socket> {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout))?;
        let (stream, _) = match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            other => other?,
        };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(left.min(Duration::from_secs(1))))?;
        let mut said = [0; 16];
        if (&stream).read_exact(&mut said).is_ok() && said == token {
            stream.set_read_timeout(None)?;
            return Socket::new(stream);
        }
    }
}

/// Serves rounds until the visitor closes.
fn serve(socket: &mut Socket, memory: u64) -> io::Result<()> {
    loop {
        let mut round = Round::new_zeroed();
        // Between rounds this thread sleeps: the other loop is being measured then.
        socket.read(round.as_mut_bytes(), WaitMode::Sleep)?;
        let (size, window, count) = (round.size.get(), round.window.get(), round.count.get());
        let wait = match round.wait {
            1 => WaitMode::Spin,
            2 => WaitMode::Adaptive,
            _ => WaitMode::Sleep,
        };
        let fits = size.checked_mul(window.into()).is_some_and(|bytes| bytes <= memory);
        if !(1..=SIZE_MAX).contains(&size) || !(1..=WINDOW_MAX).contains(&window) || count == 0 || !fits {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bufs = vec![1u8; (size * u64::from(window)) as usize];
        let size = size as usize;
        socket.write(&[1], wait)?; // ready
        let (start, cpu) = (Instant::now(), thread_cpu_ns());
        if round.kind == 1 {
            for _ in 0..count {
                socket.read(&mut bufs[..size], wait)?;
                socket.write(&bufs[..size], wait)?;
            }
            continue;
        }
        let mut left = count;
        while left > 0 {
            for buf in bufs.chunks_exact_mut(size).take(usize::try_from(left).unwrap_or(usize::MAX)) {
                socket.read(buf, wait)?;
                left -= 1;
            }
        }
        let done = Done {
            elapsed_ns: (start.elapsed().as_nanos() as u64).into(),
            cpu_ns: thread_cpu_ns().saturating_sub(cpu).into(),
        };
        socket.write(done.as_bytes(), wait)?;
    }
}

impl Bare {
    /// Connects to the listener that the peer opened at `port` and says the token.
    pub(crate) fn connect(desc: &LinkDesc, port: u16, token: [u8; 16]) -> Result<Bare, PerfError> {
        let addr = SocketAddr::new(desc.peer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port);
        let stream = TcpStream::connect_timeout(&addr, PATIENCE).map_err(failed("connect"))?;
        (&stream).write_all(&token).map_err(failed("write"))?;
        let socket = Socket::new(stream).map_err(failed("setsockopt"))?;
        let congestion = rustix::net::sockopt::tcp_congestion(&socket.stream).unwrap_or_default();
        Ok(Bare { socket, congestion })
    }

    /// Congestion control of the connection.
    pub fn congestion(&self) -> &str {
        &self.congestion
    }

    fn begin(&mut self, kind: u8, size: u64, window: u32, count: u64, wait: WaitMode) -> Result<Vec<u8>, PerfError> {
        let wait = match wait {
            WaitMode::Spin => 1,
            WaitMode::Adaptive => 2,
            WaitMode::Sleep => 3,
        };
        let round = Round { kind, wait, zero: [0; 2], window: window.into(), size: size.into(), count: count.into() };
        self.socket.write(round.as_bytes(), WaitMode::Adaptive).map_err(failed("write"))?;
        let bufs = vec![1u8; (size * u64::from(window)) as usize];
        self.socket.read(&mut [0], WaitMode::Adaptive).map_err(failed("read"))?;
        Ok(bufs)
    }

    /// `count` round trips of `size` bytes each way.
    ///
    /// # Errors
    /// [`PerfError::Baseline`].
    pub fn ping_pong(&mut self, size: u64, count: u64, wait: WaitMode) -> Result<Recorder, PerfError> {
        let mut buf = self.begin(1, size, 1, count, wait)?;
        let mut rec = Recorder::new();
        let mut since = Instant::now();
        for _ in 0..count {
            self.socket.write(&buf, wait).map_err(failed("write"))?;
            self.socket.read(&mut buf, wait).map_err(failed("read"))?;
            let now = Instant::now();
            rec.record((now - since).as_nanos() as u64);
            since = now;
        }
        Ok(rec)
    }

    /// `count` messages of `size` bytes to the peer, from `window` buffers in turn.
    ///
    /// # Errors
    /// [`PerfError::Baseline`].
    pub fn stream(&mut self, size: u64, window: u32, count: u64, wait: WaitMode) -> Result<BareFlow, PerfError> {
        let bufs = self.begin(2, size, window, count, wait)?;
        let cpu = thread_cpu_ns();
        let mut left = count;
        while left > 0 {
            for buf in bufs.chunks_exact(size as usize).take(usize::try_from(left).unwrap_or(usize::MAX)) {
                self.socket.write(buf, wait).map_err(failed("write"))?;
                left -= 1;
            }
        }
        let mut done = Done::new_zeroed();
        self.socket.read(done.as_mut_bytes(), wait).map_err(failed("read"))?;
        Ok(BareFlow {
            elapsed_ns: done.elapsed_ns.get(),
            cpu_local_ns: thread_cpu_ns().saturating_sub(cpu),
            cpu_peer_ns: done.cpu_ns.get(),
        })
    }
}

/// A non-blocking socket and the three ways of waiting for it.
#[derive(Debug)]
struct Socket {
    stream: TcpStream,
}

impl Socket {
    fn new(stream: TcpStream) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        // A kernel without it keeps its own choice; the record names what is in force.
        let _ = rustix::net::sockopt::set_tcp_congestion(&stream, CONGESTION);
        Ok(Socket { stream })
    }

    fn read(&mut self, buf: &mut [u8], wait: WaitMode) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let end = buf.len().min(done + CHUNK);
            match self.retry(wait, PollFlags::IN, |stream| stream.read(&mut buf[done..end]))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    fn write(&mut self, buf: &[u8], wait: WaitMode) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let end = buf.len().min(done + CHUNK);
            done += self.retry(wait, PollFlags::OUT, |stream| stream.write(&buf[done..end]))?;
        }
        Ok(())
    }

    fn retry(
        &mut self,
        wait: WaitMode,
        flags: PollFlags,
        mut call: impl FnMut(&mut TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut since = None;
        loop {
            match call(&mut self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => return other,
            }
            let sleep = match wait {
                WaitMode::Spin => false,
                WaitMode::Sleep => true,
                WaitMode::Adaptive => since.get_or_insert_with(Instant::now).elapsed() >= SPIN,
            };
            if sleep {
                match poll(&mut [PollFd::new(&self.stream, flags)], None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
    }
}
