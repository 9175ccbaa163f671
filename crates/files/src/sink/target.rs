//! The file that a large file is received into: its partial file, its journal and what was there before.

use std::io;
use std::sync::Arc;

use super::DestDir;
use crate::fs::{Fs, Kind, Links, Stat, read_full};
use crate::hash::{Value, value};
use crate::journal::{Journal, Tag, Whereabouts};
use crate::name::{Name, RelPath, partial};
use crate::wire::{Fault, FaultKind, FileInfo, Known};

/// Where one large file goes.
pub struct Target<F: Fs> {
    pub(super) path: RelPath,
    pub(super) dir: Arc<F::Dir>,
    pub(super) part: Name,
    pub(super) file: F::File,
    pub(super) journal: Option<Journal<F>>,
    /// The partial file was there before: bytes in it may be of anything.
    pub(super) resumed: bool,
    /// What has the name, and was looked at before the transfer.
    pub(super) old: Option<Stat>,
    pub(super) old_file: Option<F::File>,
    pub(super) info: FileInfo,
}

impl<F: Fs> Target<F> {
    pub(super) fn open(
        place: &DestDir<F>,
        path: &RelPath,
        dir: Arc<F::Dir>,
        name: Name,
        info: FileInfo,
        old: Option<Stat>,
    ) -> Result<Target<F>, Fault> {
        let fs = &*place.fs;
        let failed = |error: io::Error| Fault::io("its partial file", &error);
        place.note_underway();
        let id = part_id(&name);
        let mut part = partial(id);
        let root = (fs.number(&place.root).map_err(failed)?, fs.stat_dir(&place.root).map_err(failed)?.ino);
        let number = fs.number(&dir).map_err(failed)?;
        let parent = path.split().map(|(parent, _)| parent).unwrap_or_default();
        let below = place.base.join_path(&parent).ok();
        let whereabouts = |file: &F::File, stat: &Stat| {
            let (part, born) = ((number, stat.ino), fs.born(file).map_err(failed)?);
            Ok(below.clone().map(|dir| Whereabouts { root, dir, id, part, born }))
        };
        let opened = match fs.open_write(&dir, &part) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                unlock(fs, &dir, &part)?;
                fs.open_write(&dir, &part)
            }
            opened => opened,
        };
        let (file, resumed) = match opened {
            Ok((file, stat)) => {
                if !fs.try_lock(&file).map_err(failed)? {
                    return Err(Fault::new(FaultKind::Busy, "another transfer is writing this file"));
                }
                let known = whereabouts(&file, &stat)?.zip(place.state.as_ref());
                match known.is_some_and(|(at, state)| Journal::is_there(fs, state, &at)) {
                    true if stat.links == 1 => (Some(file), true),
                    // A journal that is kept elsewhere says what is in it, and would be believed there after we wrote to it.
                    false if stat.links == 1 => {
                        let _ = fs.unlink(&dir, &part);
                        (None, false)
                    }
                    _ => (None, false),
                }
            }
            Err(_) => (None, false),
        };
        let file = match file {
            Some(file) => file,
            None => {
                let made = match fs.create(&dir, &part) {
                    // Something that is none of ours has this name.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        part = random_part().map_err(failed)?;
                        fs.create(&dir, &part)
                    }
                    made => made,
                };
                let file = made.map_err(failed)?;
                if !fs.try_lock(&file).map_err(failed)? {
                    return Err(Fault::new(FaultKind::Busy, "another transfer is writing this file"));
                }
                file
            }
        };
        // Whoever had the lock before may have finished with this file: its name has to be the one that we have locked.
        let (ours, named) = (fs.stat_file(&file).map_err(failed)?, fs.stat(&dir, &part).map_err(failed)?);
        if (ours.dev, ours.ino) != (named.dev, named.ino) {
            return Err(Fault::new(FaultKind::Busy, "another transfer has just written this file"));
        }
        let mount = fs.mount(&file).map_err(failed)?;
        let tag = Tag::new(&info.ident, info.settled, fs.boot_id(), mount).map_err(failed)?;
        let journal = match whereabouts(&file, &ours)?.zip(place.state.as_ref()) {
            Some((at, state)) => {
                let size = info.ident.size;
                let cut = (ours.size != size).then(|| ours.size.min(size) / place.geometry.chunk);
                journal(fs, state, &at, resumed, tag, cut).map_err(|error| Fault::io("its journal", &error))?
            }
            None => None,
        };
        if let Err(fault) = reserve(place, &dir, &file, &info, &ours, old.as_ref()) {
            // What ext4 got before its end would stay.
            if !resumed {
                let _ = fs.unlink(&dir, &part);
                if let (Some(journal), Some(state)) = (&journal, &place.state) {
                    let _ = fs.unlink(state, &journal.name);
                }
            }
            return Err(fault);
        }
        let old_file = match &old {
            Some(old) if old.kind == Kind::File => fs.open_read(&dir, &name, Links::Refuse).ok().map(|(file, _)| file),
            _ => None,
        };
        Ok(Target { path: path.clone(), dir, part, file, journal, resumed, old, old_file, info })
    }

    /// What is known of a chunk.
    pub(super) fn know(&self, place: &DestDir<F>, index: u64, scratch: &mut [u8]) -> Known {
        let fs = &*place.fs;
        let noted = self.journal.as_ref().and_then(|journal| journal.get(fs, index));
        if let Some((value, true)) = noted {
            return Known::Verified(value);
        }
        // What is in the partial file goes before what is in the old one: it is the newer.
        if self.resumed
            && (noted.is_some() || self.journal.is_none())
            && let Some(value) = self.hash_of(place, &self.file, index, scratch)
        {
            return Known::Content(value);
        }
        let old = self.old_file.as_ref().and_then(|old| self.hash_of(place, old, index, scratch));
        old.map_or(Known::Nothing, Known::Content)
    }

    /// Takes back the record of a chunk before its bytes change: a later run of the source that it is of would believe it.
    pub(super) fn take_back(&self, place: &DestDir<F>, index: u64) -> Result<(), Fault> {
        let Some(journal) = self.journal.as_ref().filter(|_| self.resumed) else { return Ok(()) };
        journal.clear(&*place.fs, index).map_err(|error| Fault::io("its journal", &error))
    }

    pub(super) fn hash_of(&self, place: &DestDir<F>, file: &F::File, index: u64, scratch: &mut [u8]) -> Option<Value> {
        let geometry = &place.geometry;
        let len = geometry.chunk_len(self.info.ident.size, index);
        let out = &mut scratch[..len];
        let have = read_full(&*place.fs, file, index * geometry.chunk, out).ok()?;
        (have == len).then(|| value(index * geometry.chunk, out))
    }

    /// Nothing in the partial file is to be believed: it goes, and its journal with it.
    pub(super) fn spoil(&self, place: &DestDir<F>) {
        self.forget_journal(place);
        let _ = place.fs.unlink(&self.dir, &self.part);
    }

    pub(super) fn forget_journal(&self, place: &DestDir<F>) {
        if let (Some(journal), Some(state)) = (&self.journal, &place.state) {
            let _ = place.fs.unlink(state, &journal.name);
        }
    }
}

/// The journal of a partial file, before its bytes change. Without one nothing is resumed without hashing it again; but one that stays
/// and is not kept would be believed later. `cut`: the first chunk that another size of the file makes another one.
fn journal<F: Fs>(
    fs: &F,
    state: &F::Dir,
    place: &Whereabouts,
    resumed: bool,
    tag: Tag,
    cut: Option<u64>,
) -> io::Result<Option<Journal<F>>> {
    let opened = Journal::open(fs, state, place, resumed, tag).and_then(|journal| match cut.filter(|_| resumed) {
        Some(index) => journal.cut(fs, index).map(|()| journal),
        None => Ok(journal),
    });
    let (error, name) = match (opened, place.name()) {
        (Ok(journal), _) => return Ok(Some(journal)),
        (Err(error), Some(name)) if resumed => (error, name),
        (Err(_), _) => return Ok(None),
    };
    let is_gone = |done: io::Result<()>| done.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    if is_gone(fs.stat(state, &name).map(drop)) || fs.unlink(state, &name).is_ok() { Ok(None) } else { Err(error) }
}

/// A partial file that had its permissions already, and no name yet when its transfer ended, is made one that we may write.
fn unlock<F: Fs>(fs: &F, dir: &F::Dir, part: &Name) -> Result<(), Fault> {
    if let Ok((file, _)) = fs.open_read(dir, part, Links::Refuse) {
        // Where this cannot be locked, which NFS refuses, the one that is opened next is.
        if matches!(fs.try_lock(&file), Ok(false)) {
            return Err(Fault::new(FaultKind::Busy, "another transfer is writing this file"));
        }
        // One of somebody else stays as it is: another name is taken.
        let _ = fs.set_mode(&file, 0o600);
    }
    Ok(())
}

/// Space for all of it, so that a full disk is known before the first byte. Where blocks of an old file may be shared it is only looked
/// for: on btrfs what was reserved as one piece stays in use as long as any of it is.
fn reserve<F: Fs>(
    place: &DestDir<F>,
    dir: &F::Dir,
    file: &F::File,
    info: &FileInfo,
    ours: &Stat,
    old: Option<&Stat>,
) -> Result<(), Fault> {
    let fs = &*place.fs;
    let failed = |error: io::Error| Fault::io("space for the file", &error);
    if ours.size != info.ident.size {
        fs.truncate(file, info.ident.size).map_err(failed)?;
    }
    let (_, free) = fs.space(dir).map_err(failed)?;
    let wanted = info.disk.min(info.ident.size).saturating_sub(ours.disk);
    if wanted > free {
        let why = format!("space for the file: {wanted} bytes are needed and {free} are free");
        return Err(Fault::new(FaultKind::NoSpace, why));
    }
    if info.sparse() || old.is_some_and(|old| old.kind == Kind::File && old.size > 0) {
        return Ok(());
    }
    fs.reserve(file, info.ident.size).map_err(failed)
}

/// The number in the name of the partial file of `name`, which is in the same directory: the same for every attempt.
fn part_id(name: &Name) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&blake3::hash(name.bytes()).as_bytes()[..8]);
    u64::from_le_bytes(eight)
}

/// A name for a file that nobody resumes.
pub(super) fn random_part() -> io::Result<Name> {
    random().map(partial)
}

pub(super) fn random() -> io::Result<u64> {
    let mut eight = [0; 8];
    getrandom::fill(&mut eight).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u64::from_le_bytes(eight))
}

pub(super) fn has_partial<F: Fs>(fs: &F, dir: &F::Dir, name: &Name) -> bool {
    fs.stat(dir, &partial(part_id(name))).is_ok()
}
