use super::*;
use crate::judge::{Report, judge as whole};
use crate::tests::{build, machines};

/// What is said of what a peer of the healthy server answered, with more lines of that server.
fn report(more: &[&str], change: impl FnOnce(&mut Asked)) -> Report {
    let mut lines = machines()["plain-server"].clone();
    more.iter().for_each(|line| crate::tests::change(&mut lines, line));
    let built = build(&lines);
    let ip: IpAddr = "10.1.2.9".parse().unwrap();
    let mut asked = Asked {
        peer: ip,
        name: None,
        port: 24_680,
        source: Some("10.1.2.3".parse().unwrap()),
        answers: Some(true),
        unsent: None,
        mtu: Some(1500),
        passes: None,
        tcp: Tcp::Open,
    };
    change(&mut asked);
    whole(&built.snapshot, Some(&asked))
}

/// Codes and facts.
fn said(change: impl FnOnce(&mut Asked)) -> (Vec<&'static str>, Vec<String>) {
    let report = report(&[], change);
    (report.findings.iter().map(|finding| finding.rule.code()).collect(), report.facts)
}

/// The one finding: its code, what is wrong, and the steps.
fn one(more: &[&str], change: impl FnOnce(&mut Asked)) -> (&'static str, String, String) {
    let report = report(more, change);
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    let steps = finding.mend.iter().map(|step| match step {
        Step::Run(text) | Step::Do(text) => text.as_str(),
    });
    (finding.rule.code(), finding.what.clone(), steps.collect::<Vec<_>>().join("; "))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_peer_that_answers_all_is_no_finding() {
    assert_eq!(said(|_| ()).0, Vec::<&str>::new());
    let serve = |port| {
        let (found, facts) = said(|asked| (asked.tcp, asked.port) = (Tcp::Refused, port));
        assert!(found.is_empty(), "{found:?}");
        facts.join(" ")
    };
    assert!(serve(24_680).contains("type `lspan perf serve` there"));
    assert!(serve(1234).contains("type `lspan perf serve --port 1234` there"));
}

#[test]
fn silence_is_told_apart() {
    assert_eq!(said(|asked| asked.source = None).0, ["LS2314"]);
    let dead = |asked: &mut Asked| (asked.answers, asked.tcp) = (Some(false), Tcp::Silent);
    assert_eq!(said(dead).0, ["LS2312"]);
    assert_eq!(said(|asked| asked.tcp = Tcp::Silent).0, ["LS2402"]);
    assert_eq!(said(|asked| asked.passes = Some(1400)).0, ["LS2313"]);
}

#[test]
fn a_peer_that_does_not_answer_is_a_finding_also_for_who_may_not_ping_and_who_cannot_send() {
    let (code, what, _) = one(&[], |asked| (asked.answers, asked.tcp) = (None, Tcp::Silent));
    assert!(code == "LS2312" && what.contains("whether it answers a ping is not known"), "{what}");
    let (code, what, steps) = one(&[], |asked| {
        (asked.answers, asked.tcp, asked.unsent) = (None, Tcp::Silent, Some("Operation not permitted".into()));
    });
    assert!(code == "LS2312" && what.contains("cannot send it a ping: Operation not permitted"), "{what}");
    assert!(steps.contains("nft list ruleset"), "{steps}");
}

#[test]
fn a_peer_without_a_route_in_a_subnet_of_this_host_is_not_told_to_be_in_none() {
    let none = |asked: &mut Asked| asked.source = None;
    let (_, what, steps) = one(&[], none);
    assert!(
        what.contains("a route or a rule forbids it") && steps.starts_with("ip route get 10.1.2.9"),
        "{what} {steps}"
    );
    let (_, what, _) = one(&[], |asked| (asked.source, asked.peer) = (None, ip("10.1.2.255")));
    assert!(what.contains("is the broadcast address"), "{what}");
    let (_, what, _) = one(&[], |asked| (asked.source, asked.peer) = (None, ip("192.0.2.1")));
    assert!(what.contains("no interface has an address of its subnet"), "{what}");
}

#[test]
fn an_interface_that_is_down_is_one_finding_and_the_route_that_goes_with_it_none() {
    let down = "net enp1s0 2 pci0000:00/0000:00:1d.0/0000:01:00.0 flags=0x1002 operstate=down";
    let (code, _, steps) = one(&[down], |asked| asked.source = None);
    assert_eq!((code, &*steps), ("LS2304", "sudo ip link set enp1s0 up"));
    let (code, what, steps) = one(&[down, "env LINKSPAN_IFNAME=enp1s0"], |asked| asked.source = None);
    assert_eq!(
        (code, &*what, &*steps),
        ("LS2317", "enp1s0 is asked for by LINKSPAN_IFNAME=enp1s0 and is switched off", "sudo ip link set enp1s0 up")
    );
}

#[test]
fn this_hosts_own_address_is_no_peer() {
    let own =
        |asked: &mut Asked| (asked.peer, asked.tcp, asked.name) = (ip("10.1.2.3"), Tcp::Refused, Some("b".into()));
    let (code, what, _) = one(&[], own);
    assert_eq!((code, &*what), ("LS2318", "b (10.1.2.3) is this host's own address: b resolves to it here"));
    let (found, facts) = said(|asked| {
        (asked.peer, asked.source, asked.name) = (ip("127.0.0.1"), Some(ip("127.0.0.1")), Some("localhost".into()));
    });
    assert!(found.is_empty() && facts.iter().any(|fact| fact.contains("own address")), "{facts:?}");
}

#[test]
fn the_slack_of_a_cable_for_tags_is_no_mtu() {
    for (passes, mtu) in [(1504, 1500), (1500, 1500), (1400, 1400), (9004, 9004)] {
        let (_, _, steps) = one(&[], |asked| (asked.passes, asked.mtu) = (Some(passes), Some(9500)));
        assert!(steps.contains(&format!("mtu {mtu};")), "{passes}: {steps}");
    }
}

#[test]
fn a_peer_without_a_route_is_told_beside_what_may_be_why() {
    let more = ["env LINKSPAN_IFNAME=enp1s0,enp3s0", "net enp3s0 6 pci0000:00/0000:00:1e.0/0000:03:00.0 speed=10000"];
    let report = report(&more, |asked| (asked.peer, asked.source) = (ip("10.9.9.9"), None));
    assert_eq!(report.findings.iter().map(|found| found.rule.code()).collect::<Vec<_>>(), ["LS2306"]);
    assert!(report.facts.iter().any(|fact| fact.contains("there is no route to 10.9.9.9")), "{:?}", report.facts);
}
