use super::*;

fn filter(text: &str) -> IfFilter {
    IfFilter::parse("LINKSPAN_IFNAME", text).unwrap()
}

#[test]
fn the_four_forms() {
    let all = ["lo", "eth0", "eth1", "eth10", "docker0"];
    for (text, allowed) in [
        ("eth", &["eth0", "eth1", "eth10"][..]),
        ("eth1,lo", &["lo", "eth1", "eth10"]),
        ("=eth1", &["eth1"]),
        ("= eth1 , eth0 ,", &["eth0", "eth1"]),
        ("^docker,lo", &["eth0", "eth1", "eth10"]),
        ("^=eth1", &["lo", "eth0", "eth10", "docker0"]),
    ] {
        let filter = filter(text);
        let got: Vec<&str> = all.into_iter().filter(|name| filter.allows(name)).collect();
        assert_eq!(got, allowed, "{text}");
    }
}

#[test]
fn asking_is_more_than_allowing() {
    assert!(filter("docker").asks_for("docker0"));
    assert!(!filter("^lo").asks_for("docker0"));
    assert!(filter("^lo").allows("docker0"));
}

#[test]
fn spelling_mistakes_are_found() {
    assert_eq!(filter("=eth0,etj1").unmatched(&["eth0", "lo"]), ["etj1"]);
    assert_eq!((filter("=eth").is_exact(), filter("eth").is_exact()), (true, false));
    assert_eq!(filter("eth").unmatched(&["eth0"]), Vec::<&str>::new());
}

#[test]
fn malformed_values_name_variable_value_and_way_out() {
    for (text, part) in [
        ("", "names no interface"),
        ("^", "names no interface"),
        ("=,", "names no interface"),
        ("eth0,^lo", "\"^lo\""),
        ("eth0 eth1", "\"eth0 eth1\""),
        ("eth0:1", "\"eth0:1\""),
        ("averyveryverylongname", "longer than 15"),
    ] {
        let message = IfFilter::parse("NCCL_SOCKET_IFNAME", text).unwrap_err().to_string();
        assert!(message.starts_with("LS060"), "{message}");
        assert!(message.contains("NCCL_SOCKET_IFNAME=") && message.contains(part), "{message}");
    }
}

#[test]
fn our_variable_wins() {
    let env = |ours: Option<&'static str>| {
        move |name: &str| match name {
            "LINKSPAN_IFNAME" => ours.map(str::to_owned),
            "NCCL_SOCKET_IFNAME" => Some("=eth9".to_owned()),
            _ => None,
        }
    };
    assert!(IfFilter::from_env(env(Some("eth0"))).unwrap().unwrap().allows("eth0"));
    let nccl = IfFilter::from_env(env(None)).unwrap().unwrap();
    assert_eq!(nccl.shown(), "NCCL_SOCKET_IFNAME==eth9");
    assert!(IfFilter::from_env(|_| None).unwrap().is_none());
}
