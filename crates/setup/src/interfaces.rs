//! The interfaces of this machine, and the addresses by which they are used.

use std::io;

use linkspan_topology::{
    AddrEntry, IfAddr, IfFilter, Interface, Kind, Reason, Roots, Verdict, default_routes, interfaces, judge,
};

/// This machine's interfaces with the verdict on each. In a mesh no cable is too slow, for it may be the only one to that neighbour, and the interface
/// with the default route is left out. Relays lead over addresses that are more than link-local.
///
/// # Errors
/// The error of `getifaddrs(3)`, as EMFILE.
pub fn look(filter: Option<&IfFilter>, mesh: bool) -> io::Result<Vec<(Interface, Verdict)>> {
    let entries: Vec<AddrEntry> =
        linkspan_net::interfaces()?.into_iter().map(|i| AddrEntry::new(i.name, i.index, i.addr, i.prefix)).collect();
    let list = interfaces(&Roots::default(), &entries);
    let everywhere = default_routes(&Roots::default());
    let mut verdicts = judge(&list, filter, if mesh { &[] } else { &everywhere });
    if mesh {
        for (interface, verdict) in list.iter().zip(&mut verdicts) {
            let asked = filter.is_some_and(|f| f.asks_for(&interface.name));
            let default = everywhere.contains(&interface.name) && !asked;
            match verdict {
                Verdict::Usable if interface.is_bare_cable() && !asked => {
                    *verdict = Verdict::LeftOut(Reason::LinkLocalOnly);
                }
                Verdict::Usable if default => *verdict = Verdict::LeftOut(Reason::Management),
                Verdict::LeftOut(Reason::Slow { .. }) if !default => *verdict = Verdict::Usable,
                _ => {}
            }
        }
    }
    Ok(list.into_iter().zip(verdicts).collect())
}

/// The address by which an interface is used: global before link-local, IPv4 before IPv6 (of link-local ones IPv6, which the
/// kernel gives to every interface and keeps apart by scope), unless NCCL_SOCKET_FAMILY asks for one family.
pub fn address(interface: &Interface, family: Option<&str>) -> Option<IfAddr> {
    best(interface, family, |_| true)
}

/// The link-local address of a cable to one neighbour beside the [`address`] by which it is used: the neighbour may have
/// none but such on its end.
pub fn beside(interface: &Interface, family: Option<&str>) -> Option<IfAddr> {
    let cable = interface.kind == Kind::Thunderbolt && !address(interface, family)?.is_link_local();
    best(interface, family, IfAddr::is_link_local).filter(|_| cable)
}

fn best(interface: &Interface, family: Option<&str>, wanted: impl Fn(&IfAddr) -> bool) -> Option<IfAddr> {
    let fits = |a: &&IfAddr| match family {
        Some("AF_INET") => a.ip.is_ipv4(),
        Some("AF_INET6") => a.ip.is_ipv6(),
        _ => true,
    };
    interface
        .addrs
        .iter()
        .filter(fits)
        .filter(|a| wanted(a))
        .min_by_key(|a| (a.is_link_local(), a.ip.is_ipv6() != a.is_link_local()))
        .copied()
}

/// The address family that NCCL_SOCKET_FAMILY asks for.
pub fn family() -> Option<String> {
    std::env::var("NCCL_SOCKET_FAMILY").ok()
}

#[cfg(test)]
mod tests;
