//! Packets that say more than files do: who answers on an interface, and what size of packet reaches a peer. A handful of
//! ICMP echo requests and one TCP connection; nothing is changed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use linkspan_topology::Interface;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto};
use serde::Serialize;

/// Longest wait for an answer to an echo request: a cable answers within one millisecond, a loaded host within some.
const PATIENCE: Duration = Duration::from_millis(400);

/// Longest wait for a TCP connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Echo requests of one size that must all be lost before the size counts as too large.
const TRIES: u16 = 3;

/// Most answers that are kept of one interface: on a cable there is one.
const ANSWERS: usize = 8;

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
    pub(crate) port: u16,
    /// The address that packets to it leave from; `None` without a route.
    pub(crate) source: Option<IpAddr>,
    /// Whether it answers an echo request; `None` where this process may not send one.
    pub(crate) answers: Option<bool>,
    /// Largest packet that the interface sends, bytes.
    pub(crate) mtu: Option<u32>,
    /// Largest packet that was answered, bytes, where a smaller one than the MTU was.
    pub(crate) passes: Option<u32>,
    pub(crate) tcp: Tcp,
}

impl Asked {
    /// Whether something listens at the port that was tried.
    pub fn open(&self) -> bool {
        self.tcp == Tcp::Open
    }
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
    let mut asked =
        Asked { peer: ip, port, source: None, answers: None, mtu: None, passes: None, tcp: Tcp::Unreachable };
    asked.source = route().ok();
    let Some(source) = asked.source else { return asked };
    asked.mtu = mtu_of(source);
    if let Ok(ping) = Ping::open(ip.is_ipv4()) {
        asked.answers = ping.size(peer, 84).ok();
        if let (Some(true), Some(mtu)) = (asked.answers, asked.mtu.filter(|_| !ip.is_loopback() && ip != source)) {
            asked.passes = ping.largest(peer, mtu);
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
    for iface in interfaces {
        let own = |addr: &IpAddr| iface.addrs.iter().any(|have| have.ip == *addr);
        if !iface.addrs.iter().any(|addr| addr.ip.is_ipv6()) {
            continue;
        }
        let ping = Ping::open(false)?;
        let all = SocketAddrV6::new(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0, 0, iface.index);
        if ping.send(all.into(), 84, 1).is_err() {
            continue;
        }
        let until = Instant::now() + PATIENCE;
        let mut here = 0;
        while let Some(from) = ping.receive(1, until) {
            if let IpAddr::V6(addr) = from
                && !own(&from)
                && addr.is_unicast_link_local()
                && here < ANSWERS
            {
                heard.push(Heard { interface: iface.name.clone(), addr });
                here += 1;
            }
        }
    }
    Ok(heard)
}

/// A socket for echo requests.
struct Ping {
    socket: OwnedFd,
    four: bool,
    raw: bool,
    ident: u16,
}

/// Bytes of the header of an echo request (RFC 792, RFC 4443, 4.1).
const HEADER: usize = 8;

impl Ping {
    /// A ping socket where the system lets everybody have one (icmp(7)), else a raw one.
    fn open(four: bool) -> io::Result<Ping> {
        let (family, protocol) = match four {
            true => (AddressFamily::INET, ipproto::ICMP),
            false => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let (socket, raw) = match rustix::net::socket(family, SocketType::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, false),
            Err(_) => (rustix::net::socket(family, SocketType::RAW, Some(protocol))?, true),
        };
        let ident = std::process::id() as u16;
        Ok(Ping { socket, four, raw, ident })
    }

    /// Whether a packet of `mtu` bytes, its IP header included, is answered. `Err`: the kernel knows that it is too large.
    fn size(&self, to: SocketAddr, mtu: u32) -> io::Result<bool> {
        for sequence in 1..=TRIES {
            self.send(to, mtu, sequence)?;
            let until = Instant::now() + PATIENCE;
            while let Some(from) = self.receive(sequence, until) {
                if from == to.ip() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The largest packet that is answered, where `mtu` is not and no router said why; `None` where all is well.
    fn largest(&self, to: SocketAddr, mtu: u32) -> Option<u32> {
        // A router that says what it carries is no black hole: the kernel keeps it and refuses what is larger (EMSGSIZE).
        if self.size(to, mtu).unwrap_or(true) || self.send(to, mtu, 0).is_err() {
            return None;
        }
        let (mut good, mut bad) = (SMALLEST[usize::from(!self.four)], mtu);
        if good >= bad || !self.size(to, good).unwrap_or(false) {
            return None;
        }
        // 1500 takes ten sizes, 9000 thirteen.
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            match self.size(to, middle) {
                Ok(true) => good = middle,
                Ok(false) => bad = middle,
                Err(_) => return None,
            }
        }
        Some(good)
    }

    fn send(&self, to: SocketAddr, mtu: u32, sequence: u16) -> io::Result<()> {
        let ip = if self.four { 20 } else { 40 };
        let mut packet = vec![0x5a; (mtu as usize).saturating_sub(ip).max(HEADER)];
        packet[0] = if self.four { 8 } else { 128 };
        packet[1..4].fill(0);
        packet[4..6].copy_from_slice(&self.ident.to_be_bytes());
        packet[6..8].copy_from_slice(&sequence.to_be_bytes());
        // The kernel sums for ICMPv6 (RFC 3542, 3.1).
        if self.four {
            let sum = checksum(&packet);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        rustix::net::sendto(&self.socket, &packet, SendFlags::empty(), &to)?;
        Ok(())
    }

    /// Who answered the request with this number.
    fn receive(&self, sequence: u16, until: Instant) -> Option<IpAddr> {
        let mut packet = [0; 128];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            set_socket_timeout(&self.socket, Timeout::Recv, Some(left)).ok()?;
            let (len, _, from) = match rustix::net::recvfrom(&self.socket, &mut packet, RecvFlags::empty()) {
                Ok(got) => got,
                Err(rustix::io::Errno::INTR) => continue,
                // An error of an earlier request, as a host that is not there.
                Err(error) if error != rustix::io::Errno::AGAIN => continue,
                Err(_) => return None,
            };
            let bytes = &packet[..len.min(packet.len())];
            // Raw sockets of IPv4 have the IP header in front, whose length is in its first byte.
            let skip =
                if self.raw && self.four { usize::from(bytes.first().copied().unwrap_or(0) & 15) * 4 } else { 0 };
            let Some(head) = bytes.get(skip..skip + HEADER) else { continue };
            let ours = !self.raw || head[4..6] == self.ident.to_be_bytes();
            let reply = head[0] == if self.four { 0 } else { 129 };
            if ours && reply && head[6..8] == sequence.to_be_bytes() {
                return SocketAddr::try_from(from?).ok().map(|from| from.ip());
            }
        }
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
