use serde_json::{Value, json};

use super::*;
use crate::tests::{build, machines};

fn file(end: &End) -> Value {
    json!({ "schema": SCHEMA, "findings": [], "end": end })
}

fn parse(value: &Value) -> Result<End, BadEnd> {
    End::parse(value.to_string().as_bytes())
}

fn spark() -> End {
    End::of(&build(&machines()["spark"]).snapshot, "0.1.0")
}

#[test]
fn every_healthy_machine_is_read_back() {
    for (name, lines) in machines() {
        let end = End::of(&build(&lines).snapshot, "0.1.0");
        assert_eq!(parse(&file(&end)).unwrap(), end, "{name}");
    }
}

#[test]
fn another_version_and_what_is_no_file_are_refused() {
    let mut value = file(&spark());
    value["schema"] = "linkspan.doctor/2".into();
    assert!(matches!(parse(&value), Err(BadEnd::Schema { .. })));
    value["end"] = Value::Null;
    assert!(matches!(parse(&value), Err(BadEnd::Schema { .. })), "the version is looked at first");
    value["schema"] = SCHEMA.into();
    assert!(matches!(parse(&value), Err(BadEnd::Form(_))), "the output of --merge has no end");
    for bytes in [&b""[..], b"{}", b"[", b"\xff\xfe", &b"[".repeat(100_000)] {
        assert!(matches!(End::parse(bytes), Err(BadEnd::Form(_))));
    }
    assert!(matches!(End::parse(&vec![b' '; END_MAX + 1]), Err(BadEnd::Long(_))));
}

#[test]
fn everything_is_bounded() {
    let many = |change: &dyn Fn(&mut End)| {
        let mut end = spark();
        change(&mut end);
        matches!(parse(&file(&end)), Err(BadEnd::Many { .. }))
    };
    assert!(many(&|end| end.ports = vec![end.ports[0].clone(); MOST + 1]));
    assert!(many(&|end| end.cards = vec![end.cards[0].clone(); MOST + 1]));
    assert!(many(&|end| end.routers = vec![String::new(); MOST + 1]));
    assert!(many(&|end| end.ports[0].heard = vec!["fe80::1".parse().unwrap(); ADDRS + 1]));
    assert!(many(&|end| end.ports[0].addrs = vec![end.ports[0].addrs[0]; ADDRS + 1]));
    assert!(many(&|end| end.ports[0].neighbours = vec![String::new(); ADDRS + 1]));
}

#[test]
fn nothing_in_a_file_moves_a_cursor_or_reaches_a_shell() {
    let mut end = spark();
    let ports = end.ports.len();
    end.host = format!("a\u{1b}[2Jb\u{202e}{}", "x".repeat(500));
    end.ports[0].name = "x; rm -rf".into();
    end.ports[1].name = "$(id)".into();
    end.ports[2].name = "-x".into();
    end.ports[3].addrs[0].prefix = 99;
    end.cards[0].firmware = Some("1\n2".into());
    let read = parse(&file(&end)).unwrap();
    assert!(!read.host.contains(['\u{1b}', '\u{202e}']) && read.host.chars().count() == TEXT, "{:?}", read.host);
    assert_eq!(read.ports.len(), ports - 3);
    assert!(read.ports.iter().flat_map(|port| &port.addrs).all(|addr| addr.prefix <= 128));
    assert_eq!(read.cards[0].firmware.as_deref(), Some("1\u{fffd}2"));
}

#[test]
fn damaged_files_are_refused_or_judged_without_harm() {
    let other = || {
        let mut end = spark();
        (end.host, end.boot_id) = ("other".into(), None);
        end
    };
    let whole = file(&spark()).to_string().into_bytes();
    // A generator of Numerical Recipes' constants: the same damage in every run.
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..3000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + next() % 4 {
            let at = next() % bytes.len();
            match next() % 4 {
                0 => bytes[at] = next() as u8,
                1 => bytes[at] = b"0123456789\"{}[],:-."[next() % 19],
                2 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        match End::parse(&bytes) {
            Ok(end) => {
                taken += 1;
                let _ = crate::together(&[end, other()]);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} taken, {refused} refused");
}
