//! What a firewall's rules do to a connection that comes in on an interface.
//!
//! The rules are those of `nft -j list ruleset` (libnftables-json(5)); iptables-nft, firewalld and ufw make such rules too. Only what
//! is certain counts: a rule with a condition that is not understood may or may not match. Where such a rule accepts what the next ones drop,
//! nothing is known; so it is with each match of iptables, of which nft prints the name alone (`xt_stmt_json` of its json.c).

use std::collections::HashMap;

use serde_json::Value;

/// Chains jumped into one another; the kernel allows 16 (NFT_JUMP_STACK_SIZE).
const DEPTH: usize = 16;

/// Most rules that are looked at for one packet and base chain; chains that many jump to count each time.
const RULES_MAX: usize = 100_000;

/// A rule or policy that drops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drops {
    pub(crate) family: String,
    pub(crate) table: String,
    /// The base chain, at whose beginning an exception works.
    pub(crate) chain: String,
    /// What drops, for people.
    pub(crate) by: String,
}

/// What rules do to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Nothing certainly drops it.
    Open,
    Drops(Drops),
    /// It is dropped, unless a rule accepts it whose conditions are not understood.
    Unknown,
}

/// The first packet of a TCP connection.
struct Packet<'a> {
    interface: &'a str,
    /// `ip` or `ip6`.
    family: &'a str,
    port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    Yes,
    No,
    Maybe,
}

enum Outcome {
    Accept,
    Drop(String),
    /// On to the next rule of the chain that jumped here.
    Return,
    /// On to the next rule of this chain.
    Next,
}

/// A list of rules.
pub(crate) struct Rules {
    list: Vec<Value>,
}

impl Rules {
    /// `Err` for text that is no list of rules.
    pub(crate) fn read(text: &str) -> Result<Rules, String> {
        let mut value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match value.get_mut("nftables").map(Value::take) {
            Some(Value::Array(list)) => Ok(Rules { list }),
            _ => Err("no list `nftables`".to_owned()),
        }
    }

    fn entries<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.list.iter().filter_map(move |entry| entry.get(kind))
    }

    /// What becomes of connections of a family (`ip` or `ip6`) that come in on `interface` to `ports`.
    pub(crate) fn judge(&self, interface: &str, family: &str, ports: &[u16]) -> Judgement {
        // Rules of the other families are for frames, which are not looked at here. A dormant table does nothing.
        let judged = |chain: &&Value| {
            let own = |table: &&Value| table["family"] == chain["family"] && table["name"] == chain["table"];
            let here = chain["hook"] == "input" && (chain["family"] == family || chain["family"] == "inet");
            here && !self.entries("table").filter(own).any(dormant)
        };
        let mut chains: HashMap<Name<'_>, Vec<&Value>> = HashMap::new();
        for chain in self.entries("chain") {
            chains.insert(name(chain, "name"), Vec::new());
        }
        for rule in self.entries("rule") {
            chains.entry(name(rule, "chain")).or_default().push(rule);
        }
        let mut unknown = false;
        for base in self.entries("chain").filter(judged) {
            for &port in ports {
                let packet = Packet { interface, family, port };
                let mut walk = Walk { chains: &chains, packet, unsure: false, left: RULES_MAX };
                let by = match walk.chain(name(base, "name"), 0) {
                    Outcome::Drop(by) => by,
                    Outcome::Return if base["policy"] == "drop" => "its policy".to_owned(),
                    _ => continue,
                };
                if walk.unsure {
                    unknown = true;
                    continue;
                }
                let text = |key: &str| base[key].as_str().unwrap_or_default().to_owned();
                return Judgement::Drops(Drops {
                    family: text("family"),
                    table: text("table"),
                    chain: text("name"),
                    by,
                });
            }
        }
        if unknown { Judgement::Unknown } else { Judgement::Open }
    }
}

/// Family, table and name of a chain.
type Name<'a> = [&'a str; 3];

fn name<'a>(entry: &'a Value, own: &str) -> Name<'a> {
    ["family", "table", own].map(|key| entry[key].as_str().unwrap_or_default())
}

/// The way of one packet through a base chain.
struct Walk<'a> {
    chains: &'a HashMap<Name<'a>, Vec<&'a Value>>,
    packet: Packet<'a>,
    /// Whether something that is not understood may have accepted it.
    unsure: bool,
    /// Rules that may still be looked at.
    left: usize,
}

impl<'a> Walk<'a> {
    fn chain(&mut self, which: Name<'a>, depth: usize) -> Outcome {
        for rule in self.chains.get(&which).into_iter().flatten() {
            let Some(left) = self.left.checked_sub(1) else {
                self.unsure = true;
                return Outcome::Return;
            };
            self.left = left;
            match self.rule(rule, which, depth) {
                Outcome::Next => {}
                end => return end,
            }
        }
        Outcome::Return
    }

    fn rule(&mut self, rule: &'a Value, which: Name<'a>, depth: usize) -> Outcome {
        let mut sure = true;
        for part in rule["expr"].as_array().into_iter().flatten() {
            let Some((kind, value)) = part.as_object().and_then(|map| map.iter().next()) else { continue };
            match kind.as_str() {
                "match" => match condition(value, &self.packet) {
                    Match::Yes => {}
                    Match::Maybe => sure = false,
                    Match::No => return Outcome::Next,
                },
                "counter" | "log" | "comment" | "mangle" | "notrack" => {}
                "vmap" => {
                    let Some(list) = value["data"]["set"].as_array() else {
                        // A map with a name, which is not looked up.
                        self.unsure = true;
                        continue;
                    };
                    for one in list {
                        let entry = serde_json::json!({ "op": "==", "left": value["key"], "right": one[0] });
                        let holds = condition(&entry, &self.packet);
                        let verdict = one[1].as_object().and_then(|map| map.iter().next());
                        let (true, Some((kind, value))) = (holds != Match::No, verdict) else { continue };
                        let end = self.verdict(kind, value, rule, which, depth).unwrap_or(Outcome::Next);
                        match self.certain(sure && holds == Match::Yes, end) {
                            // What may hold may as well not: the next ones say more.
                            Outcome::Next if holds == Match::Maybe => {}
                            end => return end,
                        }
                    }
                    // A key that the map does not have ends the rule.
                    return Outcome::Next;
                }
                _ => match self.verdict(kind, value, rule, which, depth) {
                    Some(end) => return self.certain(sure, end),
                    // A limit, a match of iptables, a set that is not listed here.
                    None => sure = false,
                },
            }
        }
        Outcome::Next
    }

    /// What a statement of this kind does to the packet, where it ends a rule.
    fn verdict(
        &mut self,
        kind: &str,
        value: &'a Value,
        rule: &Value,
        which: Name<'a>,
        depth: usize,
    ) -> Option<Outcome> {
        Some(match kind {
            "accept" => Outcome::Accept,
            "drop" | "reject" => Outcome::Drop(format!(
                "the rule with handle {} of chain {}",
                rule["handle"],
                rule["chain"].as_str().unwrap_or("?")
            )),
            "return" => Outcome::Return,
            "jump" | "goto" => {
                let to = [which[0], which[1], value["target"].as_str().unwrap_or_default()];
                if depth >= DEPTH || !self.chains.contains_key(&to) {
                    self.unsure = true;
                    return Some(Outcome::Next);
                }
                match self.chain(to, depth + 1) {
                    Outcome::Return if kind == "jump" => Outcome::Next,
                    end => end,
                }
            }
            _ => return None,
        })
    }

    /// The end of a rule that certainly matches, or may: what may be dropped may as well not be, and the next rules say more.
    fn certain(&mut self, sure: bool, end: Outcome) -> Outcome {
        match end {
            _ if sure => end,
            Outcome::Accept | Outcome::Return => {
                self.unsure = true;
                Outcome::Next
            }
            Outcome::Drop(_) | Outcome::Next => Outcome::Next,
        }
    }
}

/// One flag is text in some versions, a list in others.
fn dormant(table: &Value) -> bool {
    let flags = &table["flags"];
    flags == "dormant" || flags.as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "dormant"))
}

fn condition(value: &Value, packet: &Packet<'_>) -> Match {
    let (left, right) = (&value["left"], &value["right"]);
    // A field of another protocol implies that protocol, which the list leaves out: it never holds, whatever the operator.
    let other = ["udp", "icmp", "icmpv6", "sctp", "esp", "ah"];
    let family = if packet.family == "ip" { "ip6" } else { "ip" };
    if left["payload"]["protocol"].as_str().is_some_and(|protocol| other.contains(&protocol) || protocol == family) {
        return Match::No;
    }
    let found = if let Some(key) = left["meta"]["key"].as_str() {
        match key {
            "iifname" | "iif" => any(right, &|one| match one.as_str() {
                Some(name) if name.starts_with('@') => Match::Maybe,
                Some(name) => match name.strip_suffix('*') {
                    Some(begin) => yes(packet.interface.starts_with(begin)),
                    None => yes(packet.interface == name),
                },
                None => Match::Maybe,
            }),
            "l4proto" => any(right, &|one| match one.as_str() {
                Some(name) => yes(name == "tcp"),
                None => yes(one.as_u64() == Some(6)),
            }),
            "nfproto" => any(right, &|one| yes(one == if packet.family == "ip" { "ipv4" } else { "ipv6" })),
            "protocol" => any(right, &|one| yes(one == packet.family)),
            _ => Match::Maybe,
        }
    } else if let Some(protocol) = left["payload"]["protocol"].as_str() {
        match (protocol, left["payload"]["field"].as_str().unwrap_or_default()) {
            ("tcp" | "th", "dport") => any(right, &|one| port(one, packet.port)),
            _ => Match::Maybe,
        }
    } else if left["ct"]["key"] == "state" {
        any(right, &|one| yes(one == "new"))
    } else if left["ct"]["key"] == "status" {
        // A connection to this host's own address and port is not translated.
        any(right, &|one| if one == "dnat" || one == "snat" { Match::No } else { Match::Maybe })
    } else {
        Match::Maybe
    };
    match (value["op"].as_str(), found) {
        (Some("!="), Match::Yes) => Match::No,
        (Some("!="), Match::No) => Match::Yes,
        _ => found,
    }
}

fn yes(is: bool) -> Match {
    if is { Match::Yes } else { Match::No }
}

/// One value, a list of flags, or a set.
fn any(right: &Value, one: &dyn Fn(&Value) -> Match) -> Match {
    let list = right.as_array().or_else(|| right["set"].as_array());
    let Some(list) = list else { return one(right) };
    let all: Vec<Match> = list.iter().map(one).collect();
    match (all.contains(&Match::Yes), all.contains(&Match::Maybe)) {
        (true, _) => Match::Yes,
        (false, true) => Match::Maybe,
        (false, false) => Match::No,
    }
}

fn port(value: &Value, port: u16) -> Match {
    if let Some(number) = value.as_u64() {
        return yes(number == u64::from(port));
    }
    match value["range"].as_array().map(Vec::as_slice) {
        Some([low, high]) => match (low.as_u64(), high.as_u64()) {
            (Some(low), Some(high)) => yes((low..=high).contains(&port.into())),
            _ => Match::Maybe,
        },
        _ => Match::Maybe,
    }
}

#[cfg(test)]
mod tests;
