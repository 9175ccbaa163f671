use super::*;
use proptest::prelude::*;

#[test]
fn sizes_in_their_spellings() {
    for (text, bytes) in [
        ("1", 1),
        ("8", 8),
        ("64K", 64 << 10),
        ("64k", 64 << 10),
        ("1.5M", 3 << 19),
        ("1G", 1 << 30),
        ("2 MiB", 2 << 20),
        ("512b", 512),
    ] {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
}

#[test]
fn sizes_that_are_none() {
    for text in ["", "K", "-1", "1T", "1e6", "0x10", "1..5", "1K5", "..", "1.0000000001K", "١"] {
        assert!(matches!(size(text), Err(BadValue::Size(_))), "{text}: {:?}", size(text));
    }
    for text in ["0", "0K", "1.1G", "2G", "999999999999999999G"] {
        assert!(matches!(size(text), Err(BadValue::SizeRange(_))), "{text}: {:?}", size(text));
    }
}

#[test]
fn lists_and_ranges() {
    assert_eq!(sizes("8,64K").unwrap(), [8, 65536]);
    assert_eq!(sizes("1..10").unwrap(), [1, 2, 4, 8]);
    assert_eq!(sizes("1K..64K:4, 3").unwrap(), [1024, 4096, 16384, 65536, 3]);
    assert_eq!(sizes("1..1G:1024").unwrap(), [1, 1 << 10, 1 << 20, 1 << 30]);
    for (text, part) in
        [("8,,9", "empty"), ("", "empty"), ("9..8", "before it begins"), ("1..8:1", "factor"), ("1..8:x", "factor")]
    {
        let message = sizes(text).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains(&format!("{text:?}")), "{message}");
    }
}

#[test]
fn times() {
    for (text, ns) in [
        ("1", 1_000_000_000),
        ("500ms", 500_000_000),
        ("1.5s", 1_500_000_000),
        ("10us", 10_000),
        ("7ns", 7),
        ("2m", 120_000_000_000),
        ("24h", 86_400_000_000_000),
    ] {
        assert_eq!(time(text).map(|time| time.as_nanos()), Ok(ns), "{text}");
    }
    for text in ["", "s", "1d", "-1s", "1 2s"] {
        assert!(matches!(time(text), Err(BadValue::Time(_))), "{text}");
    }
    for text in ["0s", "0.1ns", "25h", "99999999h"] {
        assert!(matches!(time(text), Err(BadValue::TimeRange(_, "24h"))), "{text}");
    }
}

#[test]
fn showing() {
    assert_eq!(
        ["8", "1K", "1000", "1536", "64M", "1G"],
        [8, 1024, 1000, 1536, 64 << 20, 1 << 30].map(show_size).as_slice()
    );
    assert_eq!(show_us(3141.6), "3.142");
    assert_eq!(show_us(31415.9), "31.42");
    assert_eq!(gbit_s(1_000_000_000, 1_000_000_000), 8.0);
    assert_eq!(gbyte_s(5, 0), 0.0);
}

proptest! {
    #[test]
    fn whatever_is_shown_can_be_read(bytes in 1u64..=SIZE_MAX) {
        prop_assert_eq!(size(&show_size(bytes)), Ok(bytes));
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,24}") {
        let _ = (size(&text), sizes(&text), time(&text));
    }
}
