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

fn judge(text: &str, family: &str) -> Judgement {
    Rules::read(text).unwrap().judge("cab0", family, &[24_680, 40_000])
}

fn by(text: &str) -> Option<String> {
    match judge(text, "ip") {
        Judgement::Drops(drops) => Some(drops.by),
        _ => None,
    }
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
        let of = if family == "ip6" { "ip6" } else { "ip" };
        let drops = |flags: &str| matches!(judge(&list(family, flags), of), Judgement::Drops(_));
        assert!(drops(""), "{family}");
        assert!(drops(r#","flags":["owner"]"#), "{family}");
        for flags in [r#","flags":["dormant"]"#, r#","flags":"dormant""#, r#","flags":["owner","dormant"]"#] {
            assert!(!drops(flags), "{family} {flags}");
        }
    }
    for family in ["arp", "bridge", "netdev"] {
        assert_eq!(by(&list(family, "")), None, "{family}");
    }
}

#[test]
fn what_is_no_list_of_rules_is_an_error() {
    for text in ["", "{}", "[]", r#"{"nftables":7}"#, "nonsense"] {
        assert!(Rules::read(text).is_err(), "{text}");
    }
    assert_eq!(judge(r#"{"nftables":[{"chain":{"hook":"input"}},{"rule":7},8]}"#, "ip"), Judgement::Open);
}

/// The input chains of `nft -j list ruleset` on Debian 13 with firewalld 2.3 as it is installed.
#[test]
fn the_rules_of_firewalld_are_understood() {
    let text = include_str!("../../fixtures/firewalld.json");
    let rules = Rules::read(text).unwrap();
    let Judgement::Drops(found) = rules.judge("thunderbolt0", "ip", &[24_680]) else { panic!("not dropped") };
    assert_eq!((found.table.as_str(), found.chain.as_str()), ("firewalld", "filter_INPUT"));
    assert!(found.by.ends_with("of chain filter_INPUT_POLICIES"), "{found:?}");
    // ssh is open as it is installed; a port that is opened is.
    assert_eq!(rules.judge("thunderbolt0", "ip", &[22]), Judgement::Open);
}

#[test]
fn rules_of_iptables_whose_matches_are_not_told_leave_it_unknown_what_is_dropped() {
    let known = r#"{"xt":{"type":"match","name":"conntrack"}},{"counter":{"packets":9,"bytes":9}},{"accept":null}"#;
    assert_eq!(judge(&rules("drop", &[known], &[]), "ip"), Judgement::Unknown);
    let jump = r#"{"jump":{"target":"more"}}"#;
    assert_eq!(judge(&rules("drop", &[jump], &[known]), "ip"), Judgement::Unknown, "as ufw has it");
    let drop = r#"{"drop":null}"#;
    assert_eq!(judge(&rules("accept", &[known, drop], &[]), "ip"), Judgement::Unknown);
    // Nothing drops it, whatever the match says; and what accepts it for certain does so behind it too.
    assert_eq!(judge(&rules("accept", &[known], &[]), "ip"), Judgement::Open);
    let open = format!(r#"{},{{"accept":null}}"#, matches(IF, "==", r#""cab0""#));
    assert_eq!(judge(&rules("drop", &[known, &open], &[]), "ip"), Judgement::Open);
}

/// As in the example for a server of nftables' wiki.
#[test]
fn a_map_of_verdicts_counts_by_its_keys_and_only_where_its_rule_holds() {
    let map = |rest: &str| {
        format!(
            r#"{{"vmap":{{"key":{STATE},"data":{{"set":[["established",{{"accept":null}}],["related",{{"accept":null}}],["invalid",{{"drop":null}}]{rest}]}}}}}}"#
        )
    };
    assert_eq!(by(&rules("drop", &[&map("")], &[])).as_deref(), Some("its policy"));
    assert_eq!(judge(&rules("accept", &[&map("")], &[]), "ip"), Judgement::Open);
    assert_eq!(judge(&rules("drop", &[&map(r#",["new",{"accept":null}]"#)], &[]), "ip"), Judgement::Open);
    let jump = map(r#",["new",{"jump":{"target":"more"}}]"#);
    assert_eq!(
        by(&rules("accept", &[&jump], &[r#"{"drop":null}"#])).as_deref(),
        Some("the rule with handle 50 of chain more")
    );
    let named = r#"{"vmap":{"key":{"meta":{"key":"mark"}},"data":"@zones"}}"#;
    let elsewhere = format!("{},{named}", matches(IF, "==", r#""lo""#));
    assert_eq!(by(&rules("drop", &[&elsewhere], &[])).as_deref(), Some("its policy"));
    assert_eq!(judge(&rules("drop", &[named], &[]), "ip"), Judgement::Unknown);
}

#[test]
fn a_family_is_judged_by_its_own_rules() {
    let six = rules("drop", &[], &[]).replace("\"inet\"", "\"ip6\"");
    assert_eq!(judge(&six, "ip"), Judgement::Open);
    assert!(matches!(judge(&six, "ip6"), Judgement::Drops(_)));
    for left in [r#"{"meta":{"key":"nfproto"}}"#, r#"{"meta":{"key":"protocol"}}"#] {
        let value = if left.contains("nfproto") { r#""ipv6""# } else { r#""ip6""# };
        let drop = format!(r#"{},{{"drop":null}}"#, matches(left, "==", value));
        let both = rules("accept", &[&drop], &[]);
        assert_eq!(judge(&both, "ip"), Judgement::Open, "{left}");
        assert!(matches!(judge(&both, "ip6"), Judgement::Drops(_)), "{left}");
    }
    let other = format!(r#"{},{{"drop":null}}"#, matches(FROM, "!=", r#""10.0.0.1""#));
    assert_eq!(judge(&rules("accept", &[&other], &[]), "ip6"), Judgement::Open);
}

#[test]
fn the_work_for_chains_that_jump_to_each_other_many_times_has_an_end() {
    let jumps: Vec<&str> = vec![r#"{"jump":{"target":"more"}}"#; 64];
    assert_eq!(judge(&rules("drop", &jumps, &jumps), "ip"), Judgement::Unknown);
}
