//! How two sides find each other: the serving side gives its listener's handle to every client of a TCP port. So the handle
//! is no secret, and every host that reaches the port may connect, unless the login needs a cluster key or a key pair
//! ([`Peer::secure`]).

mod server;

use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_fabric::keys::{KeyError, Keyring};
use linkspan_fabric::{Config, HANDLE_LEN};
use linkspan_proto::handle::Handle;
use linkspan_proto::login::PublicKey;

pub use server::RendezvousServer;

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

impl Service {
    /// What to do where a connection ended so.
    fn hint(&self, kind: io::ErrorKind, peer: &str, host: &str, port: u16) -> String {
        use io::ErrorKind as Kind;
        match kind {
            Kind::NetworkUnreachable | Kind::HostUnreachable => format!("`lspan doctor {peer}` says what is missing"),
            Kind::WouldBlock | Kind::UnexpectedEof | Kind::InvalidData => {
                format!(
                    "where another program has port {port} on {host}, serve at another one with --port, and name HOST:PORT here"
                )
            }
            _ => {
                let begin = if port == self.port || !self.begin.contains('`') {
                    self.begin.to_owned()
                } else {
                    self.begin.replacen(" serve", &format!(" serve --port {port}"), 1)
                };
                format!("{begin} on {host}: it lets in {}", self.admits)
            }
        }
    }
}

/// What the serving side says first: a name and a version.
const HELLO: [u8; 8] = *b"LSPANRV1";

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
    #[error("LS0732 no answer from {peer}: {why}; {hint}")]
    NoPeer {
        /// As asked.
        peer: String,
        /// The last address and its error.
        why: String,
        /// The way out.
        hint: String,
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
    let mut last = (String::from("the name has no address"), io::ErrorKind::NotFound, service.port);
    for addr in addrs {
        let left = until.map_or(PATIENCE, |until| until.saturating_duration_since(Instant::now()));
        let patience = left.clamp(PATIENCE_LEAST, PATIENCE);
        match handle(&addr, service, patience) {
            Ok(handle) => return Ok(Peer { name: peer.to_owned(), handle, key, ring, keyed: service.keyed }),
            Err(error) => {
                // A host that serves nothing refuses.
                let dropped = if error.kind() == io::ErrorKind::TimedOut {
                    " (where it serves already, a firewall drops it: type `lspan doctor` there)"
                } else {
                    ""
                };
                last = (format!("{}: {error}{dropped}", shown(&addr)), error.kind(), addr.port());
            }
        }
    }
    let (why, kind, port) = last;
    Err(RendezvousError::NoPeer { peer: peer.to_owned(), why, hint: service.hint(kind, peer, &host, port) })
}

/// Whether this service answers at an address, within `patience` for the connection and as much for the answer.
///
/// # Errors
/// Nobody takes the connection, or what does is another program or another version.
pub fn answers(addr: &SocketAddr, service: Service, patience: Duration) -> io::Result<()> {
    handle(addr, service, patience).map(drop)
}

fn handle(addr: &SocketAddr, service: Service, patience: Duration) -> io::Result<[u8; HANDLE_LEN]> {
    let stream = TcpStream::connect_timeout(addr, patience)?;
    fetch(stream, service, patience).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock if error.raw_os_error().is_some() => {
            let text = "what answers there took the connection and said nothing: another program?";
            io::Error::new(error.kind(), text)
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            let text = "what answers there took the connection and ended it: another program?";
            io::Error::new(io::ErrorKind::UnexpectedEof, text)
        }
        _ => error,
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

/// Whether it is an IPv6 address with an interface, as `fe80::1%eth0`.
fn is_scoped(peer: &str) -> bool {
    peer.split_once('%').is_some_and(|(ip, scope)| ip.parse::<Ipv6Addr>().is_ok() && !scope.contains(':'))
}

#[cfg(test)]
mod tests;
