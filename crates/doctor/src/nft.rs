//! What a firewall's rules do to a connection that comes in on an interface.
//!
//! The rules are those of `nft -j list ruleset` (libnftables-json(5)); iptables-nft, firewalld and ufw make such rules too. Only what
//! is certain counts: a rule with a condition that is not understood may or may not match, and ends the judgement if it accepts.

use serde_json::Value;

/// Chains jumped into one another; the kernel allows 16 (NFT_JUMP_STACK_SIZE).
const DEPTH: usize = 16;

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

/// The first packet of a TCP connection.
struct Packet<'a> {
    interface: &'a str,
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
    /// An accepting rule may or may not match.
    Unknown,
    /// On to the next rule of the chain that jumped here.
    Return,
}

/// What drops connections that come in on `interface` to one of `ports`; `None` where nothing certainly does. `Err` for text that
/// is no list of rules.
pub(crate) fn drops(rules: &str, interface: &str, ports: &[u16]) -> Result<Option<Drops>, String> {
    let value: Value = serde_json::from_str(rules).map_err(|error| error.to_string())?;
    let list = value["nftables"].as_array().ok_or("no list `nftables`")?;
    // Rules of the other families are for frames, which are not looked at here. A dormant table does nothing.
    let judged = |chain: &&Value| {
        let own = |table: &&Value| table["family"] == chain["family"] && table["name"] == chain["table"];
        let dormant = list.iter().filter_map(|entry| entry.get("table")).filter(own).any(dormant);
        chain["hook"] == "input" && matches!(chain["family"].as_str(), Some("ip" | "ip6" | "inet")) && !dormant
    };
    for base in list.iter().filter_map(|entry| entry.get("chain")).filter(judged) {
        for &port in ports {
            let by = match chain(list, base, &Packet { interface, port }, 0) {
                Outcome::Drop(by) => by,
                Outcome::Return if base["policy"] == "drop" => "its policy".to_owned(),
                _ => continue,
            };
            let text = |key: &str| base[key].as_str().unwrap_or_default().to_owned();
            return Ok(Some(Drops { family: text("family"), table: text("table"), chain: text("name"), by }));
        }
    }
    Ok(None)
}

fn chain(list: &[Value], which: &Value, packet: &Packet<'_>, depth: usize) -> Outcome {
    let own = |rule: &&Value| {
        rule["family"] == which["family"] && rule["table"] == which["table"] && rule["chain"] == which["name"]
    };
    for rule in list.iter().filter_map(|entry| entry.get("rule")).filter(own) {
        let mut sure = Match::Yes;
        for part in rule["expr"].as_array().into_iter().flatten() {
            let Some((kind, value)) = part.as_object().and_then(|map| map.iter().next()) else { continue };
            let end = match kind.as_str() {
                "match" => match condition(value, packet) {
                    Match::Yes => continue,
                    Match::Maybe => {
                        sure = Match::Maybe;
                        continue;
                    }
                    Match::No => break,
                },
                "accept" => Outcome::Accept,
                "drop" | "reject" => Outcome::Drop(format!(
                    "the rule with handle {} of chain {}",
                    rule["handle"],
                    rule["chain"].as_str().unwrap_or("?")
                )),
                "return" => Outcome::Return,
                "jump" | "goto" => {
                    let to = |c: &&Value| {
                        c["family"] == which["family"] && c["table"] == which["table"] && c["name"] == value["target"]
                    };
                    let target = list.iter().filter_map(|entry| entry.get("chain")).find(to);
                    match target {
                        Some(target) if depth < DEPTH => match chain(list, target, packet, depth + 1) {
                            Outcome::Return if kind == "jump" => break,
                            outcome => outcome,
                        },
                        _ => Outcome::Unknown,
                    }
                }
                "counter" | "log" | "comment" | "mangle" | "notrack" => continue,
                // A limit, a map of verdicts, a set that is not listed here.
                _ => {
                    sure = Match::Maybe;
                    continue;
                }
            };
            match (sure, end) {
                (Match::Yes, end) => return end,
                // What may be dropped may as well not be: the next rules say more.
                (_, Outcome::Drop(_)) => break,
                (_, _) => return Outcome::Unknown,
            }
        }
        // A map of verdicts ends a rule without a verdict of its own.
        let maps = rule["expr"].as_array().into_iter().flatten().any(|part| part.get("vmap").is_some());
        if maps {
            return Outcome::Unknown;
        }
    }
    Outcome::Return
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
    if left["payload"]["protocol"].as_str().is_some_and(|protocol| other.contains(&protocol)) {
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
