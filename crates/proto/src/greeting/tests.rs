use super::*;

#[test]
fn golden_bytes_and_every_truncation() {
    let greeting = Greeting {
        wants_local: true,
        rdma: true,
        cable: false,
        shm: vec![7, 8],
        no_rdma: "no".into(),
        relays: 9,
        devmem: true,
        no_devmem: "x".into(),
    };
    let wire = greeting.encode();
    assert_eq!(wire, [1, 11, 2, 0, 7, 8, 2, b'n', b'o', 9, 1, b'x']);
    assert_eq!(Greeting::decode(&wire), Some(greeting.clone()));
    // One that ends behind the shm part says nothing about RDMA, one that ends behind the text comes directly, one that ends
    // behind the relays says nothing about device memory.
    assert!((0..wire.len()).all(|n| Greeting::decode(&wire[..n]).is_none() != [6, 9, 10].contains(&n)));
    assert_eq!(Greeting::decode(&wire[..6]).map(|g| (g.no_rdma, g.relays)), Some((String::new(), 0)));
    assert_eq!(Greeting::decode(&wire[..9]).map(|g| (g.no_rdma, g.relays)), Some(("no".to_owned(), 0)));
    assert_eq!(Greeting::decode(&wire[..10]).map(|g| (g.relays, g.no_devmem)), Some((9, String::new())));
    let longer = [wire, vec![9; 5]].concat();
    assert_eq!(Greeting::decode(&longer), Some(greeting), "later fields are ignored");
}

#[test]
fn a_long_reason_is_cut_between_letters() {
    let greeting = Greeting { no_rdma: "ä".repeat(150), ..Greeting::default() };
    let wire = greeting.encode();
    assert_eq!(wire.len(), 7 + REASON_MAX);
    assert_eq!(Greeting::decode(&wire).map(|g| g.no_rdma), Some("ä".repeat(100)));
    let loud = [1, 0, 0, 0, 3, b'a', 7, 0xff];
    assert_eq!(Greeting::decode(&loud).map(|g| g.no_rdma), Some("a\u{fffd}".to_owned()));
}
