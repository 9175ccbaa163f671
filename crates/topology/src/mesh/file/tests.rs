use super::super::{MeshRoute, Target};
use super::*;

const RING: &str = "\
# a ring of four
node a 10.0.0.1/24 10.0.3.2/24
node b 10.0.0.2/24 10.0.1.1/24   # beside a
node c 10.0.1.2/24 10.0.2.1/24
node d 10.0.2.2/24 10.0.3.1/24
";

#[test]
fn a_declared_ring_has_its_four_cables_and_its_ways() {
    let g = parse(RING, 7475, 5, &["10.0.0.1".parse().unwrap()]).unwrap();
    assert_eq!(g.edges.len(), 4);
    assert!(g.edges.iter().all(|e| e.fault.is_none()));
    assert_eq!(g.nodes[g.find(5).unwrap()].name, "a");
    let c = g.nodes.iter().find(|n| n.name == "c").unwrap().id;
    let target = Target { id: c, addrs: vec!["10.0.1.2:9".parse().unwrap(), "10.0.2.1:9".parse().unwrap()] };
    let MeshRoute::Over(routes) = g.way(5, &target, false) else { panic!() };
    let mut over: Vec<_> = routes.iter().map(|r| r.over.concat()).collect();
    over.sort();
    assert_eq!(over, ["b", "d"]);
}

#[test]
fn bad_lines_are_named() {
    for (text, line, part) in [
        ("node a", 1, "addresses"),
        ("\nedge a b", 2, "no node"),
        ("node a 10.0.0.1", 1, "10.0.0.1"),
        ("node a 10.0.0.1/33", 1, "10.0.0.1/33"),
        ("node a 127.0.0.1/8", 1, "127"),
        ("node a 10.0.0.1/24\nnode a 10.0.1.1/24", 2, "second time"),
        ("node a 10.0.0.1/24\nnode b 10.0.0.1/24", 2, "10.0.0.1"),
    ] {
        let error = parse(text, 1, 1, &[]).unwrap_err();
        assert_eq!(error.line, line, "{text}");
        assert!(error.to_string().contains(part) && error.to_string().contains("LS1401"), "{error}");
    }
}
