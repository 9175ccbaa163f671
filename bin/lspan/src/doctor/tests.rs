use linkspan_doctor::{Report, Severity, Step};
use linkspan_topology::fixture::{ALL, Fixture, STRIX_HALO};
use serde_json::Value;

use super::*;
use crate::schema;

fn with<T>(tree: &str, look: impl FnOnce(&Snapshot, &Report) -> T) -> T {
    let fix = Fixture::tree(tree);
    let snapshot = Snapshot::read(Sources { roots: fix.roots(), addrs: fix.addrs.clone(), ..Sources::default() });
    let report = judge(&snapshot, None);
    look(&snapshot, &report)
}

fn document(tree: &str) -> Value {
    with(tree, |snapshot, report| {
        let document = json::host(snapshot, report, snapshot.notes(), None, exit(&report.findings), RELEASE);
        serde_json::to_value(document).unwrap()
    })
}

fn plain(tree: &str) -> String {
    let text = with(tree, |snapshot, report| text::host(snapshot, report, snapshot.notes(), false));
    anstream::adapter::strip_str(&text).to_string()
}

#[test]
fn every_fixture_fits_the_schema() {
    for (name, tree) in ALL {
        let problems = schema::problems("doctor-1.json", &document(tree));
        assert!(problems.is_empty(), "{name}: {problems:#?}");
    }
}

#[test]
fn a_finding_says_what_is_wrong_what_it_costs_and_what_to_type() {
    let tree = STRIX_HALO.replace("address thunderbolt0 10.0.0.1/24\n", "");
    let text = plain(&tree);
    for part in [
        "strix-a: 1 thing is broken",
        "broken  thunderbolt0, the interface of the cable to strix-b, has no address  (LS2110 tb-no-address)",
        "  costs  no TCP over the cable",
        "sudo ip link set thunderbolt0 up",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert_eq!(with(&tree, |_, report| exit(&report.findings)), Exit::Failed);
}

#[test]
fn exit_codes_follow_the_worst_finding() {
    let lanes = STRIX_HALO.replace("0-1/rx_lanes\t2", "0-1/rx_lanes\t1").replace("0-1/tx_lanes\t2", "0-1/tx_lanes\t1");
    assert_eq!(with(&lanes, |_, report| exit(&report.findings)), Exit::Degraded);
    assert_eq!(with(STRIX_HALO, |_, report| exit(&report.findings)), Exit::Ok);
    assert_eq!(document(&lanes)["exit_code"], 3);
    assert_eq!(document(&lanes)["findings"][0]["severity"], "slower");
}

#[test]
fn what_can_never_work_stands_by_itself_and_is_no_failure() {
    let rule = linkspan_doctor::ALL.iter().find(|rule| rule.severity == Severity::Never).unwrap();
    let finding = Finding {
        rule,
        host: "a".into(),
        subject: String::new(),
        what: "so it is".into(),
        mend: vec![Step::Do("x".into())],
    };
    let report = Report { findings: vec![finding], facts: Vec::new() };
    let text = anstream::adapter::strip_str(&text::merged(&["a"], &report)).to_string();
    assert!(text.contains("found nothing wrong") && text.contains("can never have"), "{text}");
    assert_eq!(exit(&report.findings), Exit::Ok);
    assert!(!explained(&report.findings), "it is not why a peer is not found");
}

#[test]
fn what_is_only_slower_is_not_why_a_peer_is_not_found() {
    let lanes = STRIX_HALO.replace("0-1/rx_lanes\t2", "0-1/rx_lanes\t1").replace("0-1/tx_lanes\t2", "0-1/tx_lanes\t1");
    with(&lanes, |_, report| {
        assert_eq!(exit(&report.findings), Exit::Degraded);
        assert!(!explained(&report.findings));
    });
    let bare = STRIX_HALO.replace("address thunderbolt0 10.0.0.1/24\n", "");
    assert!(with(&bare, |_, report| explained(&report.findings)), "a cable without an address may be why");
}
