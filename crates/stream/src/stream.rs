//! A connected stream before it is a rail.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

use linkspan_net::TcpInfo;
use linkspan_transport::WaitFd;
use socket2::Socket;

use crate::{Congestion, Error};

/// A connected, non-blocking TCP stream. The login runs over it.
#[derive(Debug)]
pub struct Stream {
    /// [`closing`](crate::closing) may keep it longer; it needs no descriptor of its own for that, which might not be had.
    socket: Arc<Socket>,
    local: SocketAddr,
    peer: SocketAddr,
    congestion: Box<Congestion>,
    interface: OnceLock<String>,
}

impl Stream {
    pub(crate) fn new(socket: Socket, congestion: Congestion) -> Result<Stream, Error> {
        let peer =
            ip(socket.peer_addr()).map_err(|source| Error::Stillborn { peer: "an unknown peer".into(), source })?;
        let local = ip(socket.local_addr()).map_err(|source| Error::Stillborn { peer: peer.to_string(), source })?;
        Ok(Stream { socket: socket.into(), local, peer, congestion: congestion.into(), interface: OnceLock::new() })
    }

    /// Reads what is there: `Some(0)` is the end of the stream, `None` that nothing has come.
    ///
    /// # Errors
    /// The error of `recv(2)`, as ECONNRESET or ETIMEDOUT.
    pub fn try_read(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        linkspan_net::recv(self.as_fd(), buf)
    }

    /// Sends what the socket takes at once. `None`: nothing at the moment.
    ///
    /// # Errors
    /// The error of `send(2)`, as EPIPE or ECONNRESET.
    pub fn try_write(&mut self, buf: &[u8]) -> io::Result<Option<usize>> {
        linkspan_net::send(self.as_fd(), buf)
    }

    /// Says that nothing more will be sent: the peer reads the end of the stream.
    ///
    /// # Errors
    /// The error of `shutdown(2)`, as ENOTCONN.
    pub fn finish(&mut self) -> io::Result<()> {
        self.socket.shutdown(std::net::Shutdown::Write)
    }

    /// Ends it in good order: what was sent still arrives, also where the peer goes on sending.
    pub fn leave(self) {
        crate::closing::close(&self);
    }

    /// Ends it with a reset, so that the peer is not left waiting for what will not come.
    pub fn cut(self) {
        self.reset();
    }

    /// What to wait for before the next [`Stream::try_read`] (and [`Stream::try_write`], with `write`).
    pub fn wait_fd(&self, write: bool) -> WaitFd {
        WaitFd { fd: self.socket.as_raw_fd(), read: true, write }
    }

    /// Our end.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The peer's end.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// The congestion control and why.
    pub fn congestion(&self) -> &Congestion {
        &self.congestion
    }

    /// Name of the interface that has our end's address, `?` where none has. Asks the system until there is one.
    pub fn interface(&self) -> String {
        if let Some(name) = self.interface.get() {
            return name.clone();
        }
        let scope = match self.local {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let found = linkspan_net::interface_of(self.local.ip().to_canonical(), scope);
        let Some(found) = found.ok().flatten() else { return "?".to_owned() };
        self.interface.get_or_init(|| found.name).clone()
    }

    /// Whether both ends have an address of the same machine, as far as addresses tell.
    pub fn is_local(&self) -> bool {
        same_machine(self.local.ip(), self.peer.ip())
    }

    /// The path for people, as in `eth0 10.0.0.1:4000 -> 10.0.0.2:5000`.
    pub fn path(&self) -> String {
        format!("{} {} -> {}", self.interface(), self.local, self.peer)
    }

    /// What the kernel knows of the connection.
    ///
    /// # Errors
    /// The error of `getsockopt(TCP_INFO)`.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        linkspan_net::tcp_info(self.as_fd())
    }

    /// Resets the connection, also where a child of fork(2) has the socket too: what was not sent is thrown away.
    pub fn reset(&self) {
        // Where it cannot be disconnected, the last descriptor that is closed resets it.
        let _ = self.socket.set_linger(Some(std::time::Duration::ZERO));
        let _ = linkspan_net::disconnect(self.as_fd());
    }

    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The IP address of an end.
pub(crate) fn ip(addr: io::Result<socket2::SockAddr>) -> io::Result<SocketAddr> {
    addr?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

fn same_machine(local: IpAddr, peer: IpAddr) -> bool {
    local == peer || peer.to_canonical().is_loopback()
}
