//! Reading small kernel files below a replaceable root.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes taken of one kernel file. `/proc/meminfo` and `/proc/net/arp` are the longest that we read, some KiB.
const FILE_MAX: u64 = 64 << 10;

/// Most names taken of one directory; the largest that we list, the PCI functions of a big server, holds about 1000.
const NAMES_MAX: usize = 16 << 10;

/// Where sysfs and procfs are mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    root: PathBuf,
    pub(crate) sys: PathBuf,
    pub(crate) proc: PathBuf,
}

impl Default for Roots {
    /// `/sys` and `/proc`.
    fn default() -> Roots {
        Roots::under(Path::new("/"))
    }
}

impl Roots {
    /// `sys` and `proc` below `root`; a test's fixture has both.
    pub fn under(root: &Path) -> Roots {
        Roots { root: root.to_owned(), sys: root.join("sys"), proc: root.join("proc") }
    }

    /// Where the file of this absolute path is, as in `/etc/os-release`.
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// At most 64 KiB of the regular file's text, without surrounding white space; `None` where it cannot be read or is
    /// empty.
    pub fn text(&self, path: &str) -> Option<String> {
        text(&self.at(path))
    }

    /// The first `max` bytes of a regular file.
    pub fn bytes(&self, path: &str, max: u64) -> Option<Vec<u8>> {
        bytes(&self.at(path), max)
    }

    /// Sorted names in a directory, at most 16,384; none where it cannot be read.
    pub fn names(&self, path: &str) -> Vec<String> {
        names(&self.at(path))
    }

    /// The last component of what a link points to.
    pub fn link(&self, path: &str) -> Option<String> {
        link_name(&self.at(path))
    }

    /// Whether there is anything at this path.
    pub fn has(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// Directory of the network interfaces.
    pub(crate) fn net(&self) -> PathBuf {
        self.sys.join("class/net")
    }

    /// Where `path` really is, as a path below the injected sysfs; `None` where it does not exist, is a loop of links,
    /// or leads out of sysfs.
    pub(crate) fn real(&self, path: &Path) -> Option<PathBuf> {
        let (real, sys) = (path.canonicalize().ok()?, self.sys.canonicalize().ok()?);
        Some(self.sys.join(real.strip_prefix(sys).ok()?))
    }
}

/// The first `max` bytes of the file. Only regular files are opened: a pipe or a device would block or do something.
pub(crate) fn bytes(path: &Path, max: u64) -> Option<Vec<u8>> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The file's text without surrounding white space; `None` where it cannot be read (many attributes answer with an
/// error while a link is down) or is empty.
pub(crate) fn text(path: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&bytes(path, FILE_MAX)?).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The file's text as a decimal number.
pub(crate) fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// The last component of what a link points to.
pub(crate) fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// Sorted names in a directory; none where it cannot be read.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().take(NAMES_MAX);
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
