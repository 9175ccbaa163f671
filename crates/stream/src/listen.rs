//! Accepting, without waiting.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use linkspan_net::{AcceptPause, is_shortage};
use linkspan_transport::WaitFd;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::stream::ip;
use crate::{Congestion, Error, Options, Stream};

/// A listener on one chosen address.
#[derive(Debug)]
pub struct Listen {
    socket: Socket,
    addr: SocketAddr,
    options: Options,
    congestion: Congestion,
}

/// Connections that the kernel keeps for us; it lowers the number to net.core.somaxconn, which is this one since Linux 5.4.
const BACKLOG: i32 = 4096;

/// Descriptors are the process's, so one pause and one warning a minute serve all of its listeners.
static PAUSE: Mutex<AcceptPause> = Mutex::new(AcceptPause::new());

fn pause() -> MutexGuard<'static, AcceptPause> {
    PAUSE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections that died before they were accepted and are passed over in one [`Listen::accept`].
const STILLBORN_MAX: usize = 64;

impl Listen {
    /// Listens on `addr` (port 0: the system chooses), an address of one interface. Link-local IPv6 addresses need
    /// their scope id.
    ///
    /// # Errors
    /// [`Error::Unspecified`] for 0.0.0.0 and ::; [`Error::Open`], [`Error::Option`], [`Error::Congestion`],
    /// [`Error::Bind`] and [`Error::Listen`] where the OS refuses the socket, an option or the address.
    pub fn bind(addr: SocketAddr, options: &Options) -> Result<Listen, Error> {
        if addr.ip().to_canonical().is_unspecified() {
            return Err(Error::Unspecified { addr });
        }
        let open = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP)).and_then(|s| {
            s.set_nonblocking(true)?;
            Ok(s)
        });
        let socket = open.map_err(|source| Error::Open { addr, source })?;
        options.apply_unbound(&socket, false)?;
        let bind = |source| Error::Bind { addr, source };
        // A fixed port must come back after a restart although old connections of it linger (TIME_WAIT). Two
        // listeners on one port stay impossible on Linux. With port 0 it would let the kernel pick a used port.
        if addr.port() != 0 {
            socket.set_reuse_address(true).map_err(bind)?;
        }
        socket.bind(&SockAddr::from(addr)).map_err(bind)?;
        // What connections inherit. The congestion control must be there before their first packet, see `Dial`;
        // the address we listen on tells how near they are.
        options.apply(&socket, addr.ip())?;
        let congestion = options.apply_listening(&socket, addr.ip())?;
        let broken = |source| Error::Listen { call: "listen", addr, source };
        socket.listen(BACKLOG).map_err(broken)?;
        let addr = ip(socket.local_addr()).map_err(broken)?;
        Ok(Listen { socket, addr, options: options.clone(), congestion })
    }

    /// The address, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Whether it takes connections over this interface alone; `None`: over any. Not over one of this name that came after it was bound.
    pub fn is_bound_to(&self, interface: Option<&str>) -> bool {
        let name = self.socket.device();
        name.is_ok_and(|name| name.as_deref() == interface.map(str::as_bytes))
    }

    /// The next connection and who made it, or `None` when there is none. Where no descriptor or memory is left, no listener
    /// of the process accepts for a tenth of a second.
    ///
    /// # Errors
    /// [`Error::Shortage`], once a minute: such a pause; the listener goes on. [`Error::Listen`], with the error of
    /// `accept4(2)`: the listener is broken.
    pub fn accept(&mut self) -> Result<Option<(Stream, SocketAddr)>, Error> {
        if !pause().is_over(Instant::now()) {
            return Ok(None);
        }
        for _ in 0..STILLBORN_MAX {
            // accept4 with SOCK_CLOEXEC.
            let (socket, from) = match self.socket.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if is_of_the_connection(&e) => continue,
                Err(source) if is_shortage(&source) => {
                    let warns = pause().begin(Instant::now());
                    return if warns { Err(Error::Shortage { addr: self.addr, source }) } else { Ok(None) };
                }
                Err(source) => {
                    return Err(Error::Listen { call: "accept", addr: self.addr, source });
                }
            };
            // A connection that has already ended is no error of the listener.
            if let Ok(stream) = self.dress(socket, from) {
                let peer = stream.peer_addr();
                return Ok(Some((stream, peer)));
            }
        }
        Ok(None)
    }

    /// The descriptor that becomes ready when [`Listen::accept`] has a connection; `None` during a pause, in which it may
    /// stay ready: ask again after a tenth of a second.
    pub fn wait_fd(&self) -> Option<WaitFd> {
        let open = pause().is_over(Instant::now());
        open.then(|| WaitFd { fd: self.socket.as_raw_fd(), read: true, write: false })
    }

    fn dress(&self, socket: Socket, from: SockAddr) -> Result<Stream, Error> {
        let from = from.as_socket().unwrap_or(self.addr);
        socket.set_nonblocking(true).map_err(|source| Error::Stillborn { peer: from.to_string(), source })?;
        self.options.apply(&socket, self.addr.ip())?;
        let mut congestion = self.options.apply_congestion(&socket, from.ip())?;
        if congestion.name == self.congestion.name {
            // It was there already, from the listener.
            congestion = self.congestion.clone();
        }
        Stream::new(socket, congestion)
    }
}

/// Errors of the connection and not of the listener (accept(2), "Error handling").
fn is_of_the_connection(e: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        e.kind(),
        K::Interrupted
            | K::ConnectionAborted
            | K::ConnectionReset
            | K::NetworkDown
            | K::NetworkUnreachable
            | K::HostUnreachable
            | K::TimedOut
    ) || e.raw_os_error() == Some(EPROTO)
}

/// Linux, every architecture we build for (asm-generic/errno.h).
const EPROTO: i32 = 71;
