//! The directories that a transfer goes into, each by its own name alone: some file systems take two names for one.

use std::io;
use std::sync::Arc;

use super::Sink;
use crate::fs::{Fs, Links, Stat};
use crate::name::{Name, RelPath};

/// Directories whose descriptors are kept.
const DIRS_MAX: usize = 32;

impl<F: Fs> Sink<F> {
    /// A directory below the place of the transfer.
    pub(super) fn dir(&mut self, path: &RelPath) -> io::Result<Arc<F::Dir>> {
        if let Some((_, dir)) = self.dirs.iter().find(|(known, _)| known == path) {
            return Ok(dir.clone());
        }
        if let Some((parent, name)) = path.split() {
            let at = self.dir(&parent)?;
            let found = self.fs().stat(&at, &name)?;
            if self.folds(&at, &name, &found)? {
                // What is below it is of another directory.
                let why = "the directory above does not tell its name from another one that is there";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
        }
        let whole = self.place.base.join_path(path).map_err(|_| io::ErrorKind::InvalidFilename)?;
        let dir = Arc::new(self.fs().open_dir(&self.place.root, &whole, Links::Refuse)?);
        if self.dirs.len() >= DIRS_MAX {
            self.dirs.pop_front();
        }
        self.dirs.push_back((path.clone(), dir.clone()));
        Ok(dir)
    }

    /// The names of what `name` finds in a directory where it is none of them. They stay: the sender has something that cannot come beside them.
    pub(super) fn others(
        &mut self,
        parent: &RelPath,
        dir: &Arc<F::Dir>,
        name: &Name,
        found: &Stat,
    ) -> io::Result<Option<Vec<Name>>> {
        if !self.folds(dir, name, found)? {
            return Ok(None);
        }
        let mut others = Vec::new();
        for entry in self.fs().list(dir)? {
            let Ok(other) = Name::any(&entry?.name) else { continue };
            if self.fs().stat(dir, &other).is_ok_and(|stat| (stat.dev, stat.ino) == (found.dev, found.ino)) {
                others.push(other);
            }
        }
        if let Some(extras) = &mut self.extras {
            extras.spare(parent, &others);
        }
        Ok(Some(others))
    }

    /// Whether `name` finds something whose name is another one.
    fn folds(&mut self, dir: &Arc<F::Dir>, name: &Name, found: &Stat) -> io::Result<bool> {
        if self.tells.as_ref().is_some_and(|known| Arc::ptr_eq(known, dir)) {
            return Ok(false);
        }
        let folds = folds(self.fs(), dir, name, found)?;
        if let Folds::Never = folds {
            self.tells = Some(dir.clone());
        }
        Ok(matches!(folds, Folds::This))
    }
}

/// Whether a directory takes two names for one.
enum Folds {
    /// The name finds a file whose name is another one.
    This,
    /// It tells a letter of ASCII from the large or small one: it folds no names (ext4 and others fold a directory's names all, or none).
    Never,
    /// This name does not show it.
    Maybe,
}

/// Looks for `name`, which finds `found`, in large or small letters.
fn folds<F: Fs>(fs: &F, dir: &F::Dir, name: &Name, found: &Stat) -> io::Result<Folds> {
    let Ok(text) = std::str::from_utf8(name.bytes()) else { return Ok(Folds::Maybe) };
    let (lower, upper) = (text.to_lowercase(), text.to_uppercase());
    let other = if lower == text { upper } else { lower };
    let Ok(other) = Name::any(other.as_bytes()) else { return Ok(Folds::Maybe) };
    if other == *name {
        return Ok(Folds::Maybe);
    }
    match fs.stat(dir, &other) {
        Ok(stat) if (stat.dev, stat.ino) == (found.dev, found.ino) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound && text.is_ascii() => return Ok(Folds::Never),
        _ => return Ok(Folds::Maybe),
    }
    for entry in fs.list(dir)? {
        if entry?.name == name.bytes() {
            return Ok(Folds::Maybe);
        }
    }
    Ok(Folds::This)
}
