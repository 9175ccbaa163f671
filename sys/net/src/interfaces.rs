//! The addresses of this machine's network interfaces.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One address of one interface. An interface with several addresses appears several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of the device, as in `eth0`.
    pub name: String,
    /// Index, which is also the scope id of its link-local IPv6 addresses.
    pub index: u32,
    /// The address.
    pub addr: IpAddr,
    /// Leading bits of the address that are its subnet.
    pub prefix: u8,
    /// Administratively up.
    pub up: bool,
    /// The driver sees a carrier.
    pub running: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// One peer at the other end, as on tunnels.
    pub point_to_point: bool,
}

impl Interface {
    /// Whether `other` lies in this address's subnet. A shared subnet is not yet a path.
    pub fn shares_subnet(&self, other: IpAddr) -> bool {
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => (u128::from(ip.to_bits()) << 96, 32u8),
            IpAddr::V6(ip) => (ip.to_bits(), 128),
        };
        let ((ours, width), (theirs, other_width)) = (bits(self.addr), bits(other));
        let mask = match self.prefix.min(width) {
            0 => 0,
            n => u128::MAX << (128 - u32::from(n)),
        };
        width == other_width && (ours ^ theirs) & mask == 0
    }
}

/// All IPv4 and IPv6 addresses of all interfaces (getifaddrs(3)), in the system's order.
///
/// # Errors
/// The error of `getifaddrs(3)`, as EMFILE.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` is ours to write.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut found, mut links) = (Vec::new(), Vec::new());
    let mut next = list;
    while !next.is_null() {
        // SAFETY: a node of the list that getifaddrs made and that is not freed yet.
        let node = unsafe { &*next };
        next = node.ifa_next;
        // SAFETY: every node has a name, a C string that lives as long as the list.
        let label = unsafe { CStr::from_ptr(node.ifa_name) };
        let name = device(&label.to_string_lossy()).to_owned();
        let Some((addr, _)) = ip_of(node.ifa_addr) else {
            links.extend(link_index(node.ifa_addr).map(|index| (name, index)));
            continue;
        };
        // The interfaces themselves come first.
        let index = links.iter().find(|link| link.0 == name).map_or_else(
            // SAFETY: a C string.
            || unsafe { libc::if_nametoindex(label.as_ptr()) },
            |link| link.1,
        );
        let has = |flag: i32| node.ifa_flags & flag as u32 != 0;
        found.push(Interface {
            name,
            index,
            addr,
            prefix: ip_of(node.ifa_netmask).map_or(0, |(mask, _)| prefix_of(mask)),
            up: has(libc::IFF_UP),
            running: has(libc::IFF_RUNNING),
            loopback: has(libc::IFF_LOOPBACK),
            point_to_point: has(libc::IFF_POINTOPOINT),
        });
    }
    // SAFETY: the list getifaddrs made, freed once; everything kept was copied.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// The interface that has `addr`; `scope` tells link-local IPv6 addresses apart (0: any). The whole of 127/8 belongs
/// to the loopback interface. `None`: no interface has it.
///
/// # Errors
/// The error of `getifaddrs(3)`, as EMFILE.
pub fn interface_of(addr: IpAddr, scope: u32) -> io::Result<Option<Interface>> {
    let mut all = interfaces()?;
    let exact = |i: &Interface| i.addr == addr && (scope == 0 || i.index == scope);
    let at = all.iter().position(exact).or_else(|| {
        let inside = |i: &Interface| i.loopback && i.shares_subnet(addr);
        addr.is_loopback().then(|| all.iter().position(inside)).flatten()
    });
    Ok(at.map(|at| all.swap_remove(at)))
}

/// The device of an address: an IPv4 address may have a label in its place (`eth0:1`), and no device's name has a colon.
fn device(label: &str) -> &str {
    label.split(':').next().unwrap_or(label)
}

/// The address and scope id in a sockaddr, if it is one of IP.
fn ip_of(sa: *const libc::sockaddr) -> Option<(IpAddr, u32)> {
    if sa.is_null() {
        return None;
    }
    // SAFETY: not null, so a sockaddr of at least a family, from getifaddrs.
    match i32::from(unsafe { (*sa).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that this is a sockaddr_in.
            let sin = unsafe { sa.cast::<libc::sockaddr_in>().read_unaligned() };
            Some((Ipv4Addr::from(u32::from_be(sin.sin_addr.s_addr)).into(), 0))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that this is a sockaddr_in6.
            let sin = unsafe { sa.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some((Ipv6Addr::from(sin.sin6_addr.s6_addr).into(), sin.sin6_scope_id))
        }
        _ => None,
    }
}

/// The index in a sockaddr of an interface itself.
fn link_index(sa: *const libc::sockaddr) -> Option<u32> {
    // SAFETY: a sockaddr of at least a family where it is not null, from getifaddrs.
    let family = unsafe { sa.as_ref() }?.sa_family;
    // SAFETY: the family says that this is a sockaddr_ll.
    let index = || unsafe { (&raw const (*sa.cast::<libc::sockaddr_ll>()).sll_ifindex).read_unaligned() };
    (i32::from(family) == libc::AF_PACKET).then(index).and_then(|index| u32::try_from(index).ok())
}

fn prefix_of(mask: IpAddr) -> u8 {
    match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones() as u8,
        IpAddr::V6(mask) => mask.to_bits().leading_ones() as u8,
    }
}

#[cfg(test)]
mod tests;
