use linkspan_proto::Kind;
use proptest::prelude::*;

use super::*;

#[test]
fn an_eight_byte_message_is_one_line() {
    assert_eq!(size(Tag::Ctrl, 8), 64);
    assert_eq!((size(Tag::Ctrl, 16), size(Tag::Ctrl, 17)), (64, 128));
    assert_eq!((size(Tag::Chunk, 0), size(Tag::More, 1), size(Tag::ShmOffer, 0)), (64, 128, 64));
}

#[test]
fn offers_and_pieces_survive_the_way() {
    let head = Head::new(Kind::Chunk);
    let direct = Direct { address: 0x0102_0304_0506_0708, slot: 15, pages: 0x1234, generation: 0x8765_4321 };
    let got = Record::parse(offer(&head, direct), 64).unwrap();
    assert_eq!((got.tag, got.direct(), &got.head()), (Tag::ShmOffer, direct, head.as_wire()));
    let got = Record::parse(piece(100, 7, 0xDEAD_BEEF, 1 << 40), 192).unwrap();
    assert_eq!((got.tag, got.len, got.piece()), (Tag::Piece, 100, (0xDEAD_BEEF, 7, 1 << 40)));
}

#[test]
fn a_skip_covers_what_it_is_for() {
    for len in [64, 128, 4 << 20] {
        let got = Record::parse(skip(len), len).unwrap();
        assert_eq!((got.tag, size(got.tag, got.len)), (Tag::Skip, len));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any 64 bytes are a record that fits, or an error.
    #[test]
    fn any_line_parses_or_is_refused(bytes in proptest::collection::vec(any::<u8>(), 64), ready in 64usize..1 << 20, tag in 0u8..8) {
        let mut line: [u8; LINE] = bytes.try_into().unwrap();
        line[4] = tag;
        line[2] &= 0x1F;
        line[3] = 0;
        if let Ok(r) = Record::parse(line, ready) {
            prop_assert!(size(r.tag, r.len) <= ready);
            prop_assert!(r.inline().len() <= 16);
            let _ = (r.head(), r.direct(), r.piece());
        }
    }
}
