//! Several hosts together: what neither of them can see alone.

use std::net::{IpAddr, Ipv6Addr};

use linkspan_proto::mesh::{Heard, MeshPort, Node};
use linkspan_topology::is_link_local;
use linkspan_topology::mesh::{Graph, findings as mesh_findings, nccl_settings};

use crate::Report;
use crate::end::{BadEnd, End, Port};
use crate::finding::{Finding, Rule, Step, root_causes};
use crate::list::*;
use crate::loader::older;
use crate::routes::{MAIN, way};

/// Port of a mesh that the findings name; it says nothing here.
const SERVER_PORT: u16 = 7475;

/// Judges hosts together: their cables as `lspan mesh` does, then addresses, routes, firmware, namespaces and plugins.
///
/// # Errors
/// [`BadEnd::Few`] for fewer than two hosts or more than 250, [`BadEnd::Twice`] for one host twice.
pub fn together(ends: &[End]) -> Result<Report, BadEnd> {
    if !(2..=250).contains(&ends.len()) {
        return Err(BadEnd::Few(ends.len()));
    }
    for (at, end) in ends.iter().enumerate() {
        let same = |other: &End| {
            other.host == end.host && other.boot_id == end.boot_id && other.pid_namespace == end.pid_namespace
        };
        if ends[..at].iter().any(|other| same(other) && other.net_namespace == end.net_namespace) {
            return Err(BadEnd::Twice(end.host.clone()));
        }
    }
    let graph = Graph::new(nodes(ends));
    let mut found = Vec::new();
    for one in mesh_findings(&graph) {
        let Some(rule) = MESH.iter().find(|rule| rule.code() == one.code) else { continue };
        let mend = match one.fix.starts_with("sudo ") {
            true => vec![Step::Run(one.fix)],
            false => vec![Step::Do(one.fix)],
        };
        let subject = one.what.split_once('/').and_then(|(_, rest)| rest.split([' ', ',']).next()).unwrap_or_default();
        found.push(Finding { rule, host: one.node, subject: subject.to_owned(), what: one.what, mend });
    }
    for (at, a) in ends.iter().enumerate() {
        for b in &ends[at + 1..] {
            two(a, b, &mut found);
        }
    }
    for a in ends {
        for b in ends.iter().filter(|b| !std::ptr::eq(*b, a)) {
            asymmetric(a, b, &mut found);
        }
    }
    let findings = root_causes(found);
    // Where NCCL's own transport does as well, nobody needs another.
    let own = nccl_settings(&graph).filter(|_| findings.is_empty());
    let facts = own.map(|settings| {
        format!(
            "NCCL's own RDMA transport (2.30 or newer) serves these hosts without linkspan, with {}",
            settings.join(" ")
        )
    });
    Ok(Report { findings, facts: facts.into_iter().collect() })
}

fn add(rule: &'static Rule, host: &str, subject: &str, what: String, mend: Vec<Step>, found: &mut Vec<Finding>) {
    found.push(Finding { rule, host: host.to_owned(), subject: subject.to_owned(), what, mend });
}

/// The hosts as nodes of a mesh, with a neighbour for each cable that both ends are known of.
fn nodes(ends: &[End]) -> Vec<Node> {
    let mut nodes: Vec<Node> = ends.iter().zip(1..).map(|(end, id)| node(end, id)).collect();
    let mut cables_by_scope = 0;
    for a in 0..ends.len() {
        for b in a + 1..ends.len() {
            for (own, theirs) in cables(&ends[a], &ends[b]) {
                let (id_a, id_b) = (nodes[a].id, nodes[b].id);
                nodes[a].heard.push(Heard { port: own, node: id_b, theirs });
                nodes[b].heard.push(Heard { port: theirs, node: id_a, theirs: own });
                let (x, y) = (usize::from(own), usize::from(theirs));
                if by_link_local(&ends[a].ports[x], &ends[b].ports[y]) {
                    // The graph knows subnets, not scopes: such a cable gets a subnet of its own.
                    cables_by_scope += 1;
                    let end = |side| Some((Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, cables_by_scope, side).into(), 112));
                    (nodes[a].ports[x].addr, nodes[b].ports[y].addr) = (end(1), end(2));
                }
            }
        }
    }
    nodes
}

/// Whether a Thunderbolt cable is used by the link-local addresses of its two ends, since one of them has no other.
fn by_link_local(own: &Port, theirs: &Port) -> bool {
    // Of both families IPv6 is the one that is offered.
    let local = |port: &Port| {
        let all = port.addrs.iter().filter(|addr| port.peer_router.is_some() && is_link_local(addr.ip));
        all.map(|addr| addr.ip.is_ipv6()).max()
    };
    let routed = |port: &Port| port.addrs.iter().any(|addr| !is_link_local(addr.ip));
    local(own).is_some() && local(own) == local(theirs) && !(routed(own) && routed(theirs))
}

fn node(end: &End, id: u64) -> Node {
    let port = |(at, port): (usize, &Port)| {
        let routed = port.addrs.iter().filter(|addr| !is_link_local(addr.ip));
        let twin = end
            .ports
            .iter()
            .enumerate()
            .position(|(n, other)| n != at && other.socket.is_some() && other.socket == port.socket);
        MeshPort {
            name: port.name.clone(),
            addr: routed.min_by_key(|addr| addr.ip.is_ipv6()).map(|addr| (addr.ip, addr.prefix)),
            mtu: port.mtu.unwrap_or(0),
            mbps: port.mbps.unwrap_or(0),
            carrier: port.carrier,
            rdma: port.rdma,
            gid: port.gid,
            twin: twin.and_then(|n| u8::try_from(n).ok()),
        }
    };
    Node {
        id,
        epoch: 0,
        seq: 0,
        name: end.host.clone(),
        relays: false,
        server_port: SERVER_PORT,
        ports: end.ports.iter().enumerate().map(port).collect(),
        heard: Vec::new(),
    }
}

/// Pairs of ports with a cable between them: one answered on the other, is in its neighbour table, or is the only Thunderbolt cable
/// between the two host routers.
fn cables(a: &End, b: &End) -> Vec<(u8, u8)> {
    let mut found = Vec::new();
    for (x, own) in a.ports.iter().enumerate().filter(|(_, port)| port.cable && port.carrier) {
        let there = || b.ports.iter().enumerate().filter(|(_, port)| port.cable && port.carrier);
        let heard = |(_, theirs): &(usize, &Port)| hears(own, theirs) || hears(theirs, own);
        // Of several cables to one host router its UUID tells none apart.
        let known = there().any(|port| heard(&port));
        let mut peers = there().filter(|port| if known { heard(port) } else { routers(a, own, b, port.1) });
        // On a switch everybody is everybody's neighbour: that is no cable.
        if let (Some((y, _)), None) = (peers.next(), peers.next())
            && let (Ok(x), Ok(y)) = (u8::try_from(x), u8::try_from(y))
        {
            found.push((x, y));
        }
    }
    found
}

fn hears(a: &Port, b: &Port) -> bool {
    let answered = a.heard.iter().any(|addr| b.addrs.iter().any(|have| have.ip == *addr));
    answered || b.mac.as_ref().is_some_and(|mac| a.neighbours.contains(mac))
}

fn routers(a: &End, own: &Port, b: &End, theirs: &Port) -> bool {
    let to = |port: &Port, end: &End| port.peer_router.as_ref().is_some_and(|uuid| end.routers.contains(uuid));
    to(own, b) && to(theirs, a)
}

/// What is wrong between two hosts whichever is first.
fn two(a: &End, b: &End, found: &mut Vec<Finding>) {
    let addrs = |end: &End| -> Vec<(String, IpAddr)> {
        let usable = end.ports.iter().filter(|port| port.usable);
        usable
            .flat_map(|p| p.addrs.iter().map(|addr| (p.name.clone(), addr.ip)))
            .filter(|(_, ip)| !is_link_local(*ip) && !ip.is_loopback())
            .collect()
    };
    let same_kernel = a.boot_id.is_some() && a.boot_id == b.boot_id;
    for (name, ip) in addrs(a) {
        if let Some((theirs, _)) = addrs(b).into_iter().find(|(_, other)| *other == ip)
            && !(same_kernel && a.net_namespace == b.net_namespace)
        {
            let what = format!("{}/{name} and {}/{theirs} have the same address {ip}", a.host, b.host);
            let mend = vec![Step::Do(format!("give {theirs} on {} an address of its own", b.host))];
            add(&NET_TWICE, &b.host, &theirs, what, mend, found);
        }
    }
    for card in &a.cards {
        let other = b.cards.iter().find(|c| c.board.is_some() && c.board == card.board && c.firmware != card.firmware);
        if let (Some(other), Some(board), Some(ours)) = (other, &card.board, &card.firmware)
            && let Some(theirs) = &other.firmware
        {
            let (behind, card) = if older(Some(ours), Some(theirs)) { (a, card) } else { (b, other) };
            let what = format!("{board}: firmware {ours} on {}, {theirs} on {}", a.host, b.host);
            let mend = vec![Step::Do(format!(
                "on {}: update the card's firmware (sudo mlxfwmanager --online -u, or fwupdmgr update)",
                behind.host
            ))];
            // One finding for all functions of a card.
            if !found.iter().any(|f| *f.rule == RDMA_FIRMWARE && f.host == behind.host) {
                add(&RDMA_FIRMWARE, &behind.host, &card.name, what, mend, found);
            }
        }
    }
    if same_kernel {
        let differ = |x: &Option<String>, y: &Option<String>| x.is_some() && y.is_some() && x != y;
        let both = format!("{} and {} run on one host", a.host, b.host);
        if differ(&a.net_namespace, &b.net_namespace) {
            let what = format!("{both}, in different network namespaces: TCP in place of shared memory");
            add(
                &HOST_NET_NAMESPACE,
                &b.host,
                "",
                what,
                vec![Step::Do("run both in one pod, or start both with --network host".into())],
                found,
            );
        }
        if differ(&a.pid_namespace, &b.pid_namespace) {
            let what = format!("{both}, in different pid namespaces: large messages are copied twice");
            add(
                &HOST_PID_NAMESPACE,
                &b.host,
                "",
                what,
                vec![Step::Do("start both with --pid host, or in one pod with shareProcessNamespace: true".into())],
                found,
            );
        }
    }
    if let (Some(ours), Some(theirs)) = (&a.plugin, &b.plugin)
        && ours != theirs
    {
        let behind = if older(Some(ours), Some(theirs)) { a } else { b };
        let what = format!("the plugin is of release {ours} on {} and {theirs} on {}", a.host, b.host);
        add(
            &NCCL_VERSIONS,
            &behind.host,
            "",
            what,
            vec![Step::Do(format!("install the newer release on {}", behind.host))],
            found,
        );
    }
}

/// `b` answers `a` over another interface than the one that `a` sends to.
fn asymmetric(a: &End, b: &End, found: &mut Vec<Finding>) {
    let usable = |end: &'_ End| -> Vec<(String, IpAddr, u8)> {
        let ports = end.ports.iter().filter(|port| port.usable && port.carrier);
        let own = ports.flat_map(|port| port.addrs.iter().map(|addr| (port.name.clone(), addr.ip, addr.prefix)));
        own.filter(|(_, ip, _)| !is_link_local(*ip)).collect()
    };
    let one_net = |ip: IpAddr, prefix: u8, other: IpAddr| crate::end::Addr { ip, prefix }.known().same_subnet(other);
    let ours = usable(a);
    for (into, to, prefix) in usable(b) {
        // Only where both ends are in one subnet is it known where the packet arrives.
        let pair = ours.iter().filter(|(_, ip, _)| one_net(to, prefix, *ip)).find_map(|(name, source, _)| {
            // Over the default route anything may come back by anywhere.
            let (out, _) = way(&a.routes, &a.rules, *source, to).filter(|(route, _)| route.prefix > 0)?;
            (out.interface == *name).then_some((out, *source))
        });
        let Some((out, source)) = pair else { continue };
        let Some((back, priority)) = way(&b.routes, &b.rules, to, source).filter(|(back, _)| back.interface != into)
        else {
            continue;
        };
        // Two ports of one subnet are a finding of their own.
        if usable(b).iter().any(|(name, ip, prefix)| *name == back.interface && one_net(*ip, *prefix, source)) {
            continue;
        }
        let what = format!(
            "{} reaches {}/{into} ({to}) over {}, and {} answers {source} over {}",
            a.host, b.host, out.interface, b.host, back.interface
        );
        let (ip, all) = if to.is_ipv4() { ("ip", 32) } else { ("ip -6", 128) };
        let mend = match back.prefix {
            // A rule before the one that led to the other table.
            _ if back.table != MAIN => {
                format!("sudo {ip} rule add to {source}/{all} lookup main priority {}", priority.saturating_sub(1))
            }
            0 => format!("sudo {ip} route add {source}/{all} dev {into}"),
            prefix => format!("sudo {ip} route del {}/{prefix} dev {}", back.to, back.interface),
        };
        add(&NET_ASYMMETRIC, &b.host, &into, what, vec![Step::Run(mend)], found);
    }
}

#[cfg(test)]
mod tests;
