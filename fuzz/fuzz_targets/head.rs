//! The frame header: decoding is total, and what it accepts goes back to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_proto::head::{HEAD_LEN, Head};

fuzz_target!(|bytes: &[u8]| {
    let Some((raw, _)) = bytes.split_first_chunk::<HEAD_LEN>() else { return };
    check(raw);
    // A random 16-bit sum is right once in 65536 tries: seal the rest so that the fields behind it are reached too.
    let mut sealed = *raw;
    if let Ok(head) = <Head as zerocopy::FromBytes>::read_from_bytes(raw) {
        sealed = *head.sealed().as_wire();
    }
    check(&sealed);
});

fn check(raw: &[u8; HEAD_LEN]) {
    if let Ok((head, kind)) = Head::decode(raw) {
        assert_eq!(head.as_wire(), raw);
        assert_eq!(kind as u8, raw[1]);
        assert!(head.len.get() as usize <= kind.max_len());
    }
}
