use super::*;
use linkspan_proto::Buf;
use linkspan_transport::StaticBuf;

#[test]
fn what_was_filled_is_right() {
    for len in [0, 1, 7, 8, 9, 4095, 4096, 4097, 100_000] {
        let buf = StaticBuf::new(len);
        Pattern::new(1, 2).fill(buf.slice());
        assert_eq!(Pattern::new(1, 2).wrong(buf.slice()), 0, "{len}");
    }
}

#[test]
fn one_byte_is_found_and_counted() {
    let buf = StaticBuf::new(10_000);
    for at in [0u64, 1, 4095, 4096, 9_999] {
        Pattern::new(3, 4).fill(buf.slice());
        let mut byte = [0];
        assert!(buf.slice().read(at, &mut byte));
        assert!(buf.slice().fill(at, &[!byte[0]]));
        assert_eq!(Pattern::new(3, 4).wrong(buf.slice()), 1, "{at}");
    }
}

#[test]
fn another_message_another_seed_or_a_shift_is_wrong() {
    let buf = StaticBuf::new(8192);
    Pattern::new(5, 6).fill(buf.slice());
    // A byte is right by chance once in 256.
    for other in [Pattern::new(5, 7), Pattern::new(6, 6), Pattern::new(0, 0)] {
        assert!(other.wrong(buf.slice()) > 8192 * 9 / 10);
    }
    let shifted = buf.slice().sub(8, 4096).unwrap();
    assert!(Pattern::new(5, 6).wrong(shifted) > 4096 * 9 / 10);
}

#[test]
fn stamps() {
    for len in [1usize, 3, 8, 100] {
        let buf = StaticBuf::new(len);
        Pattern::new(9, 1).stamp(buf.slice());
        assert_eq!(Pattern::new(9, 1).stamp_wrong(buf.slice()), 0);
        let filled = StaticBuf::new(len);
        Pattern::new(9, 1).fill(filled.slice());
        assert_eq!(Pattern::new(9, 1).stamp_wrong(filled.slice()), 0, "a filled message carries its stamp");
    }
    let buf = StaticBuf::new(8);
    Pattern::new(9, 1).stamp(buf.slice());
    assert!(Pattern::new(9, 2).stamp_wrong(buf.slice()) > 0);
}
