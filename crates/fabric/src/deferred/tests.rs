use linkspan_topology::{IfAddr, Kind};

use super::*;
use crate::device::devices;

fn config(ifname: &'static str) -> Config {
    let get = move |name: &str| match name {
        "LINKSPAN_IFNAME" => Some(ifname.to_owned()).filter(|v| !v.is_empty()),
        "LINKSPAN_STATS_DIR" => Some("off".to_owned()),
        _ => None,
    };
    Config::read(&get).unwrap()
}

fn card(name: &str, ip: &str, kind: Kind, node: u32) -> Interface {
    Interface {
        port_name: None,
        name: name.into(),
        index: 0,
        kind,
        driver: None,
        speed_mbps: Some(10_000),
        mtu: None,
        up: true,
        carrier: Some(true),
        operstate: "up".into(),
        mac: None,
        addrs: vec![IfAddr { ip: ip.parse().unwrap(), prefix: 24, scope: 0 }],
        numa_node: Some(node),
        pci_path: None,
        master: None,
    }
}

/// Names of what the first device may get later.
fn later(ifname: &'static str, list: &[Interface]) -> Vec<String> {
    let config = config(ifname);
    let verdicts = judge(list, config.interfaces.as_ref(), &[]);
    let survey: Vec<_> = list.iter().cloned().zip(verdicts).collect();
    let device = devices(&config, &survey).unwrap().remove(0);
    ports(&config, &survey, &device).into_iter().map(|p| p.name).collect()
}

#[test]
fn what_is_down_and_would_be_used_may_come_later() {
    let ethernet = || Kind::Unknown;
    let down = |i: Interface| Interface { up: false, operstate: "down".into(), ..i };
    let unplugged = |i: Interface| Interface { carrier: Some(false), ..i };
    let list = [
        card("eth0", "10.0.0.1", ethernet(), 0),
        down(card("eth1", "10.0.1.1", ethernet(), 0)),
        unplugged(card("eth2", "10.0.2.1", ethernet(), 0)),
        unplugged(card("eth3", "10.0.3.1", ethernet(), 1)),
        unplugged(card("docker0", "172.17.0.1", Kind::Bridge { wired: false }, 0)),
        Interface { addrs: Vec::new(), ..down(card("eth4", "10.0.4.1", ethernet(), 0)) },
    ];
    assert_eq!(later("", &list), ["eth1", "eth2"], "not of another node, a bridge, or without an address");
    assert_eq!(later("eth0,eth2", &list), ["eth2"], "the list of names counts");
    assert_eq!(later("eth0,docker0", &list), ["docker0"], "whatever it is, if it is asked for");
}
