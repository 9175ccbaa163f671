use proptest::prelude::*;

use super::*;

#[test]
fn golden_block() {
    let inner = Directory::with_uuid(Uuid::from_words([1, 2, 3, 4])).number("prtcid", 1);
    let block = Directory::default().text("deviceid", "b").directory("network", inner).block();
    let expected = [
        0x5558_4401,
        8, // magic, length
        0x6465_7669,
        0x6365_6964,
        0x7400_0001,
        10, // "deviceid", text of one word at 10
        0x6e65_7477,
        0x6f72_6b00,
        0x4400_0008,
        11,          // "network", directory of eight words at 11
        0x6200_0000, // "b"
        1,
        2,
        3,
        4,
        0x7072_7463,
        0x6964_0000,
        0x7600_0001,
        1, // UUID, "prtcid", value
    ];
    assert_eq!(block, expected);
    let back = Directory::parse(&block).unwrap();
    assert_eq!(back.get("deviceid"), Some(&Value::Text("b".to_owned())));
    assert_eq!(back.get_directory("network").unwrap().uuid, Some(Uuid::from_words([1, 2, 3, 4])));
}

#[test]
fn blocks_that_lie_are_refused() {
    let good = Directory::default().text("a", "text").block();
    let with = |at: usize, word: u32| {
        let mut bad = good.clone();
        bad[at] = word;
        Directory::parse(&bad)
    };
    assert_eq!(with(0, 1), Err(PropertyError::Magic));
    assert!(matches!(with(1, 400), Err(PropertyError::Beyond(_))));
    assert!(matches!(with(4, 0x7400_ffff), Err(PropertyError::Beyond(_))));
    assert!(matches!(with(5, !0), Err(PropertyError::Beyond(_))));
    // A directory that holds itself.
    let mut own = vec![MAGIC, 8, 0, 0, 0, 0, 0, 0x0, 0x4400_0008, 2];
    own.resize(24, 0);
    own[4] = 0x4400_0008;
    own[5] = 2;
    own[8] = 0x4400_0008;
    own[9] = 2;
    assert_eq!(Directory::parse(&own), Err(PropertyError::TooMuch));
    assert!(matches!(Directory::parse(&[]), Err(PropertyError::Beyond(0))));
}

fn directory() -> impl Strategy<Value = Directory> {
    let leaf = prop_oneof![
        any::<u32>().prop_map(Value::Number),
        "[a-z ]{0,20}".prop_map(Value::Text),
        proptest::collection::vec(any::<u32>(), 1..5).prop_map(Value::Data),
    ];
    let value = leaf.prop_recursive(3, 16, 4, |inner| {
        (any::<[u8; 16]>(), proptest::collection::vec(("[a-z]{1,8}", inner), 0..4))
            .prop_map(|(uuid, entries)| Value::Directory(Directory { uuid: Some(Uuid(uuid)), entries }))
    });
    proptest::collection::vec(("[a-z]{1,8}", value), 0..6).prop_map(|entries| Directory { uuid: None, entries })
}

proptest! {
    #[test]
    fn directories_survive(directory in directory()) {
        prop_assert_eq!(Directory::parse(&directory.block()), Ok(directory));
    }

    #[test]
    fn parsing_is_total(directory in directory(), flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u32>()), 1..6)) {
        let mut block = directory.block();
        for (at, value) in flips {
            let at = at.index(block.len());
            block[at] = if value & 1 == 0 { value } else { block[at] ^ 1 << (value % 32) };
        }
        let _ = Directory::parse(&block);
    }
}
