//! How two sides find each other: the serving side gives its listener's handle to every client of a TCP port. So the handle
//! is no secret, and every host that reaches the port may connect, unless the login needs a cluster key or a key pair
//! ([`Peer::secure`]).

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_fabric::keys::{KeyError, Keyring};
use linkspan_fabric::{Config, Fabric, HANDLE_LEN};
use linkspan_net::AcceptPause;
use linkspan_proto::handle::Handle;
use linkspan_proto::login::PublicKey;
use linkspan_topology::IfAddr;
use linkspan_transport::WaitFd;

use crate::{cable, mesh};

/// What is served at a port.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// What serves it.
    pub server: &'static str,
    /// How that is begun, before the words "on HOST".
    pub begin: &'static str,
    /// Its port where no other is named.
    pub port: u16,
    /// Whom it lets in.
    pub admits: &'static str,
    /// Whether it never lets in a stranger, so that one which asks for no key is an impostor.
    pub keyed: bool,
}

/// `lspan perf serve`. No registered service that we know of uses the port.
pub const PERF: Service = Service {
    server: "`lspan perf serve`",
    begin: "type `lspan perf serve`",
    port: 24_680,
    admits: "paired peers, and with --open every host",
    keyed: false,
};

/// `lspan files serve`. No registered service that we know of uses the port.
pub const FILES: Service = Service {
    server: "`lspan files serve`",
    begin: "type `lspan files serve NAME=DIR`",
    port: 24_681,
    admits: "paired peers",
    keyed: true,
};

/// An endpoint or a listener of a program that uses the library. No registered service that we know of uses the port.
pub const LIBRARY: Service = Service {
    server: "an endpoint or listener of linkspan",
    begin: "let a program serve an endpoint or a listener at this port",
    port: 24_682,
    admits: "paired peers",
    // A program may do without; one that is looked for by its host has a key (`find_host`).
    keyed: false,
};

/// What the serving side says first: a name and a version.
const HELLO: [u8; 8] = *b"LSPANRV1";

/// How long until an address that is not to be had yet is tried again.
const LATER: Duration = Duration::from_secs(1);

/// How long a peer may take to answer; and how long where less time is left: a round trip around the Earth, and a segment that was
/// lost (RFC 6298, 2.1), fit into it.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_LEAST: Duration = Duration::from_secs(1);

/// An address as [`ask`] takes it back: a link-local one with the name of its interface.
pub fn shown(addr: &SocketAddr) -> String {
    let SocketAddr::V6(v6) = addr else { return addr.to_string() };
    let list = linkspan_net::interfaces().unwrap_or_default();
    match list.into_iter().find(|one| v6.scope_id() != 0 && one.index == v6.scope_id()) {
        Some(one) => format!("[{}%{}]:{}", v6.ip(), one.name, v6.port()),
        None => addr.to_string(),
    }
}

/// Why there is no way to a peer, or no port to wait on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The host's name has no address.
    #[error(
        "LS0731 {peer}: no paired peer has this name (`lspan key list` has them all), and it cannot be resolved: {source}"
    )]
    Name {
        /// As asked.
        peer: String,
        /// The resolver's answer.
        source: io::Error,
    },
    /// Nobody answers, or something else.
    #[error("LS0732 no answer from {peer}: {why}; {begin} on {host}: it lets in {admits}")]
    NoPeer {
        /// As asked.
        peer: String,
        /// What its host is called.
        host: String,
        /// The last address and its error.
        why: String,
        /// How what should run there is begun.
        begin: &'static str,
        /// Whom that lets in.
        admits: &'static str,
    },
    /// A port that cannot be waited on.
    #[error("LS0733 cannot wait on {}: {source}{hint}", shown(addr))]
    Wait {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
        /// A way out, where there is a likely one.
        hint: String,
    },
    /// A cable, or a host of the mesh, to which there is no way.
    #[error("LS0741 {peer}: {why}")]
    Cable {
        /// As asked.
        peer: String,
        /// What is missing, and the way out.
        why: String,
    },
    /// A text that names no peer.
    #[error(
        "LS0738 PEER {peer:?} {why}; write cable, NAME (of a paired peer), HOST, HOST:PORT, ADDRESS, [IPv6]:PORT or fe80::1%INTERFACE"
    )]
    Spelling {
        /// As asked.
        peer: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A paired peer whose server does not prove who it is.
    #[error(
        "LS0739 {peer}: what answers there does not authenticate by key, so that it may be anybody: {}",
        if *keyed {
            "pair the two hosts with `lspan pair`, or give both the same cluster key"
        } else {
            "this is the name of a paired peer; serve there without --open, or name the host by its address"
        }
    )]
    Unproven {
        /// As asked.
        peer: String,
        /// Whether such a server always does.
        keyed: bool,
    },
    /// A server for paired peers, and we have no keys.
    #[error("LS0740 {peer} serves its paired peers alone: pair the two hosts with `lspan pair`")]
    Unpaired {
        /// As asked.
        peer: String,
    },
    /// The user's keys.
    #[error(transparent)]
    Keys(#[from] KeyError),
}

/// Gives handles away.
#[derive(Debug)]
pub struct RendezvousServer {
    listeners: Vec<TcpListener>,
    /// Addresses that the kernel is not done with, and when they are tried again.
    later: Vec<SocketAddr>,
    next: Instant,
    pause: AcceptPause,
}

impl RendezvousServer {
    /// Waits on these addresses; where there are none on loopback, and with `open` on those of every usable interface. Port 0: one
    /// that is free, the same on all.
    ///
    /// # Errors
    /// [`RendezvousError::Wait`].
    pub fn open(fabric: &Fabric, bind: &[IpAddr], open: bool, port: u16) -> Result<RendezvousServer, RendezvousError> {
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
        let (mut listeners, mut later) = (Vec::new(), Vec::new());
        for mut addr in addrs {
            // Port 0 is the one that the first address was given.
            let given = listeners.first().and_then(|listener: &TcpListener| listener.local_addr().ok());
            if let (0, Some(given)) = (port, given) {
                addr.set_port(given.port());
            }
            match wait_on(addr) {
                Ok(listener) => listeners.push(listener),
                // It is looked for a duplicate of it (RFC 4862, 5.4), which takes about a second.
                Err(source)
                    if source.kind() == io::ErrorKind::AddrNotAvailable
                        && addr.is_ipv6()
                        && !bind.contains(&addr.ip()) =>
                {
                    later.push(addr);
                }
                Err(source) => {
                    let hint = match source.kind() {
                        io::ErrorKind::AddrInUse => {
                            "; served already? choose another --port (clients then write HOST:PORT)"
                        }
                        io::ErrorKind::AddrNotAvailable => "; no interface has this address, see `lspan status`",
                        _ => "",
                    };
                    return Err(RendezvousError::Wait { addr, source, hint: hint.to_owned() });
                }
            }
        }
        Ok(RendezvousServer { listeners, later, next: Instant::now() + LATER, pause: AcceptPause::new() })
    }

    /// Waits on sockets that listen already, as those that a service manager passes.
    ///
    /// # Errors
    /// [`RendezvousError::Wait`]: one cannot be made to wait for nothing.
    pub fn passed(listeners: Vec<TcpListener>) -> Result<RendezvousServer, RendezvousError> {
        for listener in &listeners {
            let addr = listener.local_addr().unwrap_or_else(|_| (Ipv6Addr::UNSPECIFIED, 0).into());
            let failed = |source| RendezvousError::Wait { addr, source, hint: String::new() };
            listener.set_nonblocking(true).map_err(failed)?;
        }
        Ok(RendezvousServer { listeners, later: Vec::new(), next: Instant::now(), pause: AcceptPause::new() })
    }

    /// Where it waits, and behind that where it will as soon as the address is to be had.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        let now = self.listeners.iter().filter_map(|listener| listener.local_addr().ok());
        now.chain(self.later.iter().copied()).collect()
    }

    /// What to wait for.
    pub fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        if !self.pause.is_over(Instant::now()) {
            return;
        }
        fds.extend(self.listeners.iter().map(|listener| WaitFd { fd: listener.as_raw_fd(), read: true, write: false }));
    }

    /// How long to wait for that at most: until an address is to be had, or peers can be taken again. `None`: nothing else will happen.
    pub fn wait_most(&self) -> Option<Duration> {
        let paused = !self.pause.is_over(Instant::now());
        (paused || !self.later.is_empty()).then_some(LATER)
    }

    /// Hands the handle to everybody who waits; it is asked for once, and only if somebody does. Never blocks: what is said fits into
    /// any socket's buffer. Some: peers cannot be taken at the moment, and why; said once in a minute.
    pub fn serve(&mut self, handle: &mut dyn FnMut() -> [u8; HANDLE_LEN]) -> Option<io::Error> {
        let now = Instant::now();
        if !self.later.is_empty() && now >= self.next {
            self.next = now + LATER;
            let listeners = &mut self.listeners;
            self.later.retain(|addr| match wait_on(*addr) {
                Ok(listener) => {
                    listeners.push(listener);
                    false
                }
                Err(_) => true,
            });
        }
        if !self.pause.is_over(now) {
            return None;
        }
        let mut said = Vec::new();
        let mut shortage = None;
        for listener in &self.listeners {
            // At most as many at a time as a listen queue holds, then it is the connections' turn.
            for _ in 0..128 {
                let mut stream = match listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        if error.kind() != io::ErrorKind::WouldBlock && self.pause.begin(now) {
                            shortage = Some(error);
                        }
                        break;
                    }
                };
                if said.is_empty() {
                    said.extend(HELLO.iter().copied().chain(handle()));
                }
                // A visitor that leaves early has only itself to blame.
                let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(&said));
            }
        }
        shortage
    }
}

/// A serving peer that has answered.
#[derive(Debug)]
pub struct Peer {
    /// As asked.
    pub name: String,
    /// Its listener's handle.
    pub handle: [u8; HANDLE_LEN],
    /// The key of the paired peer that was named.
    key: Option<PublicKey>,
    ring: Option<Arc<Keyring>>,
    /// [`Service::keyed`]
    keyed: bool,
}

impl Peer {
    /// Has connections of this configuration prove who the peer is: that it is the paired peer that was named, or, where an
    /// address was named and the peer serves paired peers, one of those. A cluster key goes before.
    ///
    /// # Errors
    /// [`RendezvousError::Unproven`], [`RendezvousError::Unpaired`].
    pub fn secure(&self, config: &mut Config) -> Result<(), RendezvousError> {
        let cluster = config.has_key();
        let key = self.proof(cluster)?;
        if let (false, true, Some(ring)) = (cluster, self.logs_in_by_keys(), &self.ring) {
            config.use_keys(ring.clone(), key.as_ref());
        }
        Ok(())
    }

    /// The key that it has to prove: that of the paired peer that was named. `None` where an address was named, and with a `cluster` key,
    /// which goes before.
    ///
    /// # Errors
    /// [`RendezvousError::Unproven`], [`RendezvousError::Unpaired`].
    pub fn proof(&self, cluster: bool) -> Result<Option<PublicKey>, RendezvousError> {
        match (&self.ring, self.logs_in_by_keys()) {
            _ if cluster => Ok(None),
            (Some(_), true) => Ok(self.key),
            (None, true) => Err(RendezvousError::Unpaired { peer: self.name.clone() }),
            (_, false) if self.key.is_some() || self.keyed => {
                Err(RendezvousError::Unproven { peer: self.name.clone(), keyed: self.key.is_none() })
            }
            (_, false) => Ok(None),
        }
    }

    /// A handle that cannot be read is refused when it is connected to.
    fn logs_in_by_keys(&self) -> bool {
        Handle::decode(&self.handle).is_ok_and(|handle| handle.keys)
    }
}

/// Fetches the handle of a serving peer, named as a cable (`cable`, `cable1`), a paired peer, a host at the end of a cable or of the
/// mesh, HOST or HOST:PORT (an IPv6 address with a port in brackets).
///
/// # Errors
/// [`RendezvousError::Spelling`], [`RendezvousError::Name`], [`RendezvousError::Cable`], [`RendezvousError::NoPeer`],
/// [`RendezvousError::Keys`].
pub fn ask(peer: &str, service: Service) -> Result<Peer, RendezvousError> {
    ask_within(peer, service, None)
}

/// As [`ask`]; each address is given until `until` at most, and a second at least.
///
/// # Errors
/// As [`ask`].
pub fn ask_within(peer: &str, service: Service, until: Option<Instant>) -> Result<Peer, RendezvousError> {
    let ring = Keyring::find()?.map(Arc::new);
    let Found { key, addrs, host } = resolve(peer, service, ring.as_deref())?;
    let mut last = String::from("the name has no address");
    for addr in addrs {
        let left = until.map_or(PATIENCE, |until| until.saturating_duration_since(Instant::now()));
        let patience = left.clamp(PATIENCE_LEAST, PATIENCE);
        match TcpStream::connect_timeout(&addr, patience).and_then(|stream| fetch(stream, service, patience)) {
            Ok(handle) => return Ok(Peer { name: peer.to_owned(), handle, key, ring, keyed: service.keyed }),
            Err(error) => {
                // A host that serves nothing refuses.
                let dropped = if error.kind() == io::ErrorKind::TimedOut {
                    " (where it serves already, a firewall drops it: type `lspan doctor` there)"
                } else {
                    ""
                };
                last = format!("{}: {error}{dropped}", shown(&addr));
            }
        }
    }
    Err(RendezvousError::NoPeer {
        peer: peer.to_owned(),
        host,
        why: last,
        begin: service.begin,
        admits: service.admits,
    })
}

/// Where a peer may be, best first, without asking it: as [`ask`] takes its name. A cable's other end is asked who it is.
///
/// # Errors
/// [`RendezvousError::Spelling`], [`RendezvousError::Name`], [`RendezvousError::Cable`], [`RendezvousError::Keys`].
pub fn addresses(peer: &str, service: Service) -> Result<Vec<SocketAddr>, RendezvousError> {
    Ok(resolve(peer, service, Keyring::find()?.as_ref())?.addrs)
}

fn fetch(mut stream: TcpStream, service: Service, patience: Duration) -> io::Result<[u8; HANDLE_LEN]> {
    let until = Instant::now() + patience;
    // All of it in that time, however it comes.
    let mut read = |to: &mut [u8]| -> io::Result<()> {
        let mut at = 0;
        while at < to.len() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "what answers there takes too long"));
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut to[at..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => at += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    let (mut hello, mut handle) = ([0; HELLO.len()], [0; HANDLE_LEN]);
    read(&mut hello)?;
    if hello != HELLO {
        let text = format!("what answers there is not {} of this version", service.server);
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    read(&mut handle)?;
    Ok(handle)
}

/// A peer that was found.
#[derive(Debug)]
struct Found {
    /// The key that it must have, where it is a paired one.
    key: Option<PublicKey>,
    /// Where it may be, best first.
    addrs: Vec<SocketAddr>,
    /// What its host is called.
    host: String,
}

fn resolve(peer: &str, service: Service, ring: Option<&Keyring>) -> Result<Found, RendezvousError> {
    let bad = |why| RendezvousError::Spelling { peer: peer.to_owned(), why };
    if peer.is_empty() || peer.starts_with('-') || peer.chars().any(char::is_whitespace) {
        return Err(bad("cannot be a host"));
    }
    let bare = peer.trim_start_matches('[').split(']').next().and_then(|ip| ip.parse::<Ipv6Addr>().ok());
    if bare.is_some_and(|ip| ip.is_unicast_link_local()) {
        return Err(bad("is at the end of some link: name the interface"));
    }
    if let Ok(ip) = peer.parse::<IpAddr>() {
        return Ok(Found { key: None, addrs: vec![SocketAddr::new(ip, service.port)], host: peer.to_owned() });
    }
    let (host, port) = match peer.rsplit_once(':') {
        _ if is_scoped(peer) => (peer, Some(service.port)),
        _ if peer.starts_with('[') && peer.ends_with(']') => (peer, Some(service.port)),
        Some((host, port)) => (host, port.parse::<u16>().ok().filter(|&port| port != 0)),
        None => (peer, Some(service.port)),
    };
    let port = port.ok_or_else(|| bad("ends in something that is no port"))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Some(number) = cable::number(host) {
        let ports = cable::ports();
        let (found, addrs) =
            at_cables(&ports, number, port).map_err(|why| RendezvousError::Cable { peer: peer.to_owned(), why })?;
        return Ok(Found { key: None, addrs, host: found.host() });
    }
    let paired = ring.and_then(|ring| ring.peer(host));
    let mut addrs = Vec::new();
    for place in paired.iter().flat_map(|peer| &peer.hosts) {
        // An interface that is gone, a name that is no more: the others are tried.
        addrs.extend((place.as_str(), port).to_socket_addrs().into_iter().flatten());
    }
    let known = (host, port).to_socket_addrs();
    if known.is_err() && is_scoped(host) {
        return Err(bad("names an interface that this host does not have"));
    }
    if let Ok(found) = known.as_ref() {
        addrs.extend(found.clone().filter(|addr| !addrs.contains(addr)).collect::<Vec<_>>());
    }
    // Whoever is at the end of a cable may announce any name: it counts where nobody else has it, or a key proves it.
    if paired.is_some() || known.is_err() {
        let ports: Vec<cable::CablePort> = cable::ports().into_iter().filter(|one| announces(one, host)).collect();
        addrs.extend(ports.iter().flat_map(|one| cable::addresses(one, port)).flatten());
    }
    if addrs.is_empty()
        && let Err(source) = known
    {
        return match mesh::addresses(host, port) {
            None => Err(RendezvousError::Name { peer: peer.to_owned(), source }),
            Some(Err(why)) => Err(RendezvousError::Cable { peer: peer.to_owned(), why }),
            Some(Ok(addrs)) => Ok(Found { key: None, addrs, host: host.to_owned() }),
        };
    }
    Ok(Found { key: paired.map(|peer| peer.key), addrs, host: host.to_owned() })
}

/// Whether the host at the end of a cable announces this name.
fn announces(port: &cable::CablePort, name: &str) -> bool {
    port.peer.as_ref().is_some_and(|peer| peer.eq_ignore_ascii_case(name))
}

/// The cable that is meant, and the addresses at its other end and those of further cables to the same host.
fn at_cables(
    ports: &[cable::CablePort],
    number: usize,
    port: u16,
) -> Result<(cable::CablePort, Vec<SocketAddr>), String> {
    let chosen = cable::choose(ports, number, &|one| cable::addresses(one, port).is_ok())?;
    let (mut addrs, mut why) = (Vec::new(), String::new());
    for one in &chosen {
        match cable::addresses(one, port) {
            Ok(found) => addrs.extend(found),
            Err(text) => why = text,
        }
    }
    match chosen.into_iter().next() {
        Some(first) if !addrs.is_empty() => Ok((first, addrs)),
        _ => Err(why),
    }
}

fn wait_on(addr: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
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
