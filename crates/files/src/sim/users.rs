//! What others do with the simulated files.

use std::collections::{BTreeMap, BTreeSet};

use super::{ROOT, World};
use crate::fs::Kind;
use crate::name::is_reserved;

/// Changes and looks that are no calls of the process under test; all of them are on the disk at once.
pub struct Users<'a>(pub(super) &'a mut World);

impl Users<'_> {
    fn parent(&mut self, path: &str) -> (u64, Vec<u8>) {
        let mut at = ROOT;
        let mut names: Vec<&str> = path.split('/').collect();
        let last = names.pop().unwrap_or_default();
        for name in names {
            at = match self.0.inodes[&at].entries.get(name.as_bytes()) {
                Some(&next) if self.0.inodes[&next].kind == Kind::Dir => next,
                // A file of this name makes way.
                _ => {
                    let made = self.0.make(Kind::Dir);
                    self.0.change(vec![(at, name.as_bytes().to_vec(), Some(made))]);
                    made
                }
            };
        }
        (at, last.as_bytes().to_vec())
    }

    /// A file with this content, in place where it exists.
    pub fn write(&mut self, path: &str, bytes: &[u8], keep_time: bool) {
        let (dir, name) = self.parent(path);
        let ino = match self.0.inodes[&dir].entries.get(&name) {
            Some(&ino) => ino,
            None => {
                let ino = self.0.make(Kind::File);
                self.0.change(vec![(dir, name, Some(ino))]);
                ino
            }
        };
        self.0.now += 50_000_000;
        let now = self.0.time();
        if let Some(inode) = self.0.inodes.get_mut(&ino) {
            inode.data = bytes.to_vec();
            inode.durable = Some(bytes.to_vec());
            inode.ctime = now;
            if !keep_time {
                inode.mtime = now;
            }
        }
        self.0.sync_names();
    }

    /// The disk fails to write what it has not yet, and another program is told of it.
    pub fn lose(&mut self) {
        for inode in self.0.inodes.values_mut() {
            if inode.kind == Kind::File && inode.durable.as_ref() != Some(&inode.data) {
                inode.data.fill(0);
                inode.durable = Some(inode.data.clone());
                inode.lost += 1;
                self.0.lost += 1;
            }
        }
    }

    /// Nobody may write the file any more.
    pub fn protect(&mut self, path: &str) {
        let (dir, name) = self.parent(path);
        let ino = self.0.inodes[&dir].entries[&name];
        if let Some(inode) = self.0.inodes.get_mut(&ino) {
            inode.mode = 0o444;
        }
    }

    /// Whether a path leads to a directory.
    pub fn is_dir(&self, path: &str) -> bool {
        let mut at = ROOT;
        for name in path.split('/') {
            match self.0.inodes[&at].entries.get(name.as_bytes()) {
                Some(&next) => at = next,
                None => return false,
            }
        }
        self.0.inodes[&at].kind == Kind::Dir
    }

    /// What the directory of a mount point shows while nothing is mounted there: nothing.
    pub fn unmount(&mut self, name: &str) -> Option<u64> {
        let kept = self.0.inodes[&ROOT].entries.get(name.as_bytes()).copied()?;
        let empty = self.0.make(Kind::Dir);
        self.0.change(vec![(ROOT, name.as_bytes().to_vec(), Some(empty))]);
        self.0.sync_names();
        Some(kept)
    }

    /// Mounts it again.
    pub fn mount(&mut self, name: &str, kept: u64) {
        self.0.change(vec![(ROOT, name.as_bytes().to_vec(), Some(kept))]);
        self.0.sync_names();
    }

    /// Takes a name away.
    pub fn remove(&mut self, path: &str) {
        let (dir, name) = self.parent(path);
        self.0.change(vec![(dir, name, None)]);
        self.0.sync_names();
    }

    /// Every file that would be there after a loss of power for sure.
    pub fn durable_files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut stack = vec![(ROOT, String::new())];
        while let Some((at, path)) = stack.pop() {
            for (name, ino) in &self.0.inodes[&at].durable_entries {
                let path = format!("{path}/{}", String::from_utf8_lossy(name));
                let inode = &self.0.inodes[ino];
                match (inode.kind, &inode.durable) {
                    (Kind::Dir, _) => stack.push((*ino, path)),
                    (Kind::File, Some(data)) => drop(found.insert(path[1..].to_owned(), data.clone())),
                    _ => {}
                }
            }
        }
        found
    }

    /// Every directory, without those of linkspan.
    pub fn dirs(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut stack = vec![(ROOT, String::new())];
        while let Some((at, path)) = stack.pop() {
            for (name, ino) in &self.0.inodes[&at].entries {
                if self.0.inodes[ino].kind == Kind::Dir && !is_reserved(name) {
                    let path = format!("{path}/{}", String::from_utf8_lossy(name));
                    found.insert(path[1..].to_owned());
                    stack.push((*ino, path));
                }
            }
        }
        found
    }

    /// Every file with its path and content.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut stack = vec![(ROOT, String::new())];
        while let Some((at, path)) = stack.pop() {
            for (name, ino) in &self.0.inodes[&at].entries {
                let path = format!("{path}/{}", String::from_utf8_lossy(name));
                match self.0.inodes[ino].kind {
                    Kind::Dir => stack.push((*ino, path)),
                    Kind::File => drop(found.insert(path[1..].to_owned(), self.0.inodes[ino].data.clone())),
                    _ => {}
                }
            }
        }
        found
    }
}
