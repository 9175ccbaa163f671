//! How two processes that know each other by an authenticated way come to share memory.
//!
//! The listening side opens an abstract Unix socket under the random name in its identity; the connecting side sends the memory. Every
//! message has the token of that identity. Both ask the kernel which process is at the other end of the socket, hold a pidfd of it,
//! see each other's nonce in the shared memory, and try to read the nonce at each other's guard page. Nothing here blocks:
//! both are polled until they are ready, fail, or run out of time.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_shmring::cma::{AccessGuard, Remote};
use linkspan_shmring::{Map, Side, peer};
use linkspan_thread::{aside_full, drop_aside};
use linkspan_transport::WaitFd;
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use zerocopy::IntoBytes;

use crate::caps::{Config, Verdict};
use crate::endpoint::{Parts, ShmRail};
use crate::identity::{Identity, NotLocal, identity};
use crate::live::Watch;
use crate::wire::{Kind, MESSAGE_LEN, Message};

/// Time a set-up is given by default. Everything in it is local and takes under a millisecond.
pub const SETUP_TIME: Duration = Duration::from_secs(5);

/// Connections to the listener that have not said anything yet; the oldest gives way.
const CANDIDATES: usize = 4;

/// Descriptors of a hello: the memory.
const FDS: usize = 1;

/// Why a rail did not come up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The peer cannot be a same-host peer.
    #[error("LS0411 the peer cannot share memory")]
    NotLocal(#[from] NotLocal),
    /// Out of time.
    #[error("LS0412 the same-host peer did not finish the set-up of shared memory in time: is it stopped?")]
    Timeout,
    /// The system refused a call.
    #[error("LS0413 {call} failed while setting up shared memory")]
    System {
        /// The call.
        call: &'static str,
        /// The OS error.
        #[source]
        source: io::Error,
    },
    /// The other end is not who it should be, or does not say what it should.
    #[error("LS0414 the set-up of shared memory was broken off: {0}")]
    Peer(String),
}

fn system(call: &'static str) -> impl FnOnce(io::Error) -> SetupError {
    move |source| SetupError::System { call, source }
}

fn refused(call: &'static str) -> impl FnOnce(rustix::io::Errno) -> SetupError {
    move |e| SetupError::System { call, source: e.into() }
}

fn nonce() -> Result<[u64; 2], SetupError> {
    let one = || getrandom::u64().map_err(|e| system("getrandom(2)")(io::Error::other(e.to_string())));
    Ok([one()?, one()?])
}

fn socket() -> Result<OwnedFd, SetupError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(refused("socket(2)"))
}

fn address(listener: &Identity) -> Result<SocketAddrUnix, SetupError> {
    SocketAddrUnix::new_abstract_name(listener.socket_name().as_bytes()).map_err(refused("naming an abstract socket"))
}

/// What came.
enum Got {
    NotYet,
    Closed,
    Message(Vec<OwnedFd>),
}

/// Receives one whole message and the descriptors with it; those of a message that is refused are closed.
fn receive(socket: &OwnedFd, out: &mut [u8; MESSAGE_LEN]) -> Result<Got, SetupError> {
    let mut more = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let len = out.len();
    let mut parts = [IoSliceMut::new(out), IoSliceMut::new(&mut more)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
        Ok(got) => got,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Got::NotYet),
        Err(rustix::io::Errno::CONNRESET) => return Ok(Got::Closed),
        Err(e) => return Err(refused("recvmsg(2)")(e)),
    };
    let fds: Vec<OwnedFd> = control
        .drain()
        .filter_map(|m| if let RecvAncillaryMessage::ScmRights(fds) = m { Some(fds) } else { None })
        .flatten()
        .collect();
    if got.bytes == 0 {
        return Ok(Got::Closed);
    }
    if got.bytes != len || got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(SetupError::Peer(format!("a message of {} bytes instead of {len}", got.bytes)));
    }
    Ok(Got::Message(fds))
}

/// Sends one message; a fresh socket has space for the few there are.
fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), SetupError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(SetupError::Peer("too many descriptors".into()));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).map_err(refused("sendmsg(2)"))?;
    Ok(())
}

/// Compares the process at the other end, as the kernel names it, with what the peer announced.
fn check_peer(socket: &OwnedFd, own: &Identity, theirs: &Identity) -> Result<(), SetupError> {
    let (pid, uid) = peer::credentials(socket).map_err(system("getsockopt(SO_PEERCRED)"))?;
    if uid != own.uid() {
        return Err(SetupError::Peer(format!("the other end runs as user {uid}, this process as {}", own.uid())));
    }
    if own.same_pids(theirs) && pid as u32 != theirs.pid() {
        return Err(SetupError::Peer(format!("the other end is process {pid}, announced was {}", theirs.pid())));
    }
    Ok(())
}

/// A pidfd of the peer, from its socket or else from its number.
fn pidfd(socket: &OwnedFd, own: &Identity, theirs: &Identity) -> Option<OwnedFd> {
    let by_number = || own.same_pids(theirs).then(|| peer::of_pid(theirs.pid() as i32).ok()).flatten();
    peer::of_socket(socket).ok().or_else(by_number)
}

fn readable(socket: &OwnedFd) -> WaitFd {
    WaitFd { fd: socket.as_raw_fd(), read: true, write: false }
}

/// What both sides have and do once they know each other.
struct Common {
    config: Config,
    own: Identity,
    peer: Identity,
    deadline: Instant,
    guard: AccessGuard,
    nonce: [u64; 2],
}

impl Common {
    fn new(config: Config, own: &Identity, peer: &Identity, deadline: Instant) -> Result<Common, SetupError> {
        crate::identity::same_host(own, peer)?;
        let nonce = nonce()?;
        let guard = AccessGuard::new(nonce).map_err(system("mmap(2)"))?;
        Ok(Common { config: config.checked(), own: *own, peer: *peer, deadline, guard, nonce })
    }

    fn in_time(&self, now: Instant) -> Result<(), SetupError> {
        if now > self.deadline { Err(SetupError::Timeout) } else { Ok(()) }
    }

    /// Tries to read the peer's memory.
    fn probe(&self, allowed: bool, pidfd: Option<&OwnedFd>, guard: u64, nonce: [u64; 2]) -> Verdict {
        if !allowed || !self.config.cma {
            return Verdict::OFF;
        }
        if !self.own.same_pids(&self.peer) {
            return Verdict::PID_NAMESPACE;
        }
        if pidfd.is_none() {
            return Verdict::NO_PIDFD;
        }
        Verdict::of(Remote::new(self.peer.pid() as i32, guard).probe(nonce))
    }
}

/// What a side has collected when it is ready.
struct Ends {
    map: Map,
    side: Side,
    socket: OwnedFd,
    pidfd: Option<OwnedFd>,
    guard: u64,
    /// Whether the listener may read the connecting side's memory, and the other way round.
    verdicts: [Verdict; 2],
}

fn rail(c: Common, e: Ends) -> Result<ShmRail, SetupError> {
    let whose = ["the listening side", "the connecting side"];
    let bad = e.verdicts.iter().zip(whose).find(|(v, _)| **v != Verdict::OK);
    let reason = match bad {
        None => "same host; large chunks are copied by both processes at once (CMA)".into(),
        Some((v, who)) => format!("same host; all data is copied through the ring: {}", v.why(who)),
    };
    let remote = bad.is_none().then(|| Remote::new(c.peer.pid() as i32, e.guard));
    let pidfd = e.pidfd.map(Arc::new);
    let parts = Parts {
        pidfd: pidfd.clone(),
        map: e.map,
        side: e.side,
        own_pid: c.own.pid(),
        peer_pid: c.peer.pid(),
        guard: c.guard,
        remote,
        reason,
        config: c.config,
    };
    ShmRail::new(parts, |map| Watch::new(map, e.side, pidfd, e.socket)).map_err(system("epoll_ctl(2)"))
}

/// The listening side of a set-up.
pub struct Accepting {
    common: Option<Common>,
    listener: OwnedFd,
    candidates: Vec<OwnedFd>,
    ends: Option<Ends>,
    /// That opened it.
    process: u32,
}

impl std::fmt::Debug for Accepting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepting").field("answered", &self.ends.is_some()).finish_non_exhaustive()
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        // In a child of fork it is the parent's.
        if self.process != std::process::id() {
            return;
        }
        // Nobody connects any more; others may have, and closing the listener would close theirs too.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        while let Ok(socket) = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
            turn_away(socket);
        }
    }
}

impl Accepting {
    /// Begins to listen for the one peer that is told `own`; `peer` is what it announced. After `deadline` [`Accepting::poll`] fails.
    ///
    /// # Errors
    /// [`SetupError::NotLocal`]: the peer cannot be local. [`SetupError::System`]: the OS refuses a resource. [`SetupError::Peer`]: too much
    /// of what another user has sent waits to be closed.
    pub fn new(config: Config, own: &Identity, peer: &Identity, deadline: Instant) -> Result<Accepting, SetupError> {
        let common = Common::new(config, own, peer, deadline)?;
        if let Some(user) = aside_full() {
            let why =
                format!("user {user} sent what takes long to close, and too much waits for it: end its processes");
            return Err(SetupError::Peer(why));
        }
        let listener = socket()?;
        rustix::net::bind(&listener, &address(own)?).map_err(refused("bind(2)"))?;
        rustix::net::listen(&listener, CANDIDATES as i32).map_err(refused("listen(2)"))?;
        Ok(Accepting {
            common: Some(common),
            listener,
            candidates: Vec::new(),
            ends: None,
            process: std::process::id(),
        })
    }

    /// Adds the descriptors of which one becomes ready when [`Accepting::poll`] can make progress.
    pub fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        match &self.ends {
            Some(ends) => fds.push(readable(&ends.socket)),
            None => fds.extend(std::iter::once(&self.listener).chain(&self.candidates).map(readable)),
        }
    }

    /// Goes on. `None`: not yet. Other processes on the socket are refused without keeping state for them.
    ///
    /// # Errors
    /// [`SetupError::Timeout`], [`SetupError::System`], [`SetupError::Peer`]; further calls fail too.
    pub fn poll(&mut self, now: Instant) -> Result<Option<ShmRail>, SetupError> {
        let step = self.step(now);
        if step.is_err() {
            self.common = None;
        }
        step
    }

    fn step(&mut self, now: Instant) -> Result<Option<ShmRail>, SetupError> {
        let Some(common) = &self.common else {
            return Err(SetupError::Peer("it is over".into()));
        };
        let in_time = common.in_time(now);
        if self.ends.is_none() {
            self.ends = listen(common, &self.listener, &mut self.candidates)?;
        }
        if let Some(ends) = &mut self.ends {
            let mut bytes = [0; MESSAGE_LEN];
            match receive(&ends.socket, &mut bytes)? {
                Got::NotYet => {}
                Got::Closed => return Err(SetupError::Peer("the connecting side hung up".into())),
                Got::Message(_) => {
                    let ready = Message::decode(&bytes, Kind::Ready, common.own.token())
                        .ok_or_else(|| SetupError::Peer("a wrong last message".into()))?;
                    ends.verdicts[1] = Verdict(ready.verdict.get());
                    if let (Some(common), Some(ends)) = (self.common.take(), self.ends.take()) {
                        return rail(common, ends).map(Some);
                    }
                }
            }
        }
        in_time.map(|()| None)
    }
}

/// Closes a connection that may be another user's: with what lies in its queue, that takes as long as who sent it wants.
fn turn_away(socket: OwnedFd) {
    drop_aside(peer::credentials(&socket).map_or(u32::MAX, |(_, user)| user), socket);
}

/// Accepts, and answers the first candidate that knows the token.
fn listen(common: &Common, listener: &OwnedFd, candidates: &mut Vec<OwnedFd>) -> Result<Option<Ends>, SetupError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    for _ in 0..2 * CANDIDATES {
        match rustix::net::accept_with(listener, flags) {
            Ok(socket) if check_peer(&socket, &common.own, &common.peer).is_ok() => {
                if candidates.len() == CANDIDATES {
                    candidates.remove(0);
                }
                candidates.push(socket);
            }
            Ok(stranger) => turn_away(stranger),
            Err(rustix::io::Errno::AGAIN) => break,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
            Err(e) => return Err(refused("accept4(2)")(e)),
        }
    }
    let mut i = 0;
    while i < candidates.len() {
        let mut bytes = [0; MESSAGE_LEN];
        let hello = match receive(&candidates[i], &mut bytes) {
            Ok(Got::NotYet) => {
                i += 1;
                continue;
            }
            Ok(Got::Message(fds)) => Message::decode(&bytes, Kind::Hello, common.own.token()).map(|h| (h, fds)),
            Ok(Got::Closed) | Err(_) => None,
        };
        let socket = candidates.swap_remove(i);
        if let Some((hello, fds)) = hello {
            return answer(common, socket, &hello, fds).map(Some);
        }
    }
    Ok(None)
}

/// The hello is from the peer: looks at what it sent and answers.
fn answer(common: &Common, socket: OwnedFd, hello: &Message, fds: Vec<OwnedFd>) -> Result<Ends, SetupError> {
    let Ok([memory]) = <[OwnedFd; FDS]>::try_from(fds) else {
        return Err(SetupError::Peer("a hello with other descriptors than the memory's".into()));
    };
    let ring = usize::try_from(hello.ring.get()).unwrap_or(0);
    let map = Map::open(memory, ring).map_err(system("taking the peer's memory"))?;
    let nonce = hello.nonce();
    if map.nonce(Side::A) != nonce {
        return Err(SetupError::Peer("the memory does not hold the announced nonce".into()));
    }
    map.set_nonce(Side::B, common.nonce);
    let pidfd = pidfd(&socket, &common.own, &common.peer);
    let verdict = common.probe(hello.verdict.get() != 0, pidfd.as_ref(), hello.guard.get(), nonce);
    let welcome = Message::new(Kind::Welcome, common.own.token(), verdict.0);
    let welcome = welcome.guarded(common.guard.address(), common.nonce);
    send(&socket, welcome.as_bytes(), &[])?;
    let (guard, verdicts) = (hello.guard.get(), [verdict, Verdict::OK]);
    Ok(Ends { map, side: Side::B, socket, pidfd, guard, verdicts })
}

/// The connecting side of a set-up.
pub struct Connecting {
    state: Option<(Common, OwnedFd)>,
    made: Option<Map>,
    greeted: bool,
}

impl std::fmt::Debug for Connecting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connecting").field("greeted", &self.greeted).finish_non_exhaustive()
    }
}

impl Connecting {
    /// Begins to connect to the peer, which listens already.
    ///
    /// # Errors
    /// [`SetupError::NotLocal`]: the peer cannot be local. [`SetupError::System`]: the OS refuses a resource.
    pub fn new(config: Config, own: &Identity, peer: &Identity, deadline: Instant) -> Result<Connecting, SetupError> {
        let common = Common::new(config, own, peer, deadline)?;
        let map = Map::create(common.config.ring).map_err(system("memfd_create(2)"))?;
        map.set_nonce(Side::A, common.nonce);
        Ok(Connecting { state: Some((common, socket()?)), made: Some(map), greeted: false })
    }

    /// Adds the descriptor that becomes ready when [`Connecting::poll`] can make progress; none until the listening side has
    /// taken the connection.
    pub fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        fds.extend(self.state.as_ref().filter(|_| self.greeted).map(|(.., socket)| readable(socket)));
    }

    /// Makes progress without blocking. `None`: not finished yet.
    ///
    /// # Errors
    /// [`SetupError::Timeout`], [`SetupError::System`], [`SetupError::Peer`]; further calls fail too.
    pub fn poll(&mut self, now: Instant) -> Result<Option<ShmRail>, SetupError> {
        let step = self.step(now);
        if step.is_err() {
            self.state = None;
        }
        step
    }

    fn step(&mut self, now: Instant) -> Result<Option<ShmRail>, SetupError> {
        let (Some((common, socket)), Some(map)) = (&self.state, &self.made) else {
            return Err(SetupError::Peer("it is over".into()));
        };
        if !self.greeted {
            match rustix::net::connect(socket, &address(&common.peer)?) {
                Ok(()) => {}
                // The listener's queue is full of other connections: later.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                    common.in_time(now)?;
                    return Ok(None);
                }
                Err(e) => return Err(refused("connect(2) to the peer's abstract socket")(e)),
            }
            check_peer(socket, &common.own, &common.peer)?;
            let hello = Message::new(Kind::Hello, common.peer.token(), common.config.cma.into());
            let hello = hello.with_ring(map.ring()).guarded(common.guard.address(), common.nonce);
            send(socket, hello.as_bytes(), &[map.fd()])?;
            self.greeted = true;
        }
        let mut bytes = [0; MESSAGE_LEN];
        match receive(socket, &mut bytes)? {
            Got::NotYet => {
                common.in_time(now)?;
                return Ok(None);
            }
            Got::Closed => return Err(SetupError::Peer("the listening side hung up".into())),
            Got::Message(_) => {}
        }
        let welcome = Message::decode(&bytes, Kind::Welcome, common.peer.token())
            .ok_or_else(|| SetupError::Peer("a wrong answer".into()))?;
        let nonce = welcome.nonce();
        if map.nonce(Side::B) != nonce {
            return Err(SetupError::Peer("the peer does not see the memory it was sent".into()));
        }
        let pidfd = pidfd(socket, &common.own, &common.peer);
        let verdict = common.probe(true, pidfd.as_ref(), welcome.guard.get(), nonce);
        send(socket, Message::new(Kind::Ready, common.peer.token(), verdict.0).as_bytes(), &[])?;
        let verdicts = [Verdict(welcome.verdict.get()), verdict];
        let (Some((common, socket)), Some(map)) = (self.state.take(), self.made.take()) else {
            return Err(SetupError::Peer("it is over".into()));
        };
        let guard = welcome.guard.get();
        rail(common, Ends { map, side: Side::A, socket, pidfd, guard, verdicts }).map(Some)
    }
}

/// Both ends of a rail in this process, set up like any other; for tests, and for a process that connects to itself.
///
/// # Errors
/// As [`Accepting::poll`].
pub fn pair(config: Config) -> Result<(ShmRail, ShmRail), SetupError> {
    let id = identity()?;
    let deadline = Instant::now() + SETUP_TIME;
    let mut accepting = Accepting::new(config, &id, &id, deadline)?;
    let mut connecting = Connecting::new(config, &id, &id, deadline)?;
    let (mut a, mut b) = (None, None);
    loop {
        if a.is_none() {
            a = connecting.poll(Instant::now())?;
        }
        if b.is_none() {
            b = accepting.poll(Instant::now())?;
        }
        if let (Some(_), Some(_)) = (&a, &b) {
            break;
        }
    }
    a.zip(b).ok_or(SetupError::Timeout)
}

#[cfg(test)]
mod tests;
