use proptest::prelude::*;

use super::*;
use crate::fs::Time;

fn ident(ino: u64) -> Ident {
    Ident { dev: 1, ino, size: 3, mtime: Time::default(), ctime: Time::default() }
}

#[test]
fn a_tag_differs_with_the_version_the_boot_the_mount_and_where_nothing_can_tell() {
    let tag = |ino, settled, boot, mount| Tag::new(&ident(ino), settled, [boot; 16], mount).unwrap();
    assert_eq!(tag(1, true, 0, Some(5)), tag(1, true, 0, Some(5)));
    assert_ne!(tag(1, true, 0, Some(5)), tag(2, true, 0, Some(5)));
    assert_ne!(tag(1, true, 0, Some(5)), tag(1, true, 1, Some(5)));
    assert_ne!(tag(1, true, 0, Some(5)), tag(1, true, 0, Some(6)));
    assert_ne!(tag(1, false, 0, Some(5)), tag(1, false, 0, Some(5)));
    assert_ne!(tag(1, true, 0, None), tag(1, true, 0, None));
}

#[test]
fn a_record_of_another_chunk_or_half_of_one_is_none() {
    let tag = Tag::new(&ident(1), true, [0; 16], Some(0)).unwrap();
    let bytes = encode(5, &[7; 32], tag);
    assert_eq!(decode(5, &bytes), Some(([7; 32], tag)));
    assert_eq!(decode(6, &bytes), None);
    for at in 0..RECORD_LEN {
        let mut torn = bytes;
        torn[at..].fill(0);
        assert!(decode(5, &torn).is_none() || torn == bytes);
    }
    assert_eq!(decode(0, &[0; RECORD_LEN]), None);
}

proptest! {
    #[test]
    fn whereabouts_decode_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = Whereabouts::decode(&bytes);
        let _ = Whereabouts::decode(&[&MAGIC[..], &bytes].concat());
    }

    #[test]
    fn whereabouts_come_back(a: u64, b: u64, id: u64) {
        let place = Whereabouts { root: (a, b), dir: RelPath::new(b"x/y").unwrap(), id, part: (b, a), born: Time { sec: 1, nsec: 2 } };
        prop_assert_eq!(Whereabouts::decode(&place.encode()), Some(place));
    }
}
