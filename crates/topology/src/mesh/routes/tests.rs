use proptest::prelude::*;

use super::super::world::{graph, nodes, target};
use super::*;

fn over(way: MeshRoute) -> Vec<Route> {
    match way {
        MeshRoute::Over(routes) => routes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_triangle_needs_no_relay() {
    let g = graph(3, &[(0, 1), (1, 2), (2, 0)]);
    let MeshRoute::Direct(links) = g.way(100, &target(&g, 2), false) else { panic!() };
    assert_eq!(links.len(), 1);
    assert_eq!((links[0].from.to_string(), links[0].to.to_string()), ("10.0.2.2".into(), "10.0.2.1:9".into()));
}

#[test]
fn the_diagonal_of_a_ring_goes_both_ways_round() {
    let g = graph(4, &[(0, 1), (1, 2), (2, 3), (3, 0)]);
    let routes = over(g.way(100, &target(&g, 2), false));
    let names: Vec<_> = routes.iter().map(|r| r.over.concat()).collect();
    assert_eq!(names, ["n1", "n3"]);
    let hops: Vec<String> = routes[0].hops.iter().map(ToString::to_string).collect();
    assert_eq!(hops, ["10.0.0.2:7475", "10.0.1.2:9"]);
    assert_eq!((routes[0].interface.as_str(), routes[0].from.to_string()), ("c0", "10.0.0.1".into()));
    // The cut cable of a neighbour is walked around the long way.
    let reroute = over(g.way(100, &target(&g, 1), true));
    assert_eq!(reroute.len(), 1);
    assert_eq!(reroute[0].over, ["n3", "n2"]);
}

#[test]
fn a_line_is_walked_from_end_to_end() {
    let g = graph(4, &[(0, 1), (1, 2), (2, 3)]);
    let routes = over(g.way(100, &target(&g, 3), false));
    assert_eq!(routes.len(), 1);
    assert_eq!(routes[0].over, ["n1", "n2"]);
    let back = over(g.way(103, &target(&g, 0), false));
    assert_eq!(back[0].over, ["n2", "n1"]);
    let MeshRoute::None(why) = g.way(100, &target(&g, 1), true) else { panic!() };
    assert!(why.contains("n1"), "{why}");
}

#[test]
fn the_faster_of_two_equal_ways_comes_first() {
    let mut list = nodes(4, &[(0, 1), (1, 2), (2, 3), (3, 0)]);
    list[1].ports[1].mbps = 10_000;
    let g = Graph::new(list);
    let routes = over(g.way(100, &target(&g, 2), false));
    assert_eq!((routes[0].over[0].as_str(), routes[0].mbps), ("n3", 100_000));
    assert_eq!((routes[1].over[0].as_str(), routes[1].mbps), ("n1", 10_000));
}

#[test]
fn a_node_that_does_not_relay_is_passed_by() {
    let mut list = nodes(4, &[(0, 1), (1, 2), (2, 3), (3, 0)]);
    list[1].relays = false;
    let g = Graph::new(list);
    let routes = over(g.way(100, &target(&g, 2), false));
    assert_eq!(routes.len(), 1);
    assert_eq!(routes[0].over, ["n3"]);
    // As an end it is as good as any.
    assert!(matches!(g.way(100, &target(&g, 1), false), MeshRoute::Direct(_)));
}

#[test]
fn a_silent_host_is_found_by_its_subnet() {
    let g = graph(3, &[(0, 1), (1, 2)]);
    let target = Target { id: 9, addrs: vec!["10.0.1.7:5".parse().unwrap()] };
    let routes = over(g.way(100, &target, false));
    assert_eq!(routes[0].over, ["n1"]);
    assert_eq!(routes[0].hops.last().unwrap().to_string(), "10.0.1.7:5");
}

#[test]
fn an_address_that_is_not_listened_on_is_no_way() {
    let g = graph(3, &[(0, 1), (1, 2), (2, 0)]);
    let mut to = target(&g, 2);
    // Only the cable to node 1 is listened on, so node 0 goes over node 1 although it has a cable of its own.
    to.addrs.retain(|a| a.ip().to_string() == "10.0.1.2");
    assert_eq!(over(g.way(100, &to, false))[0].over, ["n1"]);
}

#[test]
fn one_subnet_on_two_cables_does_not_confuse() {
    // 0 - 1 and 2 - 3 use the same subnet; 1 - 2 joins them.
    let mut list = nodes(4, &[(0, 1), (2, 3), (1, 2)]);
    for (node, ip) in [(0, "10.0.0.1"), (1, "10.0.0.2"), (2, "10.0.0.3"), (3, "10.0.0.4")] {
        list[node].ports[0].addr = Some((ip.parse().unwrap(), 24));
    }
    let g = Graph::new(list);
    assert_eq!(over(g.way(100, &target(&g, 3), false))[0].over, ["n1", "n2"]);
}

#[test]
fn both_halves_of_a_port_are_links() {
    let g = graph(2, &[(0, 1), (0, 1)]);
    let MeshRoute::Direct(links) = g.way(100, &target(&g, 1), false) else { panic!() };
    assert_eq!(links.len(), 2);
    assert_ne!(links[0].to, links[1].to);
}

/// Cables among up to 16 nodes.
fn meshes() -> impl Strategy<Value = (usize, Vec<(usize, usize)>)> {
    (2usize..=16).prop_flat_map(|count| {
        let pairs: Vec<(usize, usize)> = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).collect();
        let most = pairs.len().min(24);
        (Just(count), proptest::sample::subsequence(pairs, 0..=most))
    })
}

/// Hops from one node to each other, `None` where no chain of cables leads.
fn distances(count: usize, cables: &[(usize, usize)], from: usize) -> Vec<Option<usize>> {
    let mut far = vec![None; count];
    far[from] = Some(0);
    for round in 0..count {
        for &(a, b) in cables {
            for (x, y) in [(a, b), (b, a)] {
                if far[x] == Some(round) && far[y].is_none() {
                    far[y] = Some(round + 1);
                }
            }
        }
    }
    far
}

proptest! {
    #[test]
    fn every_pair_that_cables_join_has_a_shortest_loop_free_way((count, cables) in meshes()) {
        // A port per cable: over the limit of a real node here and there, which the graph does not mind.
        let g = graph(count, &cables);
        for from in 0..count {
            let far = distances(count, &cables, from);
            for (to, far) in far.iter().enumerate().filter(|(to, _)| *to != from) {
                match (g.way(100 + from as u64, &target(&g, to), false), far) {
                    (MeshRoute::Direct(links), Some(1)) => prop_assert!(!links.is_empty()),
                    (MeshRoute::Over(routes), Some(hops)) => {
                        prop_assert_eq!(routes[0].hops.len(), *hops);
                        let mut met: Vec<&String> = Vec::new();
                        for route in &routes {
                            prop_assert!(route.hops.len() <= HOPS_MAX);
                            prop_assert_eq!(route.over.len() + 1, route.hops.len());
                            for name in &route.over {
                                prop_assert!(!met.contains(&name), "{} twice", name);
                                met.push(name);
                            }
                            let ends = [format!("n{from}"), format!("n{to}")];
                            prop_assert!(ends.iter().all(|end| !met.contains(&end)));
                        }
                    }
                    (MeshRoute::None(_), None) => {}
                    (MeshRoute::None(_), Some(hops)) => prop_assert!(*hops > HOPS_MAX, "{} hops", hops),
                    (way, far) => prop_assert!(false, "{:?} for a distance of {:?}", way, far),
                }
            }
        }
    }

    #[test]
    fn the_order_in_which_nodes_were_heard_of_changes_nothing((count, cables) in meshes(), turn in 0usize..16) {
        let mut list = nodes(count, &cables);
        let straight = Graph::new(list.clone());
        list.rotate_left(turn % count);
        list.iter_mut().for_each(|n| n.heard.reverse());
        let turned = Graph::new(list);
        prop_assert_eq!(&straight, &Graph { nodes: turned.nodes.iter().map(|n| {
            let mut n = n.clone();
            n.heard.reverse();
            n
        }).collect(), edges: turned.edges.clone() });
        for to in 1..count {
            let target = target(&straight, to);
            prop_assert_eq!(straight.way(100, &target, false), turned.way(100, &target, false));
        }
    }
}
