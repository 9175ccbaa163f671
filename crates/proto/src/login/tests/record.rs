use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn pair(epoch: u64) -> (Sealer, Opener) {
    let key = Secret::new([0x42; 32]);
    (Sealer(Line::new(&key, epoch)), Opener(Line::new(&key, epoch)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Computed from the record's description by another AES-256-GCM (Python's `cryptography`). The first two are as many bytes as
/// this epoch has.
#[test]
fn golden_bytes() {
    let (mut seal, _) = pair(36 + 34);
    for (text, want) in [
        (&b"the first record"[..], "10000000d99040b51aceaf1eb63e7e1a98db0d076602d1ec24da66377e7704cdb43c956b"),
        (b"the second one", "0e0000007aa4e39475b639a1ec7fcfb8d07ef04c8c31a95d12bcc6394cffbb87bcba"),
        (b"3", "010000000a9a254e9e0f179bd6ce64771ab9901c90"),
    ] {
        let mut text = text.to_vec();
        let (head, tag) = seal.seal(&mut text).unwrap();
        assert_eq!(hex(&[&head[..], &text, &tag].concat()), want);
    }
}

#[test]
fn both_engines_give_the_same_bytes() {
    let key = Secret::new([0x17; 32]);
    let (a, b) = (Engine::new(&key), Engine::portable(&key));
    for len in [1, 15, 16, 17, 40, 127, 128, 1000, 4096, 70_001] {
        let plain: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        let (mut x, mut y) = (plain.clone(), plain.clone());
        let tag = a.seal([9; 12], b"head", &mut x).unwrap();
        assert_eq!(Some(tag), b.seal([9; 12], b"head", &mut y));
        assert_eq!(x, y, "{len} bytes");
        assert!(b.open([9; 12], b"head", &mut x, tag) && a.open([9; 12], b"head", &mut y, tag));
        assert_eq!((&x, &y), (&plain, &plain));
    }
}

#[test]
fn every_flipped_bit_breaks_the_stream() {
    for bit in 0..(4 + 33 + 16) * 8 {
        let (mut seal, mut open) = pair(EPOCH);
        let mut text = [7; 33];
        let (head, tag) = seal.seal(&mut text).unwrap();
        let mut wire = [&head[..], &text, &tag].concat();
        wire[bit / 8] ^= 1 << (bit % 8);
        let (head, rest) = wire.split_first_chunk::<4>().unwrap();
        // A changed length takes other bytes for the text and the tag; the stream continues with zeros.
        let Ok(len) = Opener::text_len(*head) else {
            continue;
        };
        let mut rest = rest.to_vec();
        rest.resize(rest.len().max(len + RECORD_TAG), 0);
        let (text, tag) = rest.split_at_mut(len);
        let tag = *tag.first_chunk().unwrap();
        assert_eq!(open.open(text, tag), Err(RecordError::Tag(1)), "bit {bit}");
        let (_, tag) = seal.seal(&mut [1; 5]).unwrap();
        assert_eq!(open.open(&mut [1; 5], tag), Err(RecordError::Broken));
    }
}

#[test]
fn dropped_repeated_and_swapped_records_are_found() {
    let records = |seal: &mut Sealer| {
        [1u8, 2, 3].map(|i| {
            let mut text = [i; 20];
            let (_, tag) = seal.seal(&mut text).unwrap();
            (text, tag)
        })
    };
    for order in [[1, 2, 0], [0, 0, 1], [0, 2, 1]] {
        let (mut seal, mut open) = pair(EPOCH);
        let records = records(&mut seal);
        let fine = order.into_iter().all(|i| {
            let (mut text, tag) = records[i];
            open.open(&mut text, tag).is_ok()
        });
        assert!(!fine, "{order:?} passed");
    }
}

#[test]
fn keys_change_after_an_epoch_on_both_sides() {
    let (mut seal, mut open) = pair(4 * (24 + 20));
    let mut seen: Vec<[u8; 24]> = Vec::new();
    for i in 0..50u8 {
        let mut text = [0; 24];
        let (_, tag) = seal.seal(&mut text).unwrap();
        assert!(!seen.contains(&text), "record {i} repeats a key and nonce");
        seen.push(text);
        open.open(&mut text, tag).unwrap();
        assert_eq!(text, [0; 24]);
    }
    assert_eq!((seal.0.number(), seal.0.count), (50, 2));
    let (mut one_key, _) = pair(EPOCH);
    let mut fifth = [0; 24];
    for _ in 0..5 {
        fifth = [0; 24];
        one_key.seal(&mut fifth).unwrap();
    }
    assert_ne!(fifth, seen[4], "the fifth record is still under the first key");
}

#[test]
fn lengths_have_limits() {
    let (mut seal, mut open) = pair(EPOCH);
    assert_eq!(seal.seal(&mut []), Err(RecordError::Len(0)));
    assert_eq!(seal.seal(&mut vec![0; RECORD_MAX + 1]), Err(RecordError::Len(RECORD_MAX + 1)));
    assert_eq!(Opener::text_len([0; 4]), Err(RecordError::Len(0)));
    assert_eq!(Opener::text_len([0xFF; 4]), Err(RecordError::Len(0xFFFF_FFFF)));
    let mut large = vec![3; RECORD_MAX];
    let (head, tag) = seal.seal(&mut large).unwrap();
    assert_eq!(Opener::text_len(head), Ok(RECORD_MAX));
    open.open(&mut large, tag).unwrap();
    assert!(large.iter().all(|b| *b == 3));
    assert_eq!(open.open(&mut [], tag), Err(RecordError::Len(0)));
    assert_eq!(open.open(&mut [1], tag), Err(RecordError::Broken));
}

proptest! {
    #[test]
    fn openers_are_total(text in proptest::collection::vec(any::<u8>(), 0..300), tag: [u8; RECORD_TAG]) {
        let (_, mut open) = pair(EPOCH);
        let mut text = text;
        prop_assert!(open.open(&mut text, tag).is_err());
    }

    #[test]
    fn no_key_seals_more_bytes_than_an_epoch_and_both_sides_keep_step(
        lens in proptest::collection::vec(1usize..300, 1..60),
        epoch in 320u64..2000,
    ) {
        let (mut seal, mut open) = pair(epoch);
        let mut under: HashMap<[u8; 32], u64> = HashMap::new();
        for len in lens {
            let mut text = vec![5; len];
            let (head, tag) = seal.seal(&mut text).unwrap();
            *under.entry(*seal.0.key.expose()).or_default() += (head.len() + len + tag.len()) as u64;
            open.open(&mut text, tag).unwrap();
            prop_assert_eq!(text, vec![5; len]);
        }
        let used: Vec<u64> = under.into_values().collect();
        prop_assert!(used.iter().all(|bytes| *bytes <= epoch), "{:?}", used);
    }
}
