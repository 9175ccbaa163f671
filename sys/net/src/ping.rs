//! Echo requests: who answers, and what size of packet reaches it (RFC 792, RFC 4443).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto};

/// Longest wait for an answer: a cable answers within one millisecond, a loaded host within some.
const PATIENCE: Duration = Duration::from_millis(400);

/// Echo requests of one size that must all be lost before the size counts as too large.
const TRIES: u16 = 3;

/// Most hosts that are told of one interface: on a cable there is one.
pub const NEIGHBOURS_MAX: usize = 8;

/// The link-local addresses of those who answer one echo request to all hosts (ff02::1, RFC 4291, 2.7.1) on the interface of this index
/// within 0.4 s, this host among them; at most [`NEIGHBOURS_MAX`].
///
/// # Errors
/// EACCES or EPERM: this process may not send echo requests, neither net.ipv4.ping_group_range nor CAP_NET_RAW lets it. An interface
/// that cannot send answers with an empty list.
pub fn neighbours(index: u32) -> io::Result<Vec<Ipv6Addr>> {
    let ping = Ping::open(false)?;
    let mut heard = Vec::new();
    let all = SocketAddrV6::new(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0, 0, index);
    if ping.send(all.into(), 84, 1).is_err() {
        return Ok(heard);
    }
    let until = Instant::now() + PATIENCE;
    while let Some(from) = ping.receive(1, until) {
        if let IpAddr::V6(addr) = from
            && addr.is_unicast_link_local()
            && heard.len() < NEIGHBOURS_MAX
            && !heard.contains(&addr)
        {
            heard.push(addr);
        }
    }
    Ok(heard)
}

/// A socket for echo requests, of one thread at a time.
#[derive(Debug)]
pub struct Ping {
    socket: OwnedFd,
    four: bool,
    raw: bool,
    ident: u16,
}

/// Bytes of the header of an echo request (RFC 792, RFC 4443, 4.1).
const HEADER: usize = 8;

impl Ping {
    /// A ping socket where the system lets everybody have one (icmp(7)), else a raw one; of IPv4 (`four`) or IPv6.
    ///
    /// # Errors
    /// EACCES or EPERM: this process may have neither.
    pub fn open(four: bool) -> io::Result<Ping> {
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

    /// Whether a packet of `mtu` bytes, its IP header included, is answered within three tries of 0.4 s.
    ///
    /// # Errors
    /// EMSGSIZE: the kernel knows that it is too large. Else that of sendto(2), as without a route.
    pub fn answers(&self, to: SocketAddr, mtu: u32) -> io::Result<bool> {
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

    /// Sends one packet of `mtu` bytes.
    ///
    /// # Errors
    /// As [`Ping::answers`].
    pub fn send(&self, to: SocketAddr, mtu: u32, sequence: u16) -> io::Result<()> {
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
        // Raw sockets of IPv6 take a port for the number of a protocol, and refuse any but their own (raw(7), ipv6(7)).
        rustix::net::sendto(&self.socket, &packet, SendFlags::empty(), &portless(to))?;
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
fn portless(mut to: SocketAddr) -> SocketAddr {
    to.set_port(0);
    to
}
