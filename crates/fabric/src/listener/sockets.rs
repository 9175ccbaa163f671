//! The sockets of a listener: one for each interface of its device.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use linkspan_proto::handle::{Addr, Handle, HandleError};
use linkspan_setup::log::warn_seldom;
use linkspan_stream::{Listen, Options};

use crate::device::{Device, DeviceInterface};
use crate::{Error, Fabric, chain};

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
    let mut refused = None;
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
            Err(why) if port.addr.is_link_local() => {
                let line = format!("not listening on {}: {}", port.name, chain(&why));
                warn_seldom(fabric.log(), &port.name, &line);
                refused = Some(why);
                continue;
            }
            Err(why) => return Err(why.into()),
        };
        let entry = Addr { ip: port.addr.ip, port: socket.local_addr().port(), prefix: port.addr.prefix };
        match handle.push(entry) {
            Ok(()) => sockets.push(socket),
            Err(full @ HandleError::Full { .. }) if more => fabric.log().info(&full.to_string()),
            Err(full @ HandleError::Full { .. }) => fabric.log().warn(&full.to_string()),
            Err(other) => return Err(other.into()),
        }
    }
    match refused {
        Some(why) if sockets.is_empty() => Err(why.into()),
        _ => Ok(()),
    }
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
