use super::Archive;

/// The header of an entry: ino, mode, size of the content, size of the name.
fn header(bytes: &[u8], at: usize) -> (String, u32, usize, usize) {
    let text = std::str::from_utf8(&bytes[at..at + 110]).unwrap();
    assert_eq!(&text[..6], "070701");
    let field = |n: usize| u32::from_str_radix(&text[6 + 8 * n..14 + 8 * n], 16).unwrap();
    let name_len = field(11) as usize;
    let name = std::str::from_utf8(&bytes[at + 110..at + 110 + name_len - 1]).unwrap();
    (name.to_owned(), field(1), field(6) as usize, name_len)
}

#[test]
fn entries_folders_and_padding() {
    let mut archive = Archive::default();
    archive.file("/bin/sh", 0o755, b"12345");
    archive.link("/bin/ls", "sh");
    archive.file("/bin/x", 0o644, b"");
    let bytes = archive.finish();
    let (mut at, mut seen) = (0, Vec::new());
    while at < bytes.len() {
        let (name, mode, size, name_len) = header(&bytes, at);
        let content = (at + 110 + name_len).next_multiple_of(4);
        seen.push((name, mode, bytes[content..content + size].to_vec()));
        at = (content + size).next_multiple_of(4);
    }
    let expected = [
        ("bin", 0o040_755, &b""[..]),
        ("bin/sh", 0o100_755, b"12345"),
        ("bin/ls", 0o120_777, b"sh"),
        ("bin/x", 0o100_644, b""),
        ("TRAILER!!!", 0, b""),
    ];
    assert_eq!(seen, expected.map(|(name, mode, content)| (name.to_owned(), mode, content.to_vec())));
}
