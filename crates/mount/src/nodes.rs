//! Which path a number of the kernel stands for. Numbers are those of the peer's file system, so they are the same after the next mount.

use std::collections::HashMap;

use linkspan_files::fs::Ident;
use linkspan_files::name::RelPath;

/// fuse(4): the root's number.
pub(crate) const ROOT: u64 = 1;

/// The number of a file of the peer: the root's own is taken.
pub(crate) fn number(ino: u64) -> u64 {
    if ino == ROOT { 1 << 63 | ROOT } else { ino }
}

#[derive(Debug)]
struct Node {
    path: RelPath,
    /// Answers that named it and were not forgotten.
    known: u64,
    /// What it was when it was last opened: what the kernel's pages are of.
    opened: Option<Ident>,
}

/// What the kernel knows.
#[derive(Debug)]
pub(crate) struct Nodes(HashMap<u64, Node>);

impl Nodes {
    pub(crate) fn new(base: RelPath) -> Nodes {
        Nodes(HashMap::from([(ROOT, Node { path: base, known: 1, opened: None })]))
    }

    pub(crate) fn path(&self, number: u64) -> Option<RelPath> {
        self.0.get(&number).map(|node| node.path.clone())
    }

    /// The kernel is told of it, under this path.
    pub(crate) fn told(&mut self, number: u64, path: RelPath) {
        let node = self.0.entry(number).or_insert_with(|| Node { path: path.clone(), known: 0, opened: None });
        node.path = path;
        node.known += 1;
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
