use super::{Broken, Frame, KINDS, Kind, MOST, read, write};

#[test]
fn what_is_written_is_read() {
    let mut bytes = Vec::new();
    for (n, kind) in KINDS.into_iter().enumerate() {
        write(&mut bytes, kind, n as u32 * 1000, &vec![n as u8; n * 7]).unwrap();
    }
    let mut from = &bytes[..];
    for (n, kind) in KINDS.into_iter().enumerate() {
        let frame = read(&mut from).unwrap();
        assert_eq!(frame, Frame { kind, job: n as u32 * 1000, body: vec![n as u8; n * 7] });
    }
    assert!(matches!(read(&mut from), Err(Broken::Io(_))));
}

#[test]
fn golden_bytes() {
    let mut bytes = Vec::new();
    write(&mut bytes, Kind::Exit, 0x0102_0304, &7i32.to_le_bytes()).unwrap();
    assert_eq!(bytes, [9, 0, 0, 0, 5, 4, 3, 2, 1, 7, 0, 0, 0]);
}

#[test]
fn lengths_and_kinds_are_checked_before_use() {
    let frame = |len: u32, kind: u8| -> Vec<u8> { [&len.to_le_bytes()[..], &[kind], &[0; 4]].concat() };
    for (len, kind) in [(0, 0), (4, 0), (MOST as u32 + 6, 0), (u32::MAX, 3), (5, 6), (5, 255)] {
        let bytes = frame(len, kind);
        assert!(matches!(read(&mut &bytes[..]), Err(Broken::Wrong(l, k)) if l == len && k == kind), "{len} {kind}");
    }
    // The longest that may be, cut short: an error, not a wait for memory.
    assert!(matches!(read(&mut &frame(MOST as u32 + 5, 0)[..]), Err(Broken::Io(_))));
}
