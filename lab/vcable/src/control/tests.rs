use proptest::prelude::*;

use super::*;

/// A read of the first word of the router, as Linux sends it: CRC from an independent bitwise computation.
const GOLDEN: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0x04, 0x00, 0x20, 0x00, 0, 0, 0, 0];

#[test]
fn golden_bytes() {
    let words = [0, 0, 1 << 13 | 2 << 25];
    let bytes = seal(&words);
    assert_eq!(bytes[..12], GOLDEN[..12]);
    assert_eq!(unseal(&bytes), Ok(words.to_vec()));
    let Ok(Request::Read(at)) = Request::decode(pdf::READ, &words) else { panic!() };
    assert_eq!(at, Address { offset: 0, len: 1, adapter: 0, space: Space::Router, seq: 0 });
}

#[test]
fn lengths_are_checked() {
    for len in [0, 3, 8, 11, 13, 260, 4096] {
        assert_eq!(unseal(&vec![0; len]), Err(PacketError::Length(len)));
    }
    let words = |n: u32| [0, 0, n << 13 | 2 << 25];
    assert!(matches!(Request::decode(pdf::READ, &words(0)), Err(PacketError::Words { asked: 0, .. })));
    assert!(matches!(Request::decode(pdf::READ, &words(61)), Err(PacketError::Words { asked: 61, .. })));
    assert!(matches!(Request::decode(pdf::WRITE, &words(1)), Err(PacketError::Words { asked: 1, carried: 0 })));
    assert!(matches!(Request::decode(pdf::READ, &[0, 0]), Err(PacketError::Words { .. })));
}

proptest! {
    #[test]
    fn sealing_is_undone_and_every_flipped_bit_is_seen(
        words in proptest::collection::vec(any::<u32>(), 2..63),
        flip in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = seal(&words);
        prop_assert_eq!(unseal(&bytes), Ok(words));
        let bit = flip.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(unseal(&bytes).is_err());
    }

    #[test]
    fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in any::<u8>()) {
        if let Ok(words) = unseal(&bytes) {
            let _ = Request::decode(kind, &words);
        }
        let _ = crate::trace::text::control(kind, &bytes);
    }
}
