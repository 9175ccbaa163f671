//! How a file that is complete gets its name, and what becomes of the one that had it.

use std::io;

use rustix::io::Errno;

use super::DestDir;
use super::target::Target;
use crate::fs::{Fs, Ident, Rename, Stat};
use crate::name::{Name, RelPath};
use crate::trash::{cannot, move_new};
use crate::wire::{Fault, FaultKind};

/// Mode, attributes and times; then its bytes onto the disk, its name, and the name onto the disk.
pub(super) fn commit<F: Fs>(place: &DestDir<F>, target: &Target<F>) -> Result<(), Fault> {
    let fs = &*place.fs;
    dress(fs, &target.file, target.info.mode, &target.info.xattrs, target.info.mtime())?;
    if !place.no_fsync
        && let Err(error) = fs.sync(&target.file)
    {
        // The kernel may have dropped what it could not write, and would say so only once.
        target.spoil(place);
        return Err(Fault::unwritten("fsync", &error));
    }
    give_name(place, &target.dir, &target.part, &target.path, target.old.as_ref())?;
    if !place.no_fsync {
        fs.sync_dir(&target.dir).map_err(|error| Fault::unnamed("fsync", &error))?;
    }
    target.forget_journal(place);
    Ok(())
}

/// What a file has beside its bytes.
pub(super) fn dress<F: Fs>(
    fs: &F,
    file: &F::File,
    mode: u32,
    xattrs: &[(Vec<u8>, Vec<u8>)],
    mtime: crate::fs::Time,
) -> Result<(), Fault> {
    for (name, value) in xattrs {
        fs.set_xattr(file, name, value).map_err(|error| Fault::io("an extended attribute", &error))?;
    }
    fs.set_mode(file, mode & 0o777).map_err(|error| Fault::io("its permissions", &error))?;
    fs.set_times(file, mtime).map_err(|error| Fault::io("its time", &error))
}

/// Gives what is called `part` the name at the end of `path`. `old` is what had the name when it was looked at; anything else that is
/// found there is kept: where nothing was, nothing is replaced, and what comes out in an exchange stays in the trash if it is another,
/// or if everything that is replaced is to be kept.
pub(super) fn give_name<F: Fs>(
    place: &DestDir<F>,
    dir: &F::Dir,
    part: &Name,
    path: &RelPath,
    old: Option<&Stat>,
) -> Result<(), Fault> {
    let fs = &*place.fs;
    let failed = |error: io::Error| Fault::io("its name", &error);
    let whole = place.base.join_path(path).map_err(|why| Fault::new(FaultKind::Limit, why.to_string()))?;
    let (_, name) = &whole.split().ok_or_else(|| Fault::new(FaultKind::Invalid, "it has no name"))?;
    let Some(old) = old else { return name_new(fs, (dir, part), (dir, name)) };
    match fs.stat(dir, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return name_new(fs, (dir, part), (dir, name)),
        found => {
            if !is_same(&found.map_err(failed)?.ident(), &old.ident(), true) {
                return Err(changed());
            }
        }
    }
    let trashed = |error: io::Error| Fault::io("the trash (.lspan/trash)", &error);
    let by_way = |to: &F::Dir, free: &Name| move_new(fs, (dir, part), (to, free));
    // By way of the trash: whatever comes out of the exchange is in it already, should all end here.
    let (trash, kept) = place.trash.take(fs, &place.root, &whole, by_way).map_err(trashed)?;
    let result = match fs.rename((&trash, &kept), (dir, name), Rename::Exchange) {
        // What lies in the trash is the old file from here on: whatever fails, it is not taken for the partial one.
        Ok(()) => {
            return match fs.stat(&trash, &kept) {
                Ok(out) if is_same(&out.ident(), &old.ident(), false) && place.delete.is_none() => {
                    fs.unlink(&trash, &kept).map_err(failed)
                }
                // It stays, and its place in the trash goes onto the disk.
                Ok(_) if place.delete.is_some() && place.no_fsync => Ok(()),
                Ok(_) if place.delete.is_some() => fs.sync_dir(&trash).map_err(failed),
                Ok(_) => fs.open_sync(&place.root).and_then(|root| fs.sync_all(&root)).map_err(failed),
                Err(error) => Err(failed(error)),
            };
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => name_new(fs, (&trash, &kept), (dir, name)),
        Err(error) if cannot(&error) => match move_new(fs, (&trash, &kept), (dir, part)) {
            Ok(()) => return replace(place, dir, part, name, &whole, old),
            Err(error) => Err(failed(error)),
        },
        Err(error) => Err(failed(error)),
    };
    if result.is_err() {
        // Back, so that it can be taken up again.
        let _ = move_new(fs, (&trash, &kept), (dir, part));
    }
    result
}

/// Where names cannot be exchanged the old file is looked at once more and then replaced.
fn replace<F: Fs>(
    place: &DestDir<F>,
    dir: &F::Dir,
    part: &Name,
    name: &Name,
    whole: &RelPath,
    old: &Stat,
) -> Result<(), Fault> {
    let fs = &*place.fs;
    let trashed = |error: io::Error| Fault::io("the trash (.lspan/trash)", &error);
    if !matches!(fs.stat(dir, name), Ok(found) if is_same(&found.ident(), &old.ident(), true)) {
        return Err(changed());
    }
    if place.delete.is_none() {
        let renamed = fs.rename((dir, part), (dir, name), Rename::Replace);
        return renamed.map_err(|error| Fault::io("its name", &error));
    }
    let keep = |to: &F::Dir, free: &Name| move_new(fs, (dir, name), (to, free));
    let (trash, kept) = place.trash.take(fs, &place.root, whole, keep).map_err(trashed)?;
    // In the trash before its name is another file's, also where the power is lost.
    let synced = if place.no_fsync { Ok(()) } else { fs.sync_dir(&trash).map_err(trashed) };
    let named = synced.and_then(|()| name_new(fs, (dir, part), (dir, name)));
    if named.is_err() {
        let _ = move_new(fs, (&trash, &kept), (dir, name));
    }
    named
}

fn changed() -> Fault {
    let why = "the file of this name has changed in the meantime and was left as it is; run it again to replace it";
    Fault::new(FaultKind::Changed, why)
}

/// Renaming changes the ctime of a file on most file systems.
fn is_same(found: &Ident, old: &Ident, ctime: bool) -> bool {
    let same = (found.dev, found.ino, found.size, found.mtime) == (old.dev, old.ino, old.size, old.mtime);
    same && (!ctime || found.ctime == old.ctime)
}

fn name_new<F: Fs>(fs: &F, from: (&F::Dir, &Name), to: (&F::Dir, &Name)) -> Result<(), Fault> {
    move_new(fs, from, to).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let why = "something has got this name, or one that the file system takes for the same, in the meantime and was left as it is";
            Fault::new(FaultKind::Exists, why)
        }
        _ => refused("its name", &error),
    })
}

/// A name or a link that was not made; FAT and exFAT have no links, and not every name.
pub(super) fn refused(what: &str, error: &io::Error) -> Fault {
    let lacking = [Errno::INVAL, Errno::ILSEQ, Errno::OVERFLOW, Errno::PERM, Errno::OPNOTSUPP];
    if lacking.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        return Fault::io(&format!("{what}, which the file system there may not take"), error);
    }
    Fault::io(what, error)
}

#[cfg(all(test, feature = "sim"))]
#[allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::name::partial;
    use crate::sim::{Bug, Mishap, SimFs};
    use crate::wire::Delete;

    /// Replaces these files on a file system that exchanges no names, where of each a call may fail; how many of them, and what is there.
    fn replaced(names: &[&str], fails: Option<u64>) -> (usize, SimFs) {
        let fs = SimFs::new(1, Some(Bug::NoSwap), false);
        let root = Arc::new(fs.root());
        let place = DestDir::new(Arc::new(fs.clone()), root.clone(), RelPath::default(), None, u64::MAX);
        let place = place.with(false, false, Some(Delete { most: None, keep: Vec::new() }));
        let mut done = 0;
        for (n, name) in (0..).zip(names) {
            let (path, part) = (RelPath::new(name.as_bytes()).unwrap(), partial(n));
            fs.users(|users| {
                users.write(name, b"old", false);
                users.write(&crate::name::escape(part.bytes()), b"new", false);
            });
            let old = fs.stat(&root, &Name::new(name.as_bytes()).unwrap()).unwrap();
            fs.plan(fails.map(|at| (at, Mishap::Fail(io::ErrorKind::PermissionDenied))), false);
            done += usize::from(give_name(&place, &root, &part, &path, Some(&old)).is_ok());
        }
        (done, fs)
    }

    #[test]
    fn what_is_replaced_without_an_exchange_lies_in_one_run_of_the_trash() {
        let (done, fs) = replaced(&["a", "b", "c"], None);
        let trash = crate::trash::open(&fs, &fs.root()).unwrap();
        assert_eq!((done, crate::trash::runs(&fs, &trash).unwrap().len()), (3, 1));
        fs.users(|users| {
            let files = users.files();
            assert_eq!((files.len(), &files["a"][..]), (6, &b"new"[..]), "{files:?}");
        });
    }

    #[test]
    fn a_name_that_is_replaced_without_an_exchange_is_there_whichever_call_fails() {
        let mut failed = 0;
        for call in 1..40 {
            let (done, fs) = replaced(&["a"], Some(call));
            failed += 1 - done;
            fs.users(|users| {
                let files = users.files();
                let want: &[u8] = if done == 1 { b"new" } else { b"old" };
                assert_eq!(files.get("a").map(Vec::as_slice), Some(want), "call {call}: {files:?}");
                assert!(files.values().any(|bytes| bytes == b"new"), "call {call}: {files:?}");
            });
        }
        assert!(failed > 10, "{failed} failed");
    }
}
