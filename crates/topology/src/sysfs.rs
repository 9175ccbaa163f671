//! Reading small kernel files below a replaceable root.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes taken of one kernel file. `/proc/meminfo` is the longest that we read, about 2 KiB.
const FILE_MAX: u64 = 64 << 10;

/// Where sysfs and procfs are mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
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
        Roots { sys: root.join("sys"), proc: root.join("proc") }
    }

    /// Directory of the network interfaces.
    pub(crate) fn net(&self) -> PathBuf {
        self.sys.join("class/net")
    }
}

/// The file's text without surrounding white space; `None` where it cannot be read (many attributes answer with an
/// error while a link is down) or is empty.
pub(crate) fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
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
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
