use super::*;

#[test]
fn names_that_leave_their_directory_or_are_ours_are_refused() {
    let bad: [(&[u8], BadName); 8] = [
        (b"", BadName::Empty),
        (b".", BadName::Dots),
        (b"..", BadName::Dots),
        (b"a/b", BadName::Byte),
        (b"a\0b", BadName::Byte),
        (&[b'a'; 256], BadName::Long),
        (b".lspan", BadName::Reserved),
        (b".lspan-0123456789abcdef.part", BadName::Reserved),
    ];
    for (bytes, why) in bad {
        assert_eq!(Name::new(bytes), Err(why));
    }
    for good in [&b"a\nb"[..], b"\xff\xfe", b"...", &[b'a'; 255], b".lspan-012.part", b".lspanx"] {
        assert!(Name::new(good).is_ok());
    }
}

#[test]
fn paths_are_names_joined_by_slashes() {
    assert_eq!(RelPath::new(b"/a/b/").unwrap().bytes(), b"a/b");
    assert_eq!(RelPath::new(b"a//b"), Err(BadName::Empty));
    assert_eq!(RelPath::new(b"a/../b"), Err(BadName::Dots));
    assert_eq!(RelPath::new(b"../b"), Err(BadName::Dots));
    assert!(RelPath::new(b"").unwrap().is_root());
    assert_eq!(RelPath::new(&[b"a/".repeat(DEPTH_MAX), b"b".to_vec()].concat()), Err(BadName::Long));
    let (dir, name) = RelPath::new(b"a/b/c").unwrap().split().unwrap();
    assert_eq!((dir.bytes(), name.bytes()), (&b"a/b"[..], &b"c"[..]));
    assert_eq!(dir.join(&name).unwrap().bytes(), b"a/b/c");
    assert_eq!(RelPath::new(b"").unwrap().split(), None);
}

#[test]
fn output_has_no_control_characters() {
    assert_eq!(escape(b"a\nb\x1b[31m\xff\\"), "a\\x0ab\\x1b[31m\\xff\\\\");
    assert_eq!(escape("\u{202e}x\u{85}é".as_bytes()), "\\u{202e}x\\u{85}é");
}
