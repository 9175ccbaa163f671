//! The entries of a tree, one at a time and in the order of their names: a directory before what is in it. Memory goes with the depth
//! alone.

use std::sync::Arc;

use super::Load;
use crate::Rules;
use crate::fs::{Fs, Kind, Links, Sorted, Stat};
use crate::name::{Name, RelPath};
use crate::wire::{Fault, FaultKind, LeftOut, XATTRS_MAX, is_user_xattr};

/// An entry that was asked for.
pub struct Start<F: Fs> {
    /// Its directory.
    pub dir: Arc<F::Dir>,
    /// Its name there; `None`: everything in the directory.
    pub name: Option<Name>,
    /// Its path at the receiver.
    pub path: RelPath,
    /// Of a directory without a name: those in it are named, not entered.
    pub shallow: bool,
    /// The directory that has the name, where another file system is mounted there: such are not entered by themselves.
    pub opened: Option<Arc<F::Dir>>,
}

/// An entry that was found.
pub(crate) struct Found<F: Fs> {
    pub(crate) dir: Arc<F::Dir>,
    pub(crate) name: Name,
    pub(crate) stat: Stat,
}

struct Level<F: Fs> {
    dir: Arc<F::Dir>,
    path: RelPath,
    list: Sorted,
    /// Its beginning was told.
    begun: bool,
    /// Every name in it could be told.
    whole: bool,
    /// Directories in it are named and not entered.
    shallow: bool,
}

/// What comes next in a walk.
pub(super) enum Step<F: Fs> {
    /// An entry.
    Found(Found<F>),
    /// Of this path, or of an entry of it, something could not be read. With the flag it is the path of an entry that is there.
    Failed(Fault, bool),
    /// An entry that a rule leaves alone.
    Left,
    /// The entries of this directory follow.
    Begin,
    /// All of them have come, each under its name.
    End,
}

pub(super) struct Walk<F: Fs> {
    starts: std::vec::IntoIter<Start<F>>,
    levels: Vec<Level<F>>,
    rules: Arc<Rules>,
}

impl<F: Fs> Walk<F> {
    pub(super) fn new(starts: Vec<Start<F>>, rules: Arc<Rules>) -> Walk<F> {
        Walk { starts: starts.into_iter(), levels: Vec::new(), rules }
    }

    pub(super) fn next(&mut self, fs: &F) -> Option<(RelPath, Step<F>)> {
        loop {
            let Some(level) = self.levels.last_mut() else {
                let Start { dir, name, path, shallow, opened } = self.starts.next()?;
                match name {
                    Some(name) => match self.found(fs, dir, name, path.clone(), opened) {
                        Some(step) => return Some((path, step)),
                        None => {
                            let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
                            return Some((path, Step::Failed(Fault::io("it", &gone), false)));
                        }
                    },
                    None => {
                        if let Err(fault) = self.enter(fs, dir, path.clone(), shallow) {
                            return Some((path, Step::Failed(fault, false)));
                        }
                    }
                }
                continue;
            };
            if !level.begun {
                level.begun = true;
                return Some((level.path.clone(), Step::Begin));
            }
            match level.list.next(fs, &level.dir) {
                Ok(None) => {
                    let (path, whole) = (level.path.clone(), level.whole);
                    self.levels.pop();
                    if whole {
                        return Some((path, Step::End));
                    }
                }
                Err(error) => {
                    let path = level.path.clone();
                    self.levels.pop();
                    return Some((path, Step::Failed(Fault::io("its entries", &error), false)));
                }
                Ok(Some(name)) => {
                    let (dir, parent) = (level.dir.clone(), level.path.clone());
                    let path = Name::new(&name).and_then(|name| Ok((parent.join(&name)?, name)));
                    match path {
                        Ok((path, name)) => {
                            if let Some(step) = self.found(fs, dir, name, path.clone(), None) {
                                return Some((path, step));
                            }
                        }
                        Err(why) => {
                            level.whole = false;
                            let fault = Fault::new(FaultKind::Limit, format!("a path below it: {why}"));
                            return Some((parent, Step::Failed(fault, false)));
                        }
                    }
                }
            }
        }
    }

    fn enter(&mut self, fs: &F, dir: Arc<F::Dir>, path: RelPath, shallow: bool) -> Result<(), Fault> {
        let list = Sorted::of(fs, &dir).map_err(|error| Fault::io("its entries", &error))?;
        self.levels.push(Level { dir, path, list, begun: false, whole: true, shallow });
        Ok(())
    }

    /// `None`: it has gone since it was listed.
    fn found(
        &mut self,
        fs: &F,
        dir: Arc<F::Dir>,
        name: Name,
        path: RelPath,
        opened: Option<Arc<F::Dir>>,
    ) -> Option<Step<F>> {
        let stat = match fs.stat(&dir, &name) {
            Ok(stat) => stat,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => return Some(Step::Failed(Fault::io("it", &error), true)),
        };
        if self.rules.leave(&path, stat.kind == Kind::Dir) {
            return Some(Step::Left);
        }
        if stat.kind == Kind::Dir && !self.levels.last().is_some_and(|level| level.shallow) {
            let entered = opened
                .map_or_else(|| fs.open_child(&dir, &name).map(Arc::new), Ok)
                .map_err(|error| Fault::io("the directory", &error))
                .and_then(|below| self.enter(fs, below, path.clone(), false));
            if let Err(fault) = entered {
                return Some(Step::Failed(fault, true));
            }
        }
        Some(Step::Found(Found { dir, name, stat }))
    }
}

/// What of an open file does not travel, beyond its owner.
pub(super) fn left_out<F: Fs>(load: &Load<F>, file: &F::File) -> Vec<LeftOut> {
    among(&load.fs.list_xattrs(file).unwrap_or_default(), load.xattrs)
}

/// The same of a directory.
pub(super) fn left_out_of_dir<F: Fs>(fs: &F, found: &Found<F>) -> Vec<LeftOut> {
    let names = fs.open_child(&found.dir, &found.name).and_then(|dir| fs.list_dir_xattrs(&dir));
    among(&names.unwrap_or_default(), false)
}

fn among(names: &[Vec<u8>], users_travel: bool) -> Vec<LeftOut> {
    // Where there is SELinux every file has its label, which the other side gives by its own rules.
    let is_security = |name: &[u8]| name.starts_with(b"security.") && name != b"security.selinux";
    let is_acl = |name: &[u8]| matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default");
    let is_other = |name: &[u8]| name.starts_with(b"trusted.") || !users_travel && is_user_xattr(name);
    let is_there = |is: &dyn Fn(&[u8]) -> bool| names.iter().any(|name| is(name));
    let found = [
        (is_there(&is_acl), LeftOut::Acl),
        (is_there(&is_security), LeftOut::Security),
        (is_there(&is_other), LeftOut::Attributes),
    ];
    found.into_iter().filter_map(|(is_there, what)| is_there.then_some(what)).collect()
}

/// Names and values.
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The attributes that users set.
pub(super) fn xattrs<F: Fs>(fs: &F, found: &Found<F>) -> Result<Xattrs, Fault> {
    let failed = |error: std::io::Error| Fault::io("its extended attributes", &error);
    let (file, _) = fs.open_read(&found.dir, &found.name, Links::Refuse).map_err(failed)?;
    let (mut all, mut bytes) = (Vec::new(), 0);
    for name in fs.list_xattrs(&file).map_err(failed)? {
        if is_user_xattr(&name) {
            let value = fs.get_xattr(&file, &name).map_err(failed)?;
            bytes += name.len() + value.len();
            all.push((name, value));
        }
    }
    if bytes > XATTRS_MAX || all.len() > 64 {
        return Err(Fault::new(
            FaultKind::Limit,
            format!("its extended attributes are more than {XATTRS_MAX} bytes or 64"),
        ));
    }
    Ok(all)
}
