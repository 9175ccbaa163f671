use super::*;

fn wish(value: &str) -> Result<Wish, BadParam> {
    Wish::read(&|name| (name == "LINKSPAN_HELPERS").then(|| value.to_owned()))
}

fn interface(speed_mbps: Option<u32>) -> [(Interface, Verdict); 1] {
    let fix = linkspan_topology::fixture::Fixture::new();
    let entry =
        |ip: &str| linkspan_topology::AddrEntry { name: "eth7".into(), ip: ip.parse().unwrap(), prefix: 24, scope: 0 };
    let list = linkspan_topology::interfaces(&fix.roots(), &[entry("10.0.0.1")]);
    let interface = list.into_iter().find(|i| i.name == "eth7").expect("it has an address");
    [(Interface { speed_mbps, ..interface }, Verdict::Usable)]
}

#[test]
fn what_the_parameter_takes() {
    assert_eq!(wish(""), Ok(Wish::default()), "none, unless asked for");
    assert_eq!(wish("0"), Ok(Wish::default()));
    assert_eq!(wish("2"), Ok(Wish { per_card: 2, force: false }));
    assert_eq!(wish("force:8"), Ok(Wish { per_card: 8, force: true }));
    for bad in ["9", "-1", "force", "force:", "force:9", "two", "2 ", "always:1"] {
        let error = wish(bad).unwrap_err().to_string();
        for part in ["LINKSPAN_HELPERS", bad, "0 to 8", "force:"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn nobody_wants_any() {
    assert!(Helpers::new(Wish::default(), Roots::default()).is_none());
    assert!(Helpers::new(Wish { per_card: 0, force: true }, Roots::default()).is_none());
}

#[test]
fn only_fast_links_have_one_unless_forced() {
    let (asked, forced) = (Wish { per_card: 1, force: false }, Wish { per_card: 1, force: true });
    for (mbps, helped) in [(None, false), (Some(10_000), false), (Some(25_000), false), (Some(25_001), true)] {
        let survey = interface(mbps);
        assert_eq!(asked.applies(&survey, "eth7").is_ok(), helped, "{mbps:?}");
        assert!(forced.applies(&survey, "eth7").is_ok_and(|i| i.is_some()), "{mbps:?}");
        assert!(asked.applies(&survey, "eth8").is_err(), "an unknown interface");
    }
    let why = asked.applies(&interface(Some(10_000)), "eth7").unwrap_err();
    assert!(why.contains("eth7 has 10 Gb/s"), "{why}");
}
