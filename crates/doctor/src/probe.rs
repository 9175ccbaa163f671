//! Packets that say more than files do: who answers on an interface, and what size of packet reaches a peer. A handful of
//! ICMP echo requests and one TCP connection; nothing is changed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use linkspan_net::{Ping, neighbours};
use linkspan_topology::Interface;
use serde::Serialize;

/// Longest wait for a TCP connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Smallest MTU that a path may have: 1280 of IPv6 (RFC 8200, 5), and 576 of IPv4 hosts (RFC 791).
const SMALLEST: [u32; 2] = [576, 1280];

/// A host that answered on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The interface.
    pub interface: String,
    /// Its link-local address.
    pub addr: Ipv6Addr,
}

/// How a TCP connection to the peer began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tcp {
    Open,
    Refused,
    Silent,
    Unreachable,
}

/// What a peer answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asked {
    pub(crate) peer: IpAddr,
    /// What was typed, where that is no address.
    #[serde(skip)]
    pub(crate) name: Option<String>,
    pub(crate) port: u16,
    /// The address that packets to it leave from; `None` without a route.
    pub(crate) source: Option<IpAddr>,
    /// Whether it answers an echo request; `None` where this process may not send one, or none could be sent.
    pub(crate) answers: Option<bool>,
    /// Why none could be sent, where this process may.
    #[serde(skip)]
    pub(crate) unsent: Option<String>,
    /// Largest packet that the interface sends, bytes.
    pub(crate) mtu: Option<u32>,
    /// Largest packet that was answered, bytes, where a smaller one than the MTU was.
    pub(crate) passes: Option<u32>,
    pub(crate) tcp: Tcp,
}

impl Asked {
    /// Keeps what was typed, for findings, where it is another text than the address.
    #[must_use]
    pub fn named(mut self, typed: &str) -> Asked {
        let bare = typed.trim_start_matches('[').split([']', '%']).next().unwrap_or_default();
        let host = typed.rsplit_once(':').map_or(typed, |(host, _)| host);
        self.name = (bare.parse::<IpAddr>().is_err() && host.parse::<IpAddr>().is_err()).then(|| host.to_owned());
        self
    }

    /// `NAME (ADDRESS)` where a name was typed.
    pub(crate) fn shown(&self) -> String {
        self.name.as_ref().map_or_else(|| self.peer.to_string(), |name| format!("{name} ({})", self.peer))
    }

    /// The address that was asked.
    pub fn address(&self) -> IpAddr {
        self.peer
    }

    /// The port that took a connection.
    pub fn open(&self) -> Option<u16> {
        (self.tcp == Tcp::Open).then_some(self.port)
    }

    /// How much answered.
    fn rank(&self) -> u8 {
        match (&self.tcp, self.answers) {
            (Tcp::Open, _) => 4,
            (Tcp::Refused, _) => 3,
            (_, Some(true)) => 2,
            _ => u8::from(self.source.is_some()),
        }
    }
}

/// The address of a peer that answered best: where something listens, else where the host is, else the first with a route. Those behind one
/// that is open are not asked any more. `None` of none.
pub fn best(asked: impl Iterator<Item = Asked>) -> Option<Asked> {
    let mut best: Option<Asked> = None;
    for one in asked {
        let open = one.tcp == Tcp::Open;
        if best.as_ref().is_none_or(|best| one.rank() > best.rank()) {
            best = Some(one);
        }
        if open {
            break;
        }
    }
    best
}

/// Asks the peer: an echo request of 56 bytes, some of the interface's MTU and, where those are lost, up to thirteen sizes between; then
/// one TCP connection to `port`, which is closed at once. Takes some seconds at most.
pub fn ask(peer: SocketAddr, mtu_of: impl Fn(IpAddr) -> Option<u32>) -> Asked {
    let (ip, port) = (peer.ip(), peer.port());
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let route = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(peer)?;
        Ok(socket.local_addr()?.ip())
    };
    let mut asked = Asked {
        peer: ip,
        name: None,
        port,
        source: None,
        answers: None,
        unsent: None,
        mtu: None,
        passes: None,
        tcp: Tcp::Unreachable,
    };
    asked.source = route().ok();
    let Some(source) = asked.source else { return asked };
    asked.mtu = mtu_of(source);
    if let Ok(ping) = Ping::open(ip.is_ipv4()) {
        match ping.answers(peer, 84) {
            Ok(answers) => asked.answers = Some(answers),
            Err(error) => asked.unsent = Some(error.to_string()),
        }
        if let (Some(true), Some(mtu)) = (asked.answers, asked.mtu.filter(|_| !ip.is_loopback() && ip != source)) {
            asked.passes = largest(&ping, peer, mtu);
        }
    }
    asked.tcp = match TcpStream::connect_timeout(&peer, CONNECT) {
        Ok(_) => Tcp::Open,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Tcp::Refused,
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Tcp::Silent,
        Err(_) => Tcp::Unreachable,
    };
    asked
}

/// Sends one echo request to all hosts on each of these interfaces (ff02::1, RFC 4291, 2.7.1) and tells who answered within 0.4 s.
///
/// # Errors
/// This process may not send echo requests: neither net.ipv4.ping_group_range nor CAP_NET_RAW lets it.
pub fn listen<'a>(interfaces: impl Iterator<Item = &'a Interface>) -> io::Result<Vec<Heard>> {
    let mut heard = Vec::new();
    for iface in interfaces.filter(|iface| iface.addrs.iter().any(|addr| addr.ip.is_ipv6())) {
        let own = |addr: &Ipv6Addr| iface.addrs.iter().any(|have| have.ip == *addr);
        let others = neighbours(iface.index)?.into_iter().filter(|addr| !own(addr));
        heard.extend(others.map(|addr| Heard { interface: iface.name.clone(), addr }));
    }
    Ok(heard)
}

/// The largest packet that is answered, where `mtu` is not and no router said why; `None` where all is well.
fn largest(ping: &Ping, to: SocketAddr, mtu: u32) -> Option<u32> {
    let answers = |size| {
        let answers = ping.answers(to, size);
        if answers.as_ref().is_err_and(swallowed) { Ok(false) } else { answers }
    };
    // A router that says what it carries is no black hole: the kernel keeps it and refuses what is larger (EMSGSIZE).
    let told = || ping.send(to, mtu, 0).is_err_and(|error| !swallowed(&error));
    if answers(mtu).unwrap_or(true) || told() {
        return None;
    }
    let (mut good, mut bad) = (SMALLEST[usize::from(!to.is_ipv4())], mtu);
    if good >= bad || !answers(good).unwrap_or(false) {
        return None;
    }
    // 1500 takes ten sizes, 9000 thirteen.
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        match answers(middle) {
            Ok(true) => good = middle,
            Ok(false) => bad = middle,
            Err(_) => return None,
        }
    }
    Some(good)
}

/// ENOBUFS: the interface's driver dropped it, as that of a veth whose other end has a smaller MTU. IPv4 tells that, IPv6 does not.
fn swallowed(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}

#[cfg(test)]
mod tests;
