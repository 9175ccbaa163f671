//! Seeded histories: users edit, transfers run and are killed, lose power and meet failing disks. After each of them it is asked
//! whether anything was lost, mixed or wrongly reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::{Bug, Mishap, Random, SimFs};
use crate::engine::{Clock, Engine, Event, Geometry, Happened, LinkLost, Outlet, SlotReader};
use crate::fs::{Fs, Links};
use crate::hash::whole;
use crate::name::{Name, RelPath};
use crate::sink::{Place, Sink};
use crate::source::{Load, Source, Start};
use crate::wire::{Message, REMOTE_LEN};

/// Small enough that a file of a few KiB has many chunks.
const GEOMETRY: Geometry = Geometry { chunk: 1024, per_slot: 2, slots: 3 };

/// Files that come up.
const NAMES: [&str; 4] = ["a", "b", "sub/c", "sub/d"];

/// The two ends of the link, in one process.
#[derive(Clone)]
struct Slots(Arc<Mutex<Vec<Vec<u8>>>>, Vec<u8>);

impl Slots {
    fn new() -> Slots {
        let slot = vec![0; GEOMETRY.slot() as usize];
        Slots(Arc::new(Mutex::new(vec![slot.clone(); usize::from(GEOMETRY.slots)])), slot)
    }
}

impl Outlet for Slots {
    fn stage(&mut self, at: usize, bytes: &[u8]) {
        self.1[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn write(&mut self, slot: u16, len: usize) -> Result<(), LinkLost> {
        let mut slots = self.0.lock().unwrap_or_else(|e| e.into_inner());
        slots[usize::from(slot)][..len].copy_from_slice(&self.1[..len]);
        Ok(())
    }
}

impl SlotReader for Slots {
    fn read(&self, slot: u16, at: usize, out: &mut [u8]) {
        let slots = self.0.lock().unwrap_or_else(|e| e.into_inner());
        out.copy_from_slice(&slots[usize::from(slot)][at..at + out.len()]);
    }
}

/// What came of a run: what the user of the sender was told, and whether it went to its end.
struct Run {
    events: Vec<Event>,
    complete: bool,
}

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
/// What was found wrong.
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
        let mut run = Run { events: Vec::new(), complete: false };
        let at = |text: &str| RelPath::new(text.as_bytes()).unwrap_or_default();
        let open = |fs: &SimFs, path: &str| fs.open_dir(&fs.root(), &at(path), Links::Refuse);
        let (Ok(from), Ok(to), Ok(state)) =
            (open(&self.src, "home"), open(&self.dst, "home"), open(&self.dst, "state"))
        else {
            return run;
        };
        let starts = ["a", "b", "sub"].map(|name| Start {
            dir: Arc::new(from),
            name: Name::new(name.as_bytes()).ok(),
            path: at(name),
        });
        let place = Place {
            fs: Arc::new(self.dst.clone()),
            root: Arc::new(to),
            base: RelPath::default(),
            state: Some(Arc::new(state)),
            geometry: GEOMETRY,
            large: u64::MAX,
            dry_run: false,
            no_fsync: false,
        };
        let load =
            Load { fs: Arc::new(self.src.clone()), geometry: GEOMETRY, xattrs: false, large: u64::MAX, dry_run: false };
        let (mut source, mut sink) = (
            Source::new(load, Arc::new(Clock::default()), starts.into()),
            Sink::new(place, Arc::new(Clock::default())),
        );
        let slots = Slots::new();
        let (mut to_sink, mut to_source) = (VecDeque::new(), VecDeque::new());
        to_source.push_back(Message::Slots {
            remote: [0; REMOTE_LEN],
            size: GEOMETRY.slot() as u32,
            count: GEOMETRY.slots,
        });
        let (mut source_jobs, mut sink_jobs) = (Vec::new(), Vec::new());
        let mut scratch = vec![0; GEOMETRY.chunk as usize];
        let clock = Clock::default();
        for _ in 0..100_000 {
            if self.src.is_dead() || self.dst.is_dead() {
                return run;
            }
            source.pump();
            sink.pump();
            to_sink.extend(std::iter::from_fn(|| source.message()));
            to_source.extend(std::iter::from_fn(|| sink.message()));
            source_jobs.extend(std::iter::from_fn(|| source.job()));
            sink_jobs.extend(std::iter::from_fn(|| sink.job()));
            if !self.dst.is_dead() {
                // Told is what the user has seen before anybody died.
                run.events.extend(std::iter::from_fn(|| source.event()));
            }
            while sink.event().is_some() {}
            if source.is_over() && sink.is_over() {
                run.complete = true;
                return run;
            }
            match self.random.below(4) {
                0 if !to_sink.is_empty() => {
                    let Some(message) = to_sink.pop_front() else { continue };
                    let judges = matches!(message, Message::Batch { .. });
                    if sink.on(message).is_err() {
                        return run;
                    }
                    if judges {
                        self.judged.store(true, Relaxed);
                    }
                }
                1 if !to_source.is_empty() => {
                    let message = to_source.pop_front();
                    if message.is_some_and(|message| source.on(message).is_err()) {
                        return run;
                    }
                }
                2 if !source_jobs.is_empty() => {
                    let job = source_jobs.swap_remove(self.random.below(source_jobs.len()));
                    let load = source.load().clone();
                    let done = Source::work(&load, job, &mut slots.clone(), &clock, &mut scratch);
                    if self.src.is_dead() || source.done(done).is_err() {
                        return run;
                    }
                }
                3 if !sink_jobs.is_empty() => {
                    let job = sink_jobs.swap_remove(self.random.below(sink_jobs.len()));
                    let place = sink.place().clone();
                    let done = Sink::work(&place, job, &slots, &clock, &mut scratch);
                    if self.dst.is_dead() || sink.done(done).is_err() {
                        return run;
                    }
                }
                _ => {}
            }
        }
        run
    }
}
