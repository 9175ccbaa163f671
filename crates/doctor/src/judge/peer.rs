//! What a peer answered.

use std::net::{IpAddr, Ipv4Addr};

use linkspan_topology::{IfAddr, Interface};

use super::{Case, by_hand, run};
use crate::finding::Step;
use crate::list::*;
use crate::probe::{Asked, Tcp};

/// The port of `lspan perf serve`.
const PORT: u16 = 24_680;

/// The largest packet that a cable of MTU 1500 may pass: with a tag of a VLAN or two, and more slack (`VLAN_HLEN`).
const SLACK: std::ops::RangeInclusive<u32> = 1501..=1522;

pub(super) fn judge(case: &mut Case<'_>, asked: &Asked) {
    let snap = case.snap;
    let (peer, shown) = (asked.peer.to_string(), asked.shown());
    let Some(source) = asked.source else {
        no_route(case, asked);
        return;
    };
    if asked.peer == source || asked.peer.is_loopback() {
        let what = match &asked.name {
            Some(name) => format!("{shown} is this host's own address: {name} resolves to it here"),
            None => format!("{shown} is this host's own address"),
        };
        // Who names the loopback interface means this host.
        if asked.name.as_ref().map_or(asked.peer.is_loopback(), |name| name == "localhost") {
            case.fact(what);
        } else {
            let steps =
                "name the other host; an entry of /etc/hosts that gives its name an address of this one has to go";
            case.add(&NET_OWN_ADDRESS, &peer, what, by_hand(steps));
        }
        return;
    }
    let out = snap.survey.iter().map(|(iface, _)| iface).find(|iface| iface.addrs.iter().any(|a| a.ip == source));
    let name = out.map_or("?", |iface| &iface.name);
    let port = asked.port;
    let there = format!(
        "look at the cable of {name}; on the other host run `lspan doctor`, which names a missing address or a firewall"
    );
    if matches!(asked.tcp, Tcp::Silent | Tcp::Unreachable) {
        match (asked.answers, &asked.unsent) {
            (Some(true), _) => {
                let what =
                    format!("{shown} answers a ping over {name}, and a connection to port {port} gets no answer");
                let steps = format!(
                    "on the host of {peer}: sudo lspan doctor, which names the rule and the command that lets {name} in; with ufw: sudo ufw status"
                );
                case.add(&FIREWALL_PEER, &peer, what, by_hand(steps));
            }
            (Some(false), _) => {
                let what = format!("{shown} answers neither a ping nor a connection over {name}");
                case.add(&NET_UNREACHABLE, &peer, what, by_hand(there));
                return;
            }
            (None, Some(error)) => {
                let what = format!(
                    "{shown} does not answer a connection to port {port} over {name}, and this host cannot send it a ping: {error}"
                );
                let mut steps = run("sudo nft list ruleset");
                steps
                    .push(Step::Do("look there for a rule of this host that drops what goes out (hook output)".into()));
                case.add(&NET_UNREACHABLE, &peer, what, steps);
                return;
            }
            (None, None) => {
                let what = format!(
                    "{shown} does not answer a connection to port {port} over {name}; whether it answers a ping is not known, since this user may not send any"
                );
                case.add(&NET_UNREACHABLE, &peer, what, by_hand(there));
                return;
            }
        }
    }
    if let (Some(passes), Some(mtu)) = (asked.passes, asked.mtu) {
        let what = format!("packets of more than {passes} bytes to {shown} vanish; {name} sends up to {mtu}");
        let mut steps = snap.manager(name).mtu(name, if SLACK.contains(&passes) { *SLACK.start() - 1 } else { passes });
        steps.push(Step::Do(format!("the same at the other end; or an MTU of {mtu} on every switch between")));
        case.add(&NET_BLACK_HOLE, &peer, what, steps);
    }
    if asked.tcp == Tcp::Refused {
        let option = if port == PORT { String::new() } else { format!(" --port {port}") };
        case.fact(format!(
            "{shown} can be reached and nothing listens at port {port}: type `lspan perf serve{option}` there"
        ));
    }
}

/// What follows from an interface that is down or bare is not told beside it.
fn no_route(case: &mut Case<'_>, asked: &Asked) {
    let (snap, peer, shown) = (case.snap, asked.peer.to_string(), asked.shown());
    if case.report.findings.iter().any(|found| NET_NO_ROUTE.after.contains(&found.rule)) {
        case.fact(format!("there is no route to {shown}: mend what is broken here, then ask again"));
        return;
    }
    let covers = |iface: &&Interface| iface.addrs.iter().any(|addr| addr.same_subnet(asked.peer));
    let covers = snap.survey.iter().map(|(iface, _)| iface).filter(covers).max_by_key(|iface| iface.up);
    let (what, steps) = match covers {
        None => (
            format!("there is no route to {shown}: no interface has an address of its subnet"),
            by_hand(format!(
                "give the interface that leads there an address beside {peer}, with the same length of prefix"
            )),
        ),
        Some(iface) if !iface.up => (
            format!("there is no route to {shown}: {} has an address of its subnet and is switched off", iface.name),
            snap.manager(&iface.name).up(&iface.name),
        ),
        Some(iface) if iface.addrs.iter().any(|addr| broadcast(addr) == Some(asked.peer)) => (
            format!("{shown} is the broadcast address of the subnet of {}, and no host has it", iface.name),
            by_hand("name the address of the other host, which `ip -br addr` shows there"),
        ),
        Some(iface) => {
            let mut steps = run(format!("ip route get {peer}"));
            steps.push(Step::Do(
                "look for what it names in `ip route show table all` and `ip rule`, and take it away".into(),
            ));
            (
                format!(
                    "there is no route to {shown}: {} has an address of its subnet, and a route or a rule forbids it",
                    iface.name
                ),
                steps,
            )
        }
    };
    case.add(&NET_NO_ROUTE, &peer, what, steps);
}

/// The address of all hosts of a subnet of IPv4; one of two addresses has none (RFC 3021).
fn broadcast(addr: &IfAddr) -> Option<IpAddr> {
    match addr.ip {
        IpAddr::V4(ip) if addr.prefix < 31 => Some(Ipv4Addr::from_bits(ip.to_bits() | u32::MAX >> addr.prefix).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
