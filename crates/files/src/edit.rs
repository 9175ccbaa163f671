//! What programs do to a share that is mounted: each call as they make it, without a sync, for which they ask themselves.

use std::io;
use std::os::fd::OwnedFd;

use crate::fs::{Change, Fs, Links, OpenHow, RealFs, Rename};
use crate::name::RelPath;
use crate::ops::{failed, look, parent, rmdir};
use crate::wire::{Answer, Entry, Fault, FaultKind, New, Request};

/// A file, what it is, and the device of the share's root.
pub(crate) fn open(fs: &RealFs, root: &OwnedFd, path: &RelPath, how: OpenHow) -> Result<(OwnedFd, Entry, u64), Fault> {
    let of_root = fs.stat_dir(root).map_err(failed(path))?.dev;
    let (dir, name) = parent(fs, root, path, Links::Refuse)?;
    let (file, stat) = fs.open_as(&dir, &name, how).map_err(failed(path))?;
    Ok((file, Entry::new(name.bytes(), &stat, of_root), of_root))
}

/// Does what a request asks below a root that may be changed.
pub(crate) fn perform(fs: &RealFs, root: &OwnedFd, what: &Request) -> Result<Answer, Fault> {
    match what {
        Request::SyncDir(at) => {
            let synced = fs.open_dir(root, &at.path, Links::Refuse).and_then(|dir| fs.sync_dir(&dir));
            synced.map(|()| Answer::Done).map_err(|error| Fault::unwritten("fsync", &error))
        }
        Request::Make(at, new) => make(fs, root, &at.path, new),
        Request::Link(at, which, to) => link(fs, root, &at.path, *which, to),
        Request::Set(at, which, change) => set(fs, root, &at.path, *which, change),
        Request::Unlink(at, dir) => unlink(fs, root, &at.path, *dir),
        Request::Move(at, to, how) => rename(fs, root, &at.path, to, *how),
        _ => Err(Fault::new(FaultKind::Invalid, "it changes nothing")),
    }
}

fn make(fs: &RealFs, root: &OwnedFd, path: &RelPath, new: &New) -> Result<Answer, Fault> {
    let (dir, name) = parent(fs, root, path, Links::Refuse)?;
    let made = match new {
        New::Symlink(target) => fs.symlink(&dir, &name, target),
        // The umask was the asking program's; that of this process has no say.
        New::Dir(mode) => fs.mkdir(&dir, &name, 0o700).and_then(|()| {
            let change = Change { mode: Some(*mode & 0o777), ..Change::default() };
            fs.change(&dir, Some(&name), None, &change).map(drop)
        }),
    };
    made.map_err(failed(path))?;
    look(fs, root, path).map(Answer::Stat)
}

/// Device and number here of what a peer names by device and number.
fn here(which: Option<(u64, u64)>, of_root: u64) -> Option<(u64, u64)> {
    which.map(|(dev, ino)| (dev.wrapping_add(of_root), ino))
}

fn link(fs: &RealFs, root: &OwnedFd, from: &RelPath, which: Option<(u64, u64)>, to: &RelPath) -> Result<Answer, Fault> {
    let which = here(which, fs.stat_dir(root).map_err(failed(from))?.dev);
    let (old_dir, old) = parent(fs, root, from, Links::Refuse)?;
    let (new_dir, new) = parent(fs, root, to, Links::Refuse)?;
    fs.link((&old_dir, &old), which, (&new_dir, &new)).map_err(failed(to))?;
    look(fs, root, to).map(Answer::Stat)
}

fn set(
    fs: &RealFs,
    root: &OwnedFd,
    path: &RelPath,
    which: Option<(u64, u64)>,
    change: &Change,
) -> Result<Answer, Fault> {
    let of_root = fs.stat_dir(root).map_err(failed(path))?.dev;
    let which = here(which, of_root);
    let stat = match path.is_root() {
        true => fs.change(root, None, which, change),
        false => {
            let (dir, name) = parent(fs, root, path, Links::Refuse)?;
            fs.change(&dir, Some(&name), which, change)
        }
    };
    stat.map(|stat| Answer::Stat(Entry::new(b"", &stat, of_root))).map_err(failed(path))
}

fn unlink(fs: &RealFs, root: &OwnedFd, path: &RelPath, dir: bool) -> Result<Answer, Fault> {
    let (parent, name) = parent(fs, root, path, Links::Refuse)?;
    let gone = if dir { rmdir(fs, &parent, &name) } else { fs.unlink(&parent, &name) };
    gone.map(|()| Answer::Done).map_err(failed(path))
}

/// As rename(2): of two names of one file both stay.
fn rename(fs: &RealFs, root: &OwnedFd, from: &RelPath, to: &RelPath, how: Rename) -> Result<Answer, Fault> {
    let (old_dir, old) = parent(fs, root, from, Links::Refuse)?;
    let (new_dir, new) = parent(fs, root, to, Links::Refuse)?;
    let renamed: io::Result<()> = fs.rename((&old_dir, &old), (&new_dir, &new), how);
    renamed.map_err(failed(to))?;
    look(fs, root, to).map(Answer::Stat)
}
