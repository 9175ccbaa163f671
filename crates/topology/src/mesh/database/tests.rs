use std::time::Duration;

use super::super::MeshRoute;
use super::super::world::nodes;
use super::*;

fn beacon(node: &Node, port: u8, tick: u64) -> Beacon {
    Beacon { sender: node.id, port, epoch: node.epoch, tick, node: node.clone() }
}

fn s(secs: f64) -> Duration {
    Duration::from_secs_f64(secs)
}

#[test]
fn a_neighbour_is_known_as_long_as_it_speaks() {
    let list = nodes(2, &[(0, 1)]);
    let mut db = Database::default();
    assert!(db.take(100, 0, beacon(&list[1], 0, 1), s(0.0)));
    let g = db.graph(list[0].clone(), s(1.0));
    assert_eq!((g.nodes.len(), g.edges.len(), g.edges[0].fault), (2, 1, None));
    // The cable is cut: first the edge goes, then the node.
    let g = db.graph(list[0].clone(), s(4.0));
    assert_eq!((g.nodes.len(), g.between(0, 1).len()), (2, 0));
    assert_eq!(db.graph(list[0].clone(), s(9.0)).nodes.len(), 1);
    // Its return is news.
    let again = Node { seq: 2, ..list[1].clone() };
    assert!(db.take(100, 0, beacon(&again, 0, 2), s(9.5)));
    assert!(db.hurries(s(0.0), s(9.5)) && !db.hurries(s(9.5), s(9.9)));
}

#[test]
fn copies_from_the_past_keep_nobody_alive() {
    let list = nodes(2, &[(0, 1)]);
    let mut db = Database::default();
    let old = beacon(&list[1], 0, 5);
    assert!(db.take(100, 0, old.clone(), s(0.0)));
    for n in 1..20 {
        assert!(!db.take(100, 0, old.clone(), s(f64::from(n) * 0.5)));
    }
    assert!(db.heard(s(9.0)).is_empty());
    assert_eq!(db.others(s(9.0)).count(), 0);
    // Neither does one of before the mesh server was opened anew.
    let mut anew = list[1].clone();
    anew.epoch = 9;
    assert!(db.take(100, 0, beacon(&anew, 0, 1), s(9.0)));
    assert!(!db.take(100, 0, beacon(&list[1], 0, 99), s(9.1)));
    assert_eq!(db.heard(s(9.1)).len(), 1);
}

#[test]
fn the_newest_epoch_of_this_host_is_kept_whichever_process_said_it() {
    let list = nodes(2, &[(0, 1)]);
    let mut db = Database::default();
    let said = |epoch, tick| Beacon { epoch, ..beacon(&list[0], 0, tick) };
    for (epoch, tick, at) in [(7, 1, 1.0), (5, 9, 2.0), (7, 2, 3.0)] {
        assert!(!db.take(list[0].id, 0, said(epoch, tick), s(at)));
    }
    assert_eq!(db.own_epoch(), (7, s(3.0)));
    assert!(db.heard(s(3.0)).is_empty());
}

#[test]
fn an_epoch_of_this_host_that_neighbours_still_tell_of_is_known_after_a_restart() {
    let list = nodes(2, &[(0, 1)]);
    let mut db = Database::default();
    let before = Node { epoch: 9, ..list[0].clone() };
    let by_neighbour = Beacon { sender: list[1].id, port: 0, epoch: 1, tick: 1, node: before };
    db.take(list[0].id, 0, by_neighbour, s(1.0));
    assert_eq!(db.own_epoch(), (9, s(0.0)), "and none of its processes has said it");
}

#[test]
fn who_comes_back_with_an_older_epoch_is_a_new_one_after_a_minute_of_silence() {
    let list = nodes(2, &[(0, 1)]);
    let mut db = Database::default();
    assert!(db.take(100, 0, beacon(&Node { epoch: 9, ..list[1].clone() }, 0, 1), s(0.0)));
    assert!(!db.take(100, 0, beacon(&list[1], 0, 1), s(59.0)));
    assert!(db.take(100, 0, beacon(&list[1], 0, 2), s(60.0)));
    assert_eq!((db.heard(s(60.0)).len(), db.others(s(60.0)).count()), (1, 1));
}

#[test]
fn this_host_relays_where_a_neighbour_says_so_whichever_of_its_processes_does() {
    // 1 - 0 - 2, where another process of host 0 has the port of the mesh server.
    let list = nodes(3, &[(0, 1), (0, 2)]);
    let own = Node { relays: false, ..list[0].clone() };
    let mut db = Database::default();
    for (at, neighbour) in list[1..].iter().enumerate() {
        db.take(own.id, at as u8, beacon(neighbour, 0, 1), s(0.0));
    }
    assert!(!db.graph(own.clone(), s(1.0)).nodes.iter().any(|node| node.id == own.id && node.relays));
    let told = Node { relays: true, ..list[0].clone() };
    let by_neighbour = Beacon { sender: list[1].id, port: 0, epoch: list[1].epoch, tick: 2, node: told };
    db.take(own.id, 0, by_neighbour, s(1.0));
    let relays = |at| db.graph(own.clone(), s(at)).nodes.iter().any(|node| node.id == own.id && node.relays);
    assert!(relays(2.0) && !relays(9.5), "as long as it is told");
}

#[test]
fn a_node_is_heard_around_its_cables_while_others_alone_tell_of_it() {
    let list = nodes(3, &[(0, 1), (1, 2), (2, 0)]);
    let node = list[1].id;
    let mut db = Database::default();
    let newer = |seq| Node { seq, ..list[1].clone() };
    let carried = |seq, tick| Beacon { sender: list[2].id, port: 0, epoch: 1, tick, node: newer(seq) };
    db.take(100, 0, beacon(&newer(2), 0, 1), s(0.0));
    // What it has said itself is no news.
    db.take(100, 1, carried(2, 1), s(0.1));
    assert!(!db.heard_around(node, s(0.2)));
    db.take(100, 1, carried(3, 2), s(1.1));
    assert!(db.heard_around(node, s(1.2)));
    assert!(!db.heard_around(node, s(5.0)));
    // The cable is back.
    db.take(100, 1, carried(4, 3), s(5.0));
    db.take(100, 0, beacon(&newer(5), 0, 2), s(5.1));
    assert!(!db.heard_around(node, s(5.2)));
}

#[test]
fn our_own_beacons_are_no_neighbour() {
    let list = nodes(2, &[(0, 1)]);
    let mut db = Database::default();
    assert!(!db.take(100, 0, beacon(&list[0], 0, 1), s(0.0)));
    assert!(db.heard(s(0.0)).is_empty());
}

#[test]
fn news_of_far_nodes_comes_by_neighbours_and_memory_is_bounded() {
    let list = nodes(3, &[(0, 1), (1, 2)]);
    let mut db = Database::default();
    let carried = Beacon { sender: 101, port: 0, epoch: 1, tick: 1, node: list[2].clone() };
    assert!(db.take(100, 0, carried, s(0.0)));
    assert!(db.take(100, 0, beacon(&list[1], 0, 2), s(0.0)));
    let g = db.graph(list[0].clone(), s(0.5));
    assert_eq!(g.nodes.len(), 3);
    assert_eq!(g.edges.iter().filter(|e| e.fault.is_none()).count(), 2);
    for n in 0..3 * NODES_MAX as u64 {
        let node = Node { id: 1000 + n, ..list[2].clone() };
        db.take(100, 0, Beacon { sender: 2000 + n, port: 0, epoch: 1, tick: 3, node }, s(1.0));
    }
    assert_eq!(db.others(s(1.0)).count(), NODES_MAX);
    assert_eq!(db.heard(s(1.0)).len(), HEARD_MAX);
}

#[test]
fn the_time_of_the_last_news_moves_with_news_alone() {
    let list = nodes(2, &[(0, 1)]);
    let mut db = Database::default();
    assert_eq!(db.last_news(), Duration::ZERO);
    db.take(100, 0, beacon(&list[1], 0, 1), s(1.0));
    let same = Node { seq: 2, ..list[1].clone() };
    assert!(!db.take(100, 0, beacon(&same, 0, 2), s(2.0)));
    assert_eq!(db.last_news(), s(1.0));
    let alone = Node { seq: 3, heard: Vec::new(), ..list[1].clone() };
    assert!(db.take(100, 0, beacon(&alone, 0, 3), s(3.0)));
    assert_eq!(db.last_news(), s(3.0));
}

/// A host in a ring loses a cable. That it knows its other neighbour by then is all that leads around.
#[test]
fn a_port_that_goes_takes_no_other_neighbour_with_it() {
    let list = nodes(4, &[(0, 1), (1, 2), (2, 3), (3, 0)]);
    let mut db = Database::default();
    // To node 1: node 0 is at its port 0, node 2 at its port 1; node 3 is told of by node 0.
    assert!(db.take(101, 0, beacon(&list[0], 0, 1), s(0.0)));
    assert!(db.take(101, 1, beacon(&list[2], 0, 1), s(0.0)));
    let far = Beacon { node: list[3].clone(), ..beacon(&list[0], 0, 2) };
    assert!(db.take(101, 0, far, s(0.0)));
    let both = db.graph(list[1].clone(), s(0.5));
    let to = super::super::world::target(&both, 2);
    assert!(matches!(both.way(101, &to, false), MeshRoute::Direct(_)));

    // Port 1 is gone; the graph is asked before anything more was received.
    let left = Node { ports: list[1].ports[..1].to_vec(), ..list[1].clone() };
    db.move_ports(|at| (at == 0).then_some(0));
    let around = |db: &Database, own: &Node| match db.graph(own.clone(), s(0.6)).way(101, &to, false) {
        MeshRoute::Over(routes) => routes.into_iter().map(|r| (r.interface, r.over)).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let over = vec!["n0".to_owned(), "n3".to_owned()];
    assert_eq!(around(&db, &left), [("c0".to_owned(), over.clone())]);

    // Now it is port 0 of two that goes: what was port 1 is port 0, and node 2 leads to node 0.
    let mut db = Database::default();
    assert!(db.take(101, 0, beacon(&list[0], 0, 1), s(0.0)));
    assert!(db.take(101, 1, beacon(&list[2], 0, 1), s(0.0)));
    db.move_ports(|at| at.checked_sub(1));
    assert_eq!(db.heard(s(0.6)), [Heard { port: 0, node: 102, theirs: 0 }]);
}

/// Everybody's processor is busy: all cables seem cut at the same time. What was there a moment ago is still worth a try.
#[test]
fn a_mesh_that_has_fallen_silent_is_remembered_for_a_while() {
    let list = nodes(4, &[(0, 1), (1, 2), (2, 3), (3, 0)]);
    let mut db = Database::default();
    assert!(db.take(101, 0, beacon(&list[0], 0, 1), s(0.0)));
    for (tick, node) in [(2, &list[3]), (3, &list[2])] {
        let far = Beacon { node: node.clone(), ..beacon(&list[0], 0, tick) };
        assert!(db.take(101, 0, far, s(0.0)));
    }
    let to = super::super::world::target(&db.graph(list[1].clone(), s(0.1)), 2);
    let over = |graph: Graph| match graph.way(101, &to, true) {
        MeshRoute::Over(routes) => routes.into_iter().map(|r| r.over).collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    let around = [vec!["n0".to_owned(), "n3".to_owned()]];
    assert_eq!(over(db.graph(list[1].clone(), s(0.1))), around);
    // Nobody has been heard for longer than a cable is believed, then than a node is.
    for late in [4.0, 9.0, 40.0] {
        assert_eq!(over(db.graph(list[1].clone(), s(late))), [] as [Vec<String>; 0], "{late}");
        assert_eq!(over(db.remembered(list[1].clone(), s(late))), around, "{late}");
    }
    assert_eq!(over(db.remembered(list[1].clone(), s(61.0))), [] as [Vec<String>; 0]);

    // The neighbour is heard again, but it has not heard the next one for too long and says so.
    let told = Node { seq: 2, heard: list[0].heard[..1].to_vec(), ..list[0].clone() };
    assert!(db.take(101, 0, beacon(&told, 0, 4), s(41.0)));
    assert_eq!(over(db.graph(list[1].clone(), s(41.1))), [] as [Vec<String>; 0]);
    assert_eq!(over(db.remembered(list[1].clone(), s(41.1))), around);
    // Once its ports have moved, what it heard on them before is not remembered.
    let moved = Node { epoch: 2, seq: 3, ..told };
    assert!(db.take(101, 0, Beacon { epoch: 2, ..beacon(&moved, 0, 5) }, s(41.2)));
    assert_eq!(over(db.remembered(list[1].clone(), s(41.3))), [] as [Vec<String>; 0]);
}
