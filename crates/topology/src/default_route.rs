//! Interfaces that lead to everywhere: on a host with cables to its neighbours, the one to the management network; in a
//! container often the only one.

use crate::sysfs::{self, Roots};

/// Names of the interfaces of default routes, from `/proc/net/route` (proc_net(5)) and `/proc/net/ipv6_route`.
pub fn default_routes(roots: &Roots) -> Vec<String> {
    let v4 = sysfs::text(&roots.proc.join("net/route")).unwrap_or_default();
    let v6 = sysfs::text(&roots.proc.join("net/ipv6_route")).unwrap_or_default();
    let mut names: Vec<String> = v4.lines().skip(1).filter_map(four).chain(v6.lines().filter_map(six)).collect();
    names.sort();
    names.dedup();
    names
}

/// Interface, destination, gateway, flags, reference count, use, metric, mask, ...
fn four(line: &str) -> Option<String> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    let [name, "00000000", _, _, _, _, _, "00000000", ..] = cells[..] else { return None };
    Some(name.to_owned())
}

/// Destination, its length, source, its length, next hop, metric, reference count, use, flags, interface. The kernel lists
/// a default route on `lo` that rejects.
fn six(line: &str) -> Option<String> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    let [to, "00", _, "00", _, _, _, _, _, name] = cells[..] else { return None };
    (to.bytes().all(|b| b == b'0') && name != "lo").then(|| name.to_owned())
}

#[cfg(test)]
mod tests;
