//! Which path a number of the kernel stands for. Numbers are those of the peer's file system, so they are the same after the next mount.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use linkspan_files::fs::Ident;
use linkspan_files::lock;
use linkspan_files::name::RelPath;
use linkspan_files::wire::Entry;

/// fuse(4): the root's number.
pub(crate) const ROOT: u64 = 1;

/// The number of a file of the peer. A share may have more devices than that of its root, with numbers of their own (subvolumes of btrfs,
/// overlayfs): each has other upper bits, by the golden ratio (Knuth, The Art of Computer Programming 3, 6.4), of which small multiples
/// lie far apart.
pub(crate) fn number(entry: &Entry) -> u64 {
    match entry.ino ^ entry.dev.wrapping_mul(0x9E37_79B9_7F4A_7C15) {
        // Those that are taken.
        number @ (0 | ROOT) => number | 1 << 63,
        number => number,
    }
}

/// What this mount does to a file or directory, or sees that others did.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    /// Counts it: what was read ahead before is another content.
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
    /// Device and number there; the share's root is whatever it is.
    which: Option<(u64, u64)>,
    /// Answers that named it and were not forgotten.
    known: u64,
    /// Another one, and the kernel takes what has this number from now on for something else (fuse(4)).
    generation: u64,
    /// What it was when it was last opened, where a change since would show: what the kernel's pages are of.
    opened: Option<Ident>,
    /// What the kernel was last told that it is, as of when.
    shown: Option<(Ident, Instant)>,
    edits: Arc<Edits>,
}

impl Node {
    fn new(path: RelPath, which: Option<(u64, u64)>, known: u64) -> Node {
        Node { path, which, known, generation: 0, opened: None, shown: None, edits: Arc::default() }
    }
}

/// What the kernel knows.
#[derive(Debug)]
pub(crate) struct Nodes(HashMap<u64, Node>);

impl Nodes {
    pub(crate) fn new(base: RelPath) -> Nodes {
        Nodes(HashMap::from([(ROOT, Node::new(base, None, 1))]))
    }

    pub(crate) fn path(&self, number: u64) -> Option<RelPath> {
        self.0.get(&number).map(|node| node.path.clone())
    }

    pub(crate) fn which(&self, number: u64) -> Option<(u64, u64)> {
        self.0.get(&number).and_then(|node| node.which)
    }

    /// The kernel is told of it, under this path as of this moment, and of this generation.
    pub(crate) fn told(&mut self, number: u64, entry: &Entry, path: RelPath, seen: Instant) -> u64 {
        let new = || Node::new(path.clone(), Some((entry.dev, entry.ino)), 0);
        let node = self.0.entry(number).or_insert_with(new);
        node.known += 1;
        let generation = node.generation;
        if node.shown.is_none_or(|(_, last)| last <= seen) {
            node.path = path;
            self.shown(number, entry, seen);
        }
        generation
    }

    /// Of which generation it is, and what the kernel was told that it is since this moment.
    pub(crate) fn since(&self, number: u64, seen: Instant) -> (u64, Option<Ident>) {
        let Some(node) = self.0.get(&number) else { return (0, None) };
        (node.generation, node.shown.filter(|(_, last)| *last > seen).map(|(ident, _)| ident))
    }

    /// A directory with this path was removed or replaced here: the kernel makes nothing in it any more, and while a process is in it knows it
    /// by its number, which the peer's file system may give to the next one.
    pub(crate) fn removed(&mut self, path: &RelPath) {
        self.0.values_mut().filter(|node| node.path == *path).for_each(|node| node.generation += 1);
    }

    /// The number is another file's from now on: it is not given the pages of the one before.
    pub(crate) fn used_again(&mut self, number: u64) {
        self.0.entry(number).and_modify(|node| node.generation += 1);
    }

    pub(crate) fn generation(&self, number: u64) -> u64 {
        self.0.get(&number).map_or(0, |node| node.generation)
    }

    /// The kernel is told what it is. Where that is not what it was, it drops its pages for another size, and is not to get the old ones again.
    pub(crate) fn shown(&mut self, number: u64, entry: &Entry, seen: Instant) {
        if let Some(node) = self.0.get_mut(&number)
            && node.shown.replace((entry.ident(), seen)).is_some_and(|(before, _)| before != entry.ident())
        {
            node.edits.count.fetch_add(1, Ordering::Release);
        }
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

    /// It is opened, and is this: whether it has been the same since it was opened before. `settled`: a change from now on has another time;
    /// of one that has not what is read now is not kept.
    pub(crate) fn opened(&mut self, number: u64, ident: Ident, settled: bool) -> bool {
        let Some(node) = self.0.get_mut(&number) else { return false };
        std::mem::replace(&mut node.opened, settled.then_some(ident)) == Some(ident)
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
    use std::time::Duration;

    use linkspan_files::fs::Time;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).unwrap()
    }

    fn entry(dev: u64, ino: u64) -> Entry {
        Entry { dev, ino, ..Entry::default() }
    }

    #[test]
    fn what_is_forgotten_as_often_as_it_was_told_takes_no_memory() {
        let mut nodes = Nodes::new(RelPath::default());
        for n in 2..1002 {
            nodes.told(n, &entry(0, n), path("a"), Instant::now());
            nodes.told(n, &entry(0, n), path("b"), Instant::now());
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
        for (n, at) in (2..).zip(all) {
            nodes.told(n, &entry(0, n), path(at), Instant::now());
        }
        let now = |nodes: &Nodes| (2..6).map(|n| nodes.path(n).unwrap()).collect::<Vec<_>>();
        nodes.moved(&path("d"), &path("x/y"), None);
        assert_eq!(now(&nodes), ["x/y", "x/y/e/f", "dd", "x/d"].map(path));
        nodes.moved(&path("dd"), &path("x/d"), Some(4));
        assert_eq!(now(&nodes), ["x/y", "x/y/e/f", "x/d", "x/d"].map(path));
        nodes.exchanged(&path("x/y"), &path("x/d"));
        assert_eq!(now(&nodes), ["x/d", "x/d/e/f", "x/y", "x/y"].map(path));
    }

    #[test]
    fn what_has_the_number_of_a_directory_that_was_removed_here_is_of_another_generation() {
        let mut nodes = Nodes::new(RelPath::default());
        let told = |nodes: &mut Nodes, number, at| nodes.told(number, &entry(0, number), path(at), Instant::now());
        assert_eq!((told(&mut nodes, 2, "d"), told(&mut nodes, 3, "other"), told(&mut nodes, 2, "d")), (0, 0, 0));
        nodes.removed(&path("d"));
        assert_eq!((told(&mut nodes, 2, "e"), told(&mut nodes, 3, "other")), (1, 0));
    }

    #[test]
    fn what_was_seen_earlier_takes_nothing_of_what_was_told_back() {
        let mut nodes = Nodes::new(RelPath::default());
        let sized = |size| Entry { size, ..entry(0, 2) };
        let listed = Instant::now();
        assert_eq!(nodes.since(2, listed), (0, None));
        let later = listed + Duration::from_nanos(1);
        nodes.told(2, &sized(5), path("a"), later);
        let newer = |nodes: &Nodes, seen| nodes.since(2, seen).1.map(|ident| ident.size);
        assert_eq!((newer(&nodes, listed), newer(&nodes, later)), (Some(5), None));
        let edits = nodes.edits(2).count();
        nodes.told(2, &sized(1), path("b"), listed);
        assert_eq!((newer(&nodes, listed), nodes.path(2), nodes.edits(2).count()), (Some(5), Some(path("a")), edits));
        nodes.forget(2, 1);
        assert_eq!(nodes.path(2), Some(path("a")), "it was told twice");
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
    fn pages_are_kept_for_what_is_the_same_in_everything_and_would_not_be_if_it_had_changed() {
        let mut nodes = Nodes::new(RelPath::default());
        nodes.told(2, &entry(0, 2), path("a"), Instant::now());
        let ident = Ident { dev: 1, ino: 2, size: 3, mtime: Time::default(), ctime: Time::default() };
        let mut opened = |ident, settled| nodes.opened(2, ident, settled);
        assert!(!opened(ident, true));
        assert!(opened(ident, true));
        let later = Ident { ctime: Time { sec: 0, nsec: 1 }, ..ident };
        assert!(!opened(later, false), "another one");
        assert!(!opened(later, true), "it may have changed since without another time");
        assert!(opened(later, true));
    }

    #[test]
    fn files_of_two_devices_have_two_numbers_and_none_has_that_of_the_root() {
        let devices = (1..300).chain([0x801, 0xfd00, 0x1_0301]).chain((1..300).map(|n| n << 20));
        let numbers: Vec<u64> =
            devices.flat_map(|dev| [1, 2, 256, 257, 1 << 40].map(|ino| number(&entry(dev, ino)))).collect();
        assert_eq!(numbers.iter().collect::<std::collections::HashSet<_>>().len(), numbers.len());
        for taken in [0, ROOT] {
            assert!(!numbers.contains(&taken));
            assert_ne!(number(&entry(0, taken)), taken);
        }
    }
}
