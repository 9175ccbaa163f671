//! How a file that is complete gets its name, and what becomes of the one that had it.

use std::io;

use super::Place;
use super::target::Target;
use crate::fs::{Fs, Ident, Rename, Stat};
use crate::name::{Name, PRIVATE};
use crate::wire::{Fault, FaultKind};

/// The trash below the root of a share: `.lspan/trash`.
pub(crate) struct Trash<F: Fs> {
    ours: F::Dir,
    dir: F::Dir,
}

fn fixed(bytes: &[u8]) -> io::Result<Name> {
    Name::any(bytes).map_err(|_| io::ErrorKind::InvalidFilename.into())
}

impl<F: Fs> Trash<F> {
    pub(crate) fn open(fs: &F, root: &F::Dir) -> io::Result<Trash<F>> {
        let (private, trash) = (fixed(PRIVATE)?, fixed(b"trash")?);
        let ours = open_or_make(fs, root, &private)?;
        let dir = open_or_make(fs, &ours, &trash)?;
        Ok(Trash { ours, dir })
    }

    /// A name in it that is free.
    fn free_name(fs: &F, of: &Name) -> io::Result<Name> {
        let mut four = [0; 4];
        getrandom::fill(&mut four).map_err(|error| io::Error::other(error.to_string()))?;
        let now = fs.now();
        let mut bytes = format!("{}.{:09}-{:08x}-", now.sec, now.nsec, u32::from_le_bytes(four)).into_bytes();
        let free = crate::name::NAME_MAX - bytes.len();
        bytes.extend_from_slice(&of.bytes()[..of.bytes().len().min(free)]);
        fixed(&bytes)
    }

    /// Removes the directories where nothing is in them.
    fn tidy(&self, fs: &F, root: &F::Dir) {
        if let (Ok(private), Ok(trash)) = (fixed(PRIVATE), fixed(b"trash"))
            && fs.rmdir(&self.ours, &trash).is_ok()
        {
            let _ = fs.rmdir(root, &private);
        }
    }
}

fn open_or_make<F: Fs>(fs: &F, at: &F::Dir, name: &Name) -> io::Result<F::Dir> {
    match fs.open_child(at, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match fs.mkdir(at, name, 0o700) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            fs.open_child(at, name)
        }
        other => other,
    }
}

/// Mode, attributes and times; then its bytes onto the disk, its name, and the name onto the disk.
pub(super) fn commit<F: Fs>(place: &Place<F>, target: &Target<F>) -> Result<(), Fault> {
    let fs = &*place.fs;
    dress(fs, &target.file, target.info.mode, &target.info.xattrs, target.info.mtime())?;
    if !place.no_fsync
        && let Err(error) = fs.sync(&target.file)
    {
        // The kernel may have dropped what it could not write, and would say so only once.
        target.spoil(place);
        return Err(Fault::unwritten("fsync", &error));
    }
    give_name(place, &target.dir, &target.part, &target.name, target.old.as_ref())?;
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

/// Gives what is called `part` the name `name`. `old` is what had the name when it was looked at; anything else that is found there
/// is kept: where nothing was, nothing is replaced, and what comes out in an exchange stays in the trash if it is another.
pub(super) fn give_name<F: Fs>(
    place: &Place<F>,
    dir: &F::Dir,
    part: &Name,
    name: &Name,
    old: Option<&Stat>,
) -> Result<(), Fault> {
    let fs = &*place.fs;
    let failed = |error: io::Error| Fault::io("its name", &error);
    let Some(old) = old else { return name_new(fs, dir, part, name) };
    match fs.stat(dir, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return name_new(fs, dir, part, name),
        found => {
            if !is_same(&found.map_err(failed)?.ident(), &old.ident(), true) {
                return Err(changed());
            }
        }
    }
    let trash = Trash::<F>::open(fs, &place.root).map_err(|error| Fault::io("the trash (.lspan/trash)", &error))?;
    let kept = Trash::<F>::free_name(fs, name).map_err(failed)?;
    // By way of the trash: whatever comes out of the exchange is in it already, should all end here.
    fs.rename((dir, part), (&trash.dir, &kept), Rename::NoReplace).map_err(failed)?;
    let exchanged = fs.rename((&trash.dir, &kept), (dir, name), Rename::Exchange);
    let result = match exchanged {
        Ok(()) => match fs.stat(&trash.dir, &kept) {
            Ok(out) if is_same(&out.ident(), &old.ident(), false) => fs.unlink(&trash.dir, &kept).map_err(failed),
            // Another one: it stays, and its new name goes onto the disk.
            Ok(_) => fs.sync_dir(&trash.dir).map_err(failed),
            Err(error) => Err(failed(error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => name_from(fs, &trash.dir, &kept, dir, name),
        Err(error) if cannot(&error) => {
            // No exchange here: the old file is looked at once more and then replaced.
            match fs.stat(dir, name) {
                Ok(found) if is_same(&found.ident(), &old.ident(), true) => {
                    fs.rename((&trash.dir, &kept), (dir, name), Rename::Replace).map_err(failed)
                }
                _ => Err(changed()),
            }
        }
        Err(error) => Err(failed(error)),
    };
    if result.is_err() {
        // Back, so that it can be taken up again.
        let _ = fs.rename((&trash.dir, &kept), (dir, part), Rename::NoReplace);
    }
    trash.tidy(fs, &place.root);
    result
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

fn name_new<F: Fs>(fs: &F, dir: &F::Dir, part: &Name, name: &Name) -> Result<(), Fault> {
    name_from(fs, dir, part, dir, name)
}

fn name_from<F: Fs>(fs: &F, from: &F::Dir, part: &Name, dir: &F::Dir, name: &Name) -> Result<(), Fault> {
    let result = match fs.rename((from, part), (dir, name), Rename::NoReplace) {
        // No such flag here: look, then rename.
        Err(error) if cannot(&error) => match fs.stat(dir, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs.rename((from, part), (dir, name), Rename::Replace)
            }
            Err(error) => Err(error),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        },
        other => other,
    };
    result.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Fault::new(FaultKind::Exists, "something has got this name in the meantime and was left as it is")
        }
        _ => Fault::io("its name", &error),
    })
}

/// renameat2(2): EINVAL where the file system does not know the flag.
fn cannot(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}
