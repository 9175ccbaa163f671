//! The kernel's routes and the rules that choose among its tables, as iproute2 prints them (`ip -j -N route show table all`, `ip -j -N
//! rule`). Where there is no `ip`, the main table of IPv4 stands in `/proc/net/route`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use linkspan_topology::Roots;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The table of routes that no rule is needed for (`RT_TABLE_MAIN` of linux/rtnetlink.h), and the kernel's own of local addresses.
pub(crate) const MAIN: u32 = 254;
const LOCAL: u32 = 255;

/// Most routes and rules that are kept; hosts that carry the whole Internet's have a million, and none of our cables. A file of another
/// host may have as many.
pub(crate) const MOST: usize = 512;

/// A route to a network over an interface.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Route {
    pub(crate) interface: String,
    pub(crate) to: IpAddr,
    pub(crate) prefix: u8,
    pub(crate) metric: u32,
    pub(crate) table: u32,
}

/// A rule: packets from and to these networks are looked up in a table.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Rule {
    pub(crate) priority: u32,
    pub(crate) ipv6: bool,
    pub(crate) from: Option<(IpAddr, u8)>,
    pub(crate) to: Option<(IpAddr, u8)>,
    /// `None`: what it asks or does is not understood here.
    pub(crate) table: Option<u32>,
}

/// Everything that leads somewhere, from what `ip -j -N` printed: routes of all tables and rules, each of IPv4 and of IPv6.
pub(crate) fn read([routes, rules]: &[[Option<String>; 2]; 2], roots: &Roots) -> (Vec<Route>, Vec<Rule>) {
    let list = |text: &Option<String>| -> Option<Vec<Value>> { serde_json::from_str(text.as_ref()?).ok() };
    let four = list(&routes[0]).map_or_else(|| main(roots), |list| list.iter().filter_map(route).collect());
    let six = list(&routes[1]).unwrap_or_default();
    let mut all: Vec<Route> = four.into_iter().take(MOST / 2).collect();
    all.extend(six.iter().filter_map(route).take(MOST / 2));
    let rules = rules.iter().zip([false, true]);
    let rules = rules.flat_map(|(text, ipv6)| list(text).unwrap_or_default().into_iter().map(move |one| (one, ipv6)));
    (all, rules.filter_map(|(one, ipv6)| rule(&one, ipv6)).take(MOST).collect())
}

/// `default` is all of a family, which the interface's other routes tell.
fn net(text: &str, ipv6: bool) -> Option<(IpAddr, u8)> {
    if matches!(text, "default" | "all") {
        return Some(if ipv6 { ([0_u16; 8].into(), 0) } else { ([0_u8; 4].into(), 0) });
    }
    let (ip, prefix) = text.split_once('/').unwrap_or((text, ""));
    let ip: IpAddr = ip.parse().ok()?;
    Some((ip, if prefix.is_empty() { bits(ip) } else { prefix.parse().ok()? }))
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn number(value: &Value) -> Option<u32> {
    match value {
        Value::String(text) => match text.as_str() {
            "local" => Some(LOCAL),
            "main" => Some(MAIN),
            "default" => Some(253),
            other => other.parse().ok(),
        },
        other => other.as_u64()?.try_into().ok(),
    }
}

fn route(one: &Value) -> Option<Route> {
    // Those of another type lead nowhere, or to this host.
    if !matches!(one["type"].as_str(), None | Some("unicast" | "1")) {
        return None;
    }
    let gateway = one["gateway"].as_str().or_else(|| one["prefsrc"].as_str());
    let ipv6 = one["pref"].is_string() || gateway.is_some_and(|ip| ip.contains(':'));
    let (to, prefix) = net(one["dst"].as_str()?, ipv6)?;
    let table = match &one["table"] {
        Value::Null => MAIN,
        other => number(other)?,
    };
    let interface = one["dev"].as_str()?.to_owned();
    Some(Route { interface, to, prefix, metric: number(&one["metric"]).unwrap_or(0), table })
}

fn rule(one: &Value, ipv6: bool) -> Option<Rule> {
    let known = ["priority", "src", "srclen", "dst", "dstlen", "table", "protocol"];
    let object = one.as_object()?;
    // What comes in by an interface, or bears a mark, is not what this host sends by itself.
    if (object.contains_key("iif") || object.contains_key("fwmark")) && !object.contains_key("not") {
        return None;
    }
    let understood = object.keys().all(|key| known.contains(&key.as_str()));
    let part = |name: &str, len: &str| -> Option<(IpAddr, u8)> {
        let (ip, most) = net(one[name].as_str().unwrap_or("all"), ipv6)?;
        let prefix = number(&one[len]).and_then(|n| u8::try_from(n).ok()).unwrap_or(most);
        (prefix > 0).then_some((ip, prefix))
    };
    Some(Rule {
        priority: number(&one["priority"])?,
        ipv6,
        from: part("src", "srclen"),
        to: part("dst", "dstlen"),
        table: number(&one["table"]).filter(|_| understood),
    })
}

/// `/proc/net/route` (proc_net(5)).
fn main(roots: &Roots) -> Vec<Route> {
    let text = roots.text("/proc/net/route").unwrap_or_default();
    let hex = |cell: &str| u32::from_str_radix(cell, 16).ok().map(u32::swap_bytes);
    let line = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let [name, to, _, _, _, _, metric, mask, ..] = cells[..] else { return None };
        Some(Route {
            interface: name.to_owned(),
            // The kernel prints the bytes as the number they are in memory: little-endian on every machine we build for.
            to: std::net::Ipv4Addr::from_bits(hex(to)?).into(),
            prefix: u8::try_from(hex(mask)?.count_ones()).ok()?,
            metric: metric.parse().ok()?,
            table: MAIN,
        })
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// Whether an address is in a network.
pub(crate) fn within((net, prefix): (IpAddr, u8), ip: IpAddr) -> bool {
    let mask = |bits: u128, width: u32| bits >> width.saturating_sub(u32::from(prefix)).min(127);
    match (net, ip) {
        _ if prefix == 0 => net.is_ipv4() == ip.is_ipv4(),
        (IpAddr::V4(net), IpAddr::V4(ip)) => mask(net.to_bits().into(), 32) == mask(ip.to_bits().into(), 32),
        (IpAddr::V6(net), IpAddr::V6(ip)) => mask(net.to_bits(), 128) == mask(ip.to_bits(), 128),
        _ => false,
    }
}

/// The routes and rules of a host, in the order in which the kernel looks at them.
pub(crate) struct Ways<'a> {
    tables: BTreeMap<u32, Vec<&'a Route>>,
    /// By their priority, those of IPv4 and of IPv6.
    rules: [Vec<&'a Rule>; 2],
}

impl<'a> Ways<'a> {
    pub(crate) fn of(routes: &'a [Route], rules: &'a [Rule]) -> Ways<'a> {
        let mut tables: BTreeMap<u32, Vec<&Route>> = BTreeMap::new();
        routes.iter().for_each(|route| tables.entry(route.table).or_default().push(route));
        let rules = [false, true].map(|ipv6| {
            let mut rules: Vec<&Rule> = rules.iter().filter(|rule| rule.ipv6 == ipv6).collect();
            rules.sort_by_key(|rule| rule.priority);
            rules
        });
        Ways { tables, rules }
    }

    /// The route that the kernel takes, and the priority of the rule that led to it: rules in their order, in a table the longest prefix,
    /// then the smallest metric. `None` also where a rule that is not understood comes first. Counts the rules and routes that it looks at.
    pub(crate) fn way(&self, from: IpAddr, to: IpAddr, steps: &mut u64) -> Option<(&'a Route, u32)> {
        let mut best = |table: u32| {
            let routes = self.tables.get(&table)?;
            *steps += routes.len() as u64;
            let hits = routes.iter().filter(|route| within((route.to, route.prefix), to));
            hits.min_by_key(|route| (std::cmp::Reverse(route.prefix), route.metric)).copied()
        };
        let rules = &self.rules[usize::from(to.is_ipv6())];
        if rules.is_empty() {
            return Some((best(MAIN)?, u32::MAX));
        }
        let meets = |net: Option<(IpAddr, u8)>, ip| net.is_none_or(|net| within(net, ip));
        // A table without a route there has none for a later rule either.
        let mut tried = BTreeSet::new();
        for rule in rules.iter().filter(|rule| meets(rule.from, from) && meets(rule.to, to)) {
            let table = rule.table?;
            if tried.insert(table)
                && let Some(route) = best(table)
            {
                return Some((route, rule.priority));
            }
        }
        None
    }

    /// How many rules there are, which all may have to be looked at.
    pub(crate) fn rules(&self) -> u64 {
        self.rules.iter().map(|rules| rules.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests;
