//! The sender of a transfer: walks what is to be sent, offers it, and writes what the receiver wants into its slots.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::Rules;
use crate::engine::{Clock, Engine, Event, Geometry, Happened, LinkLost, UNITS_MAX, Violation, key};
use crate::fs::{Fs, Kind, Links, Stat, await_tick, is_settled};
use crate::hash::Value;
use crate::name::{Name, RelPath};
use crate::wire::{
    Fault, FaultKind, FileInfo, ITEMS_MAX, Item, Key, LeftOut, Message, Note, Stages, VALUES_MAX, Verdict, What,
};

mod jobs;
mod sending;
mod walk;

pub use jobs::{Done, Filled, Job, Outcome};
use sending::Sending;
pub use walk::Start;
use walk::{Found, Step, Walk};

/// What is found below a start: its directory, name and kind, under its path.
type Below<F> = (RelPath, Result<(Arc<<F as Fs>::Dir>, Name, Kind), Fault>);

/// Every entry below a start.
pub(crate) fn below<F: Fs>(fs: &F, start: Start<F>) -> impl Iterator<Item = Below<F>> + '_ {
    let mut walk = Walk::new(vec![start], Arc::default());
    std::iter::from_fn(move || {
        loop {
            match walk.next(fs)? {
                (path, Step::Found(found)) => return Some((path, Ok((found.dir, found.name, found.stat.kind)))),
                (path, Step::Failed(fault, _)) => return Some((path, Err(fault))),
                (_, Step::Left | Step::Begin | Step::End) => {}
            }
        }
    })
}

/// An entry and the attempts at it so far, or what is said of its name alone.
type Next<F> = Result<(Arc<Found<F>>, u8), What>;

/// Batches that are not answered and done with.
pub(crate) const BATCHES_MAX: usize = 3;

/// Bytes of a batch, about.
const BATCH_BYTES: usize = 128 << 10;

/// Directories whose entries are in one batch: each is held open, here and at the receiver.
pub(crate) const BATCH_DIRS: usize = 64;

/// Large files under way at a time.
const FILES_MAX: usize = 4;

/// Attempts at a file that changes while it is read.
const TRIES: u8 = 3;

/// What is sent, and how.
pub struct Load<F: Fs> {
    /// The file system.
    pub fs: Arc<F>,
    /// Sizes.
    pub geometry: Geometry,
    /// With `user.*` attributes.
    pub xattrs: bool,
    /// Files from this size on leave the page cache when they were read.
    pub large: u64,
    /// Only ask what would be sent.
    pub dry_run: bool,
    /// Say which names there are, so that the receiver can delete the others.
    pub delete: bool,
    /// What is not sent.
    pub rules: Arc<Rules>,
}

impl<F: Fs> Load<F> {
    /// All of it, with the sizes of every transfer; files leave the page cache from `large` bytes on.
    pub fn new(fs: Arc<F>, large: u64) -> Load<F> {
        let (geometry, rules) = (Geometry::REAL, Arc::default());
        Load { fs, geometry, xattrs: false, large, dry_run: false, delete: false, rules }
    }
}

/// A file of a batch that is not done with.
struct OfferedFile<F: Fs> {
    path: RelPath,
    found: Arc<Found<F>>,
    tries: u8,
}

/// The sender.
pub struct Source<F: Fs> {
    load: Arc<Load<F>>,
    clock: Arc<Clock>,
    walk: Walk<F>,
    again: VecDeque<OfferedFile<F>>,
    next_batch: u32,
    /// Items of each batch, and those of them that are not done with.
    batches: BTreeMap<u32, (usize, usize)>,
    offers: BTreeMap<Key, OfferedFile<F>>,
    /// Large files that were given up and of which the receiver may have said that they failed before it hears that. With each the
    /// next batch: the verdicts on it come later.
    given_up: BTreeMap<Key, u32>,
    queue: VecDeque<(Key, bool)>,
    small: VecDeque<Key>,
    files: BTreeMap<Key, Sending<F>>,
    free: Vec<u16>,
    have_slots: bool,
    /// What the receiver has not reported: the slot of each, if it has one.
    units: BTreeMap<(Key, u64), (Option<u16>, u64)>,
    packs: BTreeMap<u16, Vec<Key>>,
    jobs_out: usize,
    out: VecDeque<Message>,
    jobs: VecDeque<Job<F>>,
    events: VecDeque<Event>,
    said_over: bool,
    finished: Option<Finished>,
}

/// The receiver's last word.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The time of its stages.
    pub stages: Stages,
    /// Names that it has and the sender has not, and all names that were compared.
    pub extra: (u64, u64),
    /// What failed in its last sync, or that more would have been deleted than may be.
    pub result: Result<(), Fault>,
}

impl<F: Fs> Source<F> {
    /// A sender of these entries.
    pub fn new(load: Load<F>, clock: Arc<Clock>, starts: Vec<Start<F>>) -> Source<F> {
        Source {
            walk: Walk::new(starts, load.rules.clone()),
            load: Arc::new(load),
            clock,
            again: VecDeque::new(),
            next_batch: 0,
            batches: BTreeMap::new(),
            offers: BTreeMap::new(),
            given_up: BTreeMap::new(),
            queue: VecDeque::new(),
            small: VecDeque::new(),
            files: BTreeMap::new(),
            free: Vec::new(),
            have_slots: false,
            units: BTreeMap::new(),
            packs: BTreeMap::new(),
            jobs_out: 0,
            out: VecDeque::new(),
            jobs: VecDeque::new(),
            events: VecDeque::new(),
            said_over: false,
            finished: None,
        }
    }

    /// What is sent.
    pub fn load(&self) -> &Arc<Load<F>> {
        &self.load
    }

    /// Clocks of this side.
    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// The receiver's last word.
    pub fn finished(&self) -> Option<&Finished> {
        self.finished.as_ref()
    }

    fn tell(&mut self, path: RelPath, what: Happened) {
        self.events.push_back(Event { path, what });
    }

    fn note(&mut self, path: RelPath, note: Note) {
        self.tell(path.clone(), Happened::noted(note.clone()));
        self.out.push_back(Message::Note { path, what: note });
    }

    /// The next batch; `false` where there is nothing more to offer.
    fn offer(&mut self) -> bool {
        let (mut items, mut weight, id) = (Vec::new(), 0, self.next_batch);
        let mut dirs: Vec<*const F::Dir> = Vec::new();
        while items.len() < ITEMS_MAX && weight < BATCH_BYTES && dirs.len() < BATCH_DIRS {
            let again = self.again.pop_front().map(|OfferedFile { path, found, tries }| (path, found, tries));
            let next = again.map(|(path, found, tries)| (path, Ok((found, tries)))).or_else(|| self.step());
            let Some((path, next)) = next else { break };
            let described = next.and_then(|(found, tries)| match self.describe(&path, &found) {
                Ok(Some(what)) => Ok((found, tries, what)),
                Ok(None) => Err(What::Present),
                Err(fault) => {
                    self.note(path.clone(), Note::Failed(fault));
                    Err(What::Present)
                }
            });
            let what = match described {
                Ok((found, tries, what)) => {
                    let place = Arc::as_ptr(&found.dir);
                    if !dirs.contains(&place) {
                        dirs.push(place);
                    }
                    self.offers.insert(key(id, items.len()), OfferedFile { path: path.clone(), found, tries });
                    what
                }
                Err(_) if !self.load.delete => continue,
                Err(what) => what,
            };
            let item = Item { path, what };
            weight += item.weight();
            items.push(item);
        }
        if items.is_empty() {
            return false;
        }
        self.next_batch += 1;
        self.batches.insert(id, (items.len(), items.len()));
        self.out.push_back(Message::Batch { id, items });
        true
    }

    /// The next entry, or what is said of a name where the receiver deletes.
    fn step(&mut self) -> Option<(RelPath, Next<F>)> {
        loop {
            let (path, step) = self.walk.next(&*self.load.fs)?;
            let what = match step {
                Step::Found(found) => return Some((path, Ok((Arc::new(found), 0)))),
                Step::Failed(fault, entry) => {
                    self.note(path.clone(), Note::Failed(fault));
                    if !entry {
                        continue;
                    }
                    What::Present
                }
                Step::Left => What::Present,
                Step::Begin => What::Begin,
                Step::End => What::End,
            };
            return Some((path, Err(what)));
        }
    }

    fn describe(&mut self, path: &RelPath, found: &Found<F>) -> Result<Option<What>, Fault> {
        let Stat { kind, mode, links, disk, .. } = found.stat;
        Ok(Some(match kind {
            Kind::Dir => What::Dir { mode: mode & 0o777 },
            Kind::Symlink => {
                let target = self.load.fs.read_link(&found.dir, &found.name);
                What::Link { target: target.map_err(|error| Fault::io("the link", &error))? }
            }
            Kind::Special => {
                self.note(path.clone(), Note::LeftOut(LeftOut::Special));
                return Ok(None);
            }
            Kind::File => {
                if links > 1 {
                    self.note(path.clone(), Note::LeftOut(LeftOut::HardLink));
                }
                if mode & 0o7000 != 0 {
                    self.note(path.clone(), Note::LeftOut(LeftOut::SetId));
                }
                let settled = is_settled(&*self.load.fs, found.stat.ctime);
                let xattrs = match self.load.xattrs {
                    true => walk::xattrs(&*self.load.fs, found)?,
                    false => Vec::new(),
                };
                What::File(FileInfo { ident: found.stat.ident(), settled, disk, mode: mode & 0o777, xattrs })
            }
        }))
    }

    /// A file of a batch is done with.
    fn close(&mut self, key: Key) {
        self.offers.remove(&key);
        if let Some((_, left)) = self.batches.get_mut(&key.batch) {
            *left -= 1;
            if *left == 0 {
                self.batches.remove(&key.batch);
            }
        }
    }

    fn verdicts(&mut self, id: u32, verdicts: Vec<Verdict>) -> Result<(), Violation> {
        // Every item has to be answered once, and nothing before its batch.
        if self.batches.get(&id).is_none_or(|(items, left)| (*items, *left) != (verdicts.len(), verdicts.len())) {
            return Err(Violation("verdicts on a batch that was not asked about, or too few"));
        }
        if let Some((items, _)) = self.batches.get_mut(&id) {
            *items = 0;
        }
        // While chunks of one are under way they may fail.
        let units = &self.units;
        let may_fail = |key: Key| units.range((key, 0)..=(key, u64::MAX)).next().is_some();
        self.given_up.retain(|key, next| *next > id || may_fail(*key));
        for (index, verdict) in verdicts.into_iter().enumerate() {
            let key = key(id, index);
            let Some(offer) = self.offers.get(&key) else {
                // A name that is only told.
                self.close(key);
                continue;
            };
            let (path, stat) = (offer.path.clone(), offer.found.stat);
            let is_file = stat.kind == Kind::File;
            match verdict {
                Verdict::Have => {
                    if is_file {
                        self.clock.count_kept(stat.size);
                    }
                    self.tell(path, Happened::Same);
                    self.close(key);
                }
                Verdict::Made => {
                    let made = offer.found.clone();
                    self.tell(path.clone(), Happened::Made(stat.kind));
                    // Of files it is not asked in a dry run either.
                    if stat.kind == Kind::Dir && !self.load.dry_run {
                        for why in walk::left_out_of_dir(&*self.load.fs, &made) {
                            self.note(path.clone(), Note::LeftOut(why));
                        }
                    }
                    self.close(key);
                }
                Verdict::Refused(fault) => {
                    self.tell(path, Happened::Failed(fault));
                    self.close(key);
                }
                Verdict::Want | Verdict::Compare if !is_file => {
                    return Err(Violation("it wants the bytes of something that has none"));
                }
                Verdict::Want | Verdict::Compare if self.load.dry_run => {
                    self.tell(path, Happened::Would(stat.size, stat.mtime));
                    self.close(key);
                }
                Verdict::Want | Verdict::Compare if self.load.geometry.is_small(stat.size) => self.small.push_back(key),
                verdict => self.queue.push_back((key, verdict == Verdict::Compare)),
            }
        }
        Ok(())
    }

    /// Gives a file up, or offers it again where it has changed.
    fn give_up(&mut self, key: Key, why: Option<Fault>) {
        self.out.push_back(Message::Drop { key });
        self.files.remove(&key);
        let Some(OfferedFile { path, found, tries }) = self.offers.remove(&key) else { return };
        self.close(key);
        if !self.load.geometry.is_small(found.stat.size) {
            self.given_up.insert(key, self.next_batch);
        }
        let Some(fault) = why else {
            let stat = self.load.fs.stat(&found.dir, &found.name);
            match stat {
                Ok(stat) if stat.kind == Kind::File && tries + 1 < TRIES => {
                    self.tell(path.clone(), Happened::Again);
                    let found = Found { dir: found.dir.clone(), name: found.name.clone(), stat };
                    self.again.push_back(OfferedFile { path, found: Arc::new(found), tries: tries + 1 });
                }
                Ok(_) => {
                    let why = "LS1810 it changed every time that it was read; send it when nobody writes it";
                    self.note(path, Note::Failed(Fault::new(FaultKind::Changed, why)));
                }
                Err(error) => self.note(path, Note::Failed(Fault::io("the file", &error))),
            }
            return;
        };
        self.note(path, Note::Failed(fault));
    }

    fn begin(&mut self, key: Key, compare: bool) {
        let Some(offer) = self.offers.get(&key) else { return };
        let (found, tries, path) = (offer.found.clone(), offer.tries, offer.path.clone());
        let fs = self.load.fs.clone();
        match fs.open_read(&found.dir, &found.name, Links::Refuse) {
            Err(error) => self.give_up(key, Some(Fault::io("the file", &error))),
            Ok((_, stat)) if stat.ident() != found.stat.ident() => self.give_up(key, None),
            Ok((file, stat)) => {
                await_tick(&*fs, stat.ctime);
                for why in walk::left_out(&self.load, &file) {
                    self.note(path.clone(), Note::LeftOut(why));
                }
                // A file that has changed under the reader once is read from a copy that shares its blocks, where there can be one.
                let copy = (tries > 0).then(|| fs.clone_file(&found.dir, &file).ok()).flatten();
                let copied = copy.is_some_and(|copy| {
                    let whole = fs.stat_file(&file).is_ok_and(|now| now.ident() == stat.ident());
                    if whole {
                        self.files.insert(key, Sending::new(copy, None, stat, &self.load.geometry, compare));
                    }
                    whole
                });
                if !copied {
                    self.files.insert(key, Sending::new(file, Some(stat.ident()), stat, &self.load.geometry, compare));
                }
            }
        }
    }

    fn send_packs(&mut self) {
        while !self.small.is_empty() {
            let Some(slot) = self.free.pop() else { return };
            let (mut keys, mut bytes) = (Vec::new(), 0);
            while let Some(&key) = self.small.front() {
                let size = self.offers.get(&key).map_or(0, |offer| offer.found.stat.size);
                if bytes + size > self.load.geometry.slot() || keys.len() >= ITEMS_MAX {
                    break;
                }
                bytes += size;
                keys.push(key);
                self.small.pop_front();
            }
            let files = keys.iter().filter_map(|key| Some((*key, self.offers.get(key)?.found.clone()))).collect();
            self.packs.insert(slot, keys);
            self.jobs_out += 1;
            self.jobs.push_back(Job::Pack { slot, files });
        }
    }

    fn packed(&mut self, slot: u16, outcomes: Vec<(Key, Outcome)>) {
        let mut files = Vec::new();
        for (key, outcome) in outcomes {
            match outcome {
                Outcome::Packed(len, hash, left_out) => {
                    if let Some(path) = self.offers.get(&key).map(|offer| offer.path.clone()) {
                        left_out.into_iter().for_each(|why| self.note(path.clone(), Note::LeftOut(why)));
                    }
                    files.push((key, len, hash));
                }
                Outcome::Changed => self.give_up(key, None),
                Outcome::Failed(fault) => self.give_up(key, Some(fault)),
            }
        }
        if files.is_empty() {
            self.packs.remove(&slot);
            self.free.push(slot);
        } else {
            self.out.push_back(Message::Pack { slot, files });
        }
    }

    fn filled(&mut self, key: Key, first: u64, count: u64, slot: u16, result: Filled) {
        let Some(file) = self.files.get_mut(&key) else {
            self.free.push(slot);
            return;
        };
        file.jobs -= 1;
        let (values, message, held): (Vec<Value>, Message, Option<u16>) = match result {
            Filled::Data(values) => (values.clone(), Message::Data { key, first, slot, values }, Some(slot)),
            Filled::Hole(values) => (values, Message::Hole { key, first, count: count as u16 }, None),
            Filled::Keep(values) => (values, Message::Keep { key, first, count: count as u16 }, None),
            Filled::Changed | Filled::Failed(_) => {
                self.free.push(slot);
                let fault = if let Filled::Failed(fault) = result { Some(fault) } else { None };
                return self.give_up(key, fault);
            }
        };
        if held.is_none() {
            self.free.push(slot);
        }
        (first..).zip(values).for_each(|(index, value)| file.merger.push(index, value));
        self.units.insert((key, first), (held, count));
        self.out.push_back(message);
    }

    fn committed(&mut self, key: Key, result: Result<Value, Fault>) -> Result<(), Violation> {
        // Said before the receiver heard that the file was given up.
        if result.is_err() && self.given_up.remove(&key).is_some() {
            return Ok(());
        }
        let offer = self.offers.get(&key).ok_or(Violation("it reports a file that was not sent"))?;
        let (path, size) = (offer.path.clone(), offer.found.stat.size);
        let sending = self.files.remove(&key);
        match result {
            Ok(hash) => {
                if sending.as_ref().is_some_and(|sending| sending.hash != Some(hash)) {
                    return Err(Violation("it reports another hash than the file has"));
                }
                self.tell(path, Happened::Done(size, hash));
            }
            Err(fault) => {
                self.tell(path, Happened::Failed(fault));
                if !self.load.geometry.is_small(size) {
                    self.out.push_back(Message::Drop { key });
                }
            }
        }
        self.queue.retain(|(queued, _)| *queued != key);
        self.close(key);
        Ok(())
    }
}

impl<F: Fs> Engine for Source<F> {
    type Job = Job<F>;
    type Done = Done;

    fn on(&mut self, message: Message) -> Result<(), Violation> {
        match message {
            Message::Slots { count, .. } => {
                if self.have_slots || count == 0 || count > 1024 {
                    return Err(Violation("it gives no slots, too many, or gives them twice"));
                }
                self.have_slots = true;
                self.free = (0..count).rev().collect();
            }
            Message::Verdicts { id, verdicts } => self.verdicts(id, verdicts)?,
            Message::Values { key, first, known } => {
                // Of a file that was given up meanwhile nothing is asked any more.
                if let Some(file) = self.files.get_mut(&key) {
                    file.answer(first, known)?;
                }
            }
            Message::Landed { key, first } => {
                let unit = self.units.remove(&(key, first));
                let (slot, _) = unit.ok_or(Violation("it reports chunks that were not sent"))?;
                self.free.extend(slot);
            }
            Message::Unpacked { slot, results } => {
                let keys = self.packs.remove(&slot).ok_or(Violation("it reports a pack that was not sent"))?;
                self.free.push(slot);
                for (key, result) in results {
                    if keys.binary_search(&key).is_err() {
                        return Err(Violation("it reports a file that was not in the pack"));
                    }
                    self.committed(key, result)?;
                }
            }
            Message::Committed { key, result } => self.committed(key, result)?,
            Message::Note { path, what: what @ (Note::Extra(_) | Note::Failed(_)) } => {
                self.tell(path, Happened::noted(what))
            }
            Message::Finished { stages, extra, result } => {
                if !self.said_over {
                    return Err(Violation("it has finished before everything was sent"));
                }
                self.finished = Some(Finished { stages, extra, result });
            }
            _ => return Err(Violation("a receiver has nothing of this kind to say")),
        }
        Ok(())
    }

    fn done(&mut self, done: Done) -> Result<(), LinkLost> {
        self.jobs_out -= 1;
        match done {
            Done::Filled { key, first, count, slot, result } => self.filled(key, first, count, slot, result?),
            Done::Packed { slot, outcomes } => self.packed(slot, outcomes?),
        }
        Ok(())
    }

    fn pump(&mut self) {
        while self.batches.len() < BATCHES_MAX && self.offer() {}
        while self.files.len() < FILES_MAX
            && let Some((key, compare)) = self.queue.pop_front()
        {
            self.begin(key, compare);
        }
        self.send_packs();
        let keys: Vec<Key> = self.files.keys().copied().collect();
        for key in keys {
            self.advance(key);
        }
        let idle = self.batches.is_empty() && self.again.is_empty() && self.jobs_out == 0 && self.units.is_empty();
        if idle && !self.said_over && self.packs.is_empty() {
            self.said_over = true;
            self.out.push_back(Message::Over);
        }
    }

    fn message(&mut self) -> Option<Message> {
        self.out.pop_front()
    }

    fn job(&mut self) -> Option<Job<F>> {
        self.jobs.pop_front()
    }

    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn is_over(&self) -> bool {
        self.finished.is_some()
    }
}

impl<F: Fs> Source<F> {
    /// Sends what can be sent of a large file.
    fn advance(&mut self, key: Key) {
        let per_slot = self.load.geometry.per_slot;
        while let Some(file) = self.files.get_mut(&key) {
            if let Some((first, count)) = file.question() {
                self.out.push_back(Message::Need { key, first, count });
            }
            if self.units.len() + self.jobs_out >= UNITS_MAX {
                return;
            }
            let verified = file.verified(VALUES_MAX as u64);
            if !verified.is_empty() {
                let (first, count) = (file.next, verified.len() as u64);
                file.take(count);
                (first..).zip(verified).for_each(|(index, value)| file.merger.push(index, value));
                self.units.insert((key, first), (None, count));
                self.clock.count_kept(count * self.load.geometry.chunk);
                self.out.push_back(Message::Keep { key, first, count: count as u16 });
                continue;
            }
            let expect = file.unverified(per_slot);
            if !expect.is_empty() {
                let Some(slot) = self.free.pop() else { return };
                let (first, count) = (file.next, expect.len() as u64);
                file.take(count);
                file.jobs += 1;
                let (source, size, sparse) = (file.file.clone(), file.stat.size, file.stat.disk < file.stat.size);
                self.jobs_out += 1;
                self.jobs.push_back(Job::Fill { key, file: source, size, sparse, first, expect, slot });
                continue;
            }
            if file.is_read() && file.hash.is_none() {
                let same = file
                    .ident
                    .is_none_or(|ident| self.load.fs.stat_file(&file.file).is_ok_and(|stat| stat.ident() == ident));
                if !same {
                    return self.give_up(key, None);
                }
                let Some(hash) = file.merger.finish(file.chunks) else { return };
                file.hash = Some(hash);
                self.out.push_back(Message::End { key, hash });
            }
            return;
        }
    }
}
