//! Interfaces, TCP's settings, the firewall.

use linkspan_topology::{BadFilter, IfFilter, Interface, Kind, Reason, Verdict};

use super::{Case, addresses, by_hand, give_address, routed, run};
use crate::finding::Step;
use crate::list::*;
use crate::nft;
use crate::shell::word;
use crate::snapshot::Snapshot;

/// Memory of a TCP connection below which a fast network waits, bytes: 10 Gb/s and 1 ms are 1.25 MB on their way. The kernel's
/// defaults are 4 and 6 MiB (tcp(7)).
const BUFFER: u64 = 1 << 20;

/// A card that was negotiated at this or less, Mb/s, has a broken cable.
const SLOW: u32 = 100;

/// What is left out when it is this many times faster than what is used was left out by mistake.
const FASTER: u32 = 4;

/// Ports that are tried against the firewall: that of `lspan perf serve`, and one of those that connections get.
const PORTS: [u16; 2] = [24_680, 40_000];

pub(super) fn judge(case: &mut Case<'_>) {
    settings(case);
    unusable(case);
    subnets(case);
    for (iface, _) in &case.snap.survey {
        slow(case, iface);
    }
    tcp(case);
    firewall(case);
}

fn settings(case: &mut Case<'_>) {
    let snap = case.snap;
    if let Some(why) = &snap.sources.settings {
        case.add(
            &NET_SETTINGS,
            "",
            why.clone(),
            by_hand("correct or unset it; `lspan env` shows what each name takes"),
        );
    }
    let filter: Result<Option<IfFilter>, BadFilter> = IfFilter::from_env(|name| snap.env(name).map(str::to_owned));
    let Ok(Some(filter)) = filter else { return };
    let variable = filter.shown().split('=').next().unwrap_or_default().to_owned();
    let present: Vec<&str> = snap.survey.iter().map(|(iface, _)| &*iface.name).collect();
    let missing = filter.unmatched(&present);
    let excludes = present.iter().all(|name| !filter.asks_for(name)) && present.iter().any(|name| filter.allows(name));
    let asked = present.iter().any(|name| filter.asks_for(name));
    if !missing.is_empty() && asked && !filter.is_exact() {
        case.fact(format!(
            "{}: no interface has a name that begins with {}; the others of the list are used",
            filter.shown(),
            missing.join(" or ")
        ));
    } else if !missing.is_empty() && !excludes {
        let others: Vec<&str> =
            snap.survey.iter().filter(|(i, _)| i.kind != Kind::Loopback).map(|(i, _)| &*i.name).collect();
        let what = format!(
            "{} names {}, and there is no such interface; there are {}",
            filter.shown(),
            missing.join(", "),
            others.join(", ")
        );
        let steps = match &*variable {
            "NCCL_SOCKET_IFNAME" => by_hand(format!(
                "correct {variable}: NCCL's bootstrap follows it too, and without it NCCL guesses, perhaps an interface that reaches one host alone"
            )),
            _ => run(format!("unset {variable}")),
        };
        case.add(&NET_FILTER, &variable, what, steps);
    }
    let usable = |v: &Verdict| v.is_usable();
    let speed = |used: bool| {
        let of = snap.survey.iter().filter(move |(_, verdict)| usable(verdict) == used);
        of.filter(|(iface, verdict)| {
            used || matches!(verdict, Verdict::LeftOut(Reason::Excluded(_)))
                && iface.up
                && iface.carrier == Some(true)
                && routed(iface)
        })
        .filter(|(iface, _)| {
            !matches!(iface.kind, Kind::Loopback | Kind::Bridge { .. } | Kind::Veth | Kind::Virtual | Kind::Tunnel(_))
        })
        .filter_map(|(iface, _)| Some((iface.speed_mbps?, &iface.name)))
        .max()
    };
    if let (Some((used, slower)), Some((left, faster))) = (speed(true), speed(false))
        && left >= used.saturating_mul(FASTER)
    {
        let what = format!(
            "{} leaves {faster} ({} Gb/s) out and uses {slower} ({} Gb/s)",
            filter.shown(),
            f64::from(left) / 1000.0,
            f64::from(used) / 1000.0
        );
        // Whatever the variable: NCCL's is also for its bootstrap, which a cable to one host does not carry.
        case.add(&NET_FILTER_SLOW, &variable, what, run(format!("export LINKSPAN_IFNAME={}", word(faster))));
    }
    for (iface, verdict) in &snap.survey {
        if filter.asks_for(&iface.name) && verdict.is_usable() && iface.kind == (Kind::Bridge { wired: false }) {
            let what = format!("{} chooses {}, a bridge that no network card is part of", filter.shown(), iface.name);
            case.add(&NET_BRIDGE, &iface.name, what, run(format!("unset {variable}")));
        }
    }
}

fn unusable(case: &mut Case<'_>) {
    let snap = case.snap;
    for (iface, verdict) in &snap.survey {
        let asked = snap.filter.as_ref().is_some_and(|filter| filter.asks_for(&iface.name));
        // A prefix means also ports that nobody uses.
        let shown = snap.filter.as_ref().map_or_else(String::new, IfFilter::shown);
        let meant = routed(iface) || shown.split(['=', ',']).any(|name| name == iface.name);
        if asked && meant && !iface.up && iface.kind != Kind::Loopback {
            let what = format!("{} is asked for by {shown} and is switched off", iface.name);
            case.add(&NET_DOWN, &iface.name, what, snap.manager(&iface.name).up(&iface.name));
        }
        let plugged = iface.up && iface.carrier != Some(false);
        if asked && plugged && iface.kind != Kind::Thunderbolt && iface.kind != Kind::Loopback {
            if *verdict == Verdict::LeftOut(Reason::NoAddress) {
                let what = format!("{} is asked for, has a carrier and no address", iface.name);
                case.add(&NET_NO_ADDRESS, &iface.name, what, give_address(snap, &iface.name));
            } else if verdict.is_usable() && !routed(iface) {
                case.fact(format!(
                    "{} has link-local addresses only: linkspan uses it because {shown} asks for it, other programs may want an address",
                    iface.name
                ));
            }
        }
    }
    let outside = |verdict: &Verdict, iface: &Interface| verdict.is_usable() && iface.kind != Kind::Loopback;
    if !snap.survey.is_empty() && !snap.survey.iter().any(|(iface, verdict)| outside(verdict, iface)) {
        let why: Vec<String> = snap
            .survey
            .iter()
            .filter_map(|(iface, verdict)| match verdict {
                Verdict::LeftOut(reason) if iface.kind != Kind::Loopback => Some(format!("{}: {reason}", iface.name)),
                _ => None,
            })
            .collect();
        let why = if why.is_empty() { "there is none but loopback".to_owned() } else { why.join("; ") };
        case.add(&NET_NONE, "", format!("no interface reaches another host ({why})"), usable_again(snap));
    }
    if let Some((iface, _)) = snap.survey.iter().find(|(_, verdict)| *verdict == Verdict::LastResort) {
        let what = format!("{} ({}) is the only interface with a way out", iface.name, iface.kind);
        let steps = match snap.container() {
            Some("kubernetes") => "hostNetwork: true in the pod, or a second network of macvlan or SR-IOV (Multus)",
            Some(_) => "start the container with --network host",
            None => "use the host's network namespace, macvlan or SR-IOV",
        };
        case.add(&NET_LAST_RESORT, &iface.name, what, by_hand(steps));
    }
}

/// What makes one of the interfaces usable of which none is, by the reason.
fn usable_again(snap: &Snapshot) -> Vec<Step> {
    let with = |wanted: fn(&Reason) -> bool| {
        snap.survey.iter().filter_map(move |(iface, verdict)| match verdict {
            Verdict::LeftOut(reason) if routed(iface) && iface.kind != Kind::Loopback && wanted(reason) => {
                Some((iface, reason))
            }
            _ => None,
        })
    };
    if let Some((_, Reason::Excluded(setting))) = with(|reason| matches!(reason, Reason::Excluded(_))).next() {
        return run(format!("unset {}", setting.split('=').next().unwrap_or_default()));
    }
    let down: Vec<Step> = with(|reason| *reason == Reason::Down)
        .flat_map(|(iface, _)| snap.manager(&iface.name).up(&iface.name))
        .collect();
    if !down.is_empty() {
        return down;
    }
    let software = |reason: &Reason| matches!(reason, Reason::Veth | Reason::Tunnel(_) | Reason::Virtual);
    if let Some((iface, _)) = with(software).next() {
        let name = word(&iface.name);
        return by_hand(format!("where the other hosts are reached over {name}: export LINKSPAN_IFNAME={name}"));
    }
    by_hand("plug a cable in or connect to a network, and give the interface an address")
}

/// Two interfaces that may be used, in one subnet. Radios beside cables are not used, and aliases of one interface are one. Where one of
/// the two is a cable to one host it is dead; two cards on one network work, and many hosts have them.
fn subnets(case: &mut Case<'_>) {
    let snap = case.snap;
    let used: Vec<&Interface> = snap
        .survey
        .iter()
        .filter(|(iface, verdict)| {
            verdict.is_usable() && !matches!(iface.kind, Kind::Loopback | Kind::Wireless | Kind::Macvlan)
        })
        .map(|(iface, _)| iface)
        .collect();
    for (at, second) in used.iter().enumerate() {
        let meets = |first: &&&Interface| {
            let nets = |a: &linkspan_topology::IfAddr| {
                !a.is_link_local()
                    && second.addrs.iter().any(|b| !b.is_link_local() && (a.same_subnet(b.ip) || b.same_subnet(a.ip)))
            };
            first.addrs.iter().any(nets)
        };
        let Some(first) = used[..at].iter().find(meets) else { continue };
        // The cable is changed: the other one may be that over which somebody types.
        let swap = leads_to_one(case, first) && !leads_to_one(case, second);
        let (first, second) = if swap { (*second, *first) } else { (*first, *second) };
        let both = |iface: &Interface| {
            iface
                .addrs
                .iter()
                .filter(|a| !a.is_link_local())
                .map(|a| format!("{}/{}", a.ip, a.prefix))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let what = format!("{} ({}) and {} ({}) are in one subnet", first.name, both(first), second.name, both(second));
        let name = &*second.name;
        if !leads_to_one(case, second) {
            case.fact(format!(
                "{what}: linkspan sends over each of them, other programs over one; hosts may see the address of one at the card of the other \
                 (arp_ignore and arp_announce of Documentation/networking/ip-sysctl.rst)"
            ));
            continue;
        }
        let old = second.addrs.iter().filter(|a| !a.is_link_local());
        let del: Vec<String> =
            old.map(|a| format!("sudo ip addr del {}/{} dev {}", a.ip, a.prefix, word(name))).collect();
        let mut steps = run(del.join(" && "));
        match second.kind {
            // Link-local addresses are enough for it, and fit an end that has no other.
            Kind::Thunderbolt => steps.extend(snap.manager(name).link_local(name)),
            _ if addresses(snap, name).is_some() => steps.extend(give_address(snap, name)),
            _ => {
                steps = by_hand(format!(
                    "give {name} and the port that it is cabled to a subnet of their own; two cards on one switch: a bond, or two VLANs"
                ))
            }
        }
        case.add(&NET_ONE_SUBNET, name, what, steps);
    }
}

/// Whether an interface is taken for a cable to one host: it is likely to be one, has no default route, and no second neighbour was heard.
fn leads_to_one(case: &Case<'_>, iface: &Interface) -> bool {
    let snap = case.snap;
    let four = snap.machine.neighbours.iter().filter(|one| one.interface == iface.name).count();
    let six = snap.sources.heard.iter().filter(|one| one.interface == iface.name).count();
    let everywhere = linkspan_topology::default_routes(&snap.sources.roots).contains(&iface.name);
    snap.is_cable(iface) && !everywhere && four < 2 && six < 2
}

fn slow(case: &mut Case<'_>, iface: &Interface) {
    let Some(mbps) = iface.speed_mbps.filter(|&mbps| mbps <= SLOW) else { return };
    if iface.kind == Kind::Physical && iface.up && iface.carrier == Some(true) {
        let what = format!("{} was negotiated at {mbps} Mb/s", iface.name);
        case.add(
            &NET_SLOW_LINK,
            &iface.name,
            what,
            by_hand("take another cable (all eight wires), then another port of the switch"),
        );
    }
}

fn tcp(case: &mut Case<'_>) {
    let snap = case.snap;
    for name in ["tcp_rmem", "tcp_wmem"] {
        let text = snap.text(&format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        let values: Vec<u64> = text.split_whitespace().filter_map(|value| value.parse().ok()).collect();
        if let [low, usual, most] = values[..]
            && most < BUFFER
        {
            let what = format!("net.ipv4.{name} is {low} {usual} {most}: a connection may use {} KiB", most >> 10);
            let wanted = if name == "tcp_rmem" { "4096 131072 6291456" } else { "4096 16384 4194304" };
            let keep = format!(
                "echo 'net.ipv4.{name} = {wanted}' | sudo tee /etc/sysctl.d/90-{}.conf",
                name.replace('_', "-")
            );
            case.add(&NET_BUFFERS, name, what, run(format!("sudo sysctl -w net.ipv4.{name}='{wanted}' && {keep}")));
        }
    }
    let Some(default) = snap.text("/proc/sys/net/ipv4/tcp_congestion_control") else { return };
    if !default.starts_with("bbr") {
        return;
    }
    let allowed = snap.text("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap_or_default();
    let here = snap.text("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let may = |name: &str| {
        allowed.split_whitespace().any(|word| word == name) && here.split_whitespace().any(|word| word == name)
    };
    if may("cubic") || may("reno") {
        case.fact(format!("TCP's default is {default}; linkspan takes cubic or reno towards private addresses, NCCL's own sockets do not"));
    } else {
        let what = format!("net.ipv4.tcp_congestion_control is {default}, and only {allowed} may be chosen");
        // The kernel refuses names that are not there; reno is part of it.
        let there = |name: &&str| *name == "reno" || here.split_whitespace().any(|word| word == *name);
        let others: Vec<&str> = ["reno", "cubic"].into_iter().filter(there).collect();
        let wanted = format!("{default} {}", others.join(" "));
        let set = format!("sudo sysctl -w net.ipv4.tcp_allowed_congestion_control='{wanted}'");
        // The default first: it loads its module, which the list needs.
        let keep = format!(
            "printf 'net.ipv4.tcp_congestion_control = {default}\\nnet.ipv4.tcp_allowed_congestion_control = {wanted}\\n' | sudo tee \
             /etc/sysctl.d/99-tcp-congestion.conf"
        );
        case.add(&NET_PACING, "", what, run(format!("{set} && {keep}")));
    }
}

/// Only interfaces that lead to one host are meant to be open; what a firewall does to the others is its owner's will.
fn firewall(case: &mut Case<'_>) {
    let snap = case.snap;
    let Some(rules) = &snap.sources.rules else {
        let running = [("/run/firewalld", "firewalld"), ("/run/ufw.lock", "ufw")];
        for (_, name) in running.iter().filter(|(path, _)| snap.sources.roots.has(path)) {
            case.fact(format!(
                "{name} runs; rules are judged where `lspan doctor` runs as root with `nft` installed, those of iptables and ufw as far as `nft` tells them"
            ));
        }
        return;
    };
    let rules = match nft::Rules::read(rules) {
        Ok(rules) => rules,
        Err(why) => {
            case.fact(format!("the firewall's rules could not be read: {why}"));
            return;
        }
    };
    let cables: Vec<&Interface> = snap.cabled().collect();
    for iface in cables {
        let name = &*iface.name;
        let (mut drops, mut shut, mut open): (Vec<nft::Drops>, Vec<&str>, bool) = (Vec::new(), Vec::new(), false);
        for (family, shown) in families(iface) {
            let judgement = rules.judge(name, family, &PORTS);
            open |= !matches!(judgement, nft::Judgement::Drops(_));
            match judgement {
                nft::Judgement::Open => {}
                nft::Judgement::Unknown => case.fact(format!(
                    "whether the firewall lets connections of {shown} in on {name} is not known: a rule with a condition that is not understood may accept \
                     them (of iptables' matches, as ufw's, `nft` tells the names alone)"
                )),
                nft::Judgement::Drops(one) => {
                    shut.push(shown);
                    // One chain may be for both families.
                    if !drops.contains(&one) {
                        drops.push(one);
                    }
                }
            }
        }
        let by = drops.iter().map(|one| format!("{} in {} {} {}", one.by, one.family, one.table, one.chain));
        let by = by.collect::<Vec<_>>().join(" and ");
        if drops.is_empty() {
            continue;
        } else if open {
            case.fact(format!("connections of {} that come in on {name} are dropped by {by}", shut.join(" and ")));
        } else {
            let what = format!("connections that come in on {name} are dropped by {by}");
            let steps = drops.iter().flat_map(|one| let_in(one, name)).collect();
            case.add(&FIREWALL_DROPS, name, what, steps);
        }
    }
}

/// The families of the addresses that others connect to, as nftables and people call them; both where there is no address yet.
fn families(iface: &Interface) -> Vec<(&'static str, &'static str)> {
    let offered =
        |four: bool| iface.addrs.iter().any(|a| a.ip.is_ipv4() == four && (!a.is_link_local() || !routed(iface)));
    let all = [(true, ("ip", "IPv4")), (false, ("ip6", "IPv6"))];
    let all = all.into_iter().filter(|(four, _)| iface.addrs.is_empty() || offered(*four));
    all.map(|(_, family)| family).collect()
}

/// The command of the program that made the rules.
fn let_in(drops: &nft::Drops, name: &str) -> Vec<Step> {
    let (family, table, chain) = (&drops.family, &drops.table, &drops.chain);
    if table == "firewalld" {
        return run(format!(
            "sudo firewall-cmd --permanent --zone=trusted --change-interface={} && sudo firewall-cmd --reload",
            word(name)
        ));
    }
    if chain == "INPUT" && matches!(&**family, "ip" | "ip6") {
        let program = if family == "ip" { "iptables" } else { "ip6tables" };
        let name = word(name);
        let mut steps = run(format!("sudo {program} -I INPUT -i {name} -j ACCEPT"));
        steps.push(Step::Do(format!(
            "with ufw that is: sudo ufw allow in on {name}; to keep it on Debian and Ubuntu without ufw: sudo netfilter-persistent save (package iptables-persistent)"
        )));
        return steps;
    }
    let mut steps = run(format!(
        "sudo nft insert rule {family} {} {} iifname {} accept",
        word(table),
        word(chain),
        word(&format!("\"{name}\""))
    ));
    steps.push(Step::Do(format!(
        "to keep it, put `iifname \"{name}\" accept` at the head of chain {chain} of table {family} {table} of the file that sets the \
         rules up (/etc/nftables.conf)"
    )));
    steps
}
