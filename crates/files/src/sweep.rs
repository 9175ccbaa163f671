//! Partial files that nobody has taken up for a month go, each with a word.

use std::collections::BTreeMap;
use std::io;

use crate::fs::{Fs, Kind, Links, Stat};
use crate::journal::{UNDERWAY, Whereabouts, journal_of};
use crate::name::{Name, RelPath, escape, id_of, is_reserved, partial};

/// Age from which on a partial file goes, in seconds.
const AGE: i64 = 30 * 24 * 3600;

/// Removes old partial files below these roots, and says which.
pub(crate) fn sweep<F: Fs>(fs: &F, state: &F::Dir, roots: &[&F::Dir], say: &dyn Fn(&str)) -> io::Result<()> {
    let sweep = Sweep { fs, state, now: fs.now().sec, uid: fs.stat_dir(state)?.uid, say };
    let mut walked = BTreeMap::new();
    for entry in fs.list(state)? {
        let Ok(name) = Name::any(&entry?.name) else { continue };
        let Ok(stat) = fs.stat(state, &name) else { continue };
        if !name.bytes().ends_with(b".journal") || !sweep.is_old(stat.mtime.sec) {
            continue;
        }
        let Some(place) = Whereabouts::of(fs, state, &name) else {
            // A kill came before its first byte: what notes the transfer is for its partial file.
            if stat.size == 0 {
                gone(fs.unlink(state, &name))?;
            }
            continue;
        };
        let is_root = |root: &&&F::Dir| {
            fs.stat_dir(root).is_ok_and(|stat| stat.ino == place.root.1)
                && fs.number(root).is_ok_and(|n| n == place.root.0)
        };
        let Some(root) = roots.iter().find(is_root) else { continue };
        if let Ok(dir) = fs.open_dir(root, &place.dir, Links::Refuse) {
            let is_done = match place.part {
                UNDERWAY => {
                    *walked.entry((place.root, place.dir.clone())).or_insert_with(|| sweep.below(&dir, &place.dir))
                }
                (_, part) => sweep.remove(&dir, &place.dir, &partial(place.id), |stat| stat.ino == part),
            };
            if !is_done {
                continue;
            }
        }
        gone(fs.unlink(state, &name))?;
    }
    Ok(())
}

/// Another process may sweep too.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

struct Sweep<'a, F: Fs> {
    fs: &'a F,
    state: &'a F::Dir,
    now: i64,
    uid: u32,
    say: &'a dyn Fn(&str),
}

impl<F: Fs> Sweep<'_, F> {
    fn is_old(&self, sec: i64) -> bool {
        sec.saturating_add(AGE) <= self.now
    }

    /// Removes this partial file if it is the one; `false`: a transfer has it, or it cannot be removed now.
    fn remove(&self, dir: &F::Dir, path: &RelPath, part: &Name, is_it: impl Fn(&Stat) -> bool) -> bool {
        // It may have the permissions of the file that it was to be. What NFS locks has to be open for writing.
        let opened = self.fs.open_write(dir, part).or_else(|_| self.fs.open_read(dir, part, Links::Refuse));
        match opened {
            Ok((file, stat)) if is_it(&stat) => {
                // Between the two another transfer may have given the name to a file of its own.
                let is_still = || self.fs.stat(dir, part).is_ok_and(|now| (now.dev, now.ino) == (stat.dev, stat.ino));
                self.fs.try_lock(&file).unwrap_or(false) && is_still() && self.unlink(dir, path, part)
            }
            Ok(_) => true,
            Err(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied),
        }
    }

    fn unlink(&self, dir: &F::Dir, path: &RelPath, part: &Name) -> bool {
        let removed = self.fs.unlink(dir, part);
        if removed.is_ok() {
            let dir = escape(path.bytes());
            (self.say)(&format!("removed {dir}/{part:?}: a transfer that nobody has taken up for 30 days"));
        }
        gone(removed).is_ok()
    }

    /// Removes the old partial files of this user below a directory that have no journal; `false`: there are others that are not old yet, or in
    /// use, or not all could be looked at.
    fn below(&self, dir: &F::Dir, path: &RelPath) -> bool {
        let list = match self.fs.list(dir) {
            Ok(list) => list,
            // Nothing of ours is where we may not look.
            Err(error) => return error.kind() == io::ErrorKind::PermissionDenied,
        };
        let mut is_done = true;
        for entry in list {
            let Ok(entry) = entry else { return false };
            let Ok(name) = Name::any(&entry.name) else { continue };
            let Ok(stat) = self.fs.stat(dir, &name) else { continue };
            match (id_of(name.bytes()), stat.kind) {
                (Some(id), kind) if stat.uid == self.uid && !self.has_journal(id, dir, &stat) => {
                    // Its modification time may be that of its source. A link cannot be locked, and has this name for a moment only.
                    is_done &= self.is_old(stat.ctime.sec)
                        && match kind {
                            Kind::Symlink => self.unlink(dir, path, &name),
                            _ => self.remove(dir, path, &name, |stat| self.is_old(stat.ctime.sec)),
                        };
                }
                (None, Kind::Dir) if !is_reserved(name.bytes()) => {
                    if let (Ok(path), Ok(dir)) = (path.join(&name), self.fs.open_child(dir, &name)) {
                        is_done &= self.below(&dir, &path);
                    }
                }
                _ => {}
            }
        }
        is_done
    }

    fn has_journal(&self, id: u64, dir: &F::Dir, stat: &Stat) -> bool {
        let name = self.fs.number(dir).ok().and_then(|number| journal_of(id, (number, stat.ino)));
        name.is_some_and(|name| self.fs.stat(self.state, &name).is_ok_and(|stat| stat.size > 0))
    }
}
