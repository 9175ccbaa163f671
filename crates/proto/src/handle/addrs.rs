//! Up to six addresses in 72 bytes.
//!
//! An entry is a tag byte, the prefix length, the port unless it is the one before, and those bytes of the address
//! that differ from the address of the same family before it. Six IPv4 addresses always fit, six IPv6 addresses
//! where they lie in two /64 or are link-local.

use super::HandleError;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most addresses in a handle.
pub const ADDR_MAX: usize = 6;

/// Bytes in a handle for all addresses.
pub const ADDR_BYTES: usize = 72;

const TAG_V6: u8 = 1;
const TAG_SAME_PORT: u8 = 2;
/// The count of shared bytes fills the tag; counts over the address's length, so all with bit 7 set, are refused.
const TAG_SHARED_SHIFT: u32 = 2;

/// One address of a listener. The scope of a link-local address is the connector's own business: it tries its
/// interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Addr {
    /// Address of one interface.
    pub ip: IpAddr,
    /// TCP port.
    pub port: u16,
    /// Prefix length of the interface's subnet, bits.
    pub prefix: u8,
}

impl Addr {
    /// Without the prefix, for connecting. IPv6 scope id 0.
    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }

    /// Whether `ip` lies in the same subnet as this address: a reason to try, not yet a path.
    pub fn same_subnet(&self, ip: IpAddr) -> bool {
        let (a, b, bits) = match (self.ip, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
            _ => return false,
        };
        let host_bits = bits - u32::from(self.prefix).min(bits);
        (a ^ b).checked_shr(host_bits).unwrap_or(0) == 0
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        let longest = if self.ip.is_ipv4() { 32 } else { 128 };
        if self.ip.is_unspecified() {
            Some("is the wildcard address")
        } else if self.ip.is_multicast() {
            Some("is a multicast address")
        } else if self.port == 0 {
            Some("has port 0")
        } else if self.prefix > longest {
            Some("has a prefix longer than its family allows")
        } else {
            None
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.socket(), self.prefix)
    }
}

/// What the next entry may refer to.
struct Before {
    port: Option<u16>,
    v4: Option<[u8; 4]>,
    v6: [u8; 16],
}

impl Before {
    const START: Before = Before { port: None, v4: None, v6: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).octets() };

    fn note(&mut self, addr: &Addr) {
        self.port = Some(addr.port);
        match addr.ip {
            IpAddr::V4(ip) => self.v4 = Some(ip.octets()),
            IpAddr::V6(ip) => self.v6 = ip.octets(),
        }
    }
}

fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The entries and the bytes they take, or `None` where they do not fit.
pub(super) fn pack(addrs: &[Addr]) -> Option<([u8; ADDR_BYTES], u8)> {
    let mut space = [0; ADDR_BYTES];
    let mut used = 0;
    let mut before = Before::START;
    for addr in addrs {
        let (family, octets, skip) = match addr.ip {
            IpAddr::V4(ip) => {
                let octets = ip.octets();
                (0, octets.to_vec(), before.v4.map_or(0, |v4| shared(&octets, &v4)))
            }
            IpAddr::V6(ip) => (TAG_V6, ip.octets().to_vec(), shared(&ip.octets(), &before.v6)),
        };
        let same_port = before.port == Some(addr.port);
        let tag = family | if same_port { TAG_SAME_PORT } else { 0 } | (skip as u8) << TAG_SHARED_SHIFT;
        let port = addr.port.to_le_bytes();
        let parts: [&[u8]; 3] = [&[tag, addr.prefix], if same_port { &[] } else { &port }, &octets[skip..]];
        for part in parts {
            space.get_mut(used..used + part.len())?.copy_from_slice(part);
            used += part.len();
        }
        before.note(addr);
    }
    Some((space, used as u8))
}

/// Exactly `count` entries out of exactly `bytes`.
pub(super) fn unpack(bytes: &[u8], count: usize) -> Result<Vec<Addr>, HandleError> {
    let mut rest = bytes;
    let mut before = Before::START;
    let mut addrs = Vec::with_capacity(count.min(ADDR_MAX));
    for index in 0..count {
        let wrong = |why| HandleError::Addr { index, why };
        let [tag, prefix] = *take(&mut rest).ok_or(wrong("is cut short"))?;
        let port = match before.port {
            Some(port) if tag & TAG_SAME_PORT != 0 => port,
            None if tag & TAG_SAME_PORT != 0 => {
                return Err(wrong("refers to a port before the first"));
            }
            _ => u16::from_le_bytes(*take(&mut rest).ok_or(wrong("is cut short"))?),
        };
        let skip = usize::from(tag >> TAG_SHARED_SHIFT);
        let ip = if tag & TAG_V6 != 0 {
            IpAddr::V6(Ipv6Addr::from(expand(before.v6, skip, &mut rest).map_err(wrong)?))
        } else {
            if skip > 0 && before.v4.is_none() {
                return Err(wrong("refers to an address before the first"));
            }
            IpAddr::V4(Ipv4Addr::from(expand(before.v4.unwrap_or_default(), skip, &mut rest).map_err(wrong)?))
        };
        let addr = Addr { ip, port, prefix };
        if let Some(why) = addr.fault() {
            return Err(wrong(why));
        }
        before.note(&addr);
        addrs.push(addr);
    }
    if !rest.is_empty() {
        return Err(HandleError::Addr { index: count, why: "is not announced but has bytes" });
    }
    Ok(addrs)
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(head)
}

fn expand<const N: usize>(mut base: [u8; N], skip: usize, rest: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let own = base.get_mut(skip..).ok_or("shares more bytes than an address has")?;
    let (head, tail) = rest.split_at_checked(own.len()).ok_or("is cut short")?;
    own.copy_from_slice(head);
    *rest = tail;
    Ok(base)
}
