use proptest::prelude::*;

use super::*;
use crate::wire::FaultKind;

#[test]
fn frames_are_what_their_bytes_say() {
    assert_eq!(Frame::decode(&[0, 7, 8]), Ok(Frame::Data(&[7, 8])));
    assert_eq!(Frame::decode(&[1]), Ok(Frame::End));
    assert_eq!(Frame::decode(&[2]), Ok(Frame::Taken));
    assert_eq!(Frame::decode(&[4, 9]), Ok(Frame::Exit(9)));
    let fault = Fault::new(FaultKind::Io, "x");
    let mut w = Writer::default();
    fault.encode(w.u8(3));
    assert_eq!(Frame::decode(&w.0), Ok(Frame::Failed(fault)));
    for bad in [&[][..], &[1, 0], &[2, 0], &[3], &[4], &[4, 1, 1], &[5]] {
        assert!(Frame::decode(bad).is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Frame::decode(&bytes);
    }
}
