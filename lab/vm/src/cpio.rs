//! Archives for the kernel's initramfs: cpio "newc", described in the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`. Several may stand one behind the other.

use std::collections::BTreeSet;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;

/// An archive in the making.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    count: u32,
}

impl Archive {
    /// A file with its permission bits; folders above it come by themselves.
    pub(crate) fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        self.parents(path);
        self.entry(path, FILE | permissions, content);
    }

    /// A symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.parents(path);
        self.entry(path, LINK, target.as_bytes());
    }

    /// An empty folder.
    pub(crate) fn folder(&mut self, path: &str) {
        self.parents(&format!("{path}/x"));
    }

    /// The archive with its trailer.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        let path = path.trim_start_matches('/');
        for (at, _) in path.match_indices('/') {
            let folder = &path[..at];
            if self.folders.insert(folder.to_owned()) {
                self.entry(folder, FOLDER, &[]);
            }
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        let path = path.trim_start_matches('/');
        self.count += 1;
        let (size, name_size) = (content.len() as u32, path.len() as u32 + 1);
        // ino, mode, uid, gid, nlink, mtime, filesize, dev major and minor, rdev major and minor, namesize, check.
        let fields = [self.count, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests;
