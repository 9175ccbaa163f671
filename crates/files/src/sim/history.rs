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
use crate::name::{Name, RelPath};
use crate::sink::DestDir;
use crate::source::{Load, Start};

/// Files that come up.
const NAMES: [&str; 4] = ["a", "b", "sub/c", "sub/d"];

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
}

/// Runs one history.
///
/// # Errors
/// A text: which promise was broken, in which step.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<(), String> {
    let mut random = Random(seed);
    let (on_src, on_dst) = match bug {
        Some(Bug::MtimeAlone | Bug::SourceUnchecked) => (bug, None),
        other => (None, other),
    };
    let (src, dst) = (SimFs::new(random.number(), on_src, false), SimFs::new(random.number(), on_dst, false));
    for fs in [&src, &dst] {
        fs.users(|users| users.write("home/sub/keep", b"", false));
    }
    dst.users(|users| users.write("state/keep", b"", false));
    let mut world = World {
        random,
        src,
        dst,
        versions: BTreeMap::new(),
        told: BTreeMap::new(),
        newer: BTreeMap::new(),
        precious: Vec::new(),
        judged: Arc::default(),
    };
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

impl World {
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
                let run = self.transfer();
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
        let run = self.transfer();
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
        let run = self.transfer();
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

    /// One transfer of everything, until it ends or an end dies.
    fn transfer(&mut self) -> Run {
        let at = |text: &str| RelPath::new(text.as_bytes()).unwrap_or_default();
        let open = |fs: &SimFs, path: &str| fs.open_dir(&fs.root(), &at(path), Links::Refuse);
        let (Ok(from), Ok(to), Ok(state)) =
            (open(&self.src, "home"), open(&self.dst, "home"), open(&self.dst, "state"))
        else {
            return Run::default();
        };
        let starts = ["a", "b", "sub"].map(|name| Start {
            dir: Arc::new(from),
            name: Name::new(name.as_bytes()).ok(),
            path: at(name),
            shallow: false,
        });
        let (fs, state) = (Arc::new(self.dst.clone()), Some(Arc::new(state)));
        let place = DestDir::new(fs, Arc::new(to), RelPath::default(), state, u64::MAX);
        let load = Load::new(Arc::new(self.src.clone()), u64::MAX);
        run::transfer(&mut self.random, load, starts.into(), place, &self.judged)
    }
}
