//! Connecting, without waiting.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use linkspan_transport::WaitFd;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::stream::ip;
use crate::{Congestion, Error, Options, Stream};

/// A connection on its way.
#[derive(Debug)]
pub struct Dial {
    socket: Option<(Socket, Congestion)>,
    from: Option<SocketAddr>,
    remote: SocketAddr,
    limit: Duration,
    deadline: Instant,
}

impl Dial {
    /// Starts to connect to `remote`, from `local` (port 0: any) or from the address that the routes choose, and
    /// gives up after `limit`. Link-local IPv6 addresses need their scope id.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::Option`], [`Error::Congestion`] and [`Error::Bind`]: the socket, an option or the
    /// local address is refused. [`Error::Connect`]: the OS knows at once that there is no route.
    pub fn start(
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &Options,
        limit: Duration,
    ) -> Result<Dial, Error> {
        let domain = Domain::for_address(remote);
        // socket2 opens with SOCK_CLOEXEC.
        let open = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).and_then(|s| {
            s.set_nonblocking(true)?;
            Ok(s)
        });
        let socket = open.map_err(|source| Error::Open { addr: remote, source })?;
        options.apply_unbound(&socket, true)?;
        if let Some(addr) = local {
            socket.bind(&SockAddr::from(addr)).map_err(|source| Error::Bind { addr, source })?;
        }
        options.apply(&socket, remote.ip())?;
        // Before the connection is up: a control that paces leaves its pacing behind when it is replaced later.
        let congestion = options.apply_congestion(&socket, remote.ip())?;
        let deadline = Instant::now() + limit;
        let dial = Dial { socket: None, from: local, remote, limit, deadline };
        match socket.connect(&SockAddr::from(remote)) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(EINPROGRESS) || e.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(dial.refused(source)),
        }
        Ok(Dial { socket: Some((socket, congestion)), ..dial })
    }

    /// Where the connection stands: `None` while it is still on its way. To be called until it answers otherwise.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::Itself`], [`Error::Stillborn`]: it failed. [`Error::Timeout`]: the time is over.
    ///
    /// # Panics
    /// When called again after it gave a stream or an error.
    pub fn poll(&mut self) -> Result<Option<Stream>, Error> {
        let (socket, _) = self.socket.as_ref().expect("a dial that has ended is not polled again");
        match socket.take_error() {
            Ok(None) => {}
            Ok(Some(source)) | Err(source) => {
                self.socket = None;
                return Err(self.refused(source));
            }
        }
        match ip(socket.peer_addr()) {
            Ok(peer) => {
                let itself = ip(socket.local_addr()).is_ok_and(|local| local == peer);
                let ended = self.socket.take().filter(|_| !itself);
                let (socket, congestion) = ended.ok_or(Error::Itself { remote: self.remote })?;
                Stream::new(socket, congestion).map(Some)
            }
            Err(e) if e.kind() == io::ErrorKind::NotConnected => {
                // Failed between the two questions, or still on its way.
                if let Some(source) = socket.take_error().ok().flatten() {
                    self.socket = None;
                    return Err(self.refused(source));
                }
                if Instant::now() < self.deadline {
                    return Ok(None);
                }
                self.socket = None;
                Err(Error::Timeout { from: self.local_text(), remote: self.remote, ms: self.limit.as_millis() })
            }
            Err(source) => {
                self.socket = None;
                Err(self.refused(source))
            }
        }
    }

    /// What to wait for before the next [`Dial::poll`], and until when at most; `None` when the dial has ended.
    pub fn wait_fd(&self) -> Option<(WaitFd, Instant)> {
        let (socket, _) = self.socket.as_ref()?;
        Some((WaitFd { fd: socket.as_raw_fd(), read: false, write: true }, self.deadline))
    }

    /// The address it connects to.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn refused(&self, source: io::Error) -> Error {
        Error::Connect { from: self.local_text(), remote: self.remote, source }
    }

    fn local_text(&self) -> String {
        self.from.map_or_else(|| "any address".to_owned(), |from| from.ip().to_string())
    }
}

/// Linux, every architecture we build for (asm-generic/errno.h). `io::ErrorKind::InProgress` is not stable yet.
const EINPROGRESS: i32 = 115;
