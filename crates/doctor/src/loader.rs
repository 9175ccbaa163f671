//! Which file the dynamic linker would take for a plugin's name: LD_LIBRARY_PATH, then `/etc/ld.so.cache`, then the default folders
//! (ld.so(8)). Folders that the file which opens it names itself (DT_RUNPATH) are not known here.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use linkspan_topology::Roots;

/// Largest plugin that is read for its version; with its debug information it has some 30 MB.
const PLUGIN_MAX: u64 = 256 << 20;

/// What stands before the version in a plugin, and the end of it.
const MARK: &[u8] = b"linkspan-plugin-version=";

/// Most folders of LD_LIBRARY_PATH that are looked at.
const FOLDERS_MAX: usize = 64;

/// A plugin that the loader could take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plugin {
    pub(crate) file: String,
    /// Its release; `None` where it does not tell one, as those before 0.1.0 do not.
    pub(crate) version: Option<String>,
}

/// The folders and the cache of one machine.
#[derive(Debug)]
pub(crate) struct Loader<'a> {
    roots: &'a Roots,
    folders: Vec<String>,
    cache: Vec<u8>,
}

impl<'a> Loader<'a> {
    pub(crate) fn read(roots: &'a Roots, path: &str) -> Loader<'a> {
        // Both separators are taken; an empty part would be the current folder, which says nothing of the job's.
        let folders = path.split([':', ';']).filter(|dir| dir.starts_with('/')).take(FOLDERS_MAX);
        let cache = roots.bytes("/etc/ld.so.cache", 16 << 20).unwrap_or_default();
        Loader { roots, folders: folders.map(str::to_owned).collect(), cache }
    }

    /// Plugins of this name in the order in which they are looked for; the first is taken.
    pub(crate) fn find(&self, name: &str) -> Vec<Plugin> {
        self.files(name).into_iter().map(|file| Plugin { version: version(self.roots, &file), file }).collect()
    }

    /// Files of this name in that order. Links to one file count once.
    pub(crate) fn files(&self, name: &str) -> Vec<String> {
        let folders = self.folders.iter().map(|dir| format!("{}/{name}", dir.trim_end_matches('/')));
        let usual = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(|dir| format!("{dir}/{name}"));
        let (mut found, mut seen) = (Vec::new(), Vec::new());
        for file in folders.chain(cached(&self.cache, name)).chain(usual) {
            let Ok(real) = self.roots.at(&file).canonicalize() else { continue };
            if !real.is_file() || seen.contains(&real) {
                continue;
            }
            found.push(file);
            seen.push(real);
        }
        found
    }

    /// The file of this name in the usual folders below another root, with Debian's own.
    pub(crate) fn below(&self, root: &Path, name: &str) -> Option<PathBuf> {
        let triplet = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        let folders = ["usr/local/lib", &*triplet, "usr/lib64", "usr/lib"];
        let files = folders.iter().map(|dir| root.join(dir).join(name));
        files.into_iter().find(|file| self.roots.at(&file.to_string_lossy()).is_file())
    }
}

/// The release that the file names.
pub(crate) fn version(roots: &Roots, file: &str) -> Option<String> {
    let bytes = roots.bytes(file, PLUGIN_MAX)?;
    let at = bytes.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let end = bytes[at..].iter().take(32).position(|b| *b == b';')?;
    let text = std::str::from_utf8(&bytes[at..at + end]).ok()?;
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-+".contains(&b)).then(|| text.to_owned())
}

/// Whether the first of two releases is older: by their numbers, then as Semantic Versioning 2.0.0 has it (11): one before a release
/// (`0.2.0-rc.1`) is older than it. One that tells none is older than any.
pub(crate) fn older(a: Option<&str>, b: Option<&str>) -> bool {
    match (a, b) {
        (None, Some(_)) => true,
        (Some(a), Some(b)) => order(a, b).is_lt(),
        (_, None) => false,
    }
}

fn order(a: &str, b: &str) -> Ordering {
    // What stands behind a plus is the build.
    let parts = |text: &str| -> (Vec<u64>, Option<Vec<String>>) {
        let text = text.split('+').next().unwrap_or_default();
        let (core, before) = text.split_once('-').map_or((text, None), |(core, before)| (core, Some(before)));
        let numbers = core.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
        (numbers, before.map(|before| before.split('.').map(str::to_owned).collect()))
    };
    let ((x, before_x), (y, before_y)) = (parts(a), parts(b));
    x.cmp(&y).then_with(|| match (before_x, before_y) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(x), Some(y)) => {
            let each = x.iter().zip(&y).map(|(x, y)| match (x.parse::<u64>(), y.parse::<u64>()) {
                (Ok(x), Ok(y)) => x.cmp(&y),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => x.cmp(y),
            });
            each.fold(Ordering::Equal, Ordering::then).then(x.len().cmp(&y.len()))
        }
    })
}

/// Paths that `/etc/ld.so.cache` has for a name, in its order.
///
/// The layout of glibc's `sysdeps/generic/dl-cache.h` (struct cache_file_new): magic of 20 bytes, number of entries, then up to
/// byte 48 what is of no matter here; entries of 24 bytes, whose second and third word are the places of name and path.
fn cached(cache: &[u8], name: &str) -> Vec<String> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    let Some(start) = cache.windows(MAGIC.len()).position(|window| window == MAGIC) else { return Vec::new() };
    let cache = &cache[start..];
    let word = |at: usize| Some(u32::from_ne_bytes(cache.get(at..at + 4)?.try_into().ok()?) as usize);
    let text = |at: usize| {
        let rest = cache.get(at..)?;
        let end = rest.iter().take(4096).position(|b| *b == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    };
    let count = word(20).unwrap_or(0).min(cache.len() / 24);
    let entry = |n: usize| {
        let at = 48 + n * 24;
        (text(word(at + 4)?)? == name).then(|| text(word(at + 8)?))?
    };
    (0..count).filter_map(entry).filter(|path| Path::new(path).is_absolute()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
