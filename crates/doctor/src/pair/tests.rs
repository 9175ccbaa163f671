use super::*;
use crate::end::{Addr, Card};
use crate::routes::{Route, Rule};

/// Two hosts with a cable on each of these interfaces, 10.0.N.1 and 10.0.N.2.
fn pair(cables: u8) -> [End; 2] {
    let port = |n: u8, side: u8| Port {
        name: format!("cab{n}"),
        mac: Some(format!("02:00:00:00:{n:02x}:{side:02x}")),
        mtu: Some(9000),
        mbps: Some(100_000),
        carrier: true,
        usable: true,
        cable: true,
        rdma: false,
        gid: false,
        socket: None,
        peer_router: None,
        addrs: vec![
            Addr { ip: [10, 0, n, side].into(), prefix: 24 },
            Addr { ip: format!("fe80::{n}:{side}").parse().unwrap(), prefix: 64 },
        ],
        heard: vec![format!("fe80::{n}:{}", 3 - side).parse().unwrap()],
        neighbours: Vec::new(),
    };
    [1, 2].map(|side| End {
        host: format!("h{side}"),
        boot_id: Some(format!("boot {side}")),
        release: "0.1.0".into(),
        pid_namespace: Some("pid:[1]".into()),
        net_namespace: Some("net:[1]".into()),
        plugin: Some("0.1.0".into()),
        routers: Vec::new(),
        ports: (0..cables).map(|n| port(n, side)).collect(),
        cards: vec![Card { name: "mlx5_0".into(), board: Some("MT_1".into()), firmware: Some("28.43.1014".into()) }],
        routes: (0..cables)
            .map(|n| Route {
                interface: format!("cab{n}"),
                to: [10, 0, n, 0].into(),
                prefix: 24,
                metric: 0,
                table: MAIN,
            })
            .collect(),
        rules: Vec::new(),
    })
}

fn codes(ends: &[End]) -> Vec<(&'static str, String)> {
    together(ends).unwrap().findings.into_iter().map(|finding| (finding.rule.code(), finding.host)).collect()
}

/// What one change of the second host gives.
fn changed(change: impl FnOnce(&mut End)) -> Vec<(&'static str, String)> {
    let mut ends = pair(2);
    change(&mut ends[1]);
    codes(&ends)
}

fn one(code: &'static str, host: &str) -> Vec<(&'static str, String)> {
    vec![(code, host.to_owned())]
}

#[test]
fn a_sound_pair_is_silent() {
    for cables in 0..4 {
        assert_eq!(codes(&pair(cables)), []);
    }
}

#[test]
fn cables_are_judged_as_in_a_mesh_and_mended_by_commands() {
    assert_eq!(changed(|b| b.ports[0].mtu = Some(1500)), one("LS1415", "h2"));
    assert_eq!(changed(|b| b.ports[0].addrs.retain(|addr| addr.ip.is_ipv6())), one("LS1410", "h2"));
    assert_eq!(changed(|b| b.ports[0].mbps = Some(13_000)), one("LS1417", "h2"));
    assert_eq!(changed(|b| b.ports[0].addrs[0] = Addr { ip: [10, 9, 9, 9].into(), prefix: 24 }), one("LS1413", "h2"));
    // One fault, told once.
    assert_eq!(changed(|b| b.ports[0].addrs[0].ip = [10, 0, 0, 1].into()), one("LS1411", "h2"));
    let mut crossed = pair(2);
    let (first, second) = (crossed[1].ports[0].heard.clone(), crossed[1].ports[1].heard.clone());
    (crossed[1].ports[0].heard, crossed[1].ports[1].heard) = (second, first);
    crossed[0].ports.iter_mut().for_each(|port| port.heard.clear());
    let found = together(&crossed).unwrap().findings;
    assert!(
        found.iter().all(|f| f.rule.code() == "LS1413" && f.what.contains("crossed")) && found.len() == 2,
        "{found:?}"
    );
    let mut ends = pair(1);
    ends[1].ports[0].addrs.remove(0);
    let found = together(&ends).unwrap().findings;
    let [Step::Run(command), Step::Do(keep)] = &found[0].mend[..] else { panic!("{:?}", found[0].mend) };
    assert_eq!(command, "sudo ip addr add 10.0.0.2/24 dev cab0");
    assert!(keep.contains("lost at reboot"), "{keep}");
    assert_eq!(found[0].subject, "cab0");
}

#[test]
fn a_cable_is_known_by_neighbours_and_by_thunderbolt_too() {
    let mut ends = pair(1);
    ends[1].ports[0].mtu = Some(1500);
    ends.iter_mut().for_each(|end| end.ports[0].heard.clear());
    assert_eq!(codes(&ends), [], "nothing says that there is a cable");
    ends[0].ports[0].neighbours = vec![ends[1].ports[0].mac.clone().unwrap()];
    assert_eq!(codes(&ends), one("LS1415", "h2"));
    ends[0].ports[0].neighbours.clear();
    for (n, end) in ends.iter_mut().enumerate() {
        end.routers = vec![format!("router {n}")];
        end.ports[0].peer_router = Some(format!("router {}", 1 - n));
    }
    assert_eq!(codes(&ends), one("LS1415", "h2"));
}

#[test]
fn what_hosts_have_in_common_or_not() {
    assert_eq!(changed(|b| b.cards[0].firmware = Some("28.40.1000".into())), one("LS2213", "h2"));
    assert_eq!(changed(|b| b.cards[0].firmware = Some("28.45.4028".into())), one("LS2213", "h1"));
    assert_eq!(changed(|b| b.cards[0].board = Some("MT_2".into())), []);
    assert_eq!(changed(|b| b.plugin = Some("0.0.9".into())), one("LS2805", "h2"));
    assert_eq!(changed(|b| b.plugin = None), []);
    let docker = |carrier| Port {
        name: "docker0".into(),
        usable: carrier,
        cable: false,
        heard: Vec::new(),
        mac: None,
        addrs: vec![Addr { ip: [172, 17, 0, 1].into(), prefix: 16 }],
        ..pair(1)[0].ports[0].clone()
    };
    let mut ends = pair(1);
    ends.iter_mut().for_each(|end| end.ports.push(docker(false)));
    assert_eq!(codes(&ends), [], "a bridge of containers that is not used");
    ends.iter_mut().for_each(|end| end.ports[1].usable = true);
    assert_eq!(codes(&ends), one("LS2316", "h2"));
}

#[test]
fn containers_of_one_host() {
    let same = |b: &mut End| (b.boot_id, b.ports) = (Some("boot 1".into()), Vec::new());
    let pid = |b: &mut End| (same(b), b.pid_namespace = Some("pid:[2]".into())).0;
    assert_eq!(changed(pid), one("LS2504", "h2"));
    let net = |b: &mut End| (same(b), b.net_namespace = Some("net:[2]".into())).0;
    assert_eq!(changed(net), one("LS2505", "h2"));
    let both = |b: &mut End| (net(b), b.pid_namespace = Some("pid:[2]".into())).0;
    assert_eq!(changed(both), one("LS2505", "h2"), "the pid namespace matters once memory is shared");
}

#[test]
fn thunderbolt_cables_are_used_by_link_local_addresses() {
    let mut ends = pair(2);
    for end in &mut ends {
        end.routes.clear();
        for port in &mut end.ports {
            port.addrs.remove(0);
        }
    }
    assert_eq!(codes(&ends).iter().filter(|(code, _)| *code == "LS1410").count(), 4, "no Thunderbolt");
    let other = |end: &End| if end.host == "h1" { "r2" } else { "r1" };
    for end in &mut ends {
        let peer = other(end).to_owned();
        end.routers = vec![format!("r{}", &end.host[1..])];
        end.ports.iter_mut().for_each(|port| port.peer_router = Some(peer.clone()));
    }
    assert_eq!(codes(&ends), []);
    ends[1].ports[1].mtu = Some(1400);
    assert_eq!(codes(&ends), one("LS1415", "h2"));
    // One end with an address and the other without is no fault either.
    ends[1].ports[1].mtu = Some(9000);
    ends[0].ports[0].addrs.push(Addr { ip: [10, 0, 0, 1].into(), prefix: 24 });
    assert_eq!(codes(&ends), []);
    // Link-local addresses of two families do not meet.
    let v6 = std::mem::replace(&mut ends[1].ports[0].addrs, vec![Addr { ip: [169, 254, 0, 9].into(), prefix: 16 }]);
    assert_eq!(codes(&ends), one("LS1410", "h2"));
    ends[1].ports[0].addrs = v6;
}

#[test]
fn replies_that_take_another_cable() {
    let host = |to: [u8; 4], prefix, interface: &str| Route {
        interface: interface.into(),
        to: to.into(),
        prefix,
        metric: 0,
        table: MAIN,
    };
    let mut ends = pair(2);
    ends[1].routes.push(host([10, 0, 0, 1], 32, "cab1"));
    let found = together(&ends).unwrap().findings;
    assert_eq!(codes(&ends), one("LS2315", "h2"));
    assert_eq!(found[0].mend, [Step::Run("sudo ip route del 10.0.0.1/32 dev cab1".into())]);
    // Of two routes the longer prefix counts, then the smaller metric.
    assert_eq!(changed(|b| b.routes.push(host([10, 0, 0, 0], 16, "cab1"))), []);
    assert_eq!(changed(|b| b.routes.push(Route { metric: 9, ..host([10, 0, 0, 0], 24, "cab1") })), []);
    // Without a route of its own the reply leaves by the default route.
    let lost = |b: &mut End| {
        b.routes.remove(0);
        b.routes.push(host([0, 0, 0, 0], 0, "cab1"));
    };
    assert_eq!(changed(lost), one("LS2315", "h2"));
}

#[test]
fn replies_that_a_rule_or_a_route_of_ipv6_sends_over_another_cable() {
    let rule = |priority, from: Option<[u8; 4]>, table| Rule {
        priority,
        ipv6: false,
        from: from.map(|ip| (ip.into(), 32)),
        to: None,
        table,
    };
    let mut ends = pair(2);
    ends[1].routes.push(Route { interface: "cab1".into(), to: [0; 4].into(), prefix: 0, metric: 0, table: 100 });
    assert_eq!(codes(&ends), [], "no rule leads to the other table");
    ends[1].rules = vec![rule(32766, None, Some(MAIN)), rule(1000, Some([10, 0, 0, 2]), Some(100))];
    let found = together(&ends).unwrap().findings;
    assert_eq!(codes(&ends), one("LS2315", "h2"));
    assert_eq!(found[0].mend, [Step::Run("sudo ip rule add to 10.0.0.1/32 lookup main priority 999".into())]);
    // What the mend adds is understood, and a rule that is not understood makes no finding.
    ends[1].rules.push(Rule { to: Some(([10, 0, 0, 1].into(), 32)), ..rule(999, None, Some(MAIN)) });
    assert_eq!(codes(&ends), []);
    ends[1].rules =
        vec![rule(32766, None, Some(MAIN)), rule(1000, Some([10, 0, 0, 2]), Some(100)), rule(7, None, None)];
    assert_eq!(codes(&ends), []);

    let mut ends = pair(2);
    for (end, side) in ends.iter_mut().zip(1_u8..) {
        for (n, port) in end.ports.iter_mut().enumerate() {
            port.addrs.push(Addr { ip: format!("fd00:{n}::{side}").parse().unwrap(), prefix: 64 });
            let to = format!("fd00:{n}::").parse().unwrap();
            end.routes.push(Route { interface: port.name.clone(), to, prefix: 64, metric: 256, table: MAIN });
        }
    }
    assert_eq!(codes(&ends), []);
    let to = "fd00:0::1".parse().unwrap();
    ends[1].routes.push(Route { interface: "cab1".into(), to, prefix: 128, metric: 1024, table: MAIN });
    let found = together(&ends).unwrap().findings;
    assert_eq!(codes(&ends), one("LS2315", "h2"));
    assert_eq!(found[0].mend, [Step::Run("sudo ip -6 route del fd00::1/128 dev cab1".into())]);
}

#[test]
fn one_host_and_the_same_host_twice_are_refused() {
    let ends = pair(1);
    assert!(matches!(together(&ends[..1]), Err(BadEnd::Few(1))));
    assert!(matches!(together(&[]), Err(BadEnd::Few(0))));
    assert!(matches!(together(&[ends[0].clone(), ends[0].clone()]), Err(BadEnd::Twice(_))));
}

#[test]
fn where_nccl_does_as_well_that_is_said() {
    let mut ends = pair(2);
    let facts = |ends: &[End]| together(ends).unwrap().facts;
    assert!(facts(&ends).is_empty(), "no RDMA");
    for port in ends.iter_mut().flat_map(|end| &mut end.ports) {
        (port.rdma, port.gid) = (true, true);
    }
    let said = facts(&ends);
    assert!(said.len() == 1 && said[0].contains("NCCL_IB_SUBNET_AWARE_ROUTING=1"), "{said:?}");
    ends[0].ports[0].mtu = Some(1500);
    assert!(facts(&ends).is_empty(), "first what is wrong is mended");
}

/// Two hosts with as much of everything as a file may have, all of it in one subnet. Rules lead from table to table, which have no route
/// there but the last.
fn hostile(ports: usize, addrs: usize) -> [End; 2] {
    let mut ends = pair(1);
    for (side, end) in (0_u8..).zip(&mut ends) {
        let port = end.ports[0].clone();
        let addr = |n: usize, m: usize| Addr { ip: [10, side, n as u8, m as u8].into(), prefix: 8 };
        let heard = |n: usize, m: usize| format!("fe80::{n:x}:{m:x}").parse().unwrap();
        end.ports = (0..ports)
            .map(|n| Port {
                name: format!("p{n}"),
                addrs: (0..addrs).map(|m| addr(n, m)).collect(),
                heard: (0..addrs).map(|m| heard(n, m)).collect(),
                neighbours: (0..addrs).map(|m| format!("mac {n} {m}")).collect(),
                ..port.clone()
            })
            .collect();
        let route = |n: usize| Route {
            interface: "elsewhere".into(),
            to: [10, 0, 0, 0].into(),
            prefix: if n == 511 { 8 } else { 32 },
            metric: 0,
            table: n as u32,
        };
        end.routes = (0..512).map(route).collect();
        let rule = |n: u32| Rule { priority: 512 - n, ipv6: false, from: None, to: None, table: Some(511 - n) };
        end.rules = (0..512).map(rule).collect();
    }
    ends
}

fn steps(ends: &[End], most: u64) -> (u64, Report) {
    let mut work = Work { steps: 0, most };
    let report = judged(ends, &mut work).unwrap();
    (work.steps, report)
}

#[test]
fn the_work_grows_with_what_hosts_tell_and_has_an_end() {
    let (few, _) = steps(&hostile(25, 8), u64::MAX);
    let (many, _) = steps(&hostile(50, 16), u64::MAX);
    assert!(many <= few * 5, "four times the addresses: {few} and {many} steps");
    // The largest files: it ends, says so, and is not far beyond the limit.
    let (all, report) = steps(&hostile(250, 16), 1_000_000);
    assert!(all < 1_020_000 && report.facts.iter().any(|fact| fact.contains("not all of it was judged")), "{all}");
    let sound = steps(&pair(3), STEPS);
    assert!(sound.0 < 1000 && sound.1.facts.is_empty(), "{sound:?}");
}

#[test]
fn more_findings_than_anybody_reads_are_cut() {
    let mut ends = hostile(250, 16);
    ends[1].ports = ends[0].ports.clone();
    let (_, report) = steps(&ends, 100_000);
    assert!(report.findings.len() <= FINDINGS && report.facts.iter().any(|fact| fact.contains("more than 1000")));
}

/// Three hosts, each two of which have a cable: 10.0.N.0/24 of cable N, from host N to the next.
#[test]
fn three_hosts_in_a_triangle_need_no_other_network_than_nccls() {
    let ends = pair(1);
    let host = |n: usize| -> End {
        let mut end = ends[0].clone();
        end.host = format!("h{n}");
        end.boot_id = Some(format!("boot {n}"));
        (end.ports, end.routes) = (Vec::new(), Vec::new());
        for (cable, side) in [(n, 1_u8), ((n + 2) % 3, 2)] {
            let mut port = ends[usize::from(side) - 1].ports[0].clone();
            port.name = format!("cab{cable}");
            port.mac = Some(format!("02:00:00:00:{cable:02x}:{side:02x}"));
            port.addrs = vec![
                Addr { ip: [10, 0, cable as u8, side].into(), prefix: 24 },
                Addr { ip: format!("fe80::{cable}:{side}").parse().unwrap(), prefix: 64 },
            ];
            port.heard = vec![format!("fe80::{cable}:{}", 3 - side).parse().unwrap()];
            (port.rdma, port.gid) = (true, true);
            let to = [10, 0, cable as u8, 0].into();
            end.routes.push(Route { interface: port.name.clone(), to, prefix: 24, metric: 0, table: MAIN });
            end.ports.push(port);
        }
        end
    };
    let triangle: Vec<End> = (0..3).map(host).collect();
    assert_eq!(codes(&triangle), []);
    let said = together(&triangle).unwrap().facts;
    let wanted = ["NCCL_IB_SUBNET_AWARE_ROUTING=1", "NCCL_IB_SUBNET_PREFIX_LEN=24"];
    assert!(said.len() == 1 && wanted.iter().all(|part| said[0].contains(part)), "{said:?}");
    // Without one of its cables two of them have no way by RDMA.
    let mut open = triangle.clone();
    open[0].ports.remove(0);
    open[1].ports.remove(1);
    assert!(together(&open).unwrap().facts.is_empty());
}
