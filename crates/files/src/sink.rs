//! The receiver of a transfer: says what it wants, checks what arrives and gives files their names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use crate::engine::{Clock, Engine, Event, Geometry, Happened, LinkLost, UNITS_MAX, Violation, key};
use crate::fs::{Fs, Kind, Stat, Time};
use crate::hash::{Merger, Value};
use crate::journal::{UNDERWAY, Underway, Whereabouts};
use crate::name::{Name, RelPath, escape};
use crate::source;
use crate::trash::Trash;
use crate::wire::{Delete, Fault, FaultKind, FileInfo, ITEMS_MAX, Item, Key, Message, Note, Verdict, What};

mod commit;
mod dirs;
mod extras;
mod jobs;
mod target;

use extras::Extras;
pub use jobs::{Done, Job};
use target::Target;

/// Largest file that is taken: 64 TiB. Its record of chunks takes 3 GiB of journal and 8 MiB of memory.
const SIZE_MAX: u64 = 64 << 40;

/// Large files under way at a time; each holds three descriptors.
const FILES_MAX: usize = 16;

/// Files that are wanted and not here yet.
const WANTED_MAX: usize = 4 * ITEMS_MAX;

/// Directories of files that are wanted: those of a sender's batches, and of one more. In a deep tree one may be opened twice for a batch.
const OPEN_MAX: usize = 2 * (source::BATCHES_MAX + 1) * source::BATCH_DIRS;

/// Chunks that a sender may be ahead of the first missing one: every unit under way at its largest.
const AHEAD_MAX: u64 = (UNITS_MAX * crate::wire::VALUES_MAX * 2) as u64;

/// Where files go, and how.
pub struct DestDir<F: Fs> {
    /// The file system.
    pub fs: Arc<F>,
    /// Root of the share: replaced files are kept below it.
    pub root: Arc<F::Dir>,
    /// The place of the transfer in it.
    pub base: RelPath,
    /// Where journals are; without it nothing is resumed.
    pub state: Option<Arc<F::Dir>>,
    /// Sizes.
    pub geometry: Geometry,
    /// Files from this size on are written behind and leave the page cache.
    pub large: u64,
    /// Change nothing.
    pub dry_run: bool,
    /// Do not wait for the disk.
    pub no_fsync: bool,
    /// Move to the trash what the sender has not, and what is replaced.
    pub delete: Option<Delete>,
    /// What was asked for; nothing else is taken. `None`: whatever the sender offers.
    only: Option<BTreeSet<RelPath>>,
    /// The trash of this run.
    trash: Trash<F>,
    /// Until the last thread that works here has ended.
    underway: OnceLock<Option<Underway<F>>>,
}

impl<F: Fs> DestDir<F> {
    /// A place below a root. Journals are kept in `state`; without it nothing is resumed. The sizes are those of every transfer; files leave
    /// the page cache from `large` bytes on.
    pub fn new(fs: Arc<F>, root: Arc<F::Dir>, base: RelPath, state: Option<Arc<F::Dir>>, large: u64) -> DestDir<F> {
        let (geometry, trash) = (Geometry::REAL, Trash::new(false));
        let (dry_run, no_fsync, delete, only) = (false, false, None, None);
        let underway = OnceLock::new();
        DestDir { fs, root, base, state, geometry, large, dry_run, no_fsync, delete, only, trash, underway }
    }

    /// What is done beside writing.
    #[must_use]
    pub fn with(self, dry_run: bool, no_fsync: bool, delete: Option<Delete>) -> DestDir<F> {
        let trash = Trash::new(!no_fsync && delete.is_some());
        DestDir { dry_run, no_fsync, delete, trash, ..self }
    }

    /// Takes these paths and what is below them, and ends the transfer where the sender names another one.
    #[must_use]
    pub fn only(self, paths: impl IntoIterator<Item = RelPath>) -> DestDir<F> {
        DestDir { only: Some(paths.into_iter().collect()), ..self }
    }

    /// Before the first partial file, which has no journal yet, or never. Where it cannot be noted, what a kill leaves is not swept.
    fn note_underway(&self) {
        let note = |state: &Arc<F::Dir>| {
            let root = (self.fs.number(&self.root)?, self.fs.stat_dir(&self.root)?.ino);
            let (id, dir, born) = (target::random()?, self.base.clone(), Time::default());
            let place = Whereabouts { root, dir, id, part: UNDERWAY, born };
            Underway::begin(self.fs.clone(), state.clone(), &place)
        };
        self.underway.get_or_init(|| self.state.as_ref().map(note).and_then(std::io::Result::ok));
    }

    fn is_asked(&self, path: &RelPath) -> bool {
        let Some(only) = &self.only else { return true };
        std::iter::successors(Some(path.clone()), |path| Some(path.split()?.0)).any(|path| only.contains(&path))
    }
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
    place: Arc<DestDir<F>>,
    dirs: VecDeque<(RelPath, Arc<F::Dir>)>,
    /// A directory of `dirs` that was seen to tell names apart.
    tells: Option<Arc<F::Dir>>,
    wanted: BTreeMap<Key, Wanted<F>>,
    files: BTreeMap<Key, Receiving<F>>,
    next_batch: u32,
    units: usize,
    packs: Vec<u16>,
    /// Verdicts that wait until what was dropped is gone: a file that is offered again needs the partial file that it had.
    verdicts: VecDeque<Message>,
    out: VecDeque<Message>,
    jobs: VecDeque<Job<F>>,
    events: VecDeque<Event>,
    /// Opened before directories or links were made that are not on the disk for sure.
    unsynced: Option<F::Dir>,
    peer_over: bool,
    finishing: bool,
    over: bool,
    clock: Arc<Clock>,
    extras: Option<Extras<F>>,
    /// More would have gone than may, or than goes at once.
    limit: Option<Fault>,
    failed: Option<Fault>,
}

impl<F: Fs> Sink<F> {
    /// A receiver at this place.
    ///
    /// # Errors
    /// [`crate::BadRule`] about the names that stay.
    pub fn new(place: DestDir<F>, clock: Arc<Clock>) -> Result<Sink<F>, crate::BadRule> {
        Ok(Sink {
            extras: place.delete.as_ref().map(Extras::new).transpose()?,
            limit: None,
            place: Arc::new(place),
            dirs: VecDeque::new(),
            tells: None,
            wanted: BTreeMap::new(),
            files: BTreeMap::new(),
            next_batch: 0,
            units: 0,
            packs: Vec::new(),
            verdicts: VecDeque::new(),
            out: VecDeque::new(),
            jobs: VecDeque::new(),
            events: VecDeque::new(),
            unsynced: None,
            peer_over: false,
            finishing: false,
            over: false,
            clock,
            failed: None,
        })
    }

    /// Where files go.
    pub fn place(&self) -> &Arc<DestDir<F>> {
        &self.place
    }

    /// Failure of the last sync, once it is over, or that more would have been deleted than may be.
    pub fn failed(&self) -> Option<&Fault> {
        self.failed.as_ref()
    }

    /// Names that are here and not at the sender, and all names that were compared.
    pub fn extra(&self) -> (u64, u64) {
        self.extras.as_ref().map_or((0, 0), Extras::counts)
    }

    /// What would go, with all below it.
    fn show(&mut self, gone: Vec<extras::Gone>) {
        let fs = self.place.fs.clone();
        let mut told = Vec::new();
        for one in gone {
            let (path, is_dir) = (one.path.clone(), one.extra.kind == Kind::Dir);
            told.push(one);
            if is_dir
                && let Some((parent, name)) = path.split()
                && let Ok(dir) = self.dir(&parent)
            {
                extras::below(&*fs, &dir, &name, &path, &mut told);
            }
        }
        for one in told {
            self.tell_extra(one.path, one.extra);
        }
    }

    /// What goes is told on both sides.
    fn tell_extra(&mut self, path: RelPath, extra: crate::wire::Extra) {
        self.out.push_back(Message::Note { path: path.clone(), what: Note::Extra(extra) });
        self.tell(path, Happened::Extra(extra));
    }

    fn fs(&self) -> &F {
        &self.place.fs
    }

    fn tell(&mut self, path: RelPath, what: Happened) {
        self.events.push_back(Event { path, what });
    }

    fn batch(&mut self, id: u32, items: Vec<Item>) -> Result<(), Violation> {
        if id != self.next_batch || self.peer_over {
            return Err(Violation("a batch comes out of its order"));
        }
        self.next_batch = id.checked_add(1).ok_or(Violation("too many batches"))?;
        if self.wanted.len() + self.files.len() + items.len() > WANTED_MAX {
            return Err(Violation("more files are offered than it waited for"));
        }
        let held: BTreeSet<*const F::Dir> = self.wanted.values().map(|wanted| Arc::as_ptr(&wanted.dir)).collect();
        let files = items.iter().filter(|item| matches!(item.what, What::File(_)));
        let more: BTreeSet<Option<RelPath>> = files.map(|item| item.path.split().map(|(parent, _)| parent)).collect();
        if held.len() + more.len() > OPEN_MAX {
            return Err(Violation("files of more directories are offered than it may have under way"));
        }
        // Before anything of the batch is carried out.
        if !items.iter().all(|item| self.place.is_asked(&item.path)) {
            return Err(Violation("it offers something that was not asked for"));
        }
        let mut verdicts = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let path = item.path.clone();
            let kind = match &item.what {
                What::Dir { .. } => Kind::Dir,
                What::Link { .. } => Kind::Symlink,
                What::File(_) => Kind::File,
                What::Present | What::Begin | What::End => {
                    self.names(&path, &item.what);
                    verdicts.push(Verdict::Have);
                    continue;
                }
            };
            let verdict = self.judge(key(id, index), item).unwrap_or_else(Verdict::Refused);
            match &verdict {
                Verdict::Have => self.tell(path, Happened::Same),
                Verdict::Made => self.tell(path, Happened::Made(kind)),
                Verdict::Refused(fault) => self.tell(path, Happened::Failed(fault.clone())),
                Verdict::Want | Verdict::Compare => {}
            }
            verdicts.push(verdict);
        }
        self.verdicts.push_back(Message::Verdicts { id, verdicts });
        Ok(())
    }

    /// What the sender says of names, for what it has not.
    fn names(&mut self, path: &RelPath, what: &What) {
        let dir = match what {
            What::Begin => self.dir(path).ok(),
            _ => None,
        };
        let fs = self.place.fs.clone();
        let Some(extras) = &mut self.extras else { return };
        match (what, dir) {
            // A directory that cannot be listed loses nothing.
            (What::Begin, Some(dir)) => drop(extras.begin(&*fs, path.clone(), dir)),
            (What::End, _) => extras.end(&*fs, path),
            (What::Present, _) => {
                if let Some((parent, name)) = path.split() {
                    extras.pass(&*fs, &parent, &name);
                    if let Ok(dir) = self.dir(&parent)
                        && let Ok(found) = fs.stat(&dir, &name)
                    {
                        let _ = self.others(&parent, &dir, &name, &found);
                    }
                }
            }
            _ => {}
        }
    }

    /// Something of another kind has the name, and goes to the trash where that is done with what the sender has not.
    fn conflict(&mut self, dir: &F::Dir, name: &Name, path: &RelPath, old: &Stat) -> Result<(), Fault> {
        let fs = self.place.fs.clone();
        let fault = match old.kind {
            Kind::Dir => Fault::new(FaultKind::IsDir, "there is a directory of this name"),
            _ => Fault::new(FaultKind::Exists, "there is something else of this name"),
        };
        // Where nothing may go it is no question of how many.
        let extras = self.extras.as_mut().filter(|extras| extras.most != Some(0));
        extras.ok_or(fault)?.conflict(&*fs, dir, name, self.place.dry_run)?;
        if !self.place.dry_run {
            let whole = self.place.base.join_path(path).map_err(|why| Fault::new(FaultKind::Limit, why.to_string()))?;
            self.open_sync()?;
            let gone = self.place.trash.discard(&*fs, &self.place.root, &whole, true);
            gone.map_err(|error| Fault::io("moving what had this name to the trash", &error))?;
        }
        self.tell_extra(path.clone(), extras::extra(old));
        Ok(())
    }

    fn would_be_made(&self, error: &std::io::Error) -> bool {
        let loops = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        let other = loops || error.kind() == std::io::ErrorKind::NotADirectory;
        error.kind() == std::io::ErrorKind::NotFound || other && self.extras.is_some()
    }

    fn judge(&mut self, key: Key, item: Item) -> Result<Verdict, Fault> {
        let Some((parent, name)) = item.path.split() else {
            return Err(Fault::new(FaultKind::Invalid, "the place of a transfer itself cannot be replaced"));
        };
        let fs = self.place.fs.clone();
        if let Some(extras) = &mut self.extras {
            extras.pass(&*fs, &parent, &name);
        }
        let dir = match self.dir(&parent) {
            Ok(dir) => dir,
            // The directory would have been made, in place of something else where that goes.
            Err(error) if self.place.dry_run && self.would_be_made(&error) => {
                if let What::File(info) = &item.what {
                    self.tell(item.path.clone(), Happened::Would(info.ident.size, info.mtime()));
                    return Ok(Verdict::Want);
                }
                return Ok(Verdict::Made);
            }
            Err(error) => return Err(Fault::io("its directory", &error)),
        };
        let old = match self.fs().stat(&dir, &name) {
            Ok(stat) => Some(stat),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(Fault::io("its name", &error)),
        };
        if let Some(old) = &old
            && let Some(others) =
                self.others(&parent, &dir, &name, old).map_err(|error| Fault::io("its directory", &error))?
        {
            let other = others.first().map_or("another one".into(), |other| escape(other.bytes()));
            let why = format!("the directory does not tell this name from {other}, which is there: rename one of them");
            return Err(Fault::new(FaultKind::Exists, why));
        }
        let stays = match (&item.what, old.map(|old| old.kind)) {
            (_, None) | (What::Dir { .. }, Some(Kind::Dir)) => true,
            (What::Dir { .. }, Some(_)) | (_, Some(Kind::Dir)) => false,
            (What::File(_), Some(kind)) => kind != Kind::Special,
            _ => true,
        };
        let old = match old {
            Some(old) if !stays => {
                self.conflict(&dir, &name, &item.path, &old)?;
                None
            }
            other => other,
        };
        match item.what {
            What::Present | What::Begin | What::End => Ok(Verdict::Have),
            What::Dir { mode } => self.make_dir(&dir, &name, mode, old),
            What::Link { target } => self.make_link(&dir, &name, &item.path, &target, old),
            What::File(info) => self.want(key, Wanted { path: item.path, dir, name, info, old }),
        }
    }

    /// Before a name is changed that the last sync brings to the disk.
    fn open_sync(&mut self) -> Result<(), Fault> {
        if self.unsynced.is_none() && !self.place.no_fsync {
            let opened = self.fs().open_sync(&self.place.root);
            self.unsynced = Some(opened.map_err(|error| Fault::io("the share", &error))?);
        }
        Ok(())
    }

    fn make_dir(&mut self, dir: &F::Dir, name: &Name, mode: u32, old: Option<Stat>) -> Result<Verdict, Fault> {
        if old.is_some() {
            return Ok(Verdict::Have);
        }
        if !self.place.dry_run {
            self.open_sync()?;
            // What comes into it must be writable by us.
            self.fs()
                .mkdir(dir, name, mode & 0o777 | 0o700)
                .map_err(|error| commit::refused("the directory", &error))?;
        }
        Ok(Verdict::Made)
    }

    fn make_link(
        &mut self,
        dir: &Arc<F::Dir>,
        name: &Name,
        path: &RelPath,
        target: &[u8],
        old: Option<Stat>,
    ) -> Result<Verdict, Fault> {
        let failed = |error: std::io::Error| commit::refused("the link", &error);
        if old.is_some_and(|old| old.kind == Kind::Symlink) && self.fs().read_link(dir, name).map_err(failed)? == target
        {
            return Ok(Verdict::Have);
        }
        if self.place.dry_run {
            return Ok(Verdict::Made);
        }
        self.open_sync()?;
        match old {
            None => self.fs().symlink(dir, name, target).map_err(failed)?,
            Some(old) => {
                self.place.note_underway();
                let part = target::random_part().map_err(failed)?;
                self.fs().symlink(dir, &part, target).map_err(failed)?;
                let named = commit::give_name(&self.place, dir, &part, path, Some(&old));
                if named.is_err() {
                    let _ = self.fs().unlink(dir, &part);
                }
                named?;
            }
        }
        Ok(Verdict::Made)
    }

    fn want(&mut self, key: Key, wanted: Wanted<F>) -> Result<Verdict, Fault> {
        let Wanted { dir, name, info, old, .. } = &wanted;
        let size = info.ident.size;
        if size > SIZE_MAX {
            return Err(Fault::new(FaultKind::Limit, format!("{size} bytes are more than any file may have (64 TiB)")));
        }
        let of_this_size = old.filter(|old| old.kind == Kind::File && old.size == size);
        if of_this_size
            .is_some_and(|old| old.mtime == info.mtime() || old.mtime == self.fs().kept_time(dir, info.mtime()))
        {
            return Ok(Verdict::Have);
        }
        if self.place.dry_run {
            let mtime = info.mtime();
            self.tell(wanted.path, Happened::Would(size, mtime));
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
            let Wanted { path, dir, info, old, .. } =
                self.wanted.remove(&key).ok_or(Violation("it speaks of a file that is not wanted"))?;
            if u64::from(len) != info.ident.size || !self.place.geometry.is_small(info.ident.size) {
                return Err(Violation("a small file has another size than it was offered with"));
            }
            small.push(jobs::Small { key, path, dir, info, old, at: at as usize, hash });
            at += u64::from(len);
        }
        if at > self.place.geometry.slot() {
            return Err(Violation("a pack is larger than its slot"));
        }
        self.place.note_underway();
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
            Message::Note { what: Note::Extra(_), .. } => {
                return Err(Violation("a sender has nothing of this kind to say"));
            }
            Message::Note { path, what } => self.tell(path, Happened::noted(what)),
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
                let mut told = Vec::with_capacity(results.len());
                for (key, path, size, result) in results {
                    let what = match &result {
                        Ok(hash) => Happened::Done(size, *hash),
                        Err(fault) => Happened::Failed(fault.clone()),
                    };
                    self.tell(path, what);
                    told.push((key, result));
                }
                self.out.push_back(Message::Unpacked { slot, results: told });
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
            Done::Finished { result, gone } => {
                for (gone, done) in gone {
                    match done {
                        Ok(()) => self.tell_extra(gone.path, gone.extra),
                        Err(fault) => {
                            let note = Note::Failed(fault.clone());
                            self.out.push_back(Message::Note { path: gone.path.clone(), what: note });
                            self.tell(gone.path, Happened::Failed(fault));
                        }
                    }
                }
                let result = result.and(self.limit.take().map_or(Ok(()), Err));
                self.failed = result.clone().err();
                let (stages, extra) = (self.clock.stages(), self.extra());
                self.out.push_back(Message::Finished { stages, extra, result });
                self.over = true;
            }
        }
        Ok(())
    }

    fn pump(&mut self) {
        if !self.verdicts.is_empty() && !self.files.values().any(|file| file.dropped) {
            self.out.append(&mut self.verdicts);
        }
        let idle = self.files.is_empty() && self.packs.is_empty() && self.units == 0;
        let empty = self.wanted.is_empty() || self.place.dry_run;
        if self.peer_over && idle && empty && !self.finishing {
            self.finishing = true;
            let dry_run = self.place.dry_run;
            let taken = self.extras.as_mut().map(|extras| extras.take(dry_run));
            let (mut gone, limit) = taken.unwrap_or_default();
            self.limit = limit;
            if dry_run {
                self.show(std::mem::take(&mut gone));
            }
            self.jobs.push_back(Job::Finish { opened: self.unsynced.take(), gone });
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
