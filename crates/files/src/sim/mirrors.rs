//! Seeded histories of a mirror: users edit both sides, disks are unmounted, listings fail, the watch misses things, runs are killed.
//! After each run: nothing that was whole at the destination is lost, and nothing is gone from it that the source has.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::run::{self, Run};
use super::{Bug, Mishap, Random, SimFs};
use crate::engine::Happened;
use crate::fs::{Fs, Links};
use crate::mirror::watch::{Due, Heard, QUIET, Watch};
use crate::mirror::{Unmarked, mark, together};
use crate::name::{Name, RelPath};
use crate::sink::DestDir;
use crate::source::{Load, Start};
use crate::wire::{Delete, FaultKind};

/// What a mirror gets wrong; the histories must find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorBug {
    /// A missing mark does not stop it.
    MarkIgnored,
    /// What may not go goes.
    LimitIgnored,
    /// What the system did not tell is taken for nothing.
    OverflowIgnored,
    /// A new directory is compared without what is below it.
    NewDirNotScanned,
    /// A bug of the source's file system, or of the destination's where names are given.
    Fs(Bug),
}

/// All of them.
pub const MIRROR_BUGS: [MirrorBug; 7] = [
    MirrorBug::MarkIgnored,
    MirrorBug::LimitIgnored,
    MirrorBug::OverflowIgnored,
    MirrorBug::NewDirNotScanned,
    MirrorBug::Fs(Bug::BlindRename),
    MirrorBug::Fs(Bug::AgainNotFound),
    MirrorBug::Fs(Bug::ListingCut),
];

/// Directories and names that come up.
const DIRS: [&str; 5] = ["", "d", "e", "d/f", "e/g"];
const FILES: [&str; 4] = ["a", "b", "c", "f"];

struct World {
    random: Random,
    bug: Option<MirrorBug>,
    src: SimFs,
    dst: SimFs,
    watch: Watch,
    now: Duration,
    /// Directories that the system watches.
    watched: BTreeSet<String>,
    /// Edits are heard.
    hears: bool,
    /// The destination takes names for one that differ by case alone.
    folds: bool,
}

/// Runs one history.
///
/// # Errors
/// A text: which promise was broken, in which step.
pub fn run(seed: u64, bug: Option<MirrorBug>) -> Result<(), String> {
    let mut world = World::new(seed, bug, false);
    for _ in 0..10 {
        world.edit();
    }
    for _ in 0..2 + world.random.below(5) {
        match world.random.below(8) {
            0..=2 => world.edit(),
            3 => world.edit_target(),
            4 => world.unmounted()?,
            5 => world.mishap()?,
            6 => world.many_gone()?,
            _ => world.round(true)?,
        }
    }
    world.watched_edits()?;
    world.converge()
}

/// A file of the destination makes way for a directory. A run is killed at one call, and the power is lost at a call of the next one.
///
/// # Errors
/// As [`run`].
pub fn makes_way(seed: u64, killed: u64, lost: u64) -> Result<(), String> {
    let mut world = World::new(seed, None, false);
    let bytes = world.content();
    world.src.users(|users| users.write("home/d/f/a", b"new", false));
    world.dst.users(|users| users.write("home/d/f", &bytes, false));
    for (at, power) in [(killed, false), (lost, true)] {
        world.dst.plan(Some((at, Mishap::Kill)), false);
        world.checked_round(true, power)?;
    }
    world.converge()
}

/// The source has names that differ by case alone, and the destination takes them for one.
///
/// # Errors
/// A text: something is gone from the destination, or was told to be there and is not.
pub fn folded(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed, None, true);
    for _ in 0..3 + world.random.below(4) {
        (0..1 + world.random.below(6)).for_each(|_| world.edit());
        let dirs: Vec<String> = world.dirs().into_iter().collect();
        let due = match world.random.below(3) {
            0 => Due::Some(vec![(at(&dirs[world.random.below(dirs.len())]), world.random.one_in(2))]),
            _ => Due::All,
        };
        world.folded_round(due)?;
    }
    Ok(())
}

fn at(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).unwrap_or_default()
}

/// What users see.
fn visible(files: &BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let seen = |path: &&String| path.starts_with("home/") && !path.contains("/.lspan");
    files.iter().filter(|(path, _)| seen(path)).map(|(path, bytes)| (path.clone(), bytes.clone())).collect()
}

fn files(fs: &SimFs) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    fs.users(|users| files = users.files());
    files
}

impl World {
    /// Two sides with the same mark and nothing else.
    fn new(seed: u64, bug: Option<MirrorBug>, folds: bool) -> World {
        let mut random = Random(seed ^ 0x6D69_7272_6F72);
        let (on_src, on_dst) = match bug {
            Some(MirrorBug::Fs(Bug::BlindRename)) => (None, Some(Bug::BlindRename)),
            Some(MirrorBug::Fs(bug)) => (Some(bug), None),
            _ => (None, None),
        };
        let (src, dst) = (SimFs::new(random.number(), on_src, false), SimFs::new(random.number(), on_dst, folds));
        src.users(|users| users.write("home/.lspan/mirror", b"m", false));
        dst.users(|users| users.write("home/.lspan/mirror", b"m", false));
        dst.users(|users| users.write("state/keep", b"", false));
        let (watch, now, watched, hears) = (Watch::new(), Duration::ZERO, BTreeSet::new(), false);
        World { random, bug, src, dst, watch, now, watched, hears, folds }
    }

    fn content(&mut self) -> Vec<u8> {
        let len = 1 + self.random.below(4000);
        let mut bytes: Vec<u8> = (0..len).map(|_| self.random.number() as u8).collect();
        bytes.extend_from_slice(&self.random.number().to_le_bytes());
        bytes
    }

    fn name(&mut self) -> (String, String) {
        let dir = DIRS[self.random.below(DIRS.len())];
        let file = FILES[self.random.below(FILES.len())];
        let path = if dir.is_empty() { file.to_owned() } else { format!("{dir}/{file}") };
        let mut cased = |c: char| if self.folds && self.random.one_in(2) { c.to_ascii_uppercase() } else { c };
        let path: String = path.chars().map(&mut cased).collect();
        (path[..dir.len()].to_owned(), path)
    }

    /// Somebody changes the source, and the system tells of it where it watches.
    fn edit(&mut self) {
        let (dir, path) = self.name();
        let before = self.dirs();
        let bytes = self.content();
        let gone = self.random.one_in(3);
        let tree = self.random.one_in(8) && !dir.is_empty();
        self.src.users(|users| {
            if users.is_dir(&format!("home/{path}")) || (gone && tree) {
                users.remove(&format!("home/{}", if tree { &dir } else { &path }));
            } else if gone {
                users.remove(&format!("home/{path}"));
            } else {
                users.write(&format!("home/{path}"), &bytes, false);
            }
        });
        self.src.jump(3_000_000_000);
        self.heard(&before, if gone && tree { &dir } else { &path });
    }

    fn dirs(&self) -> BTreeSet<String> {
        let mut dirs = BTreeSet::new();
        self.src.users(|users| dirs = users.dirs());
        dirs.iter().filter_map(|dir| dir.strip_prefix("home")).map(|dir| dir.trim_matches('/').to_owned()).collect()
    }

    /// What inotify(7) would tell: of new entries in watched directories alone.
    fn heard(&mut self, before: &BTreeSet<String>, path: &str) {
        if !self.hears {
            return;
        }
        if self.random.one_in(10) {
            if self.bug != Some(MirrorBug::OverflowIgnored) {
                self.watch.hear(Heard::Overflow, self.now);
            }
            return;
        }
        let split = |path: &str| at(path).split();
        let after = self.dirs();
        for new in after.difference(before) {
            if let Some((parent, name)) = split(new)
                && self.watched.contains(&String::from_utf8_lossy(parent.bytes()).into_owned())
            {
                self.watch.hear(Heard::Came(parent, name), self.now);
            }
        }
        for old in before.difference(&after) {
            self.watched.remove(old);
            if let Some((parent, name)) = split(old) {
                self.watch.hear(Heard::Went(parent, name), self.now);
            }
        }
        if let Some((parent, _)) = split(path)
            && self.watched.contains(&String::from_utf8_lossy(parent.bytes()).into_owned())
        {
            self.watch.hear(Heard::Changed(parent), self.now);
        }
    }

    fn edit_target(&mut self) {
        let (_, path) = self.name();
        let bytes = self.content();
        self.dst.users(|users| {
            if !users.is_dir(&format!("home/{path}")) {
                users.write(&format!("home/{path}"), &bytes, false);
            }
        });
    }

    /// A run on these directories, as the watch has it, with all checks.
    fn mirror(&mut self, due: Due, most: Option<u64>) -> Result<Run, Unmarked> {
        let read = |fs: &SimFs| {
            let root = fs.open_dir(&fs.root(), &at("home"), Links::Refuse).ok();
            let mark = root.and_then(|root| mark(fs, &root, &RelPath::default(), None).ok()).unwrap_or_default();
            String::from_utf8_lossy(&mark).into_owned()
        };
        match together(&read(&self.src), &read(&self.dst), false, "") {
            Err(_) if self.bug == Some(MirrorBug::MarkIgnored) => {}
            other => drop(other?),
        }
        let open = |fs: &SimFs, path: &str| fs.open_dir(&fs.root(), &at(path), Links::Refuse);
        let (Ok(to), Ok(state)) = (open(&self.dst, "home"), open(&self.dst, "state")) else {
            return Ok(Run::default());
        };
        let due = match due {
            Due::All => vec![(RelPath::default(), true)],
            Due::Some(due) => due,
        };
        let mut starts = Vec::new();
        for (path, deep) in due {
            let whole = if path.is_root() {
                "home".to_owned()
            } else {
                format!("home/{}", String::from_utf8_lossy(path.bytes()))
            };
            let shallow = !deep || (self.bug == Some(MirrorBug::NewDirNotScanned) && !path.is_root());
            // One that has gone: its parent tells.
            if let Ok(dir) = open(&self.src, &whole) {
                starts.push(Start { dir: Arc::new(dir), name: None, path, shallow, opened: None });
            }
        }
        let (fs, state) = (Arc::new(self.dst.clone()), Some(Arc::new(state)));
        let most = if self.bug == Some(MirrorBug::LimitIgnored) { Some(u64::from(u32::MAX)) } else { most };
        let place = DestDir::new(fs, Arc::new(to), RelPath::default(), state, u64::MAX);
        let place = place.with(false, false, Some(Delete { most, keep: Vec::new() }));
        let load = Load { delete: true, ..Load::new(Arc::new(self.src.clone()), u64::MAX) };
        Ok(run::transfer(&mut self.random, load, starts, place, &AtomicBool::new(false)))
    }

    fn round(&mut self, unlimited: bool) -> Result<(), String> {
        let power = self.random.one_in(4) && self.dst.has_mishap();
        self.checked_round(unlimited, power)
    }

    /// A whole run, after it a loss of power where that is asked for, and what must hold then whatever has happened.
    fn checked_round(&mut self, unlimited: bool, power: bool) -> Result<(), String> {
        let most = unlimited.then_some(1 << 20);
        let (source, before) = (files(&self.src), files(&self.dst));
        let mut durable = BTreeMap::new();
        self.dst.users(|users| durable = users.durable_files());
        let ran = self.mirror(Due::All, most);
        self.dst.restart(power);
        self.src.restart(false);
        let Ok(run) = ran else { return Ok(()) };
        let after = files(&self.dst);
        for (path, bytes) in visible(&before) {
            let settled = !power || durable.get(&path) == Some(&bytes);
            if settled && !after.values().any(|has| *has == bytes) {
                return Err(format!("{path}: {} bytes that the destination had are gone", bytes.len()));
            }
            // What both sides had throughout stays under its name.
            if settled && source.contains_key(&path) && !power && !after.contains_key(&path) {
                return Err(format!("{path}, which the source has, has gone from the destination"));
            }
        }
        if let Some(fault) = run.failed
            && fault.kind == FaultKind::Limit
        {
            let lost = visible(&before).into_keys().filter(|path| !after.contains_key(path)).count();
            if lost > 0 {
                return Err(format!("{lost} names went although more than may were to go"));
            }
        }
        Ok(())
    }

    fn folded_round(&mut self, due: Due) -> Result<(), String> {
        let (source, before) = (visible(&files(&self.src)), visible(&files(&self.dst)));
        let fails = (1 + self.random.below(60) as u64, Mishap::Fail(ErrorKind::PermissionDenied));
        self.src.plan(self.random.one_in(2).then_some(fails), false);
        let ran = self.mirror(due, Some(1 << 20));
        self.src.restart(false);
        let Ok(run) = ran else { return Ok(()) };
        let after = files(&self.dst);
        for event in &run.events {
            let path = format!("home/{}", String::from_utf8_lossy(event.path.bytes()));
            let told = matches!(event.what, Happened::Same | Happened::Done(..));
            if told && source.contains_key(&path) && source.get(&path) != after.get(&path) {
                return Err(format!("{path} is told to be there and is not"));
            }
        }
        let mut dirs = BTreeSet::new();
        self.src.users(|users| dirs = users.dirs());
        for (path, bytes) in &before {
            if !after.values().any(|has| has == bytes) {
                return Err(format!("{path}: {} bytes that the destination had are gone", bytes.len()));
            }
            // What the source has not, and which something of the source cannot come beside.
            let mut above = path.match_indices('/').map(|(end, _)| &path[..end]).chain([&path[..]]);
            let Some(missing) = above.find(|above| !dirs.contains(*above)) else { continue };
            let parent = &missing[..missing.rfind('/').unwrap_or(0)];
            let mut others = source.keys().chain(&dirs).filter(|other| other.starts_with(parent));
            let refused = !source.contains_key(missing) && others.any(|other| other.eq_ignore_ascii_case(missing));
            if refused && !after.contains_key(path) {
                return Err(format!("{path} has gone although something of its name was refused"));
            }
        }
        Ok(())
    }

    /// A disk that is not mounted: nothing at the other side goes.
    fn unmounted(&mut self) -> Result<(), String> {
        let (which, before) = (self.random.one_in(2), visible(&files(&self.dst)));
        let fs = if which { self.src.clone() } else { self.dst.clone() };
        let mut kept = None;
        fs.users(|users| kept = users.unmount("home"));
        let ran = self.mirror(Due::All, Some(1 << 20));
        if let Some(kept) = kept {
            fs.users(|users| users.mount("home", kept));
        }
        self.src.restart(false);
        self.dst.restart(false);
        if ran.is_ok() && self.bug != Some(MirrorBug::MarkIgnored) {
            return Err("it ran without a mark".into());
        }
        if visible(&files(&self.dst)) == before {
            Ok(())
        } else {
            Err("an unmounted disk changed the other side".into())
        }
    }

    /// A run that is killed, loses power, or whose listings fail.
    fn mishap(&mut self) -> Result<(), String> {
        let at = 1 + self.random.below(300) as u64;
        match self.random.below(4) {
            0 => self.src.plan(Some((at, Mishap::Kill)), false),
            1 => self.dst.plan(Some((at, Mishap::Kill)), false),
            2 => self.src.plan(Some((1 + at / 5, Mishap::Fail(ErrorKind::WouldBlock))), false),
            _ => self.src.plan(Some((1 + at / 5, Mishap::Fail(ErrorKind::PermissionDenied))), false),
        }
        self.round(true)
    }

    /// Many names go from the source: more than may go without being asked for.
    fn many_gone(&mut self) -> Result<(), String> {
        self.round(true)?;
        let bytes = self.content();
        for fs in [&self.src, &self.dst] {
            fs.users(|users| (0..40).for_each(|n| users.write(&format!("home/many/{n}"), &bytes, false)));
        }
        self.src.users(|users| users.remove("home/many"));
        let before = visible(&files(&self.dst));
        let run = self.mirror(Due::All, None).map_err(|error| error.to_string())?;
        let after = visible(&files(&self.dst));
        let gone = before.keys().filter(|path| !after.contains_key(*path)).count() as u64;
        if run.complete && gone > 10.max(before.len() as u64 * 2 / 4) {
            return Err(format!("{gone} of {} names went without being asked for", before.len()));
        }
        self.dst.users(|users| users.remove("home/many"));
        Ok(())
    }

    /// Sets watches on all directories from here on, as a walk does.
    fn watch_below(&mut self, path: &str) {
        let below = |dir: &String| path.is_empty() || dir == path || dir.starts_with(&format!("{path}/"));
        let dirs: Vec<String> = self.dirs().into_iter().filter(below).collect();
        self.watched.extend(dirs);
    }

    /// The source is watched while it is edited: what is due makes the destination equal.
    fn watched_edits(&mut self) -> Result<(), String> {
        self.watch = Watch::new();
        self.hears = true;
        self.watch_below("");
        for _ in 0..1 + self.random.below(12) {
            self.edit();
            self.now += Duration::from_millis(self.random.below(700) as u64);
            if self.random.one_in(3) {
                self.settle()?;
            }
        }
        self.now += QUIET * 2;
        self.settle()?;
        self.same("after what was watched")
    }

    fn settle(&mut self) -> Result<(), String> {
        // First the watches, then the comparing: what comes between is told.
        while let Some(dir) = self.watch.unwatched() {
            self.watch_below(&String::from_utf8_lossy(dir.bytes()));
        }
        if let Some(due) = self.watch.due(self.now) {
            let run = self.mirror(due, Some(1 << 20)).map_err(|error| error.to_string())?;
            if !run.complete {
                return Err("a run without a mishap did not end".into());
            }
        }
        Ok(())
    }

    fn same(&self, when: &str) -> Result<(), String> {
        let (from, to) = (visible(&files(&self.src)), visible(&files(&self.dst)));
        for path in from.keys().chain(to.keys()) {
            if from.get(path) != to.get(path) {
                return Err(format!("{path} differs {when}"));
            }
        }
        Ok(())
    }

    /// Without mishaps the next run makes both sides equal.
    fn converge(&mut self) -> Result<(), String> {
        self.hears = false;
        self.edit();
        self.edit_target();
        let name = Name::new(b"home").map_err(|error| error.to_string())?;
        self.src.open_child(&self.src.root(), &name).map_err(|error| error.to_string())?;
        self.round(true)?;
        self.same("after a run without a mishap")
    }
}
