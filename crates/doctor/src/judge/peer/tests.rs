use std::net::IpAddr;

use super::*;
use crate::judge::judge as whole;
use crate::tests::{build, machines};

/// Codes and facts for what a peer of the healthy server answered.
fn said(change: impl FnOnce(&mut Asked)) -> (Vec<&'static str>, Vec<String>) {
    let built = build(&machines()["plain-server"]);
    let ip: IpAddr = "10.1.2.9".parse().unwrap();
    let mut asked = Asked {
        peer: ip,
        port: 24_680,
        source: Some("10.1.2.3".parse().unwrap()),
        answers: Some(true),
        mtu: Some(1500),
        passes: None,
        tcp: Tcp::Open,
    };
    change(&mut asked);
    let report = whole(&built.snapshot, Some(&asked));
    (report.findings.iter().map(|finding| finding.rule.code()).collect(), report.facts)
}

#[test]
fn a_peer_that_answers_all_is_no_finding() {
    assert_eq!(said(|_| ()).0, Vec::<&str>::new());
    let (found, facts) = said(|asked| asked.tcp = Tcp::Refused);
    assert!(found.is_empty() && facts.iter().any(|fact| fact.contains("type `lspan perf serve` there")), "{facts:?}");
}

#[test]
fn silence_is_told_apart() {
    assert_eq!(said(|asked| asked.source = None).0, ["LS2314"]);
    let dead = |asked: &mut Asked| (asked.answers, asked.tcp) = (Some(false), Tcp::Silent);
    assert_eq!(said(dead).0, ["LS2312"]);
    assert_eq!(said(|asked| asked.tcp = Tcp::Silent).0, ["LS2402"]);
    assert_eq!(said(|asked| asked.passes = Some(1400)).0, ["LS2313"]);
    // Who may not ping does not know whether the host or its firewall is silent.
    let (found, facts) = said(|asked| (asked.answers, asked.tcp) = (None, Tcp::Silent));
    assert!(found.is_empty() && facts.iter().any(|fact| fact.contains("does not answer")), "{facts:?}");
}
