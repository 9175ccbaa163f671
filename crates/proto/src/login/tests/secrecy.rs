//! Keys and their file: what is accepted, and that nothing shows them.

use super::*;

const DIGITS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn counting() -> Psk {
    Psk::new(std::array::from_fn(|i| i as u8))
}

#[test]
fn key_files() {
    assert_eq!(parse_psk(DIGITS.as_bytes()), Ok(counting()));
    assert_eq!(parse_psk(format!("  {}\r\n", DIGITS.to_uppercase()).as_bytes()), Ok(counting()));
    assert_eq!(parse_psk(counting().expose()), Ok(counting()));
    for bad in [
        "",
        "short",
        &DIGITS[..63],
        &DIGITS[..62],
        &format!("{DIGITS}00"),
        &DIGITS.replace('1', "g"),
        "a passphrase of 32 chars is text",
    ] {
        assert_eq!(parse_psk(bad.as_bytes()), Err(PskError::Form { len: bad.len() }), "{bad:?}");
    }
    assert_eq!(parse_psk("0".repeat(64).as_bytes()), Err(PskError::Weak));
    assert_eq!(parse_psk(&[0xFF; 32]), Err(PskError::Weak));
    assert!(format!("{DIGITS}\r\n").len() <= PSK_FILE_MAX);
}

#[test]
fn raw_keys_may_begin_or_end_with_white_space() {
    let mut raw = *counting().expose();
    raw[0] = b' ';
    raw[31] = b'\n';
    assert_eq!(parse_psk(&raw), Ok(Psk::new(raw)));
}

#[test]
fn key_file_modes() {
    assert_eq!(check_mode(0o100_600, 1000, 1000), Ok(()));
    assert_eq!(check_mode(0o100_400, 0, 1000), Ok(()));
    for mode in [0o100_640, 0o100_604, 0o100_602, 0o100_610] {
        assert_eq!(check_mode(mode, 1000, 1000), Err(PskError::Open { mode }));
    }
    assert_eq!(check_mode(0o100_600, 1001, 1000), Err(PskError::Owner { owner: 1001, user: 1000 }));
    assert!(matches!(check_mode(0o040_700, 1000, 1000), Err(PskError::NotAFile { .. })));
    assert!(PskError::Open { mode: 0o100_644 }.to_string().contains("mode 0644"));
}

/// Everything public that may hold a secret, and every error, shown in both ways.
#[test]
fn nothing_shows_a_secret() {
    let (c, s) = guarded(guard(0xA7, true), guard(0xA7, true));
    let mut shown = vec![format!("{c:?} {s:?} {:?} {:?} {:?}", token(), psk(0xA7), seed(1))];
    let (login_c, login_s) = (client(c), server(s));
    shown.push(format!("{login_c:?} {login_s:?}"));
    let (cs, ss) = run(login_c, login_s, &mut |_, _| ());
    let (cs, ss) = (cs.unwrap(), ss.unwrap());
    shown.push(format!("{cs:?} {ss:?} {:?}", cs.ciphers));
    shown.push(format!("{:#?}", Progress::Done(ss)));
    let (c, s) = run_params(guarded(guard(0xA7, false), guard(0xA8, false)));
    for error in [c.unwrap_err(), s.unwrap_err()] {
        shown.push(format!("{error} {error:?}"));
    }
    let (c, s) = guarded(keys(0xA7, Admit::Anyone), keys(0xA7, Admit::Anyone));
    shown.push(format!("{c:?} {s:?} {:?}", pair(0xA7)));
    let almost = DIGITS.replace('1', "g");
    let error = parse_psk(almost.as_bytes()).unwrap_err();
    shown.push(format!("{error} {error:?}"));

    let key = hex(cs.session_key.expose());
    let secrets =
        ["sixteen byte key", &hex(token().expose()), "115, 105, 120", "a7a7", "167, 167", "A7A7", &key, &DIGITS[2..10]];
    for text in shown {
        for secret in secrets {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[test]
fn secrets_compare_by_value() {
    assert_eq!(token(), token().clone());
    assert_ne!(token(), Token::new([0; 16]));
    assert_ne!(Token::random().unwrap(), Token::random().unwrap());
}

/// Looks at memory that was freed, as a core dump would show it.
#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "reads /proc/self/mem")]
fn a_secret_is_overwritten_when_it_is_dropped() {
    use std::os::unix::fs::FileExt;
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    // A block that is free again keeps what an allocator writes at its beginning.
    let late = |at: u64| {
        let mut bytes = [0; 96];
        memory.read_exact_at(&mut bytes, at + 32).unwrap();
        bytes
    };
    let bytes: [u8; 128] = std::array::from_fn(|i| i as u8 | 0x80);
    let secret = Secret::new(bytes);
    let at = secret.expose().as_ptr() as u64;
    assert_eq!(late(at), bytes[32..]);
    drop(secret);
    let left = late(at).iter().zip(&bytes[32..]).filter(|(now, then)| now == then).count();
    assert!(left < 32, "{left} of 96 bytes are there still");
}
