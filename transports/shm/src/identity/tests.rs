use super::*;

#[test]
fn it_survives_the_way() {
    let id = identity().unwrap();
    assert_eq!(Identity::decode(&id.encode()), Ok(id));
    assert_eq!(id.pid(), std::process::id());
    assert_eq!(same_host(&id, &identity().unwrap()), Ok(()), "name and token do not matter here");
}

#[test]
fn golden_bytes() {
    let id = Identity {
        magic: MAGIC,
        version: U16::new(2),
        zero: U16::ZERO,
        boot: [0xB0; 16],
        pid_ns: U64::new(0x0102_0304_0506_0708),
        net_ns: U64::new(9),
        uid: U32::new(1000),
        pid: U32::new(0x0A0B),
        name: [0xAB; 16],
        token: [0xCD; 16],
    };
    let mut want = Vec::from(*b"LSid\x02\0\0\0");
    want.extend([0xB0; 16]);
    want.extend([8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0xE8, 3, 0, 0, 0x0B, 0x0A, 0, 0]);
    want.extend([0xAB; 16]);
    want.extend([0xCD; 16]);
    assert_eq!(id.encode().to_vec(), want);
    assert_eq!(id.socket_name(), "linkspan-abababababababababababababababab");
    let shown = format!("{id:?}");
    assert!(!shown.contains("205") && !shown.to_lowercase().contains("cd"), "a secret: {shown}");
}

#[test]
fn every_difference_has_its_reason() {
    let us = identity().unwrap();
    let with = |change: &dyn Fn(&mut Identity)| {
        let mut them = us;
        change(&mut them);
        same_host(&us, &them)
    };
    assert_eq!(with(&|i| i.boot[3] ^= 1), Err(NotLocal::OtherHost));
    assert!(matches!(with(&|i| i.uid = U32::new(12345)), Err(NotLocal::OtherUser { theirs: 12345, .. })));
    assert_eq!(with(&|i| i.net_ns = U64::new(1)), Err(NotLocal::OtherNetwork));
    assert_eq!(with(&|i| i.pid_ns = U64::new(1)), Ok(()), "another pid namespace costs direct copy only");
}

#[test]
fn other_bytes_are_refused() {
    for (at, value) in [(0, 0), (4, 1), (6, 1)] {
        let mut bytes = identity().unwrap().encode();
        bytes[at] = value;
        assert_eq!(Identity::decode(&bytes), Err(NotLocal::Blob));
        assert_eq!(Identity::decode(&bytes[1..]), Err(NotLocal::Blob));
    }
}
