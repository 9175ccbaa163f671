//! One directory kept like another one, without a database: which two belong together is said by a mark at each root, what is to be
//! deleted or renamed is found by comparing the two trees.

use std::collections::BTreeMap;
use std::io;

use crate::fs::{Fs, Kind, Links, Time, read_full, write_full};
use crate::name::{PRIVATE, RelPath, partial};
use crate::trash::{fixed, make_dirs, open_or_make};
use crate::wire::{Extra, Fault, FaultKind};

pub mod inotify;
pub mod watch;

/// Most bytes of a mark.
const MARK_MAX: usize = 64;

/// New files that are remembered, to find the old names of those that were renamed.
pub const RENAMES_MAX: usize = 10_000;

/// Why two directories are not mirrored.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmarked {
    /// Neither is one, or not both.
    #[error(
        "LS1828 {0} has no mark of a mirror (.lspan/mirror): its disk may not be mounted; the first run, and only it, says --init"
    )]
    Missing(&'static str),
    /// The destination belongs to another source, or to this one before its disk was replaced.
    #[error(
        "LS1829 the destination is the mirror of another source than this one: choose another, or remove .lspan/mirror from it if what is in it may go"
    )]
    Other,
}

/// Whether these marks belong together. With `init` a missing one is made: the answer is the mark, and whether each side needs it.
///
/// # Errors
/// [`Unmarked`].
pub fn together(src: &str, dst: &str, init: bool, fresh: &str) -> Result<(String, bool, bool), Unmarked> {
    match (src, dst) {
        ("", "") if init => Ok((fresh.to_owned(), true, true)),
        (src, "") if init => Ok((src.to_owned(), false, true)),
        // Also with --init: the source that it had is not there.
        ("", _) => Err(Unmarked::Missing("the source")),
        (_, "") => Err(Unmarked::Missing("the destination")),
        (src, dst) if src == dst => Ok((src.to_owned(), false, false)),
        _ => Err(Unmarked::Other),
    }
}

/// The mark of a directory, empty where it has none. A new one is on the disk when this returns.
pub(crate) fn mark<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath, new: Option<&str>) -> Result<Vec<u8>, Fault> {
    let failed = |error: io::Error| Fault::io("the mark of a mirror (.lspan/mirror)", &error);
    let Some(new) = new else { return read(fs, root, path).map_err(failed) };
    if new.len() > MARK_MAX || !new.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Fault::new(FaultKind::Invalid, format!("a mark has at most {MARK_MAX} printable characters")));
    }
    write(fs, root, path, new).map_err(failed)?;
    Ok(new.as_bytes().to_vec())
}

fn read<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath) -> io::Result<Vec<u8>> {
    let found = fs
        .open_dir(root, path, Links::Refuse)
        .and_then(|dir| fs.open_child(&dir, &fixed(PRIVATE)?))
        .and_then(|dir| fs.open_read(&dir, &fixed(b"mirror")?, Links::Refuse));
    let (file, _) = match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut bytes = vec![0; MARK_MAX];
    let len = read_full(fs, &file, 0, &mut bytes)?;
    Ok(bytes[..len].trim_ascii().to_vec())
}

fn write<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath, mark: &str) -> io::Result<()> {
    let dir = make_dirs(fs, root, path)?;
    let ours = open_or_make(fs, &dir, &fixed(PRIVATE)?, true)?;
    let mut eight = [0; 8];
    getrandom::fill(&mut eight).map_err(|error| io::Error::other(error.to_string()))?;
    let part = partial(u64::from_le_bytes(eight));
    let file = fs.create(&ours, &part)?;
    let named = write_full(fs, &file, 0, mark.as_bytes())
        .and_then(|()| fs.sync(&file))
        .and_then(|()| crate::trash::move_new(fs, (&ours, &part), (&ours, &fixed(b"mirror")?)));
    if named.is_err() {
        let _ = fs.unlink(&ours, &part);
    }
    named.and_then(|()| fs.sync_dir(&ours))
}

/// What a dry run has shown of files.
#[derive(Debug, Default)]
pub struct Changes {
    /// New ones at the source, by size and time; `None` for two that are alike.
    new: BTreeMap<(u64, Time), Option<RelPath>>,
    /// Those that only the destination has.
    gone: BTreeMap<(u64, Time), Option<RelPath>>,
    count: usize,
}

impl Changes {
    /// The source has a file that the destination has not.
    pub fn new_file(&mut self, path: RelPath, size: u64, mtime: Time) {
        Changes::note(&mut self.new, &mut self.count, path, (size, mtime));
    }

    /// The destination has something that the source has not.
    pub fn extra(&mut self, path: RelPath, extra: &Extra) {
        if extra.kind == Kind::File {
            Changes::note(&mut self.gone, &mut self.count, path, (extra.size, extra.mtime));
        }
    }

    fn note(of: &mut BTreeMap<(u64, Time), Option<RelPath>>, count: &mut usize, path: RelPath, key: (u64, Time)) {
        if *count < RENAMES_MAX && key.0 > 0 {
            *count += 1;
            of.entry(key).and_modify(|one| *one = None).or_insert(Some(path));
        }
    }

    /// Pairs of an old and a new name that may be one file: the only ones of their size and time on both sides.
    pub fn pairs(&self) -> Vec<(RelPath, RelPath)> {
        let pair = |(key, old): (&(u64, Time), &Option<RelPath>)| {
            let new = self.new.get(key)?.as_ref()?;
            Some((old.clone()?, new.clone()))
        };
        self.gone.iter().filter_map(pair).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_that_do_not_belong_together_stop_and_only_a_first_run_makes_them() {
        let missing = |side| Err(Unmarked::Missing(side));
        assert_eq!(together("", "", true, "f"), Ok(("f".into(), true, true)));
        assert_eq!(together("a", "", true, "f"), Ok(("a".into(), false, true)));
        assert_eq!(together("a", "a", false, "f"), Ok(("a".into(), false, false)));
        assert_eq!(together("", "", false, "f"), missing("the source"));
        assert_eq!(together("", "a", true, "f"), missing("the source"), "an unmounted source deletes nothing");
        assert_eq!(together("a", "", false, "f"), missing("the destination"));
        assert_eq!(together("a", "b", true, "f"), Err(Unmarked::Other));
    }

    #[test]
    fn only_files_that_are_alone_with_their_size_and_time_may_be_renamed_ones() {
        let path = |text: &str| RelPath::new(text.as_bytes()).unwrap();
        let at = |sec| Time { sec, nsec: 1 };
        let extra = |size, sec| Extra { kind: Kind::File, size, mtime: at(sec) };
        let mut changes = Changes::default();
        changes.new_file(path("new"), 5, at(1));
        changes.new_file(path("twin"), 6, at(1));
        changes.new_file(path("other twin"), 6, at(1));
        changes.new_file(path("empty"), 0, at(1));
        changes.extra(path("old"), &extra(5, 1));
        changes.extra(path("old twin"), &extra(6, 1));
        changes.extra(path("old empty"), &extra(0, 1));
        changes.extra(path("later"), &extra(5, 2));
        assert_eq!(changes.pairs(), [(path("old"), path("new"))]);
    }
}
