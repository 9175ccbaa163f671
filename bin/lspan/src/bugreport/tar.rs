//! A tar archive of small files: the ustar format (POSIX.1-1988, `pax`).

/// Longest name of a folder and of a file in it, bytes.
pub(super) const FOLDER: usize = 155;
pub(super) const NAME: usize = 100;

/// Adds a regular file in a folder, mode 0600, of nobody in particular. Names are cut at [`FOLDER`] and [`NAME`].
pub(super) fn add(archive: &mut Vec<u8>, folder: &str, name: &str, content: &[u8], unix_s: u64) {
    let mut head = [0_u8; 512];
    let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name.as_bytes()[..name.len().min(NAME)]);
    put(345, &folder.as_bytes()[..folder.len().min(FOLDER)]);
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, format!("{:011o}\0", unix_s & 0o77_777_777_777).as_bytes());
    // The sum is that of the head with blanks in its own place.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive.extend_from_slice(&head);
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(512), 0);
}

/// Ends the archive: two blocks of zeros, filled up to the usual record of 20.
pub(super) fn end(archive: &mut Vec<u8>) {
    archive.resize((archive.len() + 1024).next_multiple_of(10_240), 0);
}
