use super::*;

fn interface(kind: Kind, addrs: &[&str]) -> Interface {
    let addr = |ip: &&str| IfAddr { ip: ip.parse().unwrap(), prefix: 16, scope: 0 };
    Interface {
        name: "tb0".into(),
        index: 1,
        kind,
        driver: None,
        speed_mbps: None,
        mtu: None,
        up: true,
        carrier: Some(true),
        operstate: "up".into(),
        mac: None,
        addrs: addrs.iter().map(addr).collect(),
        numa_node: None,
        pci_path: None,
        master: None,
        port_name: None,
    }
}

fn both(kind: Kind, family: Option<&str>, addrs: &[&str]) -> [Option<String>; 2] {
    let interface = interface(kind, addrs);
    [address(&interface, family), beside(&interface, family)].map(|addr| addr.map(|addr| addr.ip.to_string()))
}

#[test]
fn a_thunderbolt_cable_with_a_routed_address_has_its_link_local_one_beside_it() {
    let all = ["169.254.1.1", "fe80::1", "fd77::1", "10.7.0.1"];
    let some = |ip: &str| Some(ip.to_owned());
    assert_eq!(both(Kind::Thunderbolt, None, &all), [some("10.7.0.1"), some("fe80::1")]);
    assert_eq!(both(Kind::Thunderbolt, Some("AF_INET"), &all), [some("10.7.0.1"), some("169.254.1.1")]);
    assert_eq!(both(Kind::Thunderbolt, Some("AF_INET6"), &all), [some("fd77::1"), some("fe80::1")]);
    assert_eq!(both(Kind::Thunderbolt, None, &all[..2]), [some("fe80::1"), None], "it is used by that one already");
    assert_eq!(both(Kind::Thunderbolt, None, &all[3..]), [some("10.7.0.1"), None]);
    assert_eq!(both(Kind::Physical, None, &all), [some("10.7.0.1"), None], "who is at the other end is not known");
}
