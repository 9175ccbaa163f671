use super::*;
use crate::fixture::Fixture;

#[test]
fn decimals_with_units() {
    for (text, unit, want) in [
        ("20.0 Gb/s", "Gb/s", Some(20_000)),
        ("2.5 Gb/sec (1X SDR)", "Gb/s", Some(2_500)),
        ("200 Gb/sec (4X HDR)", "Gb/s", Some(200_000)),
        ("16.0 GT/s PCIe", "GT/s", Some(16_000)),
        ("Unknown", "GT/s", None),
        ("20.0", "Gb/s", None),
        ("20.0 Mb/s", "Gb/s", None),
        ("-1 Gb/s", "Gb/s", None),
        ("1.-5 Gb/s", "Gb/s", None),
        ("1.2345 Gb/s", "Gb/s", None),
        ("99999999999 Gb/s", "Gb/s", None),
        ("4294968 Gb/s", "Gb/s", None),
        ("", "Gb/s", None),
    ] {
        assert_eq!(thousandths(text, unit), want, "{text:?}");
    }
}

#[test]
fn names_of_others_cannot_drive_the_terminal() {
    assert_eq!(clean("a\u{1b}[2Jb\nc\u{202e}d", 64), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d");
    assert_eq!(clean(&"x".repeat(65), 64), format!("{}…", "x".repeat(64)));
    assert_eq!(clean(&"é".repeat(64), 64), "é".repeat(64));
}

#[test]
fn malformed_is_noted_and_missing_is_not() {
    let fix = Fixture::new();
    fix.file("sys/number", "twelve").file("sys/long", &"9".repeat(5000)).file("sys/hex", "0x1f").file("sys/empty", "");
    let roots = fix.roots();
    let mut look = Look::new(&roots);
    let sys = roots.sys.clone();
    assert_eq!(look.number::<u32>(&sys.join("absent")), None);
    assert_eq!(look.number::<u32>(&sys.join("empty")), None);
    assert!(look.notes.is_empty());
    assert_eq!(look.number::<u32>(&sys.join("number")), None);
    assert_eq!(look.text(&sys.join("long")), None);
    assert_eq!(look.hex(&sys.join("hex")), Some(31));
    assert_eq!(look.notes.len(), 2);
    assert_eq!(look.notes[0], "/sys/number: \"twelve\" is not a number, ignored");
    assert!(look.notes[1].starts_with("/sys/long: longer"), "{:?}", look.notes);
}

#[test]
fn notes_are_bounded() {
    let fix = Fixture::new();
    fix.file("sys/number", "x");
    let roots = fix.roots();
    let mut look = Look::new(&roots);
    for _ in 0..1000 {
        look.number::<u32>(&roots.sys.join("number"));
    }
    assert_eq!(look.notes.len(), NOTES_MAX);
}
