//! What others do with the simulated files.

use std::collections::BTreeMap;

use super::{ROOT, World};
use crate::fs::Kind;

/// Changes and looks that are no calls of the process under test; all of them are on the disk at once.
pub struct Users<'a>(pub(super) &'a mut World);

impl Users<'_> {
    fn parent(&mut self, path: &str) -> (u64, Vec<u8>) {
        let mut at = ROOT;
        let mut names: Vec<&str> = path.split('/').collect();
        let last = names.pop().unwrap_or_default();
        for name in names {
            at = match self.0.inodes[&at].entries.get(name.as_bytes()) {
                Some(&next) => next,
                None => {
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

    /// Takes a name away.
    pub fn remove(&mut self, path: &str) {
        let (dir, name) = self.parent(path);
        self.0.change(vec![(dir, name, None)]);
        self.0.sync_names();
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
