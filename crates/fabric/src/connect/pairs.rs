//! Which pairs of addresses are tried.

use std::net::SocketAddr;

use linkspan_proto::handle::{Addr, Handle};
use linkspan_setup::interfaces::family;
use linkspan_topology::{FAR_SLOWER, is_link_local};
use linkspan_transport::MAX_RAILS;

use crate::Fabric;
use crate::device::{Device, DeviceInterface};
use crate::listener::socket_addr;
use crate::route::Path;

/// The pairs of addresses that could be tried if an interface of ours had a link.
pub(super) fn later(fabric: &Fabric, device: &Device, handle: &Handle) -> Vec<(SocketAddr, SocketAddr, String)> {
    let mut list = Vec::new();
    for port in crate::deferred::ports(fabric.config(), fabric.survey(), device) {
        // It may lead to another host, which is no reason to try for ever.
        if port.addr.is_link_local() {
            continue;
        }
        // Another of our interfaces in that subnet is what reaches it already.
        let served = |to: &Addr| device.ports.iter().any(|p| to.same_subnet(p.addr.ip));
        let to = handle.addrs().iter().find(|to| to.same_subnet(port.addr.ip) && !served(to));
        if let Some(to) = to {
            let from = socket_addr(port.addr.ip, 0, port.addr.scope);
            let to = socket_addr(to.ip, to.port, port.addr.scope);
            list.push(((from, to, port.name.clone()), fabric.streams_for(port.mbps)));
        }
    }
    in_rounds(list)
}

/// Each so many times: first each once, then each that is left a second time, so that none of the last ones lacks where there are too many.
fn in_rounds<T: Clone>(list: Vec<(T, usize)>) -> Vec<T> {
    let most = list.iter().map(|(_, times)| *times).max().unwrap_or(0);
    let round = |n| list.iter().filter(move |(_, times)| n < *times).map(|(one, _)| one.clone());
    (0..most).flat_map(round).collect()
}

/// A cable of ours by its link-local address of the family that the peer has chosen on its end.
fn of_its_family(fabric: &Fabric, port: &DeviceInterface, to: &Addr) -> Option<DeviceInterface> {
    let all = fabric.survey().iter().find(|(i, _)| i.name == port.name).filter(|_| family().is_none());
    let all = all.map_or(&[][..], |(i, _)| &i.addrs).iter().filter(|addr| addr.is_link_local());
    let fits = all.chain([&port.addr]).chain(&port.beside).find(|addr| to.same_subnet(addr.ip))?;
    Some(DeviceInterface { addr: *fits, ..port.clone() })
}

/// Whether a cable is left out beside the fastest that leads to the same host.
pub(super) fn far_slower(mbps: u32, fastest: u32) -> bool {
    mbps != 0 && mbps.saturating_mul(FAR_SLOWER) < fastest
}

/// The pairs of addresses to try: each of ours with one of theirs in its subnet, else whatever the routes say; and each
/// link-local one of ours with each of theirs, cables that share no subnet with the peer included. In a mesh the interfaces are fixed with the addresses, every pair is tried where
/// one subnet is on several cables, and routes do not count: they lead over networks that a mesh keeps clear of.
pub(super) fn pairs(
    fabric: &Fabric,
    device: &Device,
    handle: &Handle,
    same_host: bool,
) -> Vec<(Path, &'static str, u32)> {
    let mesh = fabric.config().meshes() && !same_host;
    let (mut cables, mut free): (Vec<_>, Vec<_>) = device.ports.iter().partition(|p| !mesh && p.addr.is_link_local());
    let mut list = Vec::new();
    if same_host {
        // An interface of the listener's may have gone, or come, since it or this process looked. One that is alone needs no look.
        let theirs = handle.addrs();
        let look = theirs.len() > 1 || is_link_local(theirs[0].ip);
        let ours = if look { linkspan_net::interfaces().unwrap_or_default() } else { Vec::new() };
        let here = theirs.iter().find_map(|to| Some((to, ours.iter().find(|own| own.addr == to.ip)?)));
        let to = here.map_or(theirs[0], |(to, _)| *to);
        let scope = here.filter(|_| is_link_local(to.ip)).map_or(0, |(_, own)| own.index);
        let mbps = device.ports.first().map_or(0, |p| p.mbps);
        let reach = Path::Plain { from: None, to: socket_addr(to.ip, to.port, scope), device: None };
        return vec![(reach, "same host", mbps)];
    }
    let pair = |port: &DeviceInterface, to: &Addr| {
        let from = Some(socket_addr(port.addr.ip, 0, port.addr.scope));
        let device = port.tie().or_else(|| mesh.then(|| port.name.clone()));
        (Path::Plain { from, to: socket_addr(to.ip, to.port, port.addr.scope), device }, "same subnet", port.mbps)
    };
    for to in handle.addrs() {
        let Some(at) = free.iter().position(|p| to.same_subnet(p.addr.ip)) else {
            continue;
        };
        let port = free.remove(at);
        list.push((pair(port, to), fabric.streams_for(port.mbps)));
    }
    let mut list = in_rounds(list);
    if mesh {
        let fastest = list.iter().map(|(.., mbps)| *mbps).max().unwrap_or(0);
        list.retain(|(.., mbps)| !far_slower(*mbps, fastest));
        let others = free.iter().flat_map(|p| handle.addrs().iter().map(move |to| (*p, to)));
        list.extend(others.filter(|(p, to)| to.same_subnet(p.addr.ip)).map(|(p, to)| pair(p, to)));
    } else if list.is_empty() {
        let routed = |to: &Addr| Path::Plain { from: None, to: to.socket(), device: None };
        let there = handle.addrs().iter().filter(|to| !is_link_local(to.ip));
        list.extend(there.map(|to| (routed(to), "routed: no interface shares a subnet", 0)));
    }
    list.truncate(MAX_RAILS);
    cables.extend(free.into_iter().filter(|p| !mesh && p.beside.is_some()));
    // Which cable of ours leads to which of theirs is not known: first, second, ... with their first, second, ..., then crossed.
    let there: Vec<&Addr> = handle.addrs().iter().filter(|to| is_link_local(to.ip)).collect();
    for crossed in 0..there.len() {
        let ends = cables.iter().enumerate().map(|(n, port)| (port, there[(n + crossed) % there.len()]));
        let ports = ends.filter_map(|(port, to)| Some((of_its_family(fabric, port, to)?, to)));
        let one = |(port, to)| ((pair(&port, to).0, "a cable of this host", port.mbps), fabric.streams_for(port.mbps));
        list.extend(in_rounds(ports.map(one).collect()));
    }
    list.truncate(3 * MAX_RAILS);
    list
}
