//! What the receiver has and the sender has not: the names of both sides come in the same order, so that each directory is merged in
//! one pass, and only the names that are to go are kept in memory.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use crate::fs::{Fs, Kind, Sorted, Stat};
use crate::name::{Name, RelPath};
use crate::ops;
use crate::wire::{Extra, Fault, FaultKind};
use crate::{Rules, wire::Delete};

/// Names that may go without being asked for: at most so many, and at most one of so many of those that were compared; a few always.
const MOST: u64 = 1000;
const PART: u64 = 4;
const FEW: u64 = 10;

/// Entries that go in one run, each with all below it: so many are kept in memory, whatever the peer allows.
const AT_ONCE: usize = 1 << 16;

/// Names below a directory that goes that are told one by one, in a dry run.
const TOLD: usize = 10_000;

/// Directories within each other: as deep as paths can be.
struct Level<F: Fs> {
    path: RelPath,
    dir: Arc<F::Dir>,
    list: Sorted,
    last: Option<Name>,
    /// What goes, each with its number of names, and the names of what is not kept here.
    found: Vec<(Gone, u64)>,
    names: u64,
    /// These stay.
    spared: BTreeSet<RelPath>,
    /// Its listing failed: what is missing in it says nothing.
    broken: bool,
}

/// Something that goes.
pub(super) struct Gone {
    pub(super) path: RelPath,
    pub(super) extra: Extra,
}

/// The names that go.
pub(super) struct Extras<F: Fs> {
    pub(super) most: Option<u64>,
    rules: Rules,
    levels: Vec<Level<F>>,
    found: Vec<Gone>,
    /// Names that go, with all below them, and all names that were compared.
    names: u64,
    all: u64,
    /// Those that have gone already, replaced by what has their name.
    replaced: u64,
    /// There are more that go than are kept.
    cut: bool,
}

impl<F: Fs> Extras<F> {
    pub(super) fn new(delete: &Delete) -> Result<Extras<F>, crate::BadRule> {
        let rules = Rules::new(&delete.keep)?;
        let (levels, found) = (Vec::new(), Vec::new());
        Ok(Extras { most: delete.most, rules, levels, found, names: 0, all: 0, replaced: 0, cut: false })
    }

    /// Names that go, and all.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.names, self.all)
    }

    /// As many may go.
    fn allowed(&self) -> u64 {
        self.most.unwrap_or_else(|| MOST.min(FEW.max(self.all / PART)))
    }

    /// What is to go now that all has come, and why that is not all; what would go, in a dry run.
    pub(super) fn take(&mut self, dry_run: bool) -> (Vec<Gone>, Option<Fault>) {
        self.levels.clear();
        let (names, all, allowed, found) = (self.names, self.all, self.allowed(), std::mem::take(&mut self.found));
        if names > allowed {
            let but = match self.replaced {
                0 => "nothing was".to_owned(),
                replaced => format!("only the {replaced} that something else replaced were"),
            };
            let why = format!(
                "LS1826 {names} of {all} names at the receiver are not the sender's and would be deleted; the limit is {allowed}, and {but} deleted: see which with --dry-run, then allow it with --max-delete {names}"
            );
            let shown = if dry_run { found } else { Vec::new() };
            return (shown, Some(Fault::new(FaultKind::Limit, why)));
        }
        let why =
            format!("LS1832 {AT_ONCE} entries are deleted in one run and there are more: run it again for the rest");
        // No limit that somebody has set: whoever goes on by itself goes on.
        (found, (self.cut && !dry_run).then(|| Fault::new(FaultKind::Busy, why)))
    }

    /// All names of a directory follow.
    pub(super) fn begin(&mut self, fs: &F, path: RelPath, dir: Arc<F::Dir>) -> io::Result<()> {
        // Whatever did not come to its end deletes nothing.
        let parent = path.split().map(|(parent, _)| parent);
        while self.levels.last().is_some_and(|level| Some(&level.path) != parent.as_ref()) {
            self.levels.pop();
        }
        let list = Sorted::of(fs, &dir)?;
        let (found, spared) = (Vec::new(), BTreeSet::new());
        self.levels.push(Level { path, dir, list, last: None, found, names: 0, spared, broken: false });
        Ok(())
    }

    /// The sender has not these names, but one that the directory does not tell from them.
    pub(super) fn spare(&mut self, parent: &RelPath, names: &[Name]) {
        if let Some(level) = self.levels.iter_mut().find(|level| level.path == *parent) {
            level.spared.extend(names.iter().filter_map(|name| parent.join(name).ok()));
        }
    }

    /// The sender has this name.
    pub(super) fn pass(&mut self, fs: &F, parent: &RelPath, name: &Name) {
        let Some(at) = self.levels.iter().rposition(|level| level.path == *parent) else { return };
        // What comes again has been counted.
        if self.levels[at].last.as_ref().is_some_and(|last| name <= last) {
            return;
        }
        self.levels.truncate(at + 1);
        self.advance(fs, Some(name));
        self.levels[at].last = Some(name.clone());
    }

    /// The sender has no more names in this directory.
    pub(super) fn end(&mut self, fs: &F, path: &RelPath) {
        let Some(at) = self.levels.iter().rposition(|level| level.path == *path) else { return };
        self.levels.truncate(at + 1);
        self.advance(fs, None);
        if let Some(level) = self.levels.pop()
            && !level.broken
        {
            let goes = level.found.into_iter().filter(|(gone, _)| !level.spared.contains(&gone.path));
            self.names += level.names;
            for (gone, names) in goes {
                self.names += names;
                self.found.push(gone);
            }
        }
    }

    fn advance(&mut self, fs: &F, to: Option<&Name>) {
        let kept = self.found.len() + self.levels.iter().map(|level| level.found.len()).sum::<usize>();
        let mut left = AT_ONCE.saturating_sub(kept);
        let Some(level) = self.levels.last_mut() else { return };
        loop {
            let name = match level.list.peek(fs, &level.dir) {
                Ok(Some(name)) if to.is_none_or(|to| name <= to.bytes()) => name.to_vec(),
                Ok(_) => return,
                Err(_) => {
                    level.broken = true;
                    return;
                }
            };
            let _ = level.list.next(fs, &level.dir);
            self.all += 1;
            if to.is_some_and(|to| name == to.bytes()) {
                return;
            }
            let Ok(name) = Name::new(&name) else { continue };
            let Ok(path) = level.path.join(&name) else { continue };
            let Ok(stat) = fs.stat(&level.dir, &name) else { continue };
            if self.rules.leave(&path, stat.kind == Kind::Dir) {
                continue;
            }
            let below = ops::usage_below(fs, &level.dir, &name);
            let names = below.files + below.dirs + below.others + below.unread;
            self.all += names.saturating_sub(1);
            if left > 0 {
                left -= 1;
                level.found.push((Gone { path, extra: extra(&stat) }, names));
            } else {
                level.names += names;
                self.cut = true;
            }
        }
    }

    /// Something of another kind has the name of what comes: it goes at once, if as many may by what has been compared by now. A dry run
    /// only counts it, for all names decide there.
    pub(super) fn conflict(&mut self, fs: &F, dir: &F::Dir, name: &Name, dry_run: bool) -> Result<(), Fault> {
        let below = ops::usage_below(fs, dir, name);
        let names = below.files + below.dirs + below.others + below.unread;
        self.names += names;
        self.all += names;
        // One name is no more than what replaces it.
        let allowed = if names > 1 { self.allowed() } else { self.most.unwrap_or(MOST) };
        if dry_run {
            return Ok(());
        }
        if self.names > allowed {
            self.names -= names;
            let why = format!(
                "LS1827 a directory of {names} names has this name and would be replaced: allow it with --max-delete {names}"
            );
            return Err(Fault::new(FaultKind::Limit, why));
        }
        self.replaced += names;
        Ok(())
    }
}

pub(super) fn extra(stat: &Stat) -> Extra {
    Extra { kind: stat.kind, size: stat.size, mtime: stat.mtime }
}

/// Everything below something that goes, as far as it is told.
pub(super) fn below<F: Fs>(fs: &F, at: &F::Dir, name: &Name, path: &RelPath, told: &mut Vec<Gone>) {
    let Ok(dir) = fs.open_child(at, name) else { return };
    let Ok(mut list) = Sorted::of(fs, &dir) else { return };
    while let Ok(Some(name)) = list.next(fs, &dir) {
        let named = Name::new(&name).and_then(|name| Ok((path.join(&name)?, name)));
        let Ok((path, name)) = named else { continue };
        let Ok(stat) = fs.stat(&dir, &name) else { continue };
        if told.len() >= TOLD {
            return;
        }
        told.push(Gone { path: path.clone(), extra: extra(&stat) });
        if stat.kind == Kind::Dir {
            below(fs, &dir, &name, &path, told);
        }
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::sim::SimFs;

    #[test]
    fn of_more_than_goes_in_one_run_the_rest_is_for_the_next_whatever_the_peer_allows() {
        for (count, cut) in [(AT_ONCE, false), (AT_ONCE + 2, true)] {
            let fs = SimFs::new(1, None, false);
            fs.users(|users| (0..count).for_each(|n| users.write(&format!("{n}"), b"", false)));
            let mut extras = Extras::new(&Delete { most: Some(u64::MAX), keep: Vec::new() }).unwrap();
            extras.begin(&fs, RelPath::default(), Arc::new(fs.root())).unwrap();
            extras.end(&fs, &RelPath::default());
            let (found, limit) = extras.take(false);
            assert_eq!((found.len(), extras.counts().0), (AT_ONCE, count as u64));
            assert_eq!(limit.is_some_and(|fault| fault.kind == FaultKind::Busy), cut);
        }
    }
}
