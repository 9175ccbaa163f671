use super::super::world::{graph, nodes};
use super::*;

fn found(nodes: Vec<linkspan_proto::mesh::Node>) -> Vec<Finding> {
    findings(&Graph::new(nodes))
}

fn only(list: Vec<Finding>) -> Finding {
    assert_eq!(list.len(), 1, "{list:?}");
    list.into_iter().next().unwrap()
}

#[test]
fn a_sound_mesh_has_no_findings() {
    assert_eq!(findings(&graph(4, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])), []);
}

#[test]
fn a_missing_address() {
    let mut list = nodes(2, &[(0, 1)]);
    list[1].ports[0].addr = None;
    let one = only(found(list.clone()));
    assert_eq!((one.code.as_str(), one.node.as_str()), ("LS1410", "n1"));
    assert_eq!(one.fix, "sudo ip addr add 10.0.0.2/24 dev c0");
    list[0].ports[0].addr = None;
    let fixes: Vec<String> = found(list).into_iter().map(|one| one.fix).collect();
    assert_eq!(fixes, ["sudo ip addr add 10.79.0.1/30 dev c0", "sudo ip addr add 10.79.0.2/30 dev c0"]);
}

#[test]
fn an_address_beside_another_is_of_its_subnet() {
    for (there, prefix, beside) in [
        ("fd00::1", 127, Some("fd00::/127")),
        ("fd00::a0", 127, Some("fd00::a1/127")),
        ("fd00::a2", 124, Some("fd00::a1/124")),
        ("fd00:1::5:1", 64, Some("fd00:1::5:2/64")),
        ("fd00::7", 128, None),
        ("10.0.0.9", 31, Some("10.0.0.8/31")),
        ("10.0.0.9", 32, None),
    ] {
        let mut list = nodes(2, &[(0, 1)]);
        list[0].ports[0].addr = Some((there.parse().unwrap(), prefix));
        list[1].ports[0].addr = None;
        let fix = only(found(list)).fix;
        match beside {
            Some(beside) => assert_eq!(fix, format!("sudo ip addr add {beside} dev c0")),
            None => assert!(fix.contains("none is free"), "{fix}"),
        }
    }
}

#[test]
fn equal_addresses_and_wrong_prefixes() {
    let mut list = nodes(2, &[(0, 1)]);
    list[1].ports[0].addr = list[0].ports[0].addr;
    let one = only(found(list));
    assert_eq!(
        (one.code.as_str(), one.fix.as_str()),
        ("LS1411", "sudo ip addr del 10.0.0.1/24 dev c0 && sudo ip addr add 10.0.0.2/24 dev c0")
    );
    let mut list = nodes(2, &[(0, 1)]);
    list[0].ports[0].addr = Some(("10.0.0.1".parse().unwrap(), 30));
    list[1].ports[0].addr = Some(("10.0.0.9".parse().unwrap(), 24));
    let one = only(found(list));
    assert_eq!((one.code.as_str(), one.node.as_str()), ("LS1412", "n0"));
    assert!(one.fix.contains("ip addr del 10.0.0.1/30 dev c0") && one.fix.contains("add 10.0.0.1/24"), "{}", one.fix);
}

#[test]
fn crossed_cables_name_the_port_that_was_meant() {
    // Node 1's two ends are plugged the wrong way round: 0 and 2 each find the other's subnet.
    let mut list = nodes(3, &[(0, 1), (1, 2)]);
    let (a, b) = (list[1].ports[0].addr, list[1].ports[1].addr);
    (list[1].ports[0].addr, list[1].ports[1].addr) = (b, a);
    let all = found(list);
    assert_eq!(all.len(), 2, "{all:?}");
    for one in &all {
        assert_eq!(one.code, "LS1413");
        assert!(one.what.contains("crossed"), "{}", one.what);
    }
    assert!(all[0].fix.contains("from c0 to c1 on n1"), "{}", all[0].fix);
    // Strangers' subnets are just that.
    let mut list = nodes(2, &[(0, 1)]);
    list[1].ports[0].addr = Some(("192.168.9.9".parse().unwrap(), 24));
    let one = only(found(list));
    assert!(one.code == "LS1413" && one.what.contains("not in one subnet"), "{one:?}");
}

#[test]
fn a_neighbour_that_is_deaf() {
    let mut list = nodes(2, &[(0, 1)]);
    list[1].heard.clear();
    let one = only(found(list));
    assert_eq!((one.code.as_str(), one.node.as_str()), ("LS1414", "n1"));
    assert!(one.fix.contains("7475"), "{}", one.fix);
}

#[test]
fn packet_sizes_and_speeds() {
    let mut list = nodes(2, &[(0, 1)]);
    list[0].ports[0].mtu = 1500;
    let one = only(found(list));
    assert_eq!((one.code.as_str(), one.fix.as_str()), ("LS1415", "sudo ip link set c0 mtu 9000"));
    let mut list = nodes(2, &[(0, 1)]);
    list.iter_mut().for_each(|n| n.ports[0].mtu = 1500);
    let both = found(list);
    assert_eq!(both.iter().map(|f| f.code.as_str()).collect::<Vec<_>>(), ["LS1416", "LS1416"]);
    // Slow cables do well with 1500.
    let mut list = nodes(2, &[(0, 1)]);
    list.iter_mut().for_each(|n| (n.ports[0].mtu, n.ports[0].mbps) = (1500, 1000));
    assert_eq!(found(list), []);
    let mut list = nodes(2, &[(0, 1)]);
    list[0].ports[0].mbps = 13_000;
    let one = only(found(list));
    assert!(one.code == "LS1417" && one.what.contains("13 and 100 Gb/s"), "{one:?}");
    assert!(one.fix.starts_with("take another cable, or try sudo ethtool -s c0"), "no command: {}", one.fix);
}

#[test]
fn one_subnet_on_two_cables() {
    let mut list = nodes(3, &[(0, 1), (0, 2)]);
    list[0].ports[1].addr = Some(("10.0.0.11".parse().unwrap(), 24));
    list[2].ports[0].addr = Some(("10.0.0.12".parse().unwrap(), 24));
    let both = found(list);
    let told: Vec<(&str, &str, &str)> = both.iter().map(|one| (&*one.code, &*one.node, &*one.fix)).collect();
    let commands = [
        ("LS1418", "n0", "sudo ip addr del 10.0.0.11/24 dev c1 && sudo ip addr add 10.79.0.5/30 dev c1"),
        ("LS1418", "n2", "sudo ip addr del 10.0.0.12/24 dev c1 && sudo ip addr add 10.79.0.6/30 dev c1"),
    ];
    assert_eq!(told, commands);
    let begins: Vec<&str> = both.iter().filter_map(|one| one.what.split(' ').next()).collect();
    assert_eq!(begins, ["n0/c0", "n2/c1"], "each host is told of itself");
}

#[test]
fn a_full_subnet_leaves_words_and_no_command() {
    let words =
        "give n1/c0 and n0/c0 addresses of a subnet that no other cable has: in that of 10.0.9.1/30 none is free";
    let full = |addr: Option<&str>| {
        let mut list = nodes(3, &[(0, 1), (0, 2)]);
        list[0].ports[0].addr = Some(("10.0.9.1".parse().unwrap(), 30));
        list[2].ports[0].addr = Some(("10.0.9.2".parse().unwrap(), 30));
        list[1].ports[0].addr = addr.map(|ip| (ip.parse().unwrap(), 30));
        found(list)
    };
    let fix = |code: &str, addr| full(addr).into_iter().find(|one| one.code == code && one.node == "n1").unwrap().fix;
    for (code, addr) in [("LS1410", None), ("LS1411", Some("10.0.9.1")), ("LS1413", Some("192.168.9.9"))] {
        assert_eq!(fix(code, addr), words, "{code}");
    }
}

#[test]
fn an_unused_half_and_a_missing_gid() {
    let mut list = nodes(2, &[(0, 1)]);
    let half = MeshPort { name: "half".into(), addr: None, twin: Some(0), ..list[0].ports[0].clone() };
    list[0].ports.push(half);
    let one = only(found(list));
    assert!(one.code == "LS1419" && one.what.contains("n0/half"), "{one:?}");
    let mut list = nodes(2, &[(0, 1)]);
    list[1].ports[0].gid = false;
    let one = only(found(list));
    assert_eq!((one.code.as_str(), one.fix.as_str()), ("LS1420", "sudo ip link set c0 down && sudo ip link set c0 up"));
}

#[test]
fn a_setting_of_ip_is_to_be_kept_elsewhere() {
    let kept = |list: Vec<_>| found(list).iter().map(|one| one.keep().is_some()).collect::<Vec<_>>();
    let mut list = nodes(2, &[(0, 1)]);
    list[0].ports[0].mtu = 1500;
    assert_eq!(kept(list), [true]);
    let mut list = nodes(2, &[(0, 1)]);
    list[0].ports[0].addr = None;
    assert_eq!(kept(list), [true]);
    // A new cable, and an interface that is switched off and on, stay as they are.
    let mut list = nodes(2, &[(0, 1)]);
    (list[0].ports[0].mbps, list[1].ports[0].gid) = (13_000, false);
    assert_eq!(kept(list), [false, false]);
}

#[test]
fn nccl_serves_the_pair_and_the_triangle_itself() {
    let settings = nccl_settings(&graph(3, &[(0, 1), (1, 2), (2, 0)])).unwrap();
    assert_eq!(settings, ["NCCL_IB_SUBNET_AWARE_ROUTING=1", "NCCL_IB_SUBNET_PREFIX_LEN=24", "NCCL_IB_MERGE_NICS=1"]);
    // A missing cable, a fourth node, a cable without RDMA: not.
    assert_eq!(nccl_settings(&graph(3, &[(0, 1), (1, 2)])), None);
    assert_eq!(nccl_settings(&graph(4, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3)])), None);
    let mut list = nodes(2, &[(0, 1)]);
    list[0].ports[0].gid = false;
    assert_eq!(nccl_settings(&Graph::new(list)), None);
}
