//! What an RDMA peer says: the offer of the handshake and the frames of the ring. Decoding is total, and what it accepts goes
//! back to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_verbs::{OFFER_LEN, QpOffer, is_frame};

fuzz_target!(|bytes: &[u8]| {
    is_frame(bytes);
    let Some((raw, _)) = bytes.split_first_chunk::<OFFER_LEN>() else { return };
    check(raw);
    // Past the first two checks whatever the fuzzer thinks of them.
    let mut ours = *raw;
    ours[..5].copy_from_slice(b"LSVo\x01");
    check(&ours);
});

fn check(raw: &[u8; OFFER_LEN]) {
    if let Ok(offer) = QpOffer::decode(raw) {
        assert_eq!(offer.as_wire(), raw);
    }
}
