//! Seeded histories: users edit, transfers run and are killed, lose power and meet failing disks. After each of them it is asked
//! whether anything was lost, mixed or wrongly reported.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::run::{self, Run};
use super::{Bug, Mishap, Random, SimFs};
use crate::engine::Happened;
use crate::fs::{Fs, Links};
use crate::hash::whole;
use crate::name::{Name, RelPath, is_partial};
use crate::sink::DestDir;
use crate::source::{Load, Start};

/// Files that come up.
const NAMES: [&str; 4] = ["a", "b", "sub/c", "sub/d"];

/// What is sent of them, and to where.
const ALL: [(&str, &str); 3] = [("a", "a"), ("b", "b"), ("sub", "sub")];

struct World {
    random: Random,
    src: SimFs,
    dst: SimFs,
    /// Every content that a name may have.
    versions: BTreeMap<&'static str, BTreeSet<Vec<u8>>>,
    /// What a user was told has arrived, until something else happens to the name.
    told: BTreeMap<&'static str, Vec<u8>>,
    /// What the source has got since: it may have arrived without anybody having been told.
    newer: BTreeMap<&'static str, BTreeSet<Vec<u8>>>,
    /// What somebody wrote at the receiver while a transfer ran.
    precious: Vec<Vec<u8>>,
    /// The receiver of the transfer under way has looked at what there is.
    judged: Arc<AtomicBool>,
    /// Where the receiver's journals are.
    state: Option<&'static str>,
}

/// Runs one history.
///
/// # Errors
/// A text: which promise was broken, in which step.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<(), String> {
    let mut world = World::new(seed, bug);
    for name in NAMES {
        world.edit_source(name);
    }
    for _ in 0..3 + world.random.below(5) {
        match world.random.below(6) {
            0 | 1 => {
                let name = NAMES[world.random.below(NAMES.len())];
                world.edit_source(name);
            }
            2 => world.edit_target(),
            _ => world.mishap()?,
        }
    }
    world.converge()
}

/// Somebody writes the target just before a call of the receiver, and the next call fails.
///
/// # Errors
/// A text: what was written is gone.
pub fn overtaken(seed: u64, call: u64) -> Result<(), String> {
    let mut world = World::new(seed, None);
    let len = if seed.is_multiple_of(2) { 500 } else { 3000 };
    world.src.users(|users| users.write("home/a", &vec![1; len], false));
    world.dst.users(|users| users.write("home/a", &vec![2; len], false));
    world.dst.plan(Some((call + 1, Mishap::Fail(ErrorKind::PermissionDenied))), false);
    let (judged, written) = (world.judged.clone(), Arc::new(AtomicBool::new(false)));
    let set = written.clone();
    world.dst.edit_at(call, move |users| {
        // What was there before the receiver looked is what the transfer is to replace.
        if judged.load(Relaxed) {
            users.write("home/a", b"precious", false);
            set.store(true, Relaxed);
        }
    });
    world.transfer(&[("a", "a")]);
    world.dst.restart(false);
    let mut files = BTreeMap::new();
    world.dst.users(|users| files = users.files());
    let has = |path: &String| path == "home/a" || path.starts_with("home/.lspan/trash/");
    match written.load(Relaxed) && !files.iter().any(|(path, bytes)| has(path) && bytes == b"precious") {
        true => Err(format!("what somebody wrote is gone; there are {:?}", files.keys())),
        false => Ok(()),
    }
}

/// A transfer is cut, transfers of another source to the same name are cut or meet a failing disk, some of them with another place for
/// journals or none, and then the first is run to its end, all in one boot.
///
/// # Errors
/// A text: the name has another content than that of the first source.
pub fn between(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed, None);
    let len = 2000 + world.random.below(8000);
    let others = [len, 1025 + world.random.below(8000)];
    for (name, len) in [("a", len), ("b", others[world.random.below(2)])] {
        let mut bytes: Vec<u8> = (0..len).map(|_| world.random.number() as u8).collect();
        if world.random.one_in(3) {
            bytes[1024..].fill(0);
        }
        world.src.users(|users| users.write(&format!("home/{name}"), &bytes, false));
    }
    if world.random.one_in(3) {
        world.dst.users(|users| users.write("home/a", &[7; 4000], false));
    }
    world.src.jump(10_000_000_000);
    for from in [&["a"][..], &["b"], &["b", "a"]].iter().take(2 + world.random.below(2)).flat_map(|names| names.iter())
    {
        let at = 1 + world.random.below(150) as u64;
        let fails = world.random.one_in(2).then_some(Mishap::Fail(ErrorKind::StorageFull));
        world.dst.plan(Some((at, fails.unwrap_or(Mishap::Kill))), world.random.one_in(4));
        world.src.plan(Some((1 + world.random.below(60) as u64, Mishap::Kill)), false);
        world.state = [Some("state"), Some("state"), Some("state2"), None][world.random.below(4)];
        world.transfer(&[(*from, "a")]);
        world.src.restart(false);
        world.dst.restart(false);
    }
    world.state = Some("state");
    let run = world.transfer(&[("a", "a")]);
    let (mut from, mut to) = (BTreeMap::new(), BTreeMap::new());
    world.src.users(|users| from = users.files());
    world.dst.users(|users| to = users.files());
    match run.complete && from.get("home/a") == to.get("home/a") {
        true => Ok(()),
        false => Err(format!("it has another content than its source: {:?}", run.events)),
    }
}

/// Somebody writes to the old file, of which most is kept, while a transfer that is cut replaces it. Then it is run to its end, in one boot.
///
/// # Errors
/// A text: the name has another content than the source.
pub fn edited(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed, None);
    let len = 4000 + world.random.below(8000);
    let bytes: Vec<u8> = (0..len).map(|_| world.random.number() as u8).collect();
    let mut old = bytes.clone();
    old[world.random.below(len)] ^= 1;
    world.src.users(|users| users.write("home/a", &bytes, false));
    world.dst.users(|users| users.write("home/a", &old, false));
    world.src.jump(10_000_000_000);
    for _ in 0..2 {
        old[world.random.below(len)] ^= 2;
        let (at, edit) = (1 + world.random.below(80) as u64, old.clone());
        world.dst.edit_at(at, move |users| users.write("home/a", &edit, false));
        world.dst.plan(Some((at + world.random.below(80) as u64, Mishap::Kill)), false);
        world.transfer(&[("a", "a")]);
        world.src.restart(false);
        world.dst.restart(false);
    }
    let run = world.transfer(&[("a", "a")]);
    let mut to = BTreeMap::new();
    world.dst.users(|users| to = users.files());
    match run.complete && to.get("home/a") == Some(&bytes) {
        true => Ok(()),
        false => Err(format!("it has another content than its source: {:?}", run.events)),
    }
}

/// The disk fails to write something just before a call of the receiver, and another program's syncfs(2) is told first.
///
/// # Errors
/// A text: a file that is reported as received has another content.
pub fn unwritten(len: usize, call: u64) -> Result<(), String> {
    let mut world = World::new(0, None);
    world.src.users(|users| users.write("home/a", &vec![3; len], false));
    world.src.jump(10_000_000_000);
    world.dst.edit_at(call, |users| users.lose());
    let run = world.transfer(&[("a", "a")]);
    let mut files = BTreeMap::new();
    world.dst.users(|users| files = users.files());
    let told = run.events.iter().any(|event| matches!(event.what, Happened::Done(..)));
    match told && files.get("home/a") != Some(&vec![3; len]) {
        true => Err(format!("it is reported as received: {:?}", run.events)),
        false => Ok(()),
    }
}

/// A file that nobody may write is sent by a transfer that is killed at a call of the receiver, and then, from another device, by one that is not.
///
/// # Errors
/// A text: the file is not there, or its partial one stays.
pub fn protected(call: u64) -> Result<(), String> {
    let mut world = World::new(0, None);
    world.src.users(|users| users.write("home/a", &[3; 5000], false));
    world.src.users(|users| users.protect("home/a"));
    world.src.jump(10_000_000_000);
    world.dst.plan(Some((call, Mishap::Kill)), false);
    world.transfer(&[("a", "a")]);
    world.dst.restart(false);
    world.dst.renumber();
    let run = world.transfer(&[("a", "a")]);
    let mut files = BTreeMap::new();
    world.dst.users(|users| files = users.files());
    files.retain(|path, _| path.starts_with("home/") && path != "home/sub/keep");
    match run.complete && files.len() == 1 && files.get("home/a").is_some_and(|bytes| bytes == &[3; 5000]) {
        true => Ok(()),
        false => Err(format!("there are {:?}: {:?}", files.keys(), run.events)),
    }
}

/// A transfer of large and small files and of a link, of which some replace others, is killed at a call of the receiver, and nobody takes it
/// up; then the disk comes back as another device. How many files and links it has left, without those that a journal knows.
///
/// # Errors
/// A text: what it left goes too early, or stays, or something else goes.
pub fn abandoned(call: u64) -> Result<usize, String> {
    let mut world = World::new(0, None);
    let (day, home) = (24 * 3600 * 1_000_000_000, RelPath::new(b"home").unwrap_or_default());
    for (fs, byte, target) in [(&world.src, 1, b"new"), (&world.dst, 2, b"old")] {
        for (name, len) in [("a", 500), ("b", 5000), ("sub/c", 700), ("sub/d", 0)] {
            fs.users(|users| users.write(&format!("home/{name}"), &vec![byte; len + usize::from(byte)], false));
        }
        let linked = fs.open_dir(&fs.root(), &home, Links::Refuse);
        linked.and_then(|dir| fs.symlink(&dir, &crate::trash::fixed(b"l")?, target)).map_err(|e| e.to_string())?;
    }
    world.src.jump(10_000_000_000);
    world.dst.plan(Some((call, Mishap::Kill)), false);
    world.transfer(&[("l", "l"), ("a", "a"), ("b", "b"), ("sub", "sub")]);
    world.dst.restart(false);
    world.dst.renumber();
    let fs = &world.dst;
    let names = |at: &str| -> Vec<Name> {
        let list = fs.open_dir(&fs.root(), &RelPath::new(at.as_bytes()).unwrap_or_default(), Links::Refuse);
        let list = list.and_then(|dir| fs.list(&dir)).into_iter().flatten().flatten();
        list.filter_map(|entry| Name::any(&entry.name).ok()).filter(|name| name.bytes() != b"keep").collect()
    };
    let parts = || -> Vec<(&str, Name)> {
        let all = ["home", "home/sub"].into_iter().flat_map(|at| names(at).into_iter().map(move |name| (at, name)));
        all.filter(|(_, name)| is_partial(name.bytes())).collect()
    };
    let sweep = || -> Result<usize, String> {
        let said = std::cell::Cell::new(0);
        let (root, state) = (fs.root(), RelPath::new(b"state").unwrap_or_default());
        let open = |path| fs.open_dir(&root, path, Links::Refuse).map_err(|error| error.to_string());
        let swept = crate::sweep::sweep(fs, &open(&state)?, &[&open(&home)?], &|_| said.set(said.get() + 1));
        swept.map(|()| said.get()).map_err(|error| error.to_string())
    };
    let (left, journals) = (parts(), names("state").len());
    let mut visible = BTreeMap::new();
    fs.users(|users| visible = users.files());
    fs.jump(29 * day);
    if sweep()? != 0 || parts() != left || names("state").len() != journals {
        return Err("it goes too early".into());
    }
    fs.jump(2 * day);
    let in_use = left.iter().find_map(|(at, name)| {
        let dir = fs.open_dir(&fs.root(), &RelPath::new(at.as_bytes()).ok()?, Links::Refuse).ok()?;
        fs.open_write(&dir, name).ok().filter(|(file, _)| fs.try_lock(file).unwrap_or(false))
    });
    let held = usize::from(in_use.is_some());
    if sweep()? + held != left.len() || parts().len() != held || held > names("state").len() {
        return Err(format!("of {left:?} there is {:?} while {held} is in use", parts()));
    }
    drop(in_use);
    if sweep()? != held || !parts().is_empty() || !names("state").is_empty() {
        return Err(format!("there is still {:?}, and of journals {:?}", parts(), names("state")));
    }
    let is_part = |path: &String| is_partial(path.rsplit('/').next().unwrap_or_default().as_bytes());
    visible.retain(|path, _| !is_part(path) && !path.starts_with("state/"));
    let mut still = BTreeMap::new();
    fs.users(|users| still = users.files());
    still.retain(|path, _| !path.starts_with("state/"));
    if still != visible {
        return Err(format!("of {:?} there is {:?}", visible.keys(), still.keys()));
    }
    Ok(left.len().saturating_sub(journals))
}

/// Somebody writes the source just before a call of the sender.
///
/// # Errors
/// A text: the file is not sent once more.
pub fn changes_once(seed: u64, call: u64) -> Result<(), String> {
    let mut world = World::new(seed, None);
    world.src.users(|users| users.write("home/a", &[3; 9000], false));
    world.src.jump(10_000_000_000);
    world.src.edit_at(call, |users| users.write("home/a", &[4; 9000], false));
    let run = world.transfer(&[("a", "a")]);
    match run.complete && !run.events.iter().any(|event| matches!(event.what, Happened::Failed(_))) {
        true => Ok(()),
        false => Err(format!("{:?}", run.events)),
    }
}

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> World {
        let mut random = Random(seed);
        let (on_src, on_dst) = match bug {
            Some(Bug::MtimeAlone | Bug::SourceUnchecked) => (bug, None),
            other => (None, other),
        };
        let (src, dst) = (SimFs::new(random.number(), on_src, false), SimFs::new(random.number(), on_dst, false));
        for fs in [&src, &dst] {
            fs.users(|users| users.write("home/sub/keep", b"", false));
        }
        dst.users(|users| ["state/keep", "state2/keep"].iter().for_each(|keep| users.write(keep, b"", false)));
        World {
            random,
            src,
            dst,
            versions: BTreeMap::new(),
            told: BTreeMap::new(),
            newer: BTreeMap::new(),
            precious: Vec::new(),
            judged: Arc::default(),
            state: Some("state"),
        }
    }

    fn content(&mut self, of: Option<Vec<u8>>) -> Vec<u8> {
        let mut bytes = match of {
            Some(old) if !self.random.one_in(3) => old,
            _ => {
                let len = match self.random.below(4) {
                    0 => self.random.below(1025),
                    _ => 1025 + self.random.below(9000),
                };
                (0..len).map(|_| self.random.number() as u8).collect()
            }
        };
        match self.random.below(4) {
            0 if bytes.len() > 3000 => bytes[1024..2048 + self.random.below(900)].fill(0),
            1 => bytes.truncate(self.random.below(bytes.len() + 1)),
            _ => {}
        }
        // No two are the same.
        let n = self.random.number().to_le_bytes();
        let at = self.random.below(bytes.len());
        match bytes.get_mut(at..at + 8) {
            Some(place) => place.copy_from_slice(&n),
            None => bytes.extend_from_slice(&n),
        }
        bytes
    }

    fn edit_source(&mut self, name: &'static str) {
        let path = format!("home/{name}");
        let mut old = None;
        self.src.users(|users| old = users.files().remove(&path));
        let bytes = self.content(old);
        let afresh = self.random.one_in(3);
        self.src.users(|users| {
            if afresh {
                users.remove(&path);
            }
            users.write(&path, &bytes, false);
        });
        self.src.jump(3_000_000_000 * self.random.below(2) as i64);
        self.newer.entry(name).or_default().insert(bytes.clone());
        self.versions.entry(name).or_default().insert(bytes);
    }

    fn edit_target(&mut self) {
        let name = NAMES[self.random.below(NAMES.len())];
        let bytes = self.content(None);
        self.dst.users(|users| users.write(&format!("home/{name}"), &bytes, false));
        self.versions.entry(name).or_default().insert(bytes);
        self.told.remove(name);
    }

    /// A transfer to which something happens.
    fn mishap(&mut self) -> Result<(), String> {
        let at = 1 + self.random.below(400) as u64;
        let mut power = false;
        match self.random.below(9) {
            0 => self.src.plan(Some((at, Mishap::Kill)), false),
            1 | 2 => self.dst.plan(Some((at, Mishap::Kill)), self.random.one_in(2)),
            3 | 4 => {
                self.dst.plan(Some((at, Mishap::Kill)), false);
                power = true;
            }
            5 => {
                let kinds =
                    [ErrorKind::StorageFull, ErrorKind::Interrupted, ErrorKind::PermissionDenied, ErrorKind::Other];
                let kind = kinds[self.random.below(kinds.len())];
                self.dst.plan(Some((at, Mishap::Fail(kind))), true);
            }
            6 => {
                // Somebody writes the source while it is read, and hides it from its time.
                let name = NAMES[self.random.below(NAMES.len())];
                let path = format!("home/{name}");
                let mut old = None;
                self.src.users(|users| old = users.files().remove(&path));
                let mut bytes = old.unwrap_or_default();
                bytes.iter_mut().for_each(|byte| *byte ^= 0x5A);
                self.newer.entry(name).or_default().insert(bytes.clone());
                self.versions.entry(name).or_default().insert(bytes.clone());
                self.src.edit_at(at, move |users| users.write(&path, &bytes, true));
            }
            7 => {
                // Somebody writes the target while it is received.
                let name = NAMES[self.random.below(NAMES.len())];
                let bytes = self.content(None);
                self.versions.entry(name).or_default().insert(bytes.clone());
                let (judged, happened) = (self.judged.clone(), Arc::new(AtomicBool::new(false)));
                let (set, written) = (happened.clone(), bytes.clone());
                judged.store(false, Relaxed);
                self.dst.edit_at(at, move |users| {
                    // What was there before the receiver looked is what the transfer is to replace.
                    if judged.load(Relaxed) {
                        users.write(&format!("home/{name}"), &written, false);
                        set.store(true, Relaxed);
                    }
                });
                let run = self.transfer(&ALL);
                self.dst.restart(false);
                self.src.restart(false);
                self.report(&run);
                if happened.load(Relaxed) {
                    self.precious.push(bytes);
                    self.told.remove(name);
                    self.check()?;
                    self.precious.clear();
                }
                return self.check();
            }
            _ => {}
        }
        let run = self.transfer(&ALL);
        self.report(&run);
        // Power may go at any later time as well.
        let power = power || self.random.one_in(4);
        self.dst.restart(power);
        self.src.restart(false);
        self.dst.jump((self.random.below(7_200) as i64 - 3_600) * 1_000_000_000);
        self.check()
    }

    fn report(&mut self, run: &Run) {
        for event in &run.events {
            let Some(name) = NAMES.iter().find(|name| name.as_bytes() == event.path.bytes()) else { continue };
            if let Happened::Done(_, hash) = &event.what {
                let known = self.versions.get(name).and_then(|all| all.iter().find(|bytes| whole(bytes) == *hash));
                self.newer.remove(name);
                // A hash that no version has is found as a mixture.
                self.told.insert(name, known.cloned().unwrap_or_default());
            }
        }
    }

    fn check(&mut self) -> Result<(), String> {
        let mut files = BTreeMap::new();
        self.dst.users(|users| files = users.files());
        for name in NAMES {
            let found = files.get(&format!("home/{name}"));
            let known = self.versions.get(name);
            if let Some(bytes) = found
                && !known.is_some_and(|known| known.contains(bytes))
            {
                return Err(format!("{name} has a content of {} bytes that nobody gave it", bytes.len()));
            }
            if let Some(told) = self.told.get(name)
                && found != Some(told)
                && !found.is_some_and(|found| self.newer.get(name).is_some_and(|newer| newer.contains(found)))
            {
                return Err(format!("{name} was reported as done and is not what was reported"));
            }
        }
        for bytes in &self.precious {
            let kept = files.iter().any(|(path, has)| {
                has == bytes && (path.starts_with("home/.lspan/trash/") || path.starts_with("home/"))
            });
            if !kept {
                return Err(format!("{} bytes that somebody wrote meanwhile are gone", bytes.len()));
            }
        }
        Ok(())
    }

    /// Without mishaps the next run makes both sides equal.
    fn converge(&mut self) -> Result<(), String> {
        self.src.restart(false);
        self.dst.restart(false);
        let mut sources = BTreeMap::new();
        self.src.users(|users| sources = users.files());
        // A change that hid from its time is not seen by a later run, as with any tool that goes by times.
        for name in NAMES {
            let path = format!("home/{name}");
            if let Some(bytes) = sources.get(&path) {
                self.src.users(|users| users.write(&path, bytes, false));
            }
        }
        self.src.jump(10_000_000_000);
        let run = self.transfer(&ALL);
        if !run.complete {
            return Err("a transfer without a mishap did not end".into());
        }
        self.report(&run);
        self.check()?;
        let (mut from, mut to) = (BTreeMap::new(), BTreeMap::new());
        self.src.users(|users| from = users.files());
        self.dst.users(|users| to = users.files());
        for name in NAMES {
            let path = format!("home/{name}");
            if from.get(&path) != to.get(&path) {
                return Err(format!("{name} differs after a transfer without a mishap: {:?}", run.events));
            }
        }
        Ok(())
    }

    /// One transfer of these names to others, until it ends or an end dies.
    fn transfer(&mut self, names: &[(&str, &str)]) -> Run {
        let at = |text: &str| RelPath::new(text.as_bytes()).unwrap_or_default();
        let open = |fs: &SimFs, path: &str| fs.open_dir(&fs.root(), &at(path), Links::Refuse);
        let state = self.state.map(|state| open(&self.dst, state)).transpose();
        let (Ok(from), Ok(to), Ok(state)) = (open(&self.src, "home"), open(&self.dst, "home"), state) else {
            return Run::default();
        };
        let starts = names.iter().map(|(name, to)| Start {
            dir: Arc::new(from),
            name: Name::new(name.as_bytes()).ok(),
            path: at(to),
            shallow: false,
            opened: None,
        });
        let (fs, state) = (Arc::new(self.dst.clone()), state.map(Arc::new));
        let place = DestDir::new(fs, Arc::new(to), RelPath::default(), state, u64::MAX);
        let load = Load::new(Arc::new(self.src.clone()), u64::MAX);
        run::transfer(&mut self.random, load, starts.collect(), place, &self.judged)
    }
}
