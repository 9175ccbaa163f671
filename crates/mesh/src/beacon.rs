//! Beacons: one datagram to the host at the other end of a cable.
//!
//! They go to a multicast group, so that a neighbour is found before its address is known or correct; over IPv6, where every
//! interface has an address of its link, and over IPv4 for interfaces without. They never leave the link (hop limit 1), and
//! a socket is tied to its interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;

use linkspan_transport::WaitFd;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockAddr, Socket, Type};

/// Administratively scoped (RFC 2365); the last two bytes are "LS".
const GROUP4: Ipv4Addr = Ipv4Addr::new(239, 255, 76, 83);

/// Link-local scope, transient (RFC 4291, 2.7): "LSPN".
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x4c53, 0x504e);

/// The sockets of one port, over IPv6 and over IPv4.
#[derive(Debug, Default)]
pub(super) struct BeaconSocket {
    sockets: [Option<(UdpSocket, SocketAddr)>; 2],
}

impl BeaconSocket {
    /// Opens what is not open and can be opened on the interface.
    ///
    /// # Errors
    /// Neither family can be had.
    pub(super) fn open(&mut self, name: &str, index: u32, port: u16) -> io::Result<()> {
        let groups = [SocketAddrV6::new(GROUP6, port, 0, index).into(), SocketAddrV4::new(GROUP4, port).into()];
        let mut failed = Ok(());
        for (socket, group) in self.sockets.iter_mut().zip(groups).filter(|(socket, _)| socket.is_none()) {
            match open(name, index, group) {
                Ok(opened) => *socket = Some((opened, group)),
                Err(error) => failed = Err(error),
            }
        }
        if self.sockets.iter().any(Option::is_some) { Ok(()) } else { failed }
    }

    /// Says it over both families. A cable that is cut, or an address that is not there yet, is no error.
    pub(super) fn say(&self, datagram: &[u8]) {
        for (socket, group) in self.sockets.iter().flatten() {
            let _ = socket.send_to(datagram, group);
        }
    }

    /// The next datagram and whose it is; `None` when there is none.
    pub(super) fn hear<'a>(&self, into: &'a mut [u8]) -> Option<(&'a [u8], IpAddr)> {
        for (socket, _) in self.sockets.iter().flatten() {
            if let Ok((len, from)) = socket.recv_from(into) {
                return Some((into.get(..len)?, from.ip()));
            }
        }
        None
    }

    pub(super) fn wait_fds(&self) -> impl Iterator<Item = WaitFd> {
        self.sockets.iter().flatten().map(|(s, _)| WaitFd { fd: s.as_raw_fd(), read: true, write: false })
    }
}

fn open(name: &str, index: u32, group: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    // Every process of the host receives them.
    socket.set_reuse_address(true)?;
    socket.bind_device(Some(name.as_bytes()))?;
    match group {
        SocketAddr::V4(v4) => {
            socket.bind(&SockAddr::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, v4.port())))?;
            socket.set_multicast_ttl_v4(1)?;
            socket.join_multicast_v4_n(v4.ip(), &InterfaceIndexOrAddress::Index(index))?;
        }
        SocketAddr::V6(v6) => {
            socket.set_only_v6(true)?;
            socket.bind(&SockAddr::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, v6.port(), 0, 0)))?;
            socket.set_multicast_hops_v6(1)?;
            socket.set_multicast_if_v6(index)?;
            socket.join_multicast_v6(v6.ip(), index)?;
        }
    }
    Ok(socket.into())
}
