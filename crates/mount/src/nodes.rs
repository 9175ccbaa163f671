//! Which path a number of the kernel stands for. Numbers are those of the peer's file system, so they are the same after the next mount.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use linkspan_files::fs::Ident;
use linkspan_files::lock;
use linkspan_files::name::RelPath;

/// fuse(4): the root's number.
pub(crate) const ROOT: u64 = 1;

/// The number of a file of the peer: the root's own is taken.
pub(crate) fn number(ino: u64) -> u64 {
    if ino == ROOT { 1 << 63 | ROOT } else { ino }
}

/// The number of the peer behind one of ours.
pub(crate) fn its(number: u64) -> u64 {
    if number == (1 << 63 | ROOT) { ROOT } else { number }
}

/// What this mount does to a file or directory.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    /// Counts them: what was read ahead before is another content.
    count: AtomicU64,
    /// The peer's boot at the first one that was not synced.
    unsynced: Mutex<Option<Vec<u8>>>,
}

impl Edits {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Before the first byte is another.
    pub(crate) fn begin(&self, boot: Vec<u8>) {
        self.count.fetch_add(1, Ordering::Release);
        lock(&self.unsynced).get_or_insert(boot);
    }

    /// Carries a sync out. False: the peer has booted since something was written, which then is maybe not there.
    pub(crate) fn sync<E>(&self, act: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<bool, E> {
        let since = lock(&self.unsynced).take();
        match act() {
            Ok(boot) => Ok(since.is_none_or(|since| since == boot)),
            Err(error) => {
                if let Some(since) = since {
                    *lock(&self.unsynced) = Some(since);
                }
                Err(error)
            }
        }
    }
}

#[derive(Debug)]
struct Node {
    path: RelPath,
    /// Answers that named it and were not forgotten.
    known: u64,
    /// What it was when it was last opened: what the kernel's pages are of.
    opened: Option<Ident>,
    edits: Arc<Edits>,
}

impl Node {
    fn new(path: RelPath, known: u64) -> Node {
        Node { path, known, opened: None, edits: Arc::default() }
    }
}

/// What the kernel knows.
#[derive(Debug)]
pub(crate) struct Nodes(HashMap<u64, Node>);

impl Nodes {
    pub(crate) fn new(base: RelPath) -> Nodes {
        Nodes(HashMap::from([(ROOT, Node::new(base, 1))]))
    }

    pub(crate) fn path(&self, number: u64) -> Option<RelPath> {
        self.0.get(&number).map(|node| node.path.clone())
    }

    /// The kernel is told of it, under this path.
    pub(crate) fn told(&mut self, number: u64, path: RelPath) {
        let node = self.0.entry(number).or_insert_with(|| Node::new(path.clone(), 0));
        node.path = path;
        node.known += 1;
    }

    pub(crate) fn edits(&self, number: u64) -> Arc<Edits> {
        self.0.get(&number).map(|node| node.edits.clone()).unwrap_or_default()
    }

    /// Something has another path, and what is below it. `file`: it is no directory, and has this number.
    pub(crate) fn moved(&mut self, from: &RelPath, to: &RelPath, file: Option<u64>) {
        if let Some(number) = file {
            self.0.entry(number).and_modify(|node| node.path = to.clone());
            return;
        }
        for node in self.0.values_mut() {
            node.path = after(&node.path, from, to).unwrap_or_else(|| node.path.clone());
        }
    }

    /// Two things have each other's path.
    pub(crate) fn exchanged(&mut self, one: &RelPath, other: &RelPath) {
        for node in self.0.values_mut() {
            let path = after(&node.path, one, other).or_else(|| after(&node.path, other, one));
            node.path = path.unwrap_or_else(|| node.path.clone());
        }
    }

    pub(crate) fn forget(&mut self, number: u64, times: u64) {
        if number == ROOT {
            return;
        }
        if let Some(node) = self.0.get_mut(&number) {
            node.known = node.known.saturating_sub(times);
            if node.known == 0 {
                self.0.remove(&number);
            }
        }
    }

    /// It is opened, and is this: whether it was the same when it was opened before.
    pub(crate) fn opened(&mut self, number: u64, ident: Ident) -> bool {
        let Some(node) = self.0.get_mut(&number) else { return false };
        node.opened.replace(ident) == Some(ident)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The path of what had this one, after `from` was given the path `to`; `None`: it has nothing to do with it.
fn after(path: &RelPath, from: &RelPath, to: &RelPath) -> Option<RelPath> {
    let rest = path.bytes().strip_prefix(from.bytes())?;
    let is_below = matches!(rest.first(), None | Some(b'/'));
    is_below.then(|| RelPath::new(&[to.bytes(), rest].concat()).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use linkspan_files::fs::Time;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_forgotten_as_often_as_it_was_told_takes_no_memory() {
        let mut nodes = Nodes::new(RelPath::default());
        for n in 2..1002 {
            nodes.told(n, path("a"));
            nodes.told(n, path("b"));
        }
        assert_eq!(nodes.path(2), Some(path("b")));
        (2..1002).for_each(|n| nodes.forget(n, 1));
        assert_eq!(nodes.len(), 1001);
        (2..1002).for_each(|n| nodes.forget(n, 1));
        nodes.forget(ROOT, 1);
        assert_eq!(nodes.len(), 1, "the root stays");
    }

    #[test]
    fn what_is_below_a_directory_moves_with_it_and_names_that_only_begin_alike_do_not() {
        let mut nodes = Nodes::new(RelPath::default());
        let all = ["d", "d/e/f", "dd", "x/d"];
        (2..).zip(all).for_each(|(n, at)| nodes.told(n, path(at)));
        let now = |nodes: &Nodes| (2..6).map(|n| nodes.path(n).unwrap()).collect::<Vec<_>>();
        nodes.moved(&path("d"), &path("x/y"), None);
        assert_eq!(now(&nodes), ["x/y", "x/y/e/f", "dd", "x/d"].map(path));
        nodes.moved(&path("dd"), &path("x/d"), Some(4));
        assert_eq!(now(&nodes), ["x/y", "x/y/e/f", "x/d", "x/d"].map(path));
        nodes.exchanged(&path("x/y"), &path("x/d"));
        assert_eq!(now(&nodes), ["x/d", "x/d/e/f", "x/y", "x/y"].map(path));
    }

    #[test]
    fn a_sync_after_another_boot_of_the_peer_says_that_what_was_written_before_may_be_lost() {
        let edits = Edits::default();
        let sync = |boot: u8| edits.sync(|| Ok::<_, ()>(vec![boot]));
        assert_eq!(sync(1), Ok(true));
        edits.begin(vec![1]);
        edits.begin(vec![2]);
        assert_eq!(edits.sync(|| Err(())), Err(()), "a sync that fails changes nothing");
        assert_eq!(sync(2), Ok(false), "what was written in the boot before");
        assert_eq!(sync(2), Ok(true), "told once");
        edits.begin(vec![2]);
        assert_eq!(sync(2), Ok(true));
    }

    #[test]
    fn pages_are_kept_for_what_is_the_same_in_everything() {
        let mut nodes = Nodes::new(RelPath::default());
        nodes.told(2, path("a"));
        let ident = Ident { dev: 1, ino: 2, size: 3, mtime: Time::default(), ctime: Time::default() };
        assert!(!nodes.opened(2, ident));
        assert!(nodes.opened(2, ident));
        let later = Ident { ctime: Time { sec: 0, nsec: 1 }, ..ident };
        assert!(!nodes.opened(2, later) && nodes.opened(2, later));
        assert_ne!(number(ROOT), ROOT);
    }
}
