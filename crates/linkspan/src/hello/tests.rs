use proptest::prelude::*;

use super::*;

fn sample() -> Hello {
    Hello { from: 5, to: 6, epoch: 3, past: [(2, 40), (1, 7), (0, 0), (0, 0)] }
}

#[test]
fn golden_bytes() {
    let wire = sample().encode();
    assert_eq!(wire[..8], *b"LSHI\x01\0\0\0");
    assert_eq!(wire[8..32], [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(wire[32..48], [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(wire[48..64], [40, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Hello::decode(&wire), Ok(sample()));
}

#[test]
fn what_had_come_is_told_per_path() {
    assert_eq!([sample().seen(2), sample().seen(1), sample().seen(9), sample().seen(0)], [40, 7, 0, 0]);
}

#[test]
fn errors_say_what_is_wrong() {
    let wire = sample().encode();
    assert!((0..HELLO_LEN).all(|n| Hello::decode(&wire[..n]).is_err()));
    for (at, with) in [(0, b'X'), (4, 9)] {
        let mut bad = wire;
        bad[at] = with;
        assert!(Hello::decode(&bad).is_err());
    }
    let nobody = Hello { from: 0, ..sample() };
    assert_eq!(Hello::decode(&nobody.encode()), Err("its hello does not say who it is"));
}

proptest! {
    #[test]
    fn any_bytes_are_a_hello_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(hello) = Hello::decode(&bytes) {
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }
}
