//! Bare loops: the same sizes, buffers and way of waiting as a test, with nothing between them and the kernel.
//!
//! The serving side listens on the link's own address for one visitor who must know the token that came over the
//! link; it serves rounds until the visitor leaves, is silent for too long, or its session ends. Over TCP: ping-pong, stream, and a stream whose window is given
//! back by the receiver. Between two processes of one host also direct copy and a cache line (`cma.rs`).

use std::io::{self, Write};
use std::mem;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linkspan_net::Quota;
use linkspan_transport::HostBuf;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::cma::{Answer, MapAt, Pending, Split, answer, touched};
use super::socket::{Patience, Socket};
use crate::clock::thread_cpu_ns;
use crate::error::PerfError;
use crate::hist::Recorder;
use crate::idle::Idle;
use crate::interrupt::Interrupt;
use crate::link::{LinkDesc, LinkError};
use crate::spec::WaitMode;
use crate::units::SIZE_MAX;
use crate::wire::WINDOW_MAX;

/// How long the listener waits for its visitor, and the visitor for the listener.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a client may take to say its token.
const TOKEN: Duration = Duration::from_secs(1);

/// Longest sleep before the end of the session is noticed.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// First message of a round.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Round {
    /// A [`Loop`], or [`JOIN`].
    kind: u8,
    /// 1 spin, 2 adaptive, 3 sleep.
    wait: u8,
    zero: [u8; 2],
    window: U32,
    size: U64,
    count: U64,
    /// Where the client's buffer is, of [`Loop::Split`] and [`Loop::SplitPing`].
    area: U64,
}

/// A round that is none: a [`MapAt`] follows, and is answered.
const JOIN: u8 = 16;

/// A bare loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Loop {
    /// Ping-pong over TCP.
    Ping = 1,
    /// Stream over TCP.
    Stream = 2,
    /// Stream over TCP, a window of messages at most on their way.
    Window = 3,
    /// Stream that both processes copy.
    Split = 4,
    /// Ping-pong that both processes copy.
    SplitPing = 5,
    /// Ping-pong of a cache line.
    Line = 6,
}

impl Loop {
    fn from_wire(kind: u8) -> Option<Loop> {
        [Loop::Ping, Loop::Stream, Loop::Window, Loop::Split, Loop::SplitPing, Loop::Line]
            .into_iter()
            .find(|one| *one as u8 == kind)
    }

    /// Name of what failed.
    fn name(self) -> &'static str {
        match self {
            Loop::Ping => "ping-pong over TCP",
            Loop::Stream => "stream over TCP",
            Loop::Window => "windowed stream over TCP",
            Loop::Split => "direct copy",
            Loop::SplitPing => "ping-pong by direct copy",
            Loop::Line => "cache line",
        }
    }
}

/// The server's message after a stream.
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
    token: [u8; 16],
    split: Result<Split, Missing>,
}

/// Why there is no direct copy.
#[derive(Debug)]
enum Missing {
    /// It was not asked for yet.
    Unasked,
    /// For this reason.
    For(String),
}

impl Missing {
    fn text(&self) -> &str {
        match self {
            Missing::Unasked => "not asked for",
            Missing::For(why) => why,
        }
    }
}

/// What the serving side gives to its visitor.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// What the visitor has to say.
    pub(crate) token: [u8; 16],
    /// Memory for buffers.
    pub(crate) memory: Quota,
    /// Whether the visitor may reach our memory, and we its, where it is on this host.
    pub(crate) cma: bool,
    /// Of the session.
    pub(crate) idle: Idle,
}

/// The listener of a session, and the thread that serves its visitor. Both end when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    port: u16,
    interrupt: Interrupt,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the listener on this side of the link.
    pub(crate) fn start(desc: &LinkDesc, terms: Terms) -> io::Result<Server> {
        let listener = TcpListener::bind(at(desc.local, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let interrupt = Interrupt::new();
        let patience = Patience::of_session(&interrupt, terms.idle.clone());
        let thread = thread::Builder::new().name("bare".into()).spawn(move || {
            // The visitor sees the end of the connection when a round fails, and reports it.
            let _ = visit(listener, &terms, patience).and_then(|socket| serve(socket, &terms));
        })?;
        Ok(Server { port, interrupt, thread: Some(thread) })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.interrupt.raise();
        // A thread that panicked has ended too.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Another port where the link is; on this host where it has no address.
fn at(link: Option<SocketAddr>, port: u16) -> SocketAddr {
    let mut addr = link.unwrap_or((Ipv4Addr::LOCALHOST, 0).into());
    addr.set_port(port);
    addr
}

/// The first client that knows the token. Others are dropped, after a second at most.
fn visit(listener: TcpListener, terms: &Terms, patience: Patience) -> io::Result<Socket> {
    let until = Instant::now() + PATIENCE;
    loop {
        patience.check()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (stream, _) = match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&NAP))?;
                continue;
            }
            other => other?,
        };
        let asked = Patience::new(&patience.interrupt);
        asked.set(Some(left.min(TOKEN)));
        let mut said = [0; 16];
        let mut socket = Socket::new(stream, asked)?;
        if socket.read(&mut said, WaitMode::Sleep).is_ok() && said == terms.token {
            socket.patience = patience;
            return Ok(socket);
        }
    }
}

/// Serves rounds until the visitor closes.
fn serve(mut socket: Socket, terms: &Terms) -> io::Result<()> {
    let mut split = None;
    loop {
        let mut round = Round::new_zeroed();
        // Between rounds this thread sleeps: the other loop is being measured then.
        socket.read(round.as_mut_bytes(), WaitMode::Sleep)?;
        socket.patience.moved()?;
        if round.kind == JOIN {
            let mut offer = MapAt::new_zeroed();
            socket.read(offer.as_mut_bytes(), WaitMode::Sleep)?;
            let (joined, said) = answer(&offer, terms.token, terms.cma, &socket.patience);
            split = joined;
            socket.write(said.as_bytes(), WaitMode::Sleep)?;
            continue;
        }
        let (size, window, count) = (round.size.get(), round.window.get(), round.count.get());
        let wait = match round.wait {
            1 => WaitMode::Spin,
            2 => WaitMode::Adaptive,
            _ => WaitMode::Sleep,
        };
        let counted = count > 0 && size.checked_mul(count).is_some();
        let kind = Loop::from_wire(round.kind).filter(|_| counted);
        let (Some(kind), true, true) = (kind, (1..=SIZE_MAX).contains(&size), (1..=WINDOW_MAX).contains(&window))
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let share = terms.memory.take(size * u64::from(window)).ok_or(io::ErrorKind::OutOfMemory)?;
        match (kind, &mut split) {
            (Loop::Ping | Loop::Stream | Loop::Window, _) => over_tcp(&mut socket, kind, &round, wait)?,
            (_, Some(split)) => {
                if let Err(error) = copied(&mut socket, split, kind, &round, wait) {
                    if split.kept {
                        mem::forget(share);
                    }
                    return Err(error);
                }
            }
            (_, None) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn over_tcp(socket: &mut Socket, kind: Loop, round: &Round, wait: WaitMode) -> io::Result<()> {
    let (size, window, count) = (round.size.get() as usize, round.window.get() as usize, round.count.get());
    let mut bufs = vec![1u8; size * window];
    socket.write(U64::ZERO.as_bytes(), wait)?; // ready
    let (start, cpu) = (Instant::now(), thread_cpu_ns());
    match kind {
        Loop::Ping => {
            for _ in 0..count {
                socket.read(&mut bufs[..size], wait)?;
                socket.write(&bufs[..size], wait)?;
            }
            return Ok(());
        }
        Loop::Window => socket.swallow(&mut bufs, size as u64, count, wait)?,
        _ => {
            let mut left = count;
            while left > 0 {
                for buf in bufs.chunks_exact_mut(size).take(usize::try_from(left).unwrap_or(usize::MAX)) {
                    socket.read(buf, wait)?;
                    left -= 1;
                }
            }
        }
    }
    done(socket, start, cpu, wait)
}

fn copied(socket: &mut Socket, split: &mut Split, kind: Loop, round: &Round, wait: WaitMode) -> io::Result<()> {
    let (size, count, there) = (round.size.get(), round.count.get(), round.area.get());
    let buf = touched(size * u64::from(round.window.get()));
    socket.write(U64::new(buf.as_ptr() as u64).as_bytes(), wait)?; // ready
    let (start, cpu) = (Instant::now(), thread_cpu_ns());
    match kind {
        Loop::SplitPing => split.pong(buf, there, count, wait),
        Loop::Line => split.catch(count, wait),
        _ => {
            split.receive(buf, there, size, count, wait)?;
            done(socket, start, cpu, wait)
        }
    }
}

fn done(socket: &mut Socket, start: Instant, cpu: u64, wait: WaitMode) -> io::Result<()> {
    let done = Done {
        elapsed_ns: (start.elapsed().as_nanos() as u64).into(),
        cpu_ns: thread_cpu_ns().saturating_sub(cpu).into(),
    };
    socket.write(done.as_bytes(), wait)
}

impl Bare {
    /// Connects to the listener that the peer opened at `port` and says the token.
    pub(crate) fn connect(
        desc: &LinkDesc,
        port: u16,
        token: [u8; 16],
        interrupt: &Interrupt,
    ) -> Result<Bare, PerfError> {
        let addr = at(desc.peer, port);
        let open = || {
            let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
            (&stream).write_all(&token)?;
            Socket::new(stream, Patience::new(interrupt))
        };
        let socket = open().map_err(|source| PerfError::Baseline { what: "connect", source })?;
        let congestion = socket.congestion();
        Ok(Bare { socket, congestion, token, split: Err(Missing::Unasked) })
    }

    /// Congestion control of the connection.
    pub fn congestion(&self) -> &str {
        &self.congestion
    }

    /// Longest that a round may take from now on.
    pub(super) fn set_patience(&mut self, time: Option<Duration>) {
        self.socket.patience.set(time);
    }

    /// Never asks for it, and says why.
    pub fn forbid_split(&mut self, why: &str) {
        self.split = Err(Missing::For(format!("switched off here ({why})")));
    }

    /// Joins the two processes' memory for direct copy, once. Where that cannot be, [`Bare::split`] says why.
    ///
    /// # Errors
    /// [`PerfError::Baseline`]: the connection failed.
    pub fn join(&mut self) -> Result<(), PerfError> {
        if !matches!(self.split, Err(Missing::Unasked)) {
            return Ok(());
        }
        let (pending, offer) = match Pending::new(self.token) {
            Ok(made) => made,
            Err(error) => {
                self.split = Err(Missing::For(format!("no shared memory here: {error}")));
                return Ok(());
            }
        };
        let round = Round { kind: JOIN, ..Round::new_zeroed() };
        let mut said = Answer::new_zeroed();
        let socket = &mut self.socket;
        let asked = socket
            .write(round.as_bytes(), WaitMode::Adaptive)
            .and_then(|()| socket.write(offer.as_bytes(), WaitMode::Adaptive))
            .and_then(|()| socket.read(said.as_mut_bytes(), WaitMode::Adaptive));
        asked.map_err(|source| PerfError::Baseline { what: "direct copy", source })?;
        self.split = pending.joined(&said, self.token, &self.socket.patience).map_err(Missing::For);
        Ok(())
    }

    /// Whether the two processes can copy each other's memory.
    ///
    /// # Errors
    /// The reason, as text for the user.
    pub fn split(&self) -> Result<(), &str> {
        self.split.as_ref().map(drop).map_err(Missing::text)
    }

    fn failed(&self, kind: Loop, source: io::Error) -> PerfError {
        if self.socket.patience.interrupt.raised() {
            return LinkError::Interrupted.into();
        }
        PerfError::Baseline { what: kind.name(), source }
    }

    /// Announces a round; where the peer's buffer is.
    fn begin(&mut self, kind: Loop, size: u64, window: u32, count: u64, wait: WaitMode, area: u64) -> io::Result<u64> {
        let how = match wait {
            WaitMode::Spin => 1,
            WaitMode::Adaptive => 2,
            WaitMode::Sleep => 3,
        };
        let round = Round {
            kind: kind as u8,
            wait: how,
            zero: [0; 2],
            window: window.into(),
            size: size.into(),
            count: count.into(),
            area: area.into(),
        };
        self.socket.write(round.as_bytes(), WaitMode::Adaptive)?;
        let mut ready = U64::ZERO;
        self.socket.read(ready.as_mut_bytes(), WaitMode::Adaptive)?;
        Ok(ready.get())
    }

    fn split_mut(&mut self) -> io::Result<&mut Split> {
        self.split.as_mut().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why.text().to_owned()))
    }

    /// `count` round trips of `size` bytes each way.
    ///
    /// # Errors
    /// [`PerfError::Baseline`]: the connection failed.
    pub(super) fn ping_pong(
        &mut self,
        kind: Loop,
        size: u64,
        count: u64,
        wait: WaitMode,
    ) -> Result<Recorder, PerfError> {
        let mut run = || match kind {
            Loop::Line => {
                self.begin(kind, size, 1, count, wait, 0)?;
                self.split_mut()?.throw(count, wait)
            }
            Loop::SplitPing => {
                let buf = touched(size);
                let there = self.begin(kind, size, 1, count, wait, address(&buf))?;
                self.split_mut()?.ping(buf, there, count, wait)
            }
            _ => {
                let mut buf = vec![1u8; size as usize];
                self.begin(Loop::Ping, size, 1, count, wait, 0)?;
                let (mut rec, mut since) = (Recorder::new(), Instant::now());
                for _ in 0..count {
                    self.socket.write(&buf, wait)?;
                    self.socket.read(&mut buf, wait)?;
                    let now = Instant::now();
                    rec.record((now - since).as_nanos() as u64);
                    since = now;
                }
                Ok(rec)
            }
        };
        run().map_err(|source| self.failed(kind, source))
    }

    /// `count` messages of `size` bytes to the peer, from `window` buffers in turn.
    ///
    /// # Errors
    /// [`PerfError::Baseline`]: the connection failed.
    pub(super) fn stream(
        &mut self,
        kind: Loop,
        size: u64,
        window: u32,
        count: u64,
        wait: WaitMode,
    ) -> Result<BareFlow, PerfError> {
        self.flow(kind, size, window, count, wait).map_err(|source| self.failed(kind, source))
    }

    fn flow(&mut self, kind: Loop, size: u64, window: u32, count: u64, wait: WaitMode) -> io::Result<BareFlow> {
        let bytes = size * u64::from(window);
        let cpu = if kind == Loop::Split {
            let buf = touched(bytes);
            let there = self.begin(kind, size, window, count, wait, address(&buf))?;
            let cpu = thread_cpu_ns();
            self.split_mut()?.send(buf, there, size, count, wait)?;
            cpu
        } else {
            let bufs = vec![1u8; bytes as usize];
            self.begin(kind, size, window, count, wait, 0)?;
            let cpu = thread_cpu_ns();
            if kind == Loop::Window {
                self.socket.feed(&bufs, size, count, wait)?;
            } else {
                let mut left = count;
                while left > 0 {
                    for buf in bufs.chunks_exact(size as usize).take(usize::try_from(left).unwrap_or(usize::MAX)) {
                        self.socket.write(buf, wait)?;
                        left -= 1;
                    }
                }
            }
            cpu
        };
        let mut done = Done::new_zeroed();
        self.socket.read(done.as_mut_bytes(), wait)?;
        Ok(BareFlow {
            elapsed_ns: done.elapsed_ns.get(),
            cpu_local_ns: thread_cpu_ns().saturating_sub(cpu),
            cpu_peer_ns: done.cpu_ns.get(),
        })
    }
}

fn address(buf: &HostBuf) -> u64 {
    buf.as_ptr() as u64
}
