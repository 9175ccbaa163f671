use super::*;
use proptest::prelude::*;

fn sample() -> Head {
    let mut head = Head::new(Kind::Chunk);
    head.len = U32::new(4096);
    head.seq = U32::new(7);
    head.ack = U32::new(9);
    head.tag = U32::new(0xAABB_CCDD);
    head.id = U32::new(0x0102_0304);
    head.offset = U64::new(1 << 33);
    head.total = U64::new(3 << 33);
    head
}

#[test]
fn golden_bytes() {
    let wire = sample().as_wire().map(|b| format!("{b:02x}")).concat();
    assert_eq!(
        wire,
        concat!(
            "c520",
            "0000",
            "00100000",
            "07000000",
            "09000000",
            "ddccbbaa",
            "04030201",
            "0000000002000000",
            "0000000006000000"
        )
    );
}

#[test]
fn reserved_bytes_that_are_not_zero_are_refused() {
    for bit in 0..16 {
        let mut bad = *sample().as_wire();
        bad[2 + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Head::decode(&bad), Err(BadHead::Reserved(1 << bit)));
    }
}

#[test]
fn lengths_over_the_kinds_limit_are_refused() {
    for (kind, len) in [
        (Kind::Eager, EAGER_MAX + 1),
        (Kind::Grant, 1),
        (Kind::Chunk, CHUNK_MAX + 1),
        (Kind::BatchHeads, BATCH_MAX * HEAD_LEN + 1),
    ] {
        let mut head = Head::new(kind);
        head.len = U32::new(len as u32);
        assert!(matches!(Head::decode(head.as_wire()), Err(BadHead::Len { .. })));
    }
}

proptest! {
    #[test]
    fn decode_is_total(bytes: [u8; HEAD_LEN]) {
        let _ = Head::decode(&bytes);
    }

    #[test]
    fn round_trip(kind in proptest::sample::select(vec![1u8, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 32, 33, 34]), seq: u32, ack: u32, tag: u32, id: u32, offset: u64, total: u64) {
        let mut head = Head::new(Kind::from_u8(kind).unwrap());
        head.seq = U32::new(seq);
        head.ack = U32::new(ack);
        head.tag = U32::new(tag);
        head.id = U32::new(id);
        head.offset = U64::new(offset);
        head.total = U64::new(total);
        prop_assert_eq!(Head::decode(head.as_wire()), Ok((head, Kind::from_u8(kind).unwrap())));
    }
}
