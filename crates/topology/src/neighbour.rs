//! Hosts seen on an interface: the kernel's ARP table. Ethernet itself does not name the other end.

use std::net::Ipv4Addr;

use crate::sysfs::{self, Roots};

/// ATF_COM of `linux/if_arp.h`: the hardware address is known.
const COMPLETE: u32 = 2;

/// Most neighbours that are kept; on a cable between two hosts there is one.
const NEIGHBOURS_MAX: usize = 1024;

/// A host that answered on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface.
    pub interface: String,
    /// Its address.
    pub ip: Ipv4Addr,
    /// Its hardware address.
    pub mac: String,
}

/// Neighbours in the order of `/proc/net/arp` (proc_net_arp(5)).
pub(crate) fn read(roots: &Roots) -> Vec<Neighbour> {
    let table = sysfs::text(&roots.proc.join("net/arp")).unwrap_or_default();
    table.lines().skip(1).filter_map(line).take(NEIGHBOURS_MAX).collect()
}

fn line(line: &str) -> Option<Neighbour> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    let [ip, _, flags, mac, _, interface] = cells[..] else {
        return None;
    };
    let flags = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()?;
    (flags & COMPLETE != 0).then_some(())?;
    Some(Neighbour { interface: interface.to_owned(), ip: ip.parse().ok()?, mac: mac.to_owned() })
}

#[cfg(test)]
mod tests;
