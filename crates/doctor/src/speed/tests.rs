use super::*;

fn one(over: &str, equal: &str, gbit_s: f64) -> Measured {
    Measured { way: format!("tcp over {over}"), over: over.into(), kind: "tcp".into(), equal: equal.into(), gbit_s }
}

fn codes(report: &Report) -> Vec<(&str, &str)> {
    report.findings.iter().map(|one| (one.rule.code(), &*one.subject)).collect()
}

#[test]
fn a_way_is_judged_by_its_own_record() {
    let mut kept = Kept::new();
    for rate in [10.0, 9.0, 11.0] {
        assert_eq!(codes(&speeds("a", "b", &[one("eth0", "", rate)], &mut kept)), []);
    }
    assert_eq!(codes(&speeds("a", "b", &[one("eth0", "", 7.1)], &mut kept)), [], "0.71 of the median");
    let report = speeds("a", "b", &[one("eth0", "", 5.0)], &mut kept);
    assert_eq!(codes(&report), [("LS2701", "eth0")]);
    assert!(
        report.findings[0].what.contains("5.00 Gb/s") && report.findings[0].what.contains("4 measurements"),
        "{report:?}"
    );
    assert_eq!(kept["tcp over eth0"], [10.0, 9.0, 11.0, 7.1], "what is slow does not become what is usual");
    for _ in 0..20 {
        speeds("a", "b", &[one("eth0", "", 10.0)], &mut kept);
    }
    assert_eq!(kept["tcp over eth0"].len(), RECORD);
}

#[test]
fn equal_rails_are_judged_by_each_other_and_unequal_ones_are_not() {
    let judge = |list: &[Measured]| speeds("a", "b", list, &mut Kept::new());
    let report = judge(&[one("eth0", "25000 Mb/s", 20.0), one("eth1", "25000 Mb/s", 11.0)]);
    assert_eq!(codes(&report), [("LS2702", "eth1")]);
    for list in [
        [one("eth0", "25000 Mb/s", 20.0), one("eth1", "25000 Mb/s", 12.5)],
        [one("eth0", "25000 Mb/s", 20.0), one("eth1", "10000 Mb/s", 9.0)],
        [one("eth0", "", 20.0), one("eth1", "", 1.0)],
    ] {
        assert_eq!(codes(&judge(&list)), [], "{list:?}");
    }
    let verbs = Measured { kind: "verbs".into(), ..one("eth1", "25000 Mb/s", 1.0) };
    assert_eq!(codes(&judge(&[one("eth0", "25000 Mb/s", 20.0), verbs])), [], "another kind of path");
}

#[test]
fn one_cause_is_told_once_and_a_damaged_record_is_no_record() {
    let mut kept =
        Kept::from([("tcp over eth1".to_owned(), vec![20.0]), ("tcp over eth0".to_owned(), vec![f64::NAN, -3.0])]);
    let report = speeds("a", "b", &[one("eth0", "x", 20.0), one("eth1", "x", 5.0)], &mut kept);
    assert_eq!(codes(&report), [("LS2702", "eth1")]);
    assert_eq!(kept["tcp over eth0"], [20.0]);
    assert!(report.facts[0].contains("20.00 Gb/s") && report.facts[0].contains("IEEE 802.3"), "the source is named");
}

#[test]
fn a_rail_that_is_slower_than_its_equal_does_not_become_what_is_usual() {
    let mut kept = Kept::new();
    let slow = |kept: &mut Kept| speeds("a", "b", &[one("eth0", "x", 20.0), one("eth1", "x", 5.0)], kept);
    assert_eq!(codes(&slow(&mut kept)), [("LS2702", "eth1")]);
    assert!(kept["tcp over eth1"].is_empty(), "{kept:?}");
    assert_eq!(kept["tcp over eth0"], [20.0]);
    kept.insert("tcp over eth1".into(), vec![5.1]);
    slow(&mut kept);
    assert_eq!(kept["tcp over eth1"], [5.1]);
}

#[test]
fn the_median_of_an_even_number_of_measurements_is_between_the_two_in_the_middle() {
    assert_eq!([&[][..], &[3.0], &[8.0, 4.0], &[9.0, 1.0, 5.0]].map(median), [None, Some(3.0), Some(6.0), Some(5.0)]);
    // Of 4 and 8 it is 6, of which 4.3 is more than 0.7; of 8 it is not.
    let mut kept = Kept::from([("tcp over eth0".to_owned(), vec![8.0, 4.0])]);
    assert_eq!(codes(&speeds("a", "b", &[one("eth0", "", 4.3)], &mut kept)), []);
}

#[test]
fn a_peer_whose_port_answers_and_none_of_its_ways_has_a_firewall() {
    let dead = || "no connection: LS0508 the peer cannot be reached".to_owned();
    let code = |open, failures: &[String]| shut("a", "b", open, failures).map(|one| one.rule.code());
    assert_eq!(code(Some(24_680), &[dead(), dead()]), Some("LS2402"));
    assert_eq!(code(None, &[dead()]), None, "its port does not answer either");
    assert_eq!(code(Some(24_680), &[dead(), "LS0523 refused".into()]), None);
    assert_eq!(code(Some(24_680), &[]), None);
}

#[test]
fn a_slow_link_is_told_in_megabits() {
    let report = speeds("a", "b", &[one("eth0", "", 0.0051)], &mut Kept::new());
    assert!(report.facts[0].contains("tcp over eth0 5.1 Mb/s"), "{:?}", report.facts);
}
