//! How the two sides of a test find each other: the serving side gives its listener's handle to every client of a
//! TCP port. Every host that reaches the port may run tests, so without more it is loopback's; a cluster key
//! (LINKSPAN_PSK_FILE) excludes everybody who does not have it, for the handle alone is then worth nothing.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use linkspan_fabric::{Fabric, HANDLE_LEN};
use linkspan_net::AcceptPause;
use linkspan_topology::IfAddr;
use linkspan_transport::WaitFd;

use crate::exit::{Exit, Failure};
use crate::peer_lines;

/// The port of `lspan perf serve`. No registered service that we know of uses it.
pub(crate) const PORT: u16 = 24_680;

/// What the serving side says first: a name and a version.
const HELLO: [u8; 8] = *b"LSPANRV1";

/// How long a peer may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Gives handles away.
pub(crate) struct RendezvousServer {
    listeners: Vec<TcpListener>,
    pause: AcceptPause,
}

impl RendezvousServer {
    /// Waits on these addresses; where there are none on loopback, and with `open` on those of every usable interface.
    pub(crate) fn open(fabric: &Fabric, bind: &[IpAddr], open: bool, port: u16) -> Result<RendezvousServer, Failure> {
        let mut addrs: Vec<SocketAddr> = bind.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        if addrs.is_empty() {
            addrs.push(SocketAddr::from(([127, 0, 0, 1], port)));
        }
        if open {
            let usable = fabric.survey().iter().filter(|(_, verdict)| verdict.is_usable());
            for addr in usable.flat_map(|(iface, _)| &iface.addrs).map(|addr| scoped(addr, port)) {
                if !addrs.contains(&addr) {
                    addrs.push(addr);
                }
            }
        }
        let mut listeners = Vec::new();
        for addr in addrs {
            let listener = TcpListener::bind(addr).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            });
            listeners.push(listener.map_err(|error| {
                let exit = match error.kind() {
                    io::ErrorKind::PermissionDenied => Exit::Permission,
                    io::ErrorKind::AddrNotAvailable => Exit::NoPeer,
                    _ => Exit::Failed,
                };
                let hint = match error.kind() {
                    io::ErrorKind::AddrInUse => "; another `lspan perf serve`? choose another --port",
                    io::ErrorKind::AddrNotAvailable => "; no interface has this address, see `lspan status`",
                    _ => "",
                };
                Failure::new(exit, format!("LS0733 cannot wait on {addr}: {error}{hint}"))
            })?);
        }
        Ok(RendezvousServer { listeners, pause: AcceptPause::new() })
    }

    /// Where it waits.
    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// What to wait for.
    pub(crate) fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        if !self.pause.is_over(Instant::now()) {
            return;
        }
        fds.extend(self.listeners.iter().map(|listener| WaitFd { fd: listener.as_raw_fd(), read: true, write: false }));
    }

    /// Hands the handle to everybody who waits. Never blocks: what is said fits into any socket's buffer.
    pub(crate) fn serve(&mut self, handle: &[u8; HANDLE_LEN]) {
        let now = Instant::now();
        if !self.pause.is_over(now) {
            return;
        }
        let mut said = HELLO.to_vec();
        said.extend_from_slice(handle);
        for listener in &self.listeners {
            // At most as many at a time as a listen queue holds, then it is the connections' turn.
            for _ in 0..128 {
                let mut stream = match listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        if error.kind() != io::ErrorKind::WouldBlock && self.pause.begin(now) {
                            peer_lines::say(&format!("lspan: no peer can be taken at the moment: {error}"));
                        }
                        break;
                    }
                };
                // A visitor that leaves early has only itself to blame.
                let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(&said));
            }
        }
    }
}

/// Fetches the handle of a serving peer, named as HOST or HOST:PORT (an IPv6 address with a port in brackets).
pub(crate) fn ask(peer: &str) -> Result<[u8; HANDLE_LEN], Failure> {
    let no_peer = |why: String| {
        Failure::new(
            Exit::NoPeer,
            format!("LS0732 no answer from {peer}: {why}; is `lspan perf serve --open` running there?"),
        )
    };
    let mut last = String::from("the name has no address");
    for addr in resolve(peer)? {
        match TcpStream::connect_timeout(&addr, PATIENCE).and_then(fetch) {
            Ok(handle) => return Ok(handle),
            Err(error) => last = format!("{addr}: {error}"),
        }
    }
    Err(no_peer(last))
}

fn fetch(mut stream: TcpStream) -> io::Result<[u8; HANDLE_LEN]> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut hello, mut handle) = ([0; HELLO.len()], [0; HANDLE_LEN]);
    stream.read_exact(&mut hello)?;
    if hello != HELLO {
        let text = "what answers there is not `lspan perf serve` of this version";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    stream.read_exact(&mut handle)?;
    Ok(handle)
}

fn resolve(peer: &str) -> Result<Vec<SocketAddr>, Failure> {
    let bad = |why: &str| {
        Failure::new(
            Exit::Usage,
            format!("PEER {peer:?} {why}; write HOST, HOST:PORT, ADDRESS, [IPv6]:PORT or fe80::1%INTERFACE"),
        )
    };
    if peer.is_empty() || peer.starts_with('-') || peer.chars().any(char::is_whitespace) {
        return Err(bad("cannot be a host"));
    }
    if let Ok(ip) = peer.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, PORT)]);
    }
    let (host, port) = match peer.rsplit_once(':') {
        _ if is_scoped(peer) => (peer, Some(PORT)),
        _ if peer.starts_with('[') && peer.ends_with(']') => (peer, Some(PORT)),
        Some((host, port)) => (host, port.parse::<u16>().ok().filter(|&port| port != 0)),
        None => (peer, Some(PORT)),
    };
    let port = port.ok_or_else(|| bad("ends in something that is no port"))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match (host, port).to_socket_addrs() {
        Ok(addrs) => Ok(addrs.collect()),
        Err(error) => Err(Failure::new(Exit::NoPeer, format!("LS0731 {peer}: the name cannot be resolved: {error}"))),
    }
}

/// Whether it is an IPv6 address with an interface, as `fe80::1%eth0`.
fn is_scoped(peer: &str) -> bool {
    peer.split_once('%').is_some_and(|(ip, scope)| ip.parse::<Ipv6Addr>().is_ok() && !scope.contains(':'))
}

/// An address of an interface with that interface, without which a link-local IPv6 address is none.
fn scoped(addr: &IfAddr, port: u16) -> SocketAddr {
    match addr.ip {
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, addr.scope).into(),
        ip => SocketAddr::new(ip, port),
    }
}

#[cfg(test)]
mod tests;
