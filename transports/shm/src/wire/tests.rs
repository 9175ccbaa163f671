use zerocopy::IntoBytes;

use super::*;

#[test]
fn golden_bytes() {
    let offer = ShmOffer::new([0xAB; 16], [0xCD; 16]);
    let mut want = Vec::from(*b"LSof\x01\0\0\0");
    want.extend([0xAB; 16]);
    want.extend([0xCD; 16]);
    assert_eq!(offer.encode().to_vec(), want);
    assert_eq!(&offer.socket_name(), b"linkspan-abababababababababababababababab");
    assert_eq!((HELLO_LEN, WELCOME_LEN, READY_LEN), (120, 96, 8));
    assert_eq!(Ready::new(1001).as_bytes(), b"LSr1\xE9\x03\0\0");
}

#[test]
fn other_bytes_are_refused() {
    for at in 0..8 {
        let mut bytes = ShmOffer::new([1; 16], [2; 16]).encode();
        bytes[at] ^= 0x40;
        assert!(ShmOffer::decode(&bytes).is_none());
    }
    for len in 0..200 {
        let bytes = vec![0x5A; len];
        assert!(
            Hello::decode(&bytes).is_none() && Welcome::decode(&bytes).is_none() && Ready::decode(&bytes).is_none()
        );
    }
    let hello = [b"LSh1".as_slice(), &[0; HELLO_LEN - 4]].concat();
    assert!(Hello::decode(&hello).is_some_and(|h| h.identity().is_err()));
    assert!(Hello::decode(&hello[1..]).is_none() && Hello::decode(&[&hello[..], &[0]].concat()).is_none());
}

#[test]
fn debug_shows_no_secret() {
    let text = format!("{:?}", ShmOffer::new([0xAB; 16], [0xCD; 16]));
    assert!(!text.contains("205") && !text.to_lowercase().contains("cd"), "{text}");
}
