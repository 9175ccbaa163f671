use super::*;

#[test]
fn questions_by_hand() {
    let bind = BrokerRequest::Bind { len: 0x0403_0201 };
    let mut want = [0; QUESTION_LEN];
    want[..12].copy_from_slice(&[b'L', b'S', b'D', b'M', 1, 1, 0, 0, 1, 2, 3, 4]);
    assert_eq!(bind.encode(), want);
    let steer = BrokerRequest::Steer {
        local: "10.0.0.1:258".parse().expect("an address"),
        peer: "[fe80::1]:5".parse().expect("an address"),
    };
    let bytes = steer.encode();
    assert_eq!(bytes[16..34], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1, 2, 1]);
    assert_eq!(bytes[34..52], [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 5, 0]);
    for question in [bind, steer, BrokerRequest::Release { rule: 7 }] {
        let bytes = question.encode();
        assert_eq!(BrokerRequest::decode(&bytes), Some(question));
        assert!((0..bytes.len()).all(|n| BrokerRequest::decode(&bytes[..n]).is_none()));
        for at in [0, 4, 5] {
            let mut bad = bytes;
            bad[at] ^= 0x40;
            assert_eq!(BrokerRequest::decode(&bad), None, "byte {at}");
        }
    }
}

#[test]
fn answers_by_hand() {
    assert_eq!(BrokerReply(Ok(258)).encode(), *b"LSDM\x01\0\0\0\x02\x01\0\0\0\0\0\0");
    let no = BrokerReply(Err("no".into()));
    assert_eq!(no.encode(), *b"LSDM\x01\x01\x02\0\0\0\0\0\0\0\0\0no");
    for answer in [BrokerReply(Ok(9)), no] {
        let bytes = answer.encode();
        assert_eq!(BrokerReply::decode(&bytes), Some(answer));
        assert!((0..bytes.len()).all(|n| BrokerReply::decode(&bytes[..n]).is_none()));
    }
    let long = BrokerReply(Err("ä".repeat(300))).encode();
    assert_eq!((long.len(), BrokerReply::decode(&long)), (ANSWER_MAX, Some(BrokerReply(Err("ä".repeat(120))))));
    assert_eq!(BrokerReply::decode(b"LSDM\x01\x01\x02\0\0\0\0\0\0\0\0\0\x1b["), Some(BrokerReply(Err("[".into()))));
}
