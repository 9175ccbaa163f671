//! What is done to a share beside transfers, by descriptor.

use std::io;

use crate::fs::{Fs, Kind, Links, Stat, read_full};
use crate::hash::Value;
use crate::name::{DEPTH_MAX, Name, RelPath, TRASH, escape, is_partial, is_reserved};
use crate::trash;
use crate::wire::{Answer, Entry, Fault, FaultKind, Request, Sum};

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

pub(crate) fn failed(path: &RelPath) -> impl Fn(io::Error) -> Fault + '_ {
    move |error| Fault::io(&shown(path), &error)
}

fn shown(path: &RelPath) -> String {
    if path.is_root() { "the root of the share".into() } else { escape(path.bytes()) }
}

/// The directory of an entry, and its name.
pub(crate) fn parent<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath, links: Links) -> Result<(F::Dir, Name), Fault> {
    let root_itself = || Fault::new(FaultKind::Invalid, "the root of a share is no entry of it");
    let (dir, name) = path.split().ok_or_else(root_itself)?;
    Ok((fs.open_dir(root, &dir, links).map_err(failed(path))?, name))
}

/// Does what a request asks below a root; the way of its place to the root is the caller's.
pub(crate) fn perform<F: Fs>(fs: &F, root: &F::Dir, what: &Request) -> Result<Answer, Fault> {
    Ok(match what {
        Request::Stat(at) => Answer::Stat(stat(fs, root, &at.path)?),
        Request::Look(at) => Answer::Stat(look(fs, root, &at.path)?),
        Request::Follow(at) => Answer::Bytes(follow(fs, root, &at.path)?),
        Request::Usage(at) => Answer::Usage(usage(fs, root, &at.path)?),
        Request::Hash(at) => {
            let (size, hash) = hash(fs, root, &at.path)?;
            Answer::Hash(size, hash)
        }
        Request::Mark(at, mark) => Answer::Bytes(crate::mirror::mark(fs, root, &at.path, mark.as_deref())?),
        Request::Mkdir(at) => {
            trash::make_dirs(fs, root, &at.path).map_err(failed(&at.path))?;
            Answer::Done
        }
        Request::Remove(at, below) => {
            let below = below.then_some(if at.share.ends_with(TRASH) { Below::Trash } else { Below::Plain });
            remove(fs, root, &at.path, below)?;
            Answer::Done
        }
        Request::Rename(from, to) => {
            rename(fs, root, &from.path, to)?;
            Answer::Done
        }
        Request::Restore(at, run) => {
            trash::restore(fs, root, &at.path, run.as_deref()).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Fault::new(FaultKind::NotFound, "it is not in the trash"),
                _ => failed(&at.path)(error),
            })?;
            Answer::Done
        }
        _ => return Err(Fault::new(FaultKind::Invalid, "it is about no place")),
    })
}

pub(crate) fn stat<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath) -> Result<Entry, Fault> {
    let of_root = fs.stat_dir(root).map_err(failed(path))?;
    if path.is_root() {
        return Ok(Entry::new(b"", &of_root, of_root.dev));
    }
    let (dir, name) = parent(fs, root, path, Links::Follow)?;
    let stat = fs.stat(&dir, &name).map_err(failed(path))?;
    if stat.kind == Kind::Symlink
        && let Ok(behind) = fs.open_dir(root, path, Links::Follow)
    {
        return Ok(Entry::new(name.bytes(), &fs.stat_dir(&behind).map_err(failed(path))?, of_root.dev));
    }
    Ok(Entry::new(name.bytes(), &stat, of_root.dev))
}

/// What is known of an entry itself, never of what a link leads to.
pub(crate) fn look<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath) -> Result<Entry, Fault> {
    let of_root = fs.stat_dir(root).map_err(failed(path))?;
    if path.is_root() {
        return Ok(Entry::new(b"", &of_root, of_root.dev));
    }
    let (dir, name) = parent(fs, root, path, Links::Refuse)?;
    Ok(Entry::new(name.bytes(), &fs.stat(&dir, &name).map_err(failed(path))?, of_root.dev))
}

/// The target of a link.
pub(crate) fn follow<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath) -> Result<Vec<u8>, Fault> {
    let (dir, name) = parent(fs, root, path, Links::Refuse)?;
    fs.read_link(&dir, &name).map_err(failed(path))
}

/// A listing under way.
pub(crate) struct Cursor<F: Fs> {
    dir: F::Dir,
    list: F::List,
    /// Device of the share's root.
    of_root: u64,
}

pub(crate) fn list<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath) -> Result<Cursor<F>, Fault> {
    let dir = fs.open_dir(root, path, Links::Follow).map_err(failed(path))?;
    let list = fs.list(&dir).map_err(failed(path))?;
    let of_root = fs.stat_dir(root).map_err(failed(path))?.dev;
    Ok(Cursor { dir, list, of_root })
}

impl<F: Fs> Cursor<F> {
    /// At most so many entries, and whether there may be more.
    pub(crate) fn next(&mut self, fs: &F, most: usize) -> Result<(Vec<Entry>, bool), Fault> {
        let mut entries = Vec::new();
        while entries.len() < most {
            let Some(entry) = self.list.next() else { return Ok((entries, false)) };
            let entry = entry.map_err(|error| Fault::io("the directory", &error))?;
            let Ok(name) = Name::any(&entry.name) else { continue };
            if is_reserved(name.bytes()) {
                continue;
            }
            match fs.stat(&self.dir, &name) {
                Ok(stat) => entries.push(Entry::new(name.bytes(), &stat, self.of_root)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Who copies the directory takes what is not listed for deleted; what is listed fails when it is looked at.
                Err(_) => entries.push(Entry { name: name.bytes().to_vec(), ..Entry::default() }),
            }
        }
        Ok((entries, true))
    }
}

pub(crate) fn remove<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath, below: Option<Below>) -> Result<(), Fault> {
    let (dir, name) = parent(fs, root, path, Links::Refuse)?;
    let stat = fs.stat(&dir, &name).map_err(failed(path))?;
    match (stat.kind, below) {
        (Kind::Dir, Some(below)) => remove_dir(fs, &dir, &name, below, 0).map_err(failed(path))?,
        (Kind::Dir, None) => rmdir(fs, &dir, &name).map_err(failed(path))?,
        _ => fs.unlink(&dir, &name).map_err(failed(path))?,
    }
    fs.sync_dir(&dir).map_err(failed(path))
}

/// A directory in which there is nothing to be seen. What transfers that nobody carries on at the moment have left in it goes, too.
pub(crate) fn rmdir<F: Fs>(fs: &F, at: &F::Dir, name: &Name) -> io::Result<()> {
    let error = match fs.rmdir(at, name) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => error,
        other => return other,
    };
    let (dir, mut partial) = (fs.open_child(at, name)?, Vec::new());
    for entry in fs.list(&dir)? {
        let part = Name::any(&entry?.name).ok().filter(|name| is_partial(name.bytes()));
        let Some(part) = part else { return Err(error) };
        // A link cannot be locked, and has this name for a moment only.
        if fs.stat(&dir, &part)?.kind != Kind::Symlink {
            // It may have the permissions of the file that it was to be. What NFS locks has to be open for writing.
            let (file, _) = fs.open_write(&dir, &part).or_else(|_| fs.open_read(&dir, &part, Links::Refuse))?;
            if !fs.try_lock(&file)? {
                return Err(error);
            }
        }
        partial.push(part);
    }
    partial.iter().try_for_each(|part| fs.unlink(&dir, part))?;
    fs.rmdir(at, name)
}

/// Where a directory is removed with what is in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    /// Its permissions hold.
    Plain,
    /// It was deleted before: what its owner may not do in it is allowed first.
    Trash,
}

/// Never through a link, and never out of the file system: the directory is opened by its one name. What cannot be removed keeps nothing else;
/// the first such error is told.
pub(crate) fn remove_dir<F: Fs>(fs: &F, at: &F::Dir, name: &Name, below: Below, depth: usize) -> io::Result<()> {
    if depth >= DEPTH_MAX {
        return Err(io::Error::other(format!("directories lie in it more than {DEPTH_MAX} deep")));
    }
    let dir = fs.open_child(at, name)?;
    if below == Below::Trash {
        let mode = fs.stat_dir(&dir)?.mode;
        if mode & 0o700 != 0o700 {
            // Of somebody else's, what follows says that it may not.
            let _ = fs.set_dir_mode(&dir, mode | 0o700);
        }
    }
    // Names are removed while they are listed: what the listing misses then is found by the next one.
    for _ in 0..3 {
        let mut first = None;
        for entry in fs.list(&dir)? {
            let Ok(entry) = Name::any(&entry?.name) else { continue };
            let gone = match fs.stat(&dir, &entry) {
                Ok(Stat { kind: Kind::Dir, .. }) => remove_dir(fs, &dir, &entry, below, depth + 1),
                Ok(_) => fs.unlink(&dir, &entry),
                Err(error) => Err(error),
            };
            if let Err(error) = gone
                && error.kind() != io::ErrorKind::NotFound
            {
                first.get_or_insert(error);
            }
        }
        match (fs.rmdir(at, name), first) {
            (Err(_), Some(first)) => return Err(first),
            (Err(error), None) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            (other, _) => return other,
        }
    }
    fs.rmdir(at, name)
}

pub(crate) fn rename<F: Fs>(fs: &F, root: &F::Dir, from: &RelPath, to: &RelPath) -> Result<(), Fault> {
    let (old_dir, old) = parent(fs, root, from, Links::Refuse)?;
    let (new_dir, new) = parent(fs, root, to, Links::Refuse)?;
    // Whichever of both is missing is named.
    fs.stat(&old_dir, &old).map_err(failed(from))?;
    trash::move_new(fs, (&old_dir, &old), (&new_dir, &new)).map_err(failed(to))?;
    // The new name first: between the two syncs there are rather two names than none.
    fs.sync_dir(&new_dir).map_err(failed(to))?;
    fs.sync_dir(&old_dir).map_err(failed(from))
}

pub(crate) fn usage<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath) -> Result<Sum, Fault> {
    let mut sum = Sum::default();
    match fs.open_dir(root, path, Links::Refuse) {
        Ok(dir) => {
            sum.dirs = 1;
            add_below(fs, &dir, &mut sum, 0);
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let (dir, name) = parent(fs, root, path, Links::Refuse)?;
            add(fs, &dir, &name, &mut sum, 0);
        }
        Err(error) => return Err(failed(path)(error)),
    }
    Ok(sum)
}

/// An entry itself and all below it.
pub(crate) fn usage_below<F: Fs>(fs: &F, at: &F::Dir, name: &Name) -> Sum {
    let mut sum = Sum::default();
    add(fs, at, name, &mut sum, 0);
    sum
}

fn add<F: Fs>(fs: &F, at: &F::Dir, name: &Name, sum: &mut Sum, depth: usize) {
    let Ok(stat) = fs.stat(at, name) else {
        sum.unread += 1;
        return;
    };
    sum.disk = sum.disk.saturating_add(stat.disk);
    match stat.kind {
        Kind::File => {
            sum.files += 1;
            sum.bytes = sum.bytes.saturating_add(stat.size);
        }
        Kind::Dir => {
            sum.dirs += 1;
            match fs.open_child(at, name) {
                Ok(dir) if depth < DEPTH_MAX => add_below(fs, &dir, sum, depth + 1),
                _ => sum.unread += 1,
            }
        }
        _ => sum.others += 1,
    }
}

fn add_below<F: Fs>(fs: &F, dir: &F::Dir, sum: &mut Sum, depth: usize) {
    let Ok(list) = fs.list(dir) else {
        sum.unread += 1;
        return;
    };
    for entry in list {
        match entry.ok().and_then(|entry| Name::any(&entry.name).ok()) {
            Some(name) => add(fs, dir, &name, sum, depth),
            None => sum.unread += 1,
        }
    }
}

/// Size and hash of a file as it is on the disk: what the page cache has of it is written and thrown away before.
pub(crate) fn hash<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath) -> Result<(u64, Value), Fault> {
    let (dir, name) = parent(fs, root, path, Links::Follow)?;
    let (file, stat) = fs.open_read(&dir, &name, Links::Follow).map_err(failed(path))?;
    fs.sync(&file).map_err(failed(path))?;
    let (mut hasher, mut at, mut piece) = (blake3::Hasher::new(), 0, vec![0; PIECE]);
    loop {
        fs.forget(&file, at, PIECE as u64);
        let have = read_full(fs, &file, at, &mut piece).map_err(failed(path))?;
        hasher.update(&piece[..have]);
        at += have as u64;
        if have < PIECE {
            break;
        }
    }
    if fs.stat_file(&file).map_err(failed(path))?.ident() != stat.ident() {
        return Err(Fault::new(FaultKind::Changed, format!("{}: it changed while it was read", shown(path))));
    }
    Ok((at, *hasher.finalize().as_bytes()))
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::sim::{Mishap, SimFs};

    /// Listings of `a` and `b` of which one call each fails with this.
    fn listed(kind: io::ErrorKind) -> Vec<Vec<Entry>> {
        let listed = |call| {
            let fs = SimFs::new(1, None, false);
            fs.users(|users| ["a", "b"].iter().for_each(|name| users.write(name, b"x", false)));
            fs.plan(Some((call, Mishap::Fail(kind))), false);
            let mut cursor = list(&fs, &fs.root(), &RelPath::default()).ok()?;
            Some(cursor.next(&fs, 10).ok()?.0)
        };
        (1..10).filter_map(listed).collect()
    }

    #[test]
    fn an_entry_that_cannot_be_looked_at_is_listed_and_one_that_has_gone_is_not() {
        let failed = listed(io::ErrorKind::PermissionDenied);
        assert!(failed.iter().all(|entries| entries.iter().map(|entry| &*entry.name).eq([b"a", b"b"])), "{failed:?}");
        assert_eq!(failed.iter().flatten().filter(|entry| entry.kind == Kind::Special).count(), 2);
        let gone = listed(io::ErrorKind::NotFound);
        assert_eq!(gone.iter().filter(|entries| entries.len() == 1).count(), 2, "{gone:?}");
    }
}
