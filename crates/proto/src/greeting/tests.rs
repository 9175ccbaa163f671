use super::*;

#[test]
fn golden_bytes_and_every_truncation() {
    let greeting = Greeting { wants_local: true, shm: vec![7, 8], relays: 0 };
    let wire = greeting.encode();
    assert_eq!(wire, [1, 1, 2, 0, 7, 8]);
    assert_eq!(Greeting::decode(&wire), Some(greeting.clone()));
    assert!((0..wire.len()).all(|n| Greeting::decode(&wire[..n]).is_none()));
    let relayed = Greeting { relays: 9, ..greeting };
    assert_eq!(relayed.encode(), [1, 1, 2, 0, 7, 8, 9]);
    let longer = [wire, vec![9; 5]].concat();
    assert_eq!(Greeting::decode(&longer), Some(relayed), "later fields are ignored");
}
