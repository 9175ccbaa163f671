//! What a peer at the end of a cable says: the handshake, and the stream of tier 2. Decoding is total, and what it accepts goes back
//! to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_thunderbolt::{OFFER_LEN, is_handshake, is_segment, reads_any_bytes};

fuzz_target!(|bytes: &[u8]| {
    if let Some((segment, rest)) = bytes.split_first_chunk::<16>() {
        is_segment(segment);
        // A good segment with anything in it.
        let mut stream = vec![0xe5, 1];
        stream.extend_from_slice(&(rest.len().clamp(1, 60_000) as u16).to_le_bytes());
        stream.resize(16, 0);
        stream.extend_from_slice(rest);
        reads_any_bytes(&stream);
    }
    reads_any_bytes(bytes);
    is_handshake(bytes);
    let mut offer = bytes.to_vec();
    offer.resize(OFFER_LEN, 0);
    offer[..5].copy_from_slice(b"LSTo\x01");
    is_handshake(&offer);
});
