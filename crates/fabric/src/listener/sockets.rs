//! The sockets of a listener: one for each interface of its device.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use linkspan_proto::handle::{Addr, Handle, HandleError};
use linkspan_stream::{Listen, Options};
use linkspan_topology::{Interface, Verdict};

use super::Acceptor;
use crate::device::{Device, DeviceInterface};
use crate::{Error, Fabric, chain};

/// One of the machine's devices: its number when it was looked at, and its interfaces, which it keeps when others come and numbers move.
pub(super) struct Member {
    index: usize,
    names: Vec<String>,
}

impl Member {
    fn new(index: usize, device: &Device) -> Member {
        Member { index, names: device.ports.iter().map(|port| port.name.clone()).collect() }
    }

    /// Which of them it is now.
    fn among(&self, devices: &[Device]) -> usize {
        let shares = |device: &Device| device.ports.iter().any(|port| self.names.contains(&port.name));
        devices.iter().position(shares).unwrap_or(self.index)
    }
}

/// What a device is made of.
pub(super) fn members(fabric: &Fabric, index: usize, device: &Device) -> Result<Vec<Member>, Error> {
    match &device.members[..] {
        [] => Ok(vec![Member::new(index, device)]),
        several => several.iter().map(|&n| Ok(Member::new(n, &fabric.device(n)?))).collect(),
    }
}

impl Acceptor {
    pub(super) fn renew(&mut self) -> Result<(), Error> {
        let config = self.fabric.config();
        let survey = crate::survey(config)?;
        let now = crate::devices(config, &survey)?;
        let mut which: Vec<usize> = Vec::new();
        for index in self.members.iter().map(|member| member.among(&now)) {
            if !which.contains(&index) {
                which.push(index);
            }
        }
        let one = |&index: &usize| now.get(index).cloned().ok_or(Error::NoDevice { index, count: now.len() });
        let parts: Vec<Device> = which.iter().map(one).collect::<Result<_, _>>()?;
        let device = match &parts[..] {
            [device] => device.clone(),
            several => Device::merged(several, &which)?,
        };
        let mut handle = self.handle.without_addrs();
        let sockets = listen(&self.fabric, &device, &mut handle, &mut self.sockets)?;
        // Handles from before lead to them.
        let before = std::mem::replace(&mut self.sockets, sockets);
        self.sockets.extend(before.into_iter().filter(|socket| is_there(&survey, socket)));
        self.members = which.iter().zip(&parts).map(|(&index, part)| Member::new(index, part)).collect();
        (self.handle, self.device) = (handle, device.name);
        Ok(())
    }
}

/// Whether the host still has the address of a socket, on the interface that it is bound to.
fn is_there(survey: &[(Interface, Verdict)], socket: &Listen) -> bool {
    let ip = socket.local_addr().ip();
    let has = |i: &Interface| i.addrs.iter().any(|addr| addr.ip == ip);
    let bound = |i: &Interface| socket.is_bound_to(None) || socket.is_bound_to(Some(&i.name));
    survey.iter().any(|(i, _)| has(i) && bound(i))
}

/// Listens on all interfaces of a device, and adds their addresses to the handle. Sockets that there were before are taken over where
/// their interfaces and addresses are among these, or are all left as they were.
pub(super) fn listen(
    fabric: &Fabric,
    device: &Device,
    handle: &mut Handle,
    before: &mut Vec<Listen>,
) -> Result<Vec<Listen>, Error> {
    let mut sockets = Vec::new();
    match fill(fabric, device, handle, before, &mut sockets) {
        Ok(()) => Ok(sockets),
        Err(error) => {
            before.append(&mut sockets);
            Err(error)
        }
    }
}

fn fill(
    fabric: &Fabric,
    device: &Device,
    handle: &mut Handle,
    before: &mut Vec<Listen>,
    sockets: &mut Vec<Listen>,
) -> Result<(), Error> {
    let (mut refused, mut left_out) = (None, Vec::new());
    // Last, what connectors that share a subnet with a cable do without.
    let beside = device.ports.iter().filter_map(DeviceInterface::by_link_local);
    let beside = beside.filter(|_| !fabric.config().meshes());
    for (n, port) in device.ports.iter().cloned().chain(beside).enumerate() {
        let more = n >= device.ports.len();
        // In a mesh one subnet may be on two cables; answers go back over the one they came by. The first port is
        // left to the routes: processes of this host come to it over loopback.
        let twice = |other: &DeviceInterface| other.name != port.name && port.addr.same_subnet(other.addr.ip);
        let tied = fabric.config().meshes() && !sockets.is_empty() && device.ports.iter().any(twice);
        let tie = port.tie().or_else(|| tied.then(|| port.name.clone()));
        let socket = match kept(before, &port, tie.as_deref()) {
            Some(socket) => Ok(socket),
            None => {
                let options = Options { device: tie, ..fabric.tcp_options() };
                Listen::bind(socket_addr(port.addr.ip, 0, port.addr.scope), &options)
            }
        };
        let socket = match socket {
            Ok(socket) => socket,
            // The kernel may not be done with looking for a duplicate of it, or it went with its cable.
            Err(why) if more => {
                let at = socket_addr(port.addr.ip, 0, port.addr.scope);
                fabric.log().info(&format!("not listening on {} at {at}: {}", port.name, chain(&why)));
                continue;
            }
            Err(why) if port.addr.is_link_local() || is_gone(port.addr.ip) => {
                left_out.push(format!("not listening on {}: {}", port.name, chain(&why)));
                refused = Some(why);
                continue;
            }
            Err(why) => return Err(why.into()),
        };
        let entry = Addr { ip: port.addr.ip, port: socket.local_addr().port(), prefix: port.addr.prefix };
        match handle.push(entry) {
            Ok(()) => sockets.push(socket),
            Err(full @ HandleError::Full { .. }) if more => fabric.log().info(&full.to_string()),
            Err(full @ HandleError::Full { .. }) => {
                left_out.push(format!("not listening on {}: {full}", port.name));
            }
            Err(other) => return Err(other.into()),
        }
    }
    match refused {
        Some(why) if sockets.is_empty() => Err(why.into()),
        _ => left_out.into_iter().try_for_each(|what| fabric.downgrade_seldom(what)),
    }
}

/// Whether no interface has this address any more. One that is there and cannot be bound yet, because the kernel still looks for a
/// duplicate of it, is worth a wait.
fn is_gone(ip: IpAddr) -> bool {
    linkspan_net::interfaces().is_ok_and(|all| all.iter().all(|i| i.addr != ip))
}

/// The socket that listens already on this address of this interface. One that is bound to an interface is lost with it, although another
/// of the same name has come.
fn kept(before: &mut Vec<Listen>, port: &DeviceInterface, tie: Option<&str>) -> Option<Listen> {
    // The scope of an IPv6 address binds as well.
    let bound = tie.or((port.addr.scope != 0).then_some(&*port.name));
    let same = |socket: &Listen| socket.local_addr().ip() == port.addr.ip && socket.is_bound_to(bound);
    let at = before.iter().position(same)?;
    Some(before.swap_remove(at))
}

/// A socket address with its scope.
pub(crate) fn socket_addr(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), port),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    }
}

#[cfg(test)]
mod tests;
