use super::*;

#[test]
fn the_login_table_is_bounded() {
    let table = LoginTable::new(3);
    for stream in 0..10 {
        table.claim(1, stream).unwrap();
        assert!(table.len() <= 3);
    }
    assert!(table.is_used(1, 9) && table.is_used(1, 7) && !table.is_used(1, 6));
    assert_eq!(table.claim(1, 9), Err(LoginError::Used { conn_id: 1, stream: 9 }));
    table.claim(2, 9).unwrap();
    assert_eq!(table.len(), 3);
    assert!(LoginTable::default().is_empty());
}

#[test]
fn half_open_connections_displace_the_oldest_unproven_first() {
    let mut half = HalfOpen::new(3);
    let at = |s| T0 + Duration::from_secs(s);
    assert_eq!(half.enter('a', at(5)), None);
    assert_eq!(half.enter('b', at(6)), None);
    assert_eq!(half.enter('c', at(7)), None);
    half.prove(&'a');
    assert_eq!(half.enter('d', at(8)), Some('b'), "the oldest that has proven nothing");
    half.prove(&'c');
    half.prove(&'d');
    assert_eq!(half.enter('e', at(9)), Some('a'), "all had proven: the oldest");
    assert_eq!(half.len(), 3);
    assert_eq!(half.crowded(), LoginError::Crowded { bound: 3 });
    assert_eq!(half.leave(&'d'), Some('d'));
    assert_eq!(half.leave(&'d'), None);
    assert_eq!(half.next_expiry(), Some(at(7)));
    assert_eq!(half.expire(at(6)), None);
    assert_eq!(half.expire(at(7)), Some('c'));
    assert_eq!(half.expire(at(100)), Some('e'));
    assert!(half.is_empty() && half.next_expiry().is_none());
}

#[test]
fn a_flood_never_exceeds_the_bound() {
    let mut half = HalfOpen::default();
    let mut dropped = 0;
    for i in 0..1000u32 {
        dropped += usize::from(half.enter(i, T0).is_some());
        assert!(half.len() <= HALF_OPEN_BOUND);
    }
    assert_eq!(dropped, 1000 - HALF_OPEN_BOUND);
}
