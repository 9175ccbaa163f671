//! A small file of our own in the place of another.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Puts a file with these permission bits in the place of another: whoever reads finds one of them, and so does whoever comes after a loss of
/// power. Several processes may do so at a time, each with one thread.
///
/// # Errors
/// Those of the system calls, as ENOENT where there is no such directory.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let fresh = path.with_file_name(name);
    // Left behind by a process that was killed and had our number.
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut new = OpenOptions::new().write(true).create_new(true).mode(mode).open(&fresh)?;
    let written = new
        .write_all(bytes)
        // Whatever the umask says.
        .and_then(|()| new.set_permissions(Permissions::from_mode(mode)))
        .and_then(|()| new.sync_all())
        .and_then(|()| std::fs::rename(&fresh, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    written?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // It is there for whoever reads now, also where a directory cannot be opened, or not be synced.
    let _ = File::open(dir).and_then(|dir| dir.sync_all());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_permissions_and_nothing_is_left_beside_it_where_that_fails() {
        let dir = std::env::temp_dir().join(format!("linkspan-replace-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("taken")).unwrap();
        for bytes in [&b"one"[..], b"two"] {
            replace(&dir.join("file"), bytes, 0o644).unwrap();
            assert_eq!(std::fs::read(dir.join("file")).unwrap(), bytes);
        }
        assert_eq!(std::fs::metadata(dir.join("file")).unwrap().permissions().mode() & 0o7777, 0o644);
        assert!(replace(&dir.join("taken"), b"three", 0o600).is_err(), "in the place of a directory");
        assert!(replace(&dir.join("none/file"), b"three", 0o600).is_err());
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
