use std::time::Duration;

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
    // Neither does one of before the door was opened anew.
    let mut anew = list[1].clone();
    anew.epoch = 9;
    assert!(db.take(100, 0, beacon(&anew, 0, 1), s(9.0)));
    assert!(!db.take(100, 0, beacon(&list[1], 0, 99), s(9.1)));
    assert_eq!(db.heard(s(9.1)).len(), 1);
}

#[test]
fn our_own_voice_is_no_neighbour() {
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
