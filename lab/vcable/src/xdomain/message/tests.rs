use proptest::prelude::*;

use super::*;

#[test]
fn golden_words() {
    let message = Message::discovery(1, 2, &Body::UuidRequest { old: false });
    let uuid = [0x0ed7_38b6, 0xbb40_ff42, 0xe290_c297, 0x07ff_b2c0];
    assert_eq!(message.encode(), [0, 1, 5 | 2 << 27, uuid[0], uuid[1], uuid[2], uuid[3], 12]);
    assert_eq!(discovery().to_string(), "b638d70e-42ff-40bb-97c2-90e2c0b2ff07");
    assert_eq!(Uuid::parse("b638d70e-42ff-40bb-97c2-90e2c0b2ff07"), Some(discovery()));
    assert_eq!(Uuid::parse("b638d70e"), None);
}

#[test]
fn a_length_that_lies_is_refused() {
    let good = Message::discovery(1, 0, &Body::Error { code: 3 }).encode();
    assert!(Message::decode(&good).is_some());
    for length in [0, 3, 7, 63] {
        let mut bad = good.clone();
        bad[2] = length;
        assert_eq!(Message::decode(&bad), None, "{length}");
    }
    assert_eq!(Message::decode(&good[..6]), None);
}

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<[u8; 16]>().prop_map(Uuid)
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        any::<bool>().prop_map(|old| Body::UuidRequest { old }),
        (uuid(), 0u64..1 << 54).prop_map(|(source, route)| Body::UuidResponse { source, route }),
        (uuid(), uuid(), any::<u16>()).prop_map(|(source, target, offset)| Body::PropertiesRequest {
            source,
            target,
            offset
        }),
        (uuid(), uuid(), any::<[u16; 2]>(), any::<u32>(), proptest::collection::vec(any::<u32>(), 0..45)).prop_map(
            |(source, target, [offset, total], generation, data)| Body::PropertiesResponse {
                source,
                target,
                offset,
                total,
                generation,
                data
            }
        ),
        uuid().prop_map(|source| Body::Changed { source }),
        Just(Body::ChangedAck),
        any::<u32>().prop_map(|code| Body::Error { code }),
        Just(Body::LinkStatusRequest),
        any::<(u8, u8)>().prop_map(|(width, speed)| Body::LinkChangeRequest { width, speed }),
        any::<u32>().prop_map(|status| Body::LinkChangeResponse { status }),
    ]
}

proptest! {
    #[test]
    fn bodies_survive_the_wire(body in body(), seq in 0u8..4) {
        let message = Message::discovery(3, seq, &body);
        let back = Message::decode(&message.encode()).unwrap();
        prop_assert_eq!(&back, &message);
        prop_assert_eq!(back.body(), Some(body));
    }

    #[test]
    fn decoding_is_total(words in proptest::collection::vec(any::<u32>(), 0..64)) {
        let _ = Message::decode(&words).and_then(|m| m.body());
    }
}
