use super::*;

#[test]
fn golden_bytes_and_every_truncation() {
    let greeting = Greeting {
        wants_local: true,
        relays: 9,
        shm: vec![7, 8],
        asks: "verbs".into(),
        why_not: "no".into(),
        devmem: true,
        no_devmem: "x".into(),
    };
    let wire = greeting.encode();
    assert_eq!(wire, *b"\x02\x03\x09\x02\x00\x07\x08\x05verbs\x02no\x01x");
    assert_eq!(Greeting::decode(&wire), Some(greeting.clone()));
    assert!((0..wire.len()).all(|n| Greeting::decode(&wire[..n]).is_none()));
    let older = [&[1], &wire[1..]].concat();
    assert_eq!(Greeting::decode(&older), None, "another version");
    let longer = [wire, vec![9; 5]].concat();
    assert_eq!(Greeting::decode(&longer), Some(greeting), "later fields are ignored");
}

#[test]
fn an_answer_without_shared_memory_says_why() {
    let mut answer = Greeting { wants_local: true, shm: vec![7; 80], ..Greeting::default() };
    answer.refuse_shm(&format!("LS0404\n{}", "x".repeat(300)));
    let read = Greeting::decode(&answer.encode()).unwrap();
    assert!(!read.wants_local);
    assert_eq!(read.shm_refusal(), format!("the peer says: LS0404{}", "x".repeat(REASON_MAX - 7)));
    assert!(Greeting::default().shm_refusal().contains("its log"), "an older version says nothing");
}

#[test]
fn a_long_reason_is_cut_between_letters() {
    let greeting = Greeting { why_not: "ä".repeat(150), ..Greeting::default() };
    let wire = greeting.encode();
    assert_eq!(wire.len(), 8 + REASON_MAX);
    assert_eq!(Greeting::decode(&wire).map(|g| g.why_not), Some("ä".repeat(100)));
    let loud = [2, 0, 0, 0, 0, 0, 3, b'a', 7, 0xff, 0];
    assert_eq!(Greeting::decode(&loud).map(|g| g.why_not), Some("a\u{fffd}".to_owned()));
}
