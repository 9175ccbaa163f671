use proptest::prelude::*;

use super::*;

fn sample() -> Hello {
    let (mut refused, none) = ([0; 8], [0; 8]);
    refused[1] = 0x0102_0304;
    let past = [(2, 40, refused), (1, 7, none), (0, 0, none), (0, 0, none)];
    let name = EndpointName::new("w1").unwrap();
    Hello { from: 5, to: 6, epoch: 3, past, acked: [90, 4, 0, 0], refusal: Refusal::Full, endpoint: 0x0807, name }
}

#[test]
fn golden_bytes() {
    let wire = sample().encode();
    assert_eq!(wire[..8], *b"LSHI\x04\x02\0\0");
    assert_eq!(wire[8..28], [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(wire[28..44], [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(wire[44..60], [90, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(wire[60..76], [40, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(wire[92..108], [0, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
    assert!(wire[108..348].iter().all(|&b| b == 0));
    assert_eq!(wire[348..360], [7, 8, 0, 0, 0, 0, 0, 0, b'w', b'1', 0, 0]);
    assert!(wire[358..].iter().all(|&b| b == 0));
    assert_eq!(Hello::decode(&wire), Ok(sample()));
}

#[test]
fn what_had_come_is_told_per_path() {
    assert_eq!([2, 1, 9, 0].map(|epoch| sample().seen(epoch).0), [40, 7, 0, 0]);
    let (_, refused) = sample().seen(2);
    let told: Vec<u64> = (0..512).filter(|&n| is_refused(&refused, n)).collect();
    assert_eq!(told, [66, 72, 73, 81, 88]);
    assert!(is_refused(&refused, 66 + 512 * 7));
}

#[test]
fn what_the_sender_knew_to_have_come_is_told_per_path() {
    assert_eq!([90, 93, 0, 1 << 32, 7 << 32 | 95].map(|heard| sample().known(2, heard)), [90, 90, 0, 90, 7 << 32 | 90]);
    assert_eq!([1, 9, 0].map(|epoch| sample().known(epoch, 6)), [4, 0, 0]);
    assert_eq!(Hello { acked: [0; PAST], ..sample() }.known(2, 93), 0);
}

#[test]
fn errors_say_what_is_wrong() {
    let wire = sample().encode();
    assert!((0..HELLO_LEN).all(|n| Hello::decode(&wire[..n]).is_err()));
    for (at, with) in [(0, b'X'), (4, 9), (5, 4), (348, 0), (357, b' '), (359, b'x'), (356, 0)] {
        let mut bad = wire;
        bad[at] = with;
        // The number of the endpoint is two bytes.
        bad[349] = if at == 348 { 0 } else { 8 };
        assert!(Hello::decode(&bad).is_err());
    }
    let nobody = Hello { from: 0, ..sample() };
    assert_eq!(Hello::decode(&nobody.encode()), Err("its hello does not say who it is"));
}

#[test]
fn names_are_visible_characters_and_have_a_bound() {
    let longest = "n".repeat(NAME_LEN);
    for good in ["a", "trainer/0", "10.0.0.1:5000", &longest] {
        assert_eq!(EndpointName::new(good).map(|name| name.as_str().to_owned()).as_deref(), Some(good));
    }
    for bad in ["", "a b", "tab\t", "nul\0", "w\u{f6}rker", &format!("{longest}n")] {
        assert_eq!(EndpointName::new(bad), None, "{bad:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_hello_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
        if let Ok(hello) = Hello::decode(&bytes) {
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }
}
