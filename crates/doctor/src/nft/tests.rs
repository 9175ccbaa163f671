use super::*;

/// A table with one base chain of this policy and these rules, and a chain `more`.
fn rules(policy: &str, rules: &[&str], more: &[&str]) -> String {
    let chain =
        |name: &str, hook: &str| format!(r#"{{"chain":{{"family":"inet","table":"t","name":"{name}"{hook}}}}}"#);
    let rule = |chain: &str, n: usize, expr: &str| {
        format!(r#"{{"rule":{{"family":"inet","table":"t","chain":"{chain}","handle":{n},"expr":[{expr}]}}}}"#)
    };
    let mut all = vec![chain("in", &format!(r#","hook":"input","policy":"{policy}""#)), chain("more", "")];
    all.extend(rules.iter().enumerate().map(|(n, expr)| rule("in", n, expr)));
    all.extend(more.iter().enumerate().map(|(n, expr)| rule("more", n + 50, expr)));
    format!(r#"{{"nftables":[{{"metainfo":{{"version":"1.0.6"}}}},{}]}}"#, all.join(","))
}

fn matches(left: &str, op: &str, right: &str) -> String {
    format!(r#"{{"match":{{"op":"{op}","left":{left},"right":{right}}}}}"#)
}

fn by(text: &str) -> Option<String> {
    drops(text, "cab0", &[24_680, 40_000]).unwrap().map(|drops| drops.by)
}

const IF: &str = r#"{"meta":{"key":"iifname"}}"#;
const PORT: &str = r#"{"payload":{"protocol":"tcp","field":"dport"}}"#;
const STATE: &str = r#"{"ct":{"key":"state"}}"#;
const FROM: &str = r#"{"payload":{"protocol":"ip","field":"saddr"}}"#;

#[test]
fn a_policy_drops_what_no_rule_accepts() {
    let accept = |left: &str, right: &str| format!(r#"{},{{"accept":null}}"#, matches(left, "==", right));
    assert_eq!(by(&rules("drop", &[], &[])).as_deref(), Some("its policy"));
    assert_eq!(by(&rules("accept", &[], &[])), None);
    for open in
        [(IF, r#""cab0""#), (IF, r#""cab*""#), (IF, r#"{"set":["lo","cab0"]}"#), (STATE, r#"["new","related"]"#)]
    {
        assert_eq!(by(&rules("drop", &[&accept(open.0, open.1)], &[])), None, "{open:?}");
    }
    for shut in [(IF, r#""lo""#), (PORT, "22"), (STATE, r#"["established","related"]"#), (PORT, r#"{"set":[22,80]}"#)] {
        assert!(by(&rules("drop", &[&accept(shut.0, shut.1)], &[])).is_some(), "{shut:?}");
    }
    // The port of `lspan perf serve` alone is not enough: connections get ports of their own.
    assert!(by(&rules("drop", &[&accept(PORT, "24680")], &[])).is_some());
    assert_eq!(by(&rules("drop", &[&accept(PORT, r#"{"range":[1024,65535]}"#)], &[])), None);
}

#[test]
fn a_rule_that_drops_is_named() {
    let drop = |left: &str, op: &str, right: &str| {
        format!(r#"{{"counter":{{}}}},{},{{"drop":null}}"#, matches(left, op, right))
    };
    assert_eq!(
        by(&rules("accept", &[&drop(IF, "==", r#""cab0""#)], &[])).as_deref(),
        Some("the rule with handle 0 of chain in")
    );
    assert_eq!(
        by(&rules("accept", &[&drop(IF, "!=", r#""lo""#)], &[])).as_deref(),
        Some("the rule with handle 0 of chain in")
    );
    assert_eq!(by(&rules("accept", &[&drop(IF, "!=", r#""cab0""#)], &[])), None);
    let reject = format!(r#"{},{{"reject":{{"type":"tcp reset"}}}}"#, matches(PORT, "==", "24680"));
    assert!(by(&rules("accept", &[&reject], &[])).is_some());
}

#[test]
fn chains_are_followed_and_what_is_not_understood_makes_no_finding() {
    let jump = r#"{"jump":{"target":"more"}}"#;
    let shut = r#"{"drop":null}"#;
    let open = format!(r#"{},{{"accept":null}}"#, matches(IF, "==", r#""cab0""#));
    assert_eq!(by(&rules("accept", &[jump], &[shut])).as_deref(), Some("the rule with handle 50 of chain more"));
    assert_eq!(by(&rules("drop", &[jump], &[&open])), None);
    assert!(by(&rules("drop", &[jump], &[r#"{"return":null}"#])).is_some());
    // An address may or may not be the peer's.
    let perhaps = format!(r#"{},{{"accept":null}}"#, matches(FROM, "==", r#""10.0.0.1""#));
    assert_eq!(by(&rules("drop", &[&perhaps], &[])), None);
    let perhaps = format!(r#"{},{{"drop":null}}"#, matches(FROM, "==", r#""10.0.0.1""#));
    assert_eq!(by(&rules("accept", &[&perhaps], &[])), None);
    assert_eq!(by(&rules("drop", &[r#"{"vmap":{"key":{"meta":{"key":"iifname"}},"data":"@zones"}}"#], &[])), None);
    // A chain that jumps to itself ends.
    assert_eq!(by(&rules("drop", &[jump], &[jump])), None);
}

#[test]
fn rules_for_other_protocols_do_not_hold_for_tcp_whatever_the_operator() {
    for field in [("udp", "dport"), ("sctp", "dport"), ("icmp", "type"), ("icmpv6", "type"), ("esp", "spi")] {
        let field = format!(r#"{{"payload":{{"protocol":"{}","field":"{}"}}}}"#, field.0, field.1);
        for op in ["==", "!=", "<", "in"] {
            let drop = format!(r#"{},{{"drop":null}}"#, matches(&field, op, "53"));
            assert_eq!(by(&rules("accept", &[&drop], &[])), None, "{field} {op}");
            let accept = format!(r#"{},{{"accept":null}}"#, matches(&field, op, "53"));
            assert_eq!(by(&rules("drop", &[&accept], &[])).as_deref(), Some("its policy"), "{field} {op}");
        }
    }
}

#[test]
fn tables_that_are_dormant_or_of_no_ip_packets_drop_nothing() {
    let list = |family: &str, flags: &str| {
        let table = format!(r#"{{"table":{{"family":"{family}","name":"t","handle":1{flags}}}}},"#);
        rules("drop", &[], &[]).replace("\"inet\"", &format!("\"{family}\"")).replacen(
            r#"{"chain""#,
            &format!(r#"{table}{{"chain""#),
            1,
        )
    };
    for family in ["ip", "ip6", "inet"] {
        assert!(by(&list(family, "")).is_some(), "{family}");
        assert!(by(&list(family, r#","flags":["owner"]"#)).is_some(), "{family}");
        for flags in [r#","flags":["dormant"]"#, r#","flags":"dormant""#, r#","flags":["owner","dormant"]"#] {
            assert_eq!(by(&list(family, flags)), None, "{family} {flags}");
        }
    }
    for family in ["arp", "bridge", "netdev"] {
        assert_eq!(by(&list(family, "")), None, "{family}");
    }
}

#[test]
fn what_is_no_list_of_rules_is_an_error() {
    for text in ["", "{}", "[]", r#"{"nftables":7}"#, "nonsense"] {
        assert!(drops(text, "cab0", &[1]).is_err(), "{text}");
    }
    assert_eq!(drops(r#"{"nftables":[{"chain":{"hook":"input"}},{"rule":7},8]}"#, "cab0", &[1]), Ok(None));
}

/// The input chains of `nft -j list ruleset` on Debian 13 with firewalld 2.3 as it is installed.
#[test]
fn the_rules_of_firewalld_are_understood() {
    let text = include_str!("../../fixtures/firewalld.json");
    let found = drops(text, "thunderbolt0", &[24_680]).unwrap().unwrap();
    assert_eq!((found.table.as_str(), found.chain.as_str()), ("firewalld", "filter_INPUT"));
    assert!(found.by.ends_with("of chain filter_INPUT_POLICIES"), "{found:?}");
    // ssh is open as it is installed; a port that is opened is.
    assert_eq!(drops(text, "thunderbolt0", &[22]).unwrap(), None);
}
