//! The serving side of the rendezvous: gives handles away.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use linkspan_fabric::{Fabric, HANDLE_LEN, survey};
use linkspan_net::AcceptPause;
use linkspan_topology::{IfAddr, Interface, Verdict};
use linkspan_transport::WaitFd;

use super::{HELLO, RendezvousError};
use crate::observe::AddressWatch;

/// How long until an address that is not to be had yet is tried again, and between two looks at the interfaces: those of pods come and go
/// by the dozen.
const LATER: Duration = Duration::from_secs(1);

/// How often another free port is taken where that of the first address is in use at another one.
const TRIES: u32 = 8;

/// Gives handles away.
#[derive(Debug)]
pub struct RendezvousServer {
    listeners: Vec<TcpListener>,
    /// Addresses that the kernel is not done with, and when they are tried again.
    later: Vec<SocketAddr>,
    next: Instant,
    pause: AcceptPause,
    interfaces: Option<Interfaces>,
}

/// The usable interfaces, all of whose addresses are waited on.
struct Interfaces {
    fabric: Fabric,
    port: u16,
    /// `None` where netlink is forbidden, as in some containers: the addresses stay those of the start.
    watch: Option<AddressWatch>,
    /// They may be others than those that are waited on.
    changed: bool,
    looked: Option<Instant>,
}

impl std::fmt::Debug for Interfaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interfaces(port {})", self.port)
    }
}

impl RendezvousServer {
    /// Waits on these addresses; where there are none on loopback, and with `open` on those that usable interfaces have, at any time. Port
    /// 0: one that is free, the same on all.
    ///
    /// # Errors
    /// [`RendezvousError::Wait`].
    pub fn open(fabric: &Fabric, bind: &[IpAddr], open: bool, port: u16) -> Result<RendezvousServer, RendezvousError> {
        // Before the addresses are looked at.
        let watch = open.then(|| AddressWatch::open().ok());
        let mut addrs: Vec<SocketAddr> = bind.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        if addrs.is_empty() {
            addrs.push(loopback(port));
        }
        if open {
            let usable = addresses(fabric.survey(), port).into_iter().filter(|addr| !bind.contains(&addr.ip()));
            addrs.extend(usable.filter(|addr| *addr != loopback(port)));
        }
        let mut tries = TRIES;
        let (listeners, later) = loop {
            match listen(&addrs, bind, port) {
                Err(RendezvousError::Wait { source, .. })
                    if port == 0 && source.kind() == io::ErrorKind::AddrInUse && tries > 0 =>
                {
                    tries -= 1
                }
                done => break done?,
            }
        };
        let port = listeners.first().and_then(|one| one.local_addr().ok()).map_or(port, |given| given.port());
        // The fabric's look at them may be older than the watch.
        let interfaces =
            watch.map(|watch| Interfaces { fabric: fabric.clone(), port, watch, changed: true, looked: None });
        Ok(RendezvousServer { listeners, later, next: Instant::now() + LATER, pause: AcceptPause::new(), interfaces })
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
        let (later, next, pause) = (Vec::new(), Instant::now(), AcceptPause::new());
        Ok(RendezvousServer { listeners, later, next, pause, interfaces: None })
    }

    /// Where it waits, and behind that where it will as soon as the address is to be had. With `open` others come and go with the
    /// interfaces' addresses.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        let now = self.listeners.iter().filter_map(|listener| listener.local_addr().ok());
        now.chain(self.later.iter().copied()).collect()
    }

    /// What to wait for.
    pub fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        let watch = self.interfaces.as_ref().and_then(|interfaces| interfaces.watch.as_ref());
        let read = |fd| WaitFd { fd, read: true, write: false };
        fds.extend(watch.map(|watch| read(watch.fd().as_raw_fd())));
        if self.pause.is_over(Instant::now()) {
            fds.extend(self.listeners.iter().map(|listener| read(listener.as_raw_fd())));
        }
    }

    /// How long to wait for that at most: until an address is to be had, the interfaces are looked at, or peers can be taken again. `None`: nothing else will happen.
    pub fn wait_most(&self) -> Option<Duration> {
        let paused = !self.pause.is_over(Instant::now());
        let changed = self.interfaces.as_ref().is_some_and(|interfaces| interfaces.changed);
        (paused || changed || !self.later.is_empty()).then_some(LATER)
    }

    /// Hands the handle to everybody who waits; it is asked for once, and only if somebody does. Never blocks: what is said fits into
    /// any socket's buffer. Some: peers cannot be taken at the moment, and why; said once in a minute.
    pub fn serve(&mut self, handle: &mut dyn FnMut() -> [u8; HANDLE_LEN]) -> Option<io::Error> {
        let now = Instant::now();
        self.follow(now);
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

    /// Waits on the addresses that the interfaces have now.
    fn follow(&mut self, now: Instant) {
        let Some(interfaces) = &mut self.interfaces else { return };
        interfaces.changed |= interfaces.watch.as_ref().is_some_and(AddressWatch::changed);
        let looked = interfaces.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LATER);
        if looked || !std::mem::take(&mut interfaces.changed) {
            return;
        }
        interfaces.looked = Some(now);
        let Ok(survey) = survey(interfaces.fabric.config()) else {
            // As without a descriptor: what has changed is still to be looked at.
            interfaces.changed = true;
            return;
        };
        let mut wanted = vec![loopback(interfaces.port)];
        let usable = addresses(&survey, interfaces.port);
        wanted.extend(usable.into_iter().filter(|addr| *addr != loopback(interfaces.port)));
        let at = |listener: &TcpListener| listener.local_addr().ok();
        self.listeners.retain(|listener| at(listener).is_some_and(|addr| wanted.contains(&addr)));
        let had: Vec<SocketAddr> = self.listeners.iter().filter_map(at).collect();
        wanted.retain(|addr| !had.contains(addr));
        (self.later, self.next) = (wanted, now);
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The addresses of all usable interfaces. Two may have the same one, as a host with cables to several others.
fn addresses(survey: &[(Interface, Verdict)], port: u16) -> Vec<SocketAddr> {
    let usable = survey.iter().filter(|(_, verdict)| verdict.is_usable());
    let all = usable.flat_map(|(iface, _)| &iface.addrs).map(|addr| scoped(addr, port));
    let mut seen = BTreeSet::new();
    all.filter(|addr| seen.insert(*addr)).collect()
}

fn wait_on(addr: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// An address of an interface with that interface, without which a link-local IPv6 address is none.
pub(super) fn scoped(addr: &IfAddr, port: u16) -> SocketAddr {
    match addr.ip {
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, addr.scope).into(),
        ip => SocketAddr::new(ip, port),
    }
}

/// Waits at each address; behind those, the addresses that are not to be had yet.
fn listen(
    addrs: &[SocketAddr],
    bind: &[IpAddr],
    port: u16,
) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), RendezvousError> {
    let (mut listeners, mut later) = (Vec::new(), Vec::new());
    for mut addr in addrs.iter().copied() {
        // Port 0 is the one that the first address was given.
        let given = listeners.first().and_then(|listener: &TcpListener| listener.local_addr().ok());
        if let (0, Some(given)) = (port, given) {
            addr.set_port(given.port());
        }
        match wait_on(addr) {
            Ok(listener) => listeners.push(listener),
            // It is looked for a duplicate of it (RFC 4862, 5.4), which takes about a second.
            Err(source)
                if source.kind() == io::ErrorKind::AddrNotAvailable && addr.is_ipv6() && !bind.contains(&addr.ip()) =>
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
    Ok((listeners, later))
}

#[cfg(test)]
mod tests;
