//! Several hosts together: what neither of them can see alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linkspan_proto::mesh::{Heard, MeshPort, Node};
use linkspan_topology::is_link_local;
use linkspan_topology::mesh::{Graph, findings as mesh_findings, nccl_settings};

use crate::Report;
use crate::end::{BadEnd, End, Port};
use crate::finding::{Finding, Rule, Step, root_causes};
use crate::list::*;
use crate::loader::older;
use crate::routes::{MAIN, Route, Ways, within};

/// Port of a mesh that the findings name; it says nothing here.
const SERVER_PORT: u16 = 7475;

/// Most steps of judging some hosts: an address, a rule or a route that is looked at. 250 hosts of eight cables each take some ten millions,
/// a second or less; files of strangers could ask for days.
const STEPS: u64 = 50_000_000;

/// Most findings that are told at once.
const FINDINGS: usize = 1000;

/// Most addresses of this host in the subnet of another's that are tried.
const SOURCES: usize = 4;

/// Judges hosts together: their cables as `lspan mesh` does, then addresses, routes, firmware, namespaces and plugins.
///
/// # Errors
/// [`BadEnd::Few`] for fewer than two hosts or more than 250, [`BadEnd::Twice`] for one host twice.
pub fn together(ends: &[End]) -> Result<Report, BadEnd> {
    let mut work = Work { steps: 0, most: STEPS };
    judged(ends, &mut work)
}

/// How much has been looked at.
struct Work {
    steps: u64,
    most: u64,
}

impl Work {
    /// Counts so many steps; whether there may be more.
    fn add(&mut self, steps: usize) -> bool {
        self.steps += steps as u64;
        self.steps < self.most
    }
}

fn judged(ends: &[End], work: &mut Work) -> Result<Report, BadEnd> {
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
    let hosts: Vec<Host<'_>> = ends.iter().map(Host::of).collect();
    let graph = Graph::new(nodes(&hosts, work));
    let mut found = Vec::new();
    for one in mesh_findings(&graph).into_iter().take(FINDINGS + 1) {
        let Some(rule) = MESH.iter().find(|rule| rule.code() == one.code) else { continue };
        let keep = one.keep().map(|what| Step::Do(what.to_owned()));
        let mut mend = match one.fix.starts_with("sudo ") {
            true => vec![Step::Run(one.fix)],
            false => vec![Step::Do(one.fix)],
        };
        mend.extend(keep);
        let subject = one.what.split_once('/').and_then(|(_, rest)| rest.split([' ', ',']).next()).unwrap_or_default();
        found.push(Finding { rule, host: one.node, subject: subject.to_owned(), what: one.what, mend });
    }
    for (at, a) in hosts.iter().enumerate() {
        for b in &hosts[at + 1..] {
            two(a, b, work, &mut found);
        }
    }
    for a in &hosts {
        for b in hosts.iter().filter(|b| !std::ptr::eq(*b, a)) {
            asymmetric(a, b, work, &mut found);
        }
    }
    let more = found.len() > FINDINGS;
    found.truncate(FINDINGS);
    let findings = root_causes(found);
    // Where NCCL's own transport does as well, nobody needs another.
    let own = nccl_settings(&graph).filter(|_| findings.is_empty() && work.add(0));
    let own = own.map(|settings| {
        format!(
            "NCCL's own RDMA transport (2.30 or newer) serves these hosts without linkspan, with {}",
            settings.join(" ")
        )
    });
    let more = more.then(|| format!("there are more than {FINDINGS} findings: mend these and judge anew"));
    let stopped = (!work.add(0))
        .then(|| "these files have more ports, addresses and routes than can be compared: not all of it was judged, give fewer of them".to_owned());
    Ok(Report { findings, facts: own.into_iter().chain(more).chain(stopped).collect() })
}

fn add(rule: &'static Rule, host: &str, subject: &str, what: String, mend: Vec<Step>, found: &mut Vec<Finding>) {
    if found.len() > FINDINGS {
        return;
    }
    found.push(Finding { rule, host: host.to_owned(), subject: subject.to_owned(), what, mend });
}

/// A host, and where its addresses and ports are.
struct Host<'a> {
    end: &'a End,
    ways: Ways<'a>,
    /// Addresses that others connect to, with their interface, in the order of the ports.
    addrs: Vec<(&'a str, IpAddr)>,
    first: BTreeMap<IpAddr, &'a str>,
    /// Those of ports with a carrier, in their own order, each with its place.
    sources: Vec<(IpAddr, u8, usize, &'a str)>,
    /// Ports that cables may be in: by the addresses that they have and hear, the MAC addresses that they have and know, and the host
    /// router at the other end.
    has: BTreeMap<IpAddr, BTreeSet<usize>>,
    hears: BTreeMap<IpAddr, BTreeSet<usize>>,
    mac: BTreeMap<&'a str, BTreeSet<usize>>,
    knows: BTreeMap<&'a str, BTreeSet<usize>>,
    leads: BTreeMap<&'a str, BTreeSet<usize>>,
    routers: BTreeSet<&'a str>,
}

impl<'a> Host<'a> {
    fn of(end: &'a End) -> Host<'a> {
        let of = |port: &'a Port| port.addrs.iter().map(move |addr| (port, addr)).filter(|(_, a)| !is_link_local(a.ip));
        let all = end.ports.iter().filter(|port| port.usable).flat_map(of);
        let addrs = all.clone().map(|(port, addr)| (&*port.name, addr.ip)).filter(|(_, ip)| !ip.is_loopback());
        let addrs: Vec<(&str, IpAddr)> = addrs.collect();
        let live = all.filter(|(port, _)| port.carrier).enumerate();
        let mut host = Host {
            end,
            ways: Ways::of(&end.routes, &end.rules),
            // Of equal ones the first stays.
            first: addrs.iter().rev().map(|(name, ip)| (*ip, *name)).collect(),
            addrs,
            sources: live.map(|(at, (port, addr))| (addr.ip, addr.prefix, at, &*port.name)).collect(),
            has: BTreeMap::new(),
            hears: BTreeMap::new(),
            mac: BTreeMap::new(),
            knows: BTreeMap::new(),
            leads: BTreeMap::new(),
            routers: end.routers.iter().map(String::as_str).collect(),
        };
        host.sources.sort_unstable();
        for (at, port) in end.ports.iter().enumerate().filter(|(_, port)| port.cable && port.carrier) {
            for addr in &port.addrs {
                host.has.entry(addr.ip).or_default().insert(at);
            }
            for addr in &port.heard {
                host.hears.entry(*addr).or_default().insert(at);
            }
            for mac in &port.neighbours {
                host.knows.entry(mac).or_default().insert(at);
            }
            if let Some(mac) = &port.mac {
                host.mac.entry(mac).or_default().insert(at);
            }
            if let Some(router) = &port.peer_router {
                host.leads.entry(router).or_default().insert(at);
            }
        }
        host
    }
}

/// The hosts as nodes of a mesh, with a neighbour for each cable that both ends are known of.
fn nodes(hosts: &[Host<'_>], work: &mut Work) -> Vec<Node> {
    let mut nodes: Vec<Node> = hosts.iter().zip(1..).map(|(host, id)| node(host.end, id)).collect();
    let mut cables_by_scope = 0;
    for a in 0..hosts.len() {
        for b in a + 1..hosts.len() {
            for (own, theirs) in cables(&hosts[a], &hosts[b], work) {
                let (id_a, id_b) = (nodes[a].id, nodes[b].id);
                nodes[a].heard.push(Heard { port: own, node: id_b, theirs });
                nodes[b].heard.push(Heard { port: theirs, node: id_a, theirs: own });
                let (x, y) = (usize::from(own), usize::from(theirs));
                if by_link_local(&hosts[a].end.ports[x], &hosts[b].end.ports[y]) {
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
fn cables(a: &Host<'_>, b: &Host<'_>, work: &mut Work) -> Vec<(u8, u8)> {
    let mut found = Vec::new();
    for (x, own) in a.end.ports.iter().enumerate().filter(|(_, port)| port.cable && port.carrier) {
        if !work.add(own.addrs.len() + own.heard.len() + own.neighbours.len() + 1) {
            break;
        }
        let heard = own.heard.iter().filter_map(|addr| b.has.get(addr));
        let heard = heard.chain(own.neighbours.iter().filter_map(|mac| b.mac.get(mac.as_str())));
        let heard = heard.chain(own.addrs.iter().filter_map(|addr| b.hears.get(&addr.ip)));
        let mut peers = some(heard.chain(own.mac.iter().filter_map(|mac| b.knows.get(mac.as_str()))));
        // Of several cables to one host router its UUID tells none apart.
        if peers.is_empty() && own.peer_router.as_ref().is_some_and(|uuid| b.routers.contains(uuid.as_str())) {
            work.add(a.routers.len());
            peers = some(a.routers.iter().filter_map(|uuid| b.leads.get(uuid)));
        }
        // On a switch everybody is everybody's neighbour: that is no cable.
        let mut peers = peers.into_iter();
        if let (Some(y), None) = (peers.next(), peers.next())
            && let (Ok(x), Ok(y)) = (u8::try_from(x), u8::try_from(y))
        {
            found.push((x, y));
        }
    }
    found
}

/// Two of these ports, where there are as many.
fn some<'a>(sets: impl Iterator<Item = &'a BTreeSet<usize>>) -> BTreeSet<usize> {
    let mut ports = BTreeSet::new();
    for set in sets {
        ports.extend(set.iter().take(2));
        if ports.len() > 1 {
            break;
        }
    }
    ports
}

/// What is wrong between two hosts whichever is first.
fn two(a: &Host<'_>, b: &Host<'_>, work: &mut Work, found: &mut Vec<Finding>) {
    let same_kernel = a.end.boot_id.is_some() && a.end.boot_id == b.end.boot_id;
    let apart = !(same_kernel && a.end.net_namespace == b.end.net_namespace);
    for (name, ip) in a.addrs.iter().filter(|_| apart) {
        if !work.add(1) {
            break;
        }
        if let Some(theirs) = b.first.get(ip) {
            // Where the two are the ends of one cable, that is told already.
            let ends = [format!("{}/{name} ", a.end.host), format!("{}/{theirs} ", b.end.host)];
            if found.iter().any(|f| f.rule.code() == "LS1411" && ends.iter().all(|end| f.what.contains(end))) {
                continue;
            }
            let what = format!("{}/{name} and {}/{theirs} have the same address {ip}", a.end.host, b.end.host);
            let mend = vec![Step::Do(format!("give {theirs} on {} an address of its own", b.end.host))];
            add(&NET_TWICE, &b.end.host, theirs, what, mend, found);
        }
    }
    let (a, b) = (a.end, b.end);
    for card in &a.cards {
        if !work.add(b.cards.len()) {
            break;
        }
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
fn asymmetric(a: &Host<'_>, b: &Host<'_>, work: &mut Work, found: &mut Vec<Finding>) {
    let mut theirs: Vec<_> = b.sources.iter().collect();
    theirs.sort_unstable_by_key(|(_, _, at, _)| *at);
    for &(to, prefix, _, into) in theirs {
        if !work.add(1) {
            break;
        }
        // Only where both ends are in one subnet is it known where the packet arrives.
        let from = a.sources.partition_point(|(ip, ..)| *ip < first((to, prefix)));
        let ours = a.sources[from..].iter().take_while(|(ip, ..)| within((to, prefix), *ip)).take(SOURCES);
        let mut ours: Vec<_> = ours.collect();
        ours.sort_unstable_by_key(|(_, _, at, _)| *at);
        let pair = ours.into_iter().find_map(|&(source, _, _, name)| {
            // Over the default route anything may come back by anywhere.
            let (out, _) = way(a, source, to, work).filter(|(route, _)| route.prefix > 0)?;
            (out.interface == *name).then_some((out, source))
        });
        let Some((out, source)) = pair else { continue };
        let Some((back, priority)) = way(b, to, source, work).filter(|(back, _)| back.interface != into) else {
            continue;
        };
        // Two ports of one subnet are a finding of their own.
        work.add(b.sources.len());
        if b.sources.iter().any(|(ip, prefix, _, name)| *name == back.interface && within((*ip, *prefix), source)) {
            continue;
        }
        let (a, b) = (a.end, b.end);
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
        add(&NET_ASYMMETRIC, &b.host, into, what, vec![Step::Run(mend)], found);
    }
}

/// The route of a host's packets; `None` also once too much has been looked at.
fn way<'a>(host: &Host<'a>, from: IpAddr, to: IpAddr, work: &mut Work) -> Option<(&'a Route, u32)> {
    work.steps += host.ways.rules();
    if !work.add(0) { None } else { host.ways.way(from, to, &mut work.steps) }
}

/// The first address of a subnet.
fn first((ip, prefix): (IpAddr, u8)) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() & !u32::MAX.checked_shr(prefix.into()).unwrap_or(0)).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::MAX.checked_shr(prefix.into()).unwrap_or(0)).into(),
    }
}

#[cfg(test)]
mod tests;
