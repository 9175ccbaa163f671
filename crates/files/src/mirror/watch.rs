//! What a watched source tells, and when which directories are compared again: a directory whose files change is compared when it has
//! been quiet for a while, all of the tree when something was missed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::name::{Name, RelPath};

/// How long nothing may change in a directory before it is compared.
pub const QUIET: Duration = Duration::from_secs(1);

/// How long a directory that always changes waits at most: a file of it that changes while it is read is not sent, the others are.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How often all is compared where not all can be watched.
pub const SCAN: Duration = Duration::from_secs(60);

/// Directories that wait to be compared; where there are more, all is. Each that is compared by itself is open meanwhile, and a process has
/// 1,024 descriptors.
const DIRTY_MAX: usize = 256;

/// What is heard of a watched tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Something about an entry of this directory that is no directory.
    Changed(RelPath),
    /// A directory of this name has come.
    Came(RelPath, Name),
    /// A directory of this name has gone, or a watched one itself.
    Went(RelPath, Name),
    /// Something was not heard.
    Overflow,
}

/// What is to be compared now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// The whole tree.
    All,
    /// These directories: with the flag all below them as well.
    Some(Vec<(RelPath, bool)>),
}

struct Dirty {
    first: Duration,
    last: Duration,
    /// All below it too.
    deep: bool,
}

/// The state of a watch. It does no I/O and knows no clock: times are counted from any beginning.
#[derive(Default)]
pub struct Watch {
    dirty: BTreeMap<RelPath, Dirty>,
    all: bool,
    /// Directories that are to be watched, and are not yet.
    unwatched: BTreeSet<RelPath>,
    /// Not all can be watched: all is compared from time to time.
    limited: bool,
    scanned: Duration,
    /// Something failed: then all is compared.
    again: Option<Duration>,
    /// How long it was until then.
    pause: Duration,
}

impl Watch {
    /// Nothing is known yet: all is to be compared.
    pub fn new() -> Watch {
        Watch { all: true, unwatched: BTreeSet::from([RelPath::default()]), ..Watch::default() }
    }

    /// Something was heard.
    pub fn hear(&mut self, heard: Heard, now: Duration) {
        match heard {
            Heard::Changed(dir) => self.touch(dir, false, now),
            Heard::Came(parent, name) => {
                // What came into it before it was watched was not heard.
                match parent.join(&name) {
                    Ok(dir) => {
                        self.unwatched.insert(dir.clone());
                        self.touch(parent, false, now);
                        self.touch(dir, true, now);
                    }
                    Err(_) => self.touch(parent, false, now),
                }
            }
            Heard::Went(parent, _) => self.touch(parent, false, now),
            Heard::Overflow => {
                // Directories may have come that nobody told of.
                self.all = true;
                self.unwatched.insert(RelPath::default());
            }
        }
        if self.dirty.len() > DIRTY_MAX {
            self.all = true;
        }
    }

    fn touch(&mut self, dir: RelPath, deep: bool, now: Duration) {
        let dirty = self.dirty.entry(dir).or_insert(Dirty { first: now, last: now, deep });
        dirty.last = now;
        dirty.deep |= deep;
    }

    /// The system watches no more directories.
    pub fn limit(&mut self) {
        self.limited = true;
    }

    /// Whether not all is watched.
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// A directory that is to be watched before it is compared, with all below it.
    pub fn unwatched(&mut self) -> Option<RelPath> {
        self.unwatched.pop_first()
    }

    /// What is to be compared now. It is not due again until something more is heard, or it has failed.
    pub fn due(&mut self, now: Duration) -> Option<Due> {
        let again = self.again.is_some_and(|at| at <= now);
        if self.all || again || (self.limited && now.saturating_sub(self.scanned) >= SCAN) {
            self.dirty.clear();
            self.all = false;
            self.again = None;
            self.scanned = now;
            return Some(Due::All);
        }
        let ready =
            |dirty: &Dirty| now.saturating_sub(dirty.last) >= QUIET || now.saturating_sub(dirty.first) >= PATIENCE;
        let ready: Vec<&RelPath> = self.dirty.iter().filter(|(_, dirty)| ready(dirty)).map(|(path, _)| path).collect();
        // With those above them: what is new there has to be made first.
        let with = |path: &&RelPath| ready.iter().any(|of| *of == *path || is_below(of, path));
        let due: Vec<RelPath> = self.dirty.keys().filter(with).cloned().collect();
        let mut all: Vec<(RelPath, bool)> = Vec::new();
        for path in due {
            let deep = self.dirty.remove(&path).is_some_and(|dirty| dirty.deep);
            // What lies below one that is compared with all below it comes with it.
            if !all.iter().any(|(above, deep)| *deep && is_below(&path, above)) {
                all.push((path, deep));
            }
        }
        (!all.is_empty()).then_some(Due::Some(all))
    }

    /// What was due could not be done, or not all of it. The answer is how long it is until all is compared: twice as long after
    /// each failure, [`SCAN`] at most.
    pub fn failed(&mut self, now: Duration) -> Duration {
        self.pause = (self.pause * 2).clamp(QUIET, SCAN);
        self.again = Some(now + self.pause);
        self.pause
    }

    /// What was due was done.
    pub fn succeeded(&mut self) {
        self.pause = Duration::ZERO;
    }

    /// How long nothing is due if nothing is heard; [`SCAN`] at most, for not everything is told.
    pub fn rest(&self, now: Duration) -> Duration {
        if self.all {
            return Duration::ZERO;
        }
        let of = |dirty: &Dirty| (dirty.last + QUIET).min(dirty.first + PATIENCE).saturating_sub(now);
        let scan = self.limited.then(|| (self.scanned + SCAN).saturating_sub(now));
        let again = self.again.map(|at| at.saturating_sub(now));
        self.dirty.values().map(of).chain(scan).chain(again).fold(SCAN, Duration::min)
    }
}

fn is_below(path: &RelPath, above: &RelPath) -> bool {
    above.is_root() || path.bytes().strip_prefix(above.bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).unwrap()
    }

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn begun() -> Watch {
        let mut watch = Watch::new();
        assert_eq!(watch.unwatched(), Some(RelPath::default()));
        assert_eq!(watch.due(at(0)), Some(Due::All));
        watch
    }

    #[test]
    fn a_directory_is_compared_when_it_is_quiet_and_one_that_never_is_after_a_while() {
        let mut watch = begun();
        assert_eq!(watch.rest(at(0)), SCAN);
        watch.hear(Heard::Changed(path("a")), at(100));
        watch.hear(Heard::Changed(path("a")), at(900));
        assert_eq!((watch.due(at(1500)), watch.rest(at(1500))), (None, at(400)));
        assert_eq!(watch.due(at(1900)), Some(Due::Some(vec![(path("a"), false)])));
        assert_eq!(watch.due(at(9000)), None);
        for n in 0..100 {
            watch.hear(Heard::Changed(path("log")), at(10_000 + n * 500));
            let due = watch.due(at(10_000 + n * 500));
            assert_eq!(due.is_some(), n == 60, "at {n}");
        }
    }

    #[test]
    fn a_new_directory_is_watched_and_compared_with_all_below_it() {
        let mut watch = begun();
        watch.hear(Heard::Came(path("a"), Name::new(b"new").unwrap()), at(0));
        watch.hear(Heard::Changed(path("a/new/sub")), at(0));
        assert_eq!((watch.unwatched(), watch.unwatched()), (Some(path("a/new")), None));
        assert_eq!(watch.due(at(1000)), Some(Due::Some(vec![(path("a"), false), (path("a/new"), true)])));
    }

    #[test]
    fn what_failed_has_all_compared_soon_and_less_often_while_it_fails() {
        let mut watch = begun();
        let mut now = at(0);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let pause = Duration::from_secs(seconds);
            assert_eq!((watch.failed(now), watch.due(now), watch.rest(now)), (pause, None, pause));
            now += pause;
            assert_eq!(watch.due(now), Some(Due::All));
        }
        watch.succeeded();
        assert_eq!((watch.due(now + SCAN), watch.failed(now)), (None, QUIET));
    }

    #[test]
    fn what_was_missed_has_all_compared() {
        let mut watch = begun();
        watch.hear(Heard::Changed(path("a")), at(0));
        watch.hear(Heard::Overflow, at(1));
        assert_eq!(watch.unwatched(), Some(RelPath::default()), "new directories may be among what was missed");
        assert_eq!(watch.rest(at(1)), Duration::ZERO);
        assert_eq!((watch.due(at(1)), watch.due(at(5000))), (Some(Due::All), None));
        let mut watch = begun();
        let later = at(1000);
        assert_eq!(watch.due(later), None);
        (0..257).for_each(|n| watch.hear(Heard::Changed(path(&n.to_string())), at(5000)));
        assert_eq!(watch.due(at(5000)), Some(Due::All), "too many to be told apart");
        watch.limit();
        assert_eq!((watch.due(at(6000)), watch.rest(at(6000))), (None, SCAN - at(1000)));
        assert_eq!(watch.due(at(5000) + SCAN), Some(Due::All));
    }
}
