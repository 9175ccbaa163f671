use super::*;

const TOKEN: [u8; 16] = [0xCD; 16];

#[test]
fn golden_bytes() {
    let hello = Message::new(Kind::Hello, &TOKEN, 1).with_ring(1 << 16).guarded(7, [8, 9]);
    let mut want = Vec::from(*b"LSm\x01\x01\0\0\0");
    want.extend(TOKEN);
    want.extend([0, 0, 1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(hello.as_bytes(), want);
    assert_eq!(MESSAGE_LEN, 56);
    assert_eq!(&Message::new(Kind::Welcome, &TOKEN, 0).as_bytes()[..8], b"LSm\x02\0\0\0\0");
    assert_eq!(&Message::new(Kind::Ready, &TOKEN, 1001).as_bytes()[..8], b"LSm\x03\xE9\x03\0\0");
}

#[test]
fn only_the_message_that_is_due_from_who_knows_the_token_is_read() {
    let good = Message::new(Kind::Hello, &TOKEN, 0);
    assert!(Message::decode(good.as_bytes(), Kind::Hello, &TOKEN).is_some());
    assert!(Message::decode(good.as_bytes(), Kind::Ready, &TOKEN).is_none());
    assert!(Message::decode(good.as_bytes(), Kind::Hello, &[0; 16]).is_none());
    // Magic, kind and token; the fields behind them are looked at by whoever uses them.
    for at in (0..4).chain(8..24) {
        let mut bytes = good.as_bytes().to_vec();
        bytes[at] ^= 0x40;
        assert!(Message::decode(&bytes, Kind::Hello, &TOKEN).is_none(), "byte {at}");
    }
    for len in (0..200).filter(|len| *len != MESSAGE_LEN) {
        let bytes: Vec<u8> = good.as_bytes().iter().copied().chain([0; 200]).take(len).collect();
        assert!(Message::decode(&bytes, Kind::Hello, &TOKEN).is_none(), "{len} bytes");
    }
}
