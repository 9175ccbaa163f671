use proptest::prelude::*;

use super::*;

#[test]
fn golden_bytes() {
    let mut frame = Frame::new(Say::Place, 0x0403_0201).at(0x1122_3344_5566_7788, 0xaabb_ccdd, 5);
    frame.credits.set(0x0102);
    let want = [
        3, 0, 2, 1, 1, 2, 3, 4, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xdd, 0xcc, 0xbb, 0xaa, 0, 0, 0, 0, 5,
        0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(frame.as_wire(), &want);
    assert_eq!(Frame::decode(&want), Ok((frame, Say::Place, &[][..])));
}

#[test]
fn lengths_and_kinds_are_checked() {
    let frame = |say| *Frame::new(say, 1).as_wire();
    assert!(Frame::decode(&[]).is_err() && Frame::decode(&[1; 31]).is_err());
    for say in [Say::Place, Say::Nowhere, Say::Landed, Say::Granted, Say::Credit, Say::Close] {
        assert!(Frame::decode(&frame(say)).is_ok());
        assert!(Frame::decode(&[&frame(say)[..], &[0]].concat()).is_err(), "{say:?} with something behind");
    }
    for say in [Say::Ctrl, Say::Ask, Say::Written] {
        assert!(Frame::decode(&frame(say)).is_err(), "{say:?} without a head");
        assert!(Frame::decode(&[&frame(say)[..], &[0; HEAD_LEN]].concat()).is_ok());
    }
    assert!(Frame::decode(&[0; 32]).is_err() && Frame::decode(&[10; 32]).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((frame, say, rest)) = Frame::decode(&bytes) {
            prop_assert_eq!(frame.say, say as u8);
            prop_assert_eq!(&bytes[..FRAME_LEN], frame.as_wire());
            prop_assert_eq!(&bytes[FRAME_LEN..], rest);
        }
    }
}
