//! The entries of a tree, one at a time: a directory before what is in it. Memory goes with the depth alone.

use std::sync::Arc;

use crate::fs::{Fs, Kind, Links, Stat};
use crate::name::{Name, RelPath, is_reserved};
use crate::wire::{Fault, FaultKind, LeftOut, XATTRS_MAX, is_user_xattr};

/// An entry that was asked for.
pub struct Start<F: Fs> {
    /// Its directory.
    pub dir: Arc<F::Dir>,
    /// Its name there; `None`: everything in the directory.
    pub name: Option<Name>,
    /// Its path at the receiver.
    pub path: RelPath,
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
    list: F::List,
}

pub(super) struct Walk<F: Fs> {
    starts: std::vec::IntoIter<Start<F>>,
    levels: Vec<Level<F>>,
}

type Step<F> = Option<(RelPath, Result<Found<F>, Fault>)>;

impl<F: Fs> Walk<F> {
    pub(super) fn new(starts: Vec<Start<F>>) -> Walk<F> {
        Walk { starts: starts.into_iter(), levels: Vec::new() }
    }

    pub(super) fn next(&mut self, fs: &F) -> Step<F> {
        loop {
            let Some(level) = self.levels.last_mut() else {
                let Start { dir, name, path } = self.starts.next()?;
                match name {
                    Some(name) => return Some(self.found(fs, dir, name, path)),
                    None => {
                        if let Err(fault) = self.enter(fs, dir, path.clone()) {
                            return Some((path, Err(fault)));
                        }
                    }
                }
                continue;
            };
            match level.list.next() {
                None => drop(self.levels.pop()),
                Some(Err(error)) => {
                    let path = level.path.clone();
                    self.levels.pop();
                    return Some((path, Err(Fault::io("its entries", &error))));
                }
                Some(Ok(entry)) if is_reserved(&entry.name) => {}
                Some(Ok(entry)) => {
                    let (dir, parent) = (level.dir.clone(), level.path.clone());
                    let path = Name::new(&entry.name).and_then(|name| Ok((parent.join(&name)?, name)));
                    match path {
                        Ok((path, name)) => return Some(self.found(fs, dir, name, path)),
                        Err(why) => {
                            return Some((
                                parent,
                                Err(Fault::new(FaultKind::Limit, format!("a path below it: {why}"))),
                            ));
                        }
                    }
                }
            }
        }
    }

    fn enter(&mut self, fs: &F, dir: Arc<F::Dir>, path: RelPath) -> Result<(), Fault> {
        let list = fs.list(&dir).map_err(|error| Fault::io("its entries", &error))?;
        self.levels.push(Level { dir, path, list });
        Ok(())
    }

    fn found(&mut self, fs: &F, dir: Arc<F::Dir>, name: Name, path: RelPath) -> (RelPath, Result<Found<F>, Fault>) {
        let stat = match fs.stat(&dir, &name) {
            Ok(stat) => stat,
            Err(error) => return (path, Err(Fault::io("it", &error))),
        };
        if stat.kind == Kind::Dir {
            let entered = fs
                .open_child(&dir, &name)
                .map_err(|error| Fault::io("the directory", &error))
                .and_then(|below| self.enter(fs, Arc::new(below), path.clone()));
            if let Err(fault) = entered {
                return (path, Err(fault));
            }
        }
        (path, Ok(Found { dir, name, stat }))
    }
}

/// What of an open file does not travel, beyond its owner.
pub(super) fn left_out<F: Fs>(fs: &F, file: &F::File) -> Vec<LeftOut> {
    let names = fs.list_xattrs(file).unwrap_or_default();
    let mut found = Vec::new();
    if names.iter().any(|name| name == b"system.posix_acl_access") {
        found.push(LeftOut::Acl);
    }
    if names.iter().any(|name| name == b"security.capability") {
        found.push(LeftOut::Capability);
    }
    found
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
