use proptest::prelude::*;

use super::*;

fn sample() -> RemoteBuffer {
    RemoteBuffer { domain: 0x0102_0304, key: 5 << INDEX_BITS | 3, access: Access::Write, offset: 16, len: 100 }
}

#[test]
fn golden_bytes_and_every_truncation() {
    let wire = sample().encode();
    assert_eq!(wire[..6], *b"LSRB\x01\x02");
    assert_eq!(wire[8..16], [4, 3, 2, 1, 0, 0, 0, 0]);
    assert_eq!(wire[16..24], [3, 0x50, 0, 0, 0, 0, 0, 0]);
    assert_eq!(wire[24..], [16, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(RemoteBuffer::decode(&wire).unwrap(), sample());
    assert_eq!(sample().generation(), 5);
    assert!((0..wire.len()).all(|n| RemoteBuffer::decode(&wire[..n]).is_err()));
}

#[test]
fn every_damaged_byte_is_found() {
    for at in 0..REMOTE_BUFFER_LEN {
        let mut wire = sample().encode();
        wire[at] ^= 0x10;
        let error = RemoteBuffer::decode(&wire).unwrap_err();
        assert_eq!(error.code(), "LS1116", "{error}");
    }
}

#[test]
fn slices_stay_inside() {
    let buffer = sample();
    let part = buffer.slice(10, 90).unwrap();
    assert_eq!((part.offset, part.len()), (26, 90));
    assert!(buffer.slice(100, 0).unwrap().is_empty());
    for (offset, len) in [(101, 0), (0, 101), (90, 11), (u64::MAX, 2), (2, u64::MAX)] {
        assert!(matches!(buffer.slice(offset, len), Err(Error::Bounds { .. })), "{offset} {len}");
    }
}

#[test]
fn rights_lengths_and_peers_are_checked_here_too() {
    let buffer = sample();
    assert!(buffer.check((buffer.domain, 0), true, 100).is_ok());
    assert!(matches!(buffer.check((buffer.domain, 0), true, 101), Err(Error::Bounds { .. })));
    assert!(matches!(buffer.check((buffer.domain, 0), false, 1), Err(Error::NoRight { .. })));
    assert!(matches!(buffer.check((1, 2), true, 1), Err(Error::WrongPeer)));
    assert!(buffer.check((1, buffer.domain), true, 100).is_ok(), "given out by the peer's endpoint");
}

proptest! {
    #[test]
    fn any_bytes_are_a_buffer_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(buffer) = RemoteBuffer::decode(&bytes) {
            prop_assert_eq!(&buffer.encode()[..], &bytes[..]);
        }
    }

    #[test]
    fn every_buffer_goes_through_its_bytes(domain: u64, key: u32, offset in 0..u64::MAX / 2, len in 0..u64::MAX / 2) {
        let buffer = RemoteBuffer { domain, key, access: Access::ReadWrite, offset, len };
        prop_assert_eq!(RemoteBuffer::decode(&buffer.encode()).unwrap(), buffer);
    }
}
