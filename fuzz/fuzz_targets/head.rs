//! The frame header: decoding is total, and what it accepts goes back to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_proto::head::{HEAD_LEN, Head};

fuzz_target!(|bytes: &[u8]| {
    let Some((raw, _)) = bytes.split_first_chunk::<HEAD_LEN>() else { return };
    if let Ok((head, kind)) = Head::decode(raw) {
        assert_eq!(head.as_wire(), raw);
        assert_eq!(kind as u8, raw[1]);
        assert!(head.len.get() as usize <= kind.max_len());
    }
});
