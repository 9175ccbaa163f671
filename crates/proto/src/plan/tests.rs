use super::*;
use proptest::prelude::*;

#[test]
fn golden_bytes() {
    let plan = Plan { carrier: Carrier::Tcp, acked: true, streams: vec![3, 0x0102], keepalive: None };
    let mut want = *b"LSPL\x01\x01\x02\0\0\0\0\0\0\0\xff\xff\x03\0\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0";
    assert_eq!(plan.encode(), want);
    assert_eq!(Plan::decode(&want), Ok(plan));
    want[4] = 3;
    assert_eq!(Plan::decode(&want).map(|p| p.carrier), Ok(Carrier::Offered));
    want[4] = 4;
    assert_eq!(Plan::decode(&want).map(|p| p.carrier), Ok(Carrier::Devmem));
    want[5] = 0;
    assert!(Plan::decode(&want).is_ok(), "two streams are one rail");
    (want[4], want[5]) = (3, 1);
    want[16] = 2;
    want[17] = 1;
    assert!(Plan::decode(&want).is_err(), "the same stream twice");
}

#[test]
fn impossible_plans_are_refused() {
    let good = Plan { carrier: Carrier::Shm, acked: false, streams: vec![0], keepalive: None }.encode();
    assert!(Plan::decode(&good).is_ok());
    for (at, value) in [(0, 0), (4, 0), (4, 4), (4, 5), (5, 2), (6, 0), (6, 2), (6, 9), (7, 1), (14, 0)] {
        let mut bad = good;
        bad[at] = value;
        if at == 14 {
            bad[15] = 0; // the keepalive connection is stream 0 too
        }
        assert!(Plan::decode(&bad).is_err(), "byte {at} = {value}");
    }
}

proptest! {
    #[test]
    fn decode_is_total_and_one_plan_has_one_spelling(mut bytes: [u8; PLAN_LEN], sane: bool) {
        if sane {
            bytes[..4].copy_from_slice(b"LSPL");
            bytes[4] = 1 + bytes[4] % 4;
            bytes[5] = 1;
            bytes[6] %= 9;
            bytes[7..14].fill(0);
        }
        if let Ok(plan) = Plan::decode(&bytes) {
            let used = 16 + 2 * plan.streams.len();
            prop_assert_eq!(&plan.encode()[..used], &bytes[..used]);
        }
    }
}
