//! The receiver of a transfer: says what it wants, checks what arrives and gives files their names.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::engine::{Clock, Engine, Event, Geometry, Happened, LinkLost, UNITS_MAX, Violation, key};
use crate::fs::{Fs, Kind, Links, Stat};
use crate::hash::{Merger, Value};
use crate::name::{Name, RelPath};
use crate::wire::{Fault, FaultKind, FileInfo, ITEMS_MAX, Item, Key, Message, Note, Verdict, What};

mod commit;
mod jobs;
mod target;

pub use jobs::{Done, Job};
use target::Target;

/// Largest file that is taken: 64 TiB. Its record of chunks takes 3 GiB of journal and 8 MiB of memory.
const SIZE_MAX: u64 = 64 << 40;

/// Large files under way at a time; each holds three descriptors.
const FILES_MAX: usize = 16;

/// Files that are wanted and not here yet.
const WANTED_MAX: usize = 4 * ITEMS_MAX;

/// Chunks that a sender may be ahead of the first missing one: every unit under way at its largest.
const AHEAD_MAX: u64 = (UNITS_MAX * crate::wire::VALUES_MAX * 2) as u64;

/// Directories whose descriptors are kept.
const DIRS_MAX: usize = 32;

/// Where files go, and how.
pub struct Place<F: Fs> {
    /// The file system.
    pub fs: Arc<F>,
    /// Root of the share: replaced files are kept below it.
    pub root: Arc<F::Dir>,
    /// The place of the transfer in it.
    pub base: RelPath,
    /// Where journals are; without it nothing is resumed without hashing it again.
    pub state: Option<Arc<F::Dir>>,
    /// Sizes.
    pub geometry: Geometry,
    /// Files from this size on are written behind and leave the page cache.
    pub large: u64,
    /// Change nothing.
    pub dry_run: bool,
    /// Do not wait for the disk.
    pub no_fsync: bool,
}

/// A file that was offered and is wanted.
struct Wanted<F: Fs> {
    path: RelPath,
    dir: Arc<F::Dir>,
    name: Name,
    info: FileInfo,
    old: Option<Stat>,
}

/// A large file under way.
struct Receiving<F: Fs> {
    path: RelPath,
    target: Option<Arc<Target<F>>>,
    size: u64,
    chunks: u64,
    merger: Merger,
    /// Chunks that have come, by bits: none is taken twice.
    come: Vec<u64>,
    /// Jobs of it that are under way.
    jobs: usize,
    hash: Option<Value>,
    committing: bool,
    /// It has failed, and the peer was told.
    failed: bool,
    dropped: bool,
}

/// The receiver.
pub struct Sink<F: Fs> {
    place: Arc<Place<F>>,
    dirs: VecDeque<(RelPath, Arc<F::Dir>)>,
    wanted: BTreeMap<Key, Wanted<F>>,
    files: BTreeMap<Key, Receiving<F>>,
    next_batch: u32,
    units: usize,
    packs: Vec<u16>,
    out: VecDeque<Message>,
    jobs: VecDeque<Job<F>>,
    events: VecDeque<Event>,
    /// Directories or links were made that are not on the disk for sure.
    unsynced: bool,
    peer_over: bool,
    finishing: bool,
    over: bool,
    clock: Arc<Clock>,
    failed: Option<Fault>,
}

impl<F: Fs> Sink<F> {
    /// A receiver at this place.
    pub fn new(place: Place<F>, clock: Arc<Clock>) -> Sink<F> {
        Sink {
            place: Arc::new(place),
            dirs: VecDeque::new(),
            wanted: BTreeMap::new(),
            files: BTreeMap::new(),
            next_batch: 0,
            units: 0,
            packs: Vec::new(),
            out: VecDeque::new(),
            jobs: VecDeque::new(),
            events: VecDeque::new(),
            unsynced: false,
            peer_over: false,
            finishing: false,
            over: false,
            clock,
            failed: None,
        }
    }

    /// Where files go.
    pub fn place(&self) -> &Arc<Place<F>> {
        &self.place
    }

    /// Failure of the last sync, once it is over.
    pub fn failed(&self) -> Option<&Fault> {
        self.failed.as_ref()
    }

    fn fs(&self) -> &F {
        &self.place.fs
    }

    fn tell(&mut self, path: RelPath, what: Happened) {
        self.events.push_back(Event { path, what });
    }

    fn dir(&mut self, path: &RelPath) -> std::io::Result<Arc<F::Dir>> {
        if let Some((_, dir)) = self.dirs.iter().find(|(known, _)| known == path) {
            return Ok(dir.clone());
        }
        let whole = self.place.base.join_path(path).map_err(|_| std::io::ErrorKind::InvalidFilename)?;
        let dir = Arc::new(self.fs().open_dir(&self.place.root, &whole, Links::Refuse)?);
        if self.dirs.len() >= DIRS_MAX {
            self.dirs.pop_front();
        }
        self.dirs.push_back((path.clone(), dir.clone()));
        Ok(dir)
    }

    fn batch(&mut self, id: u32, items: Vec<Item>) -> Result<(), Violation> {
        if id != self.next_batch || self.peer_over {
            return Err(Violation("a batch comes out of its order"));
        }
        self.next_batch = id.checked_add(1).ok_or(Violation("too many batches"))?;
        if self.wanted.len() + self.files.len() + items.len() > WANTED_MAX {
            return Err(Violation("more files are offered than it waited for"));
        }
        let mut verdicts = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let path = item.path.clone();
            let verdict = self.judge(key(id, index), item).unwrap_or_else(Verdict::Refused);
            match &verdict {
                Verdict::Have => self.tell(path, Happened::Same),
                Verdict::Refused(fault) => self.tell(path, Happened::Failed(fault.clone())),
                Verdict::Want | Verdict::Compare => {}
            }
            verdicts.push(verdict);
        }
        self.out.push_back(Message::Verdicts { id, verdicts });
        Ok(())
    }

    fn judge(&mut self, key: Key, item: Item) -> Result<Verdict, Fault> {
        let Some((parent, name)) = item.path.split() else {
            return Err(Fault::new(FaultKind::Invalid, "the place of a transfer itself cannot be replaced"));
        };
        let dir = match self.dir(&parent) {
            Ok(dir) => dir,
            // The directory would have been made.
            Err(error) if self.place.dry_run && error.kind() == std::io::ErrorKind::NotFound => {
                if let What::File(info) = &item.what {
                    self.tell(item.path.clone(), Happened::Would(info.ident.size));
                    return Ok(Verdict::Want);
                }
                return Ok(Verdict::Have);
            }
            Err(error) => return Err(Fault::io("its directory", &error)),
        };
        let old = match self.fs().stat(&dir, &name) {
            Ok(stat) => Some(stat),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(Fault::io("its name", &error)),
        };
        if let Some(old) = &old
            && target::is_folded(self.fs(), &dir, &name, old).map_err(|error| Fault::io("its directory", &error))?
        {
            let why = "the directory does not tell this name from another one that is there already";
            return Err(Fault::new(FaultKind::Exists, why));
        }
        match item.what {
            What::Dir { mode } => self.make_dir(&dir, &name, mode, old),
            What::Link { target } => self.make_link(&dir, &name, &target, old),
            What::File(info) => self.want(key, Wanted { path: item.path, dir, name, info, old }),
        }
    }

    fn make_dir(&mut self, dir: &F::Dir, name: &Name, mode: u32, old: Option<Stat>) -> Result<Verdict, Fault> {
        match old.map(|old| old.kind) {
            Some(Kind::Dir) => return Ok(Verdict::Have),
            Some(_) => return Err(Fault::new(FaultKind::NotDir, "there is something else of this name")),
            None => {}
        }
        if !self.place.dry_run {
            // What comes into it must be writable by us.
            self.fs().mkdir(dir, name, mode & 0o777 | 0o700).map_err(|error| Fault::io("the directory", &error))?;
            self.unsynced = true;
        }
        Ok(Verdict::Have)
    }

    fn make_link(
        &mut self,
        dir: &Arc<F::Dir>,
        name: &Name,
        target: &[u8],
        old: Option<Stat>,
    ) -> Result<Verdict, Fault> {
        let failed = |error: std::io::Error| Fault::io("the link", &error);
        match old.map(|old| old.kind) {
            Some(Kind::Symlink) if self.fs().read_link(dir, name).map_err(failed)? == target => {
                return Ok(Verdict::Have);
            }
            Some(Kind::Dir) => return Err(Fault::new(FaultKind::IsDir, "there is a directory of this name")),
            _ => {}
        }
        if self.place.dry_run {
            return Ok(Verdict::Have);
        }
        self.unsynced = true;
        match old {
            None => self.fs().symlink(dir, name, target).map_err(failed)?,
            Some(old) => {
                let part = target::random_part().map_err(failed)?;
                self.fs().symlink(dir, &part, target).map_err(failed)?;
                commit::give_name(&self.place, dir, &part, name, Some(&old))?;
            }
        }
        Ok(Verdict::Have)
    }

    fn want(&mut self, key: Key, wanted: Wanted<F>) -> Result<Verdict, Fault> {
        let Wanted { dir, name, info, old, .. } = &wanted;
        let size = info.ident.size;
        if size > SIZE_MAX {
            return Err(Fault::new(FaultKind::Limit, format!("{size} bytes are more than any file may have (64 TiB)")));
        }
        match old {
            Some(old) if old.kind == Kind::Dir => {
                return Err(Fault::new(FaultKind::IsDir, "there is a directory of this name"));
            }
            Some(old) if old.kind == Kind::Special => {
                return Err(Fault::new(FaultKind::Exists, "there is a device, socket or fifo of this name"));
            }
            Some(old) if old.kind == Kind::File && old.size == size && old.mtime == info.mtime() => {
                return Ok(Verdict::Have);
            }
            _ => {}
        }
        if self.place.dry_run {
            self.tell(wanted.path, Happened::Would(size));
            return Ok(Verdict::Want);
        }
        let compare = !self.place.geometry.is_small(size)
            && (old.is_some_and(|old| old.kind == Kind::File && old.size > 0)
                || target::has_partial(self.fs(), dir, name));
        self.wanted.insert(key, wanted);
        Ok(if compare { Verdict::Compare } else { Verdict::Want })
    }

    /// The file that a message of the sender is about, begun where this is the first one.
    fn file(&mut self, key: Key) -> Result<&mut Receiving<F>, Violation> {
        if !self.files.contains_key(&key) {
            let wanted = self.wanted.remove(&key).ok_or(Violation("it speaks of a file that is not wanted"))?;
            let size = wanted.info.ident.size;
            if self.place.geometry.is_small(size) {
                return Err(Violation("a small file comes in chunks"));
            }
            if self.files.len() >= FILES_MAX {
                return Err(Violation("too many files at once"));
            }
            let chunks = self.place.geometry.chunks(size);
            let path = wanted.path;
            let opened = Target::open(&self.place, &path, wanted.dir, wanted.name, wanted.info, wanted.old);
            let (target, fault) = match opened {
                Ok(target) => (Some(Arc::new(target)), None),
                Err(fault) => (None, Some(fault)),
            };
            self.files.insert(
                key,
                Receiving {
                    path,
                    target,
                    size,
                    chunks,
                    merger: Merger::default(),
                    come: vec![0; chunks.div_ceil(64) as usize],
                    jobs: 0,
                    hash: None,
                    committing: false,
                    failed: false,
                    dropped: false,
                },
            );
            if let Some(fault) = fault {
                self.fail(key, fault);
            }
        }
        self.files.get_mut(&key).ok_or(Violation("it speaks of a file that is not wanted"))
    }

    fn fail(&mut self, key: Key, fault: Fault) {
        if let Some(file) = self.files.get_mut(&key)
            && !file.failed
        {
            file.failed = true;
            let path = file.path.clone();
            self.tell(path, Happened::Failed(fault.clone()));
            self.out.push_back(Message::Committed { key, result: Err(fault) });
        }
    }

    /// Chunks arrive, in one way or another.
    fn unit(
        &mut self,
        key: Key,
        first: u64,
        count: u64,
        job: impl FnOnce(Arc<Target<F>>) -> Job<F>,
    ) -> Result<(), Violation> {
        if self.units >= UNITS_MAX * 2 {
            return Err(Violation("too many chunks under way"));
        }
        let file = self.file(key)?;
        let end = first.checked_add(count).filter(|&end| end <= file.chunks);
        let end = end.ok_or(Violation("chunks lie behind the end of their file"))?;
        if file.hash.is_some() || file.dropped || end > file.merger.merged() + AHEAD_MAX {
            return Err(Violation("chunks come behind the end, or far too early"));
        }
        for chunk in first..end {
            let (word, bit) = ((chunk / 64) as usize, 1u64 << (chunk % 64));
            if file.come[word] & bit != 0 {
                return Err(Violation("a chunk comes twice"));
            }
            file.come[word] |= bit;
        }
        match (&file.target, file.failed) {
            (Some(target), false) => {
                let job = job(target.clone());
                file.jobs += 1;
                self.units += 1;
                self.jobs.push_back(job);
            }
            _ => self.out.push_back(Message::Landed { key, first }),
        }
        Ok(())
    }

    fn slot(&self, slot: u16) -> Result<u16, Violation> {
        if slot < self.place.geometry.slots { Ok(slot) } else { Err(Violation("it names a slot that there is not")) }
    }

    fn pack(&mut self, slot: u16, files: Vec<(Key, u32, Value)>) -> Result<(), Violation> {
        self.slot(slot)?;
        if self.packs.contains(&slot) {
            return Err(Violation("a slot is filled that was not emptied"));
        }
        let (mut small, mut at) = (Vec::with_capacity(files.len()), 0u64);
        for (key, len, hash) in files {
            let Wanted { path, dir, name, info, old } =
                self.wanted.remove(&key).ok_or(Violation("it speaks of a file that is not wanted"))?;
            if u64::from(len) != info.ident.size || !self.place.geometry.is_small(info.ident.size) {
                return Err(Violation("a small file has another size than it was offered with"));
            }
            small.push(jobs::Small { key, path, dir, name, info, old, at: at as usize, hash });
            at += u64::from(len);
        }
        if at > self.place.geometry.slot() {
            return Err(Violation("a pack is larger than its slot"));
        }
        self.packs.push(slot);
        self.jobs.push_back(Job::Unpack { slot, files: small });
        Ok(())
    }

    /// Commits, or forgets, what has nothing under way any more.
    fn settle(&mut self, key: Key) {
        let Some(file) = self.files.get_mut(&key) else { return };
        if file.jobs > 0 || file.committing {
            return;
        }
        if file.dropped {
            self.files.remove(&key);
            return;
        }
        if let (Some(hash), false, Some(target)) = (file.hash, file.failed, &file.target) {
            if file.merger.finish(file.chunks) == Some(hash) {
                file.committing = true;
                self.jobs.push_back(Job::Commit { key, target: target.clone(), hash });
            } else {
                target.spoil(&self.place);
                self.fail(key, Fault::wrong_data("the file"));
            }
        }
    }
}

impl<F: Fs> Engine for Sink<F> {
    type Job = Job<F>;
    type Done = Done;

    fn on(&mut self, message: Message) -> Result<(), Violation> {
        match message {
            Message::Batch { id, items } => self.batch(id, items)?,
            Message::Need { key, first, count } => {
                if self.units >= UNITS_MAX * 2 {
                    return Err(Violation("too many questions at once"));
                }
                let file = self.file(key)?;
                let end = first.checked_add(u64::from(count)).filter(|&end| end <= file.chunks);
                end.ok_or(Violation("chunks lie behind the end of their file"))?;
                if let (Some(target), false) = (&file.target, file.failed) {
                    let job = Job::Know { key, target: target.clone(), first, count };
                    file.jobs += 1;
                    self.units += 1;
                    self.jobs.push_back(job);
                }
            }
            Message::Data { key, first, slot, values } => {
                self.slot(slot)?;
                if values.is_empty() || values.len() as u64 > self.place.geometry.per_slot {
                    return Err(Violation("it writes more chunks than a slot has"));
                }
                let count = values.len() as u64;
                self.unit(key, first, count, |target| Job::Land { key, target, first, slot, values })?;
            }
            Message::Hole { key, first, count } => {
                self.unit(key, first, u64::from(count), |target| Job::Hole { key, target, first, count })?;
            }
            Message::Keep { key, first, count } => {
                self.unit(key, first, u64::from(count), |target| Job::Keep { key, target, first, count })?;
            }
            Message::Pack { slot, files } => self.pack(slot, files)?,
            Message::End { key, hash } => {
                let file = self.files.get_mut(&key).ok_or(Violation("it ends a file that was not begun"))?;
                if file.hash.replace(hash).is_some() {
                    return Err(Violation("it ends a file twice"));
                }
                self.settle(key);
            }
            Message::Drop { key } => {
                if self.wanted.remove(&key).is_none() {
                    let file = self.files.get_mut(&key).ok_or(Violation("it drops a file that is not wanted"))?;
                    file.dropped = true;
                    self.settle(key);
                }
            }
            Message::Note { path, what } => match what {
                Note::Failed(fault) => self.tell(path, Happened::Failed(fault)),
                Note::LeftOut(why) => self.tell(path, Happened::LeftOut(why)),
            },
            Message::Over => self.peer_over = true,
            _ => return Err(Violation("a sender has nothing of this kind to say")),
        }
        Ok(())
    }

    fn done(&mut self, done: Done) -> Result<(), LinkLost> {
        match done {
            Done::Known { key, first, known } => {
                self.units -= 1;
                if let Some(file) = self.files.get_mut(&key) {
                    file.jobs -= 1;
                    if !file.failed {
                        self.out.push_back(Message::Values { key, first, known });
                    }
                }
                self.settle(key);
            }
            Done::Landed { key, first, result } => {
                self.units -= 1;
                self.out.push_back(Message::Landed { key, first });
                let Some(file) = self.files.get_mut(&key) else { return Ok(()) };
                file.jobs -= 1;
                match result {
                    Ok(values) => (first..).zip(values).for_each(|(index, value)| file.merger.push(index, value)),
                    Err(fault) => self.fail(key, fault),
                }
                self.settle(key);
            }
            Done::Unpacked { slot, results } => {
                self.packs.retain(|&busy| busy != slot);
                self.out.push_back(Message::Unpacked { slot });
                for (key, path, size, result) in results {
                    let what = match &result {
                        Ok(hash) => Happened::Done(size, *hash),
                        Err(fault) => Happened::Failed(fault.clone()),
                    };
                    self.tell(path, what);
                    self.out.push_back(Message::Committed { key, result });
                }
            }
            Done::Committed { key, hash, result } => {
                let Some(file) = self.files.get_mut(&key) else { return Ok(()) };
                file.committing = false;
                match result {
                    Ok(()) => {
                        let (path, size) = (file.path.clone(), file.size);
                        self.files.remove(&key);
                        self.tell(path, Happened::Done(size, hash));
                        self.out.push_back(Message::Committed { key, result: Ok(hash) });
                    }
                    Err(fault) => self.fail(key, fault),
                }
                self.settle(key);
            }
            Done::Synced(result) => {
                self.failed = result.clone().err();
                self.out.push_back(Message::Finished { stages: self.clock.stages(), result });
                self.over = true;
            }
        }
        Ok(())
    }

    fn pump(&mut self) {
        let idle = self.files.is_empty() && self.packs.is_empty() && self.units == 0;
        let empty = self.wanted.is_empty() || self.place.dry_run;
        if self.peer_over && idle && empty && !self.finishing {
            self.finishing = true;
            let needed = self.unsynced && !self.place.no_fsync;
            self.jobs.push_back(Job::Sync { needed });
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
        self.over && self.out.is_empty()
    }
}
