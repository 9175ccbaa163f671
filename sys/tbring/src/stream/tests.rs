use std::os::fd::AsFd;

use linkspan_transport::{Buf, StaticBuf};

use super::*;

/// A named pipe stands for the device: both are byte streams that are opened by path.
fn pipe(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("linkspan-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let c = std::ffi::CString::new(path.to_str().expect("a path")).expect("no zero byte");
    // SAFETY: a zero-terminated path.
    assert_eq!(unsafe { libc::mkfifo(c.as_ptr(), 0o600) }, 0);
    path
}

#[test]
fn pieces_come_back_in_place_and_behind_it() {
    let path = pipe("pieces");
    let mut stream = Stream::open(&path).expect("open");
    let mut tail = [0; 4];
    assert_eq!(stream.read(MemSlice::NONE, &mut tail).expect("read"), None, "nothing has come");
    let from = StaticBuf::new(10);
    assert!(from.slice().fill(0, b"0123456789"));
    let part = |at, len| from.slice().sub(at, len).expect("inside");
    assert_eq!(stream.write(&[part(0, 3), part(3, 0), part(3, 7)]).expect("write"), Some(10));
    let place = StaticBuf::new(8);
    assert_eq!(stream.read(place.slice(), &mut tail).expect("read"), Some(10));
    assert_eq!((&place.slice().to_vec()[..], &tail[..2]), (&b"01234567"[..], &b"89"[..]));
    assert!(stream.as_fd().as_raw_fd() >= 0);
    std::fs::remove_file(path).expect("ours");
}

#[test]
fn one_program_at_a_time_and_reasons() {
    let path = pipe("lock");
    let first = Stream::open(&path).expect("open");
    let refused = Stream::open(&path).expect_err("locked").to_string();
    assert!(refused.starts_with("LS1501") && refused.ends_with("another connection has it"), "{refused}");
    drop(first);
    Stream::open(&path).expect("free again");
    std::fs::remove_file(&path).expect("ours");
    let missing = Stream::open(&path).expect_err("gone").to_string();
    assert!(missing.contains("thunderbolt_stream"), "{missing}");
}
