use super::*;

/// `ip -4 -j -N route show table all`, `ip -6 ...` and `ip -j -N rule show` of iproute2 6.15, shortened.
const FOUR: &str = r#"[{"dst":"default","gateway":"10.1.0.254","dev":"eth0","table":"100","flags":[]},
    {"dst":"10.1.0.0/24","dev":"eth0","protocol":"2","scope":"253","prefsrc":"10.1.0.1","metric":100,"flags":[]},
    {"type":"local","dst":"10.1.0.1","dev":"eth0","table":"255","protocol":"2","scope":"254","prefsrc":"10.1.0.1","flags":[]},
    {"type":"blackhole","dst":"10.9.0.0/16","flags":[]}]"#;
const SIX: &str = r#"[{"dst":"fe80::/64","dev":"cab0","protocol":"2","metric":256,"flags":[],"pref":"medium"},
    {"dst":"default","gateway":"fe80::1","dev":"eth0","metric":1024,"flags":[],"pref":"medium"}]"#;
const RULES: &str = r#"[{"priority":0,"src":"all","table":"255"},{"priority":5,"src":"10.1.0.0","srclen":24,"table":"100"},
    {"priority":6,"src":"all","fwmark":"0x1","table":"7"},{"priority":7,"src":"all","not":null,"fwmark":"0x2","table":"8"},
    {"priority":32766,"src":"all","table":"254"}]"#;

fn printed() -> [[Option<String>; 2]; 2] {
    let text = |text: &str| Some(text.to_owned());
    [[text(FOUR), text(SIX)], [text(RULES), None]]
}

#[test]
fn what_ip_prints_is_read() {
    let (routes, rules) = read(&printed(), &Roots::under("/nonexistent".as_ref()));
    let shown: Vec<String> =
        routes.iter().map(|r| format!("{}/{} {} {} {}", r.to, r.prefix, r.interface, r.metric, r.table)).collect();
    assert_eq!(
        shown,
        ["0.0.0.0/0 eth0 0 100", "10.1.0.0/24 eth0 100 254", "fe80::/64 cab0 256 254", "::/0 eth0 1024 254"]
    );
    let tables: Vec<(u32, Option<u32>)> = rules.iter().map(|rule| (rule.priority, rule.table)).collect();
    assert_eq!(tables, [(0, Some(255)), (5, Some(100)), (7, None), (32766, Some(254))]);
    assert_eq!(rules[1].from, Some(([10, 1, 0, 0].into(), 24)));
}

#[test]
fn rules_choose_the_table_and_prefixes_the_route() {
    let (routes, rules) = read(&printed(), &Roots::under("/nonexistent".as_ref()));
    let ip = |text: &str| text.parse().unwrap();
    let ways = Ways::of(&routes, &rules);
    let taken = |from, to| ways.way(ip(from), ip(to), &mut 0).map(|(route, priority)| (route.prefix, priority));
    assert_eq!(taken("10.1.0.1", "10.1.0.2"), Some((0, 5)));
    assert_eq!(taken("10.2.0.1", "10.1.0.2"), None, "a rule that is not understood comes first");
    assert_eq!(taken("fe80::2", "fe80::3"), Some((64, u32::MAX)));
    assert_eq!(taken("fe80::2", "2001:db8::1"), Some((0, u32::MAX)));
}

#[test]
fn without_ip_the_main_table_is_that_of_proc() {
    use linkspan_topology::fixture::Fixture;
    let fixture = Fixture::tree(
        "proc/net/route\tIface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\\neth0 0000010A 00000000 0001 0 0 100 00FFFFFF 0 0 0",
    );
    let (routes, rules) = read(&Default::default(), &fixture.roots());
    let route = Route { interface: "eth0".into(), to: [10, 1, 0, 0].into(), prefix: 24, metric: 100, table: MAIN };
    assert!(routes == [route] && rules.is_empty(), "{routes:?}");
    let junk = [[Some("[1]".into()), Some("{".into())], [Some("[{}]".into()), None]];
    assert_eq!(read(&junk, &Roots::under("/nonexistent".as_ref())), (Vec::new(), Vec::new()));
}
