//! A file system in memory that forgets at a crash what was not synced, keeps some names and not others, and fails on demand.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::fs::{Entry, Fs, Kind, Links, Rename, Stat, Time};
use crate::name::{Name, RelPath, is_partial};

mod bug;
pub mod history;
pub mod mirrors;
pub mod requests;
mod run;
mod users;

pub use bug::{BUGS, Bug, Mishap};
pub use users::Users;

/// Bytes of a block: what is zero in one takes no space.
const BLOCK: usize = 1024;

/// A generator of numbers (splitmix64, Steele, Lea and Flood 2014): the same for the same seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `most`.
    pub fn below(&mut self, most: usize) -> usize {
        (self.number() % most.max(1) as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Debug)]
struct Inode {
    kind: Kind,
    data: Vec<u8>,
    durable: Option<Vec<u8>>,
    /// How often the disk failed to write it.
    lost: u64,
    target: Vec<u8>,
    entries: BTreeMap<Vec<u8>, u64>,
    durable_entries: BTreeMap<Vec<u8>, u64>,
    mode: u32,
    mtime: Time,
    ctime: Time,
    born: Time,
}

/// Changes of names that reach the disk together or not at all.
type Change = Vec<(u64, Vec<u8>, Option<u64>)>;

/// What somebody else does.
type Edit = Box<dyn FnOnce(&mut Users<'_>) + Send>;

struct World {
    inodes: HashMap<u64, Inode>,
    pending: Vec<Change>,
    next: u64,
    dev: u64,
    now: u64,
    boot: u64,
    locks: HashMap<u64, u64>,
    handles: u64,
    mishap: Option<(u64, Mishap)>,
    calls: u64,
    dead: bool,
    short: bool,
    random: Random,
    bug: Option<Bug>,
    folds: bool,
    delayed: Option<(u64, u64, Vec<u8>)>,
    edit: Option<(u64, Edit)>,
    /// How often the disk failed to write something.
    lost: u64,
}

/// The simulated file system.
#[derive(Clone)]
pub struct SimFs(Arc<Mutex<World>>);

/// A directory of it, and what the disk had failed to write when it was opened.
#[derive(Clone, Copy, Debug)]
pub struct Dir(u64, u64);

/// An open file of it.
pub struct File {
    ino: u64,
    handle: u64,
    lost: u64,
    world: Arc<Mutex<World>>,
}

impl Drop for File {
    fn drop(&mut self) {
        let mut world = self.world.lock().unwrap_or_else(|e| e.into_inner());
        if world.locks.get(&self.ino) == Some(&self.handle) {
            world.locks.remove(&self.ino);
        }
    }
}

const ROOT: u64 = 1;

impl SimFs {
    /// An empty one.
    pub fn new(seed: u64, bug: Option<Bug>, folds: bool) -> SimFs {
        let random = Random(seed);
        let mut world = World {
            inodes: HashMap::new(),
            pending: Vec::new(),
            next: ROOT,
            dev: 1,
            now: 1_700_000_000_000_000_000,
            boot: 1,
            locks: HashMap::new(),
            handles: 0,
            mishap: None,
            calls: 0,
            dead: false,
            short: false,
            random,
            bug,
            folds,
            delayed: None,
            edit: None,
            lost: 0,
        };
        world.make(Kind::Dir);
        SimFs(Arc::new(Mutex::new(world)))
    }

    /// Its root.
    pub fn root(&self) -> Dir {
        Dir(ROOT, 0)
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A call of the process under test.
    fn call(&self, syncs: Option<u64>) -> io::Result<MutexGuard<'_, World>> {
        let mut world = self.world();
        world.calls += 1;
        world.now += 1_000;
        if let Some((at, edit)) = world.edit.take() {
            if world.calls >= at {
                edit(&mut Users(&mut world));
            } else {
                world.edit = Some((at, edit));
            }
        }
        match world.mishap {
            _ if world.dead => return Err(io::Error::other("killed")),
            Some((at, Mishap::Kill)) if world.calls >= at => {
                world.dead = true;
                world.delayed = None;
                return Err(io::Error::other("killed"));
            }
            Some((at, Mishap::Fail(kind)))
                if world.calls >= at && (kind != io::ErrorKind::Other || syncs.is_some()) =>
            {
                world.mishap = None;
                if let Some(ino) = syncs {
                    // As Linux does: what could not be written is dropped and said once.
                    world.drop_dirty(ino);
                    if world.bug == Some(Bug::SyncErrorIgnored) {
                        return Ok(world);
                    }
                }
                if kind == io::ErrorKind::WouldBlock && world.bug == Some(Bug::AgainNotFound) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                return Err(kind.into());
            }
            _ => {}
        }
        Ok(world)
    }

    /// Plans a mishap at so many calls from now, forgets the one before and counts anew.
    pub fn plan(&self, mishap: Option<(u64, Mishap)>, short: bool) {
        let mut world = self.world();
        let calls = world.calls;
        world.mishap = mishap.map(|(at, mishap)| (calls + at, mishap));
        world.short = short;
    }

    /// Has somebody else change files at so many calls from now.
    pub fn edit_at(&self, at: u64, edit: impl FnOnce(&mut Users<'_>) + Send + 'static) {
        let mut world = self.world();
        let at = world.calls + at;
        world.edit = Some((at, Box::new(edit)));
    }

    /// Whether something is planned to go wrong.
    pub fn has_mishap(&self) -> bool {
        self.world().mishap.is_some()
    }

    /// The device of the file system gets another number.
    pub fn renumber(&self) {
        self.world().dev += 1;
    }

    /// Whether the process was killed.
    pub fn is_dead(&self) -> bool {
        self.world().dead
    }

    /// A new process after the old one has gone; after a loss of power where that is asked for.
    pub fn restart(&self, power: bool) {
        let mut world = self.world();
        world.dead = false;
        world.mishap = None;
        world.edit = None;
        world.short = false;
        world.locks.clear();
        if power {
            world.lose_power();
        }
        world.apply_delayed();
    }

    /// What somebody else does meanwhile.
    pub fn users(&self, act: impl FnOnce(&mut Users<'_>)) {
        act(&mut Users(&mut self.world()));
    }

    /// Lets the clock jump, backwards too.
    pub fn jump(&self, nanos: i64) {
        let mut world = self.world();
        world.now = world.now.saturating_add_signed(nanos);
    }
}

impl World {
    fn time(&self) -> Time {
        Time { sec: (self.now / 1_000_000_000) as i64, nsec: (self.now % 1_000_000_000) as u32 }
    }

    fn make(&mut self, kind: Kind) -> u64 {
        let (ino, time) = (self.next, self.time());
        self.next += 1;
        let inode = Inode {
            kind,
            data: Vec::new(),
            durable: None,
            lost: 0,
            target: Vec::new(),
            entries: BTreeMap::new(),
            durable_entries: BTreeMap::new(),
            mode: 0o600,
            mtime: time,
            ctime: time,
            born: time,
        };
        self.inodes.insert(ino, inode);
        ino
    }

    fn change(&mut self, change: Change) {
        for (dir, name, ino) in &change {
            if let Some(dir) = self.inodes.get_mut(dir) {
                match ino {
                    Some(ino) => drop(dir.entries.insert(name.clone(), *ino)),
                    None => drop(dir.entries.remove(name)),
                }
            }
        }
        self.pending.push(change);
    }

    fn settle(&mut self, change: Change) {
        for (dir, name, ino) in change {
            if let Some(dir) = self.inodes.get_mut(&dir) {
                match ino {
                    Some(ino) => drop(dir.durable_entries.insert(name, ino)),
                    None => drop(dir.durable_entries.remove(&name)),
                }
            }
        }
    }

    fn sync_names(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            self.settle(change);
        }
    }

    fn drop_dirty(&mut self, ino: u64) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            let len = inode.data.len();
            let mut old = inode.durable.clone().unwrap_or_default();
            old.resize(len, 0);
            inode.data = old;
        }
    }

    /// Some changes of names are on the disk, in any order; of files, what was synced for sure, the rest by chance.
    fn lose_power(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        for change in pending {
            if self.random.one_in(2) {
                self.settle(change);
            }
        }
        let mut inos: Vec<u64> = self.inodes.keys().copied().collect();
        inos.sort_unstable();
        for ino in inos {
            let chance = self.random.below(3);
            let Some(inode) = self.inodes.get_mut(&ino) else { continue };
            inode.entries = inode.durable_entries.clone();
            let old = inode.durable.clone().unwrap_or_default();
            match chance {
                0 => inode.data = old,
                1 => {
                    // Some pages of the new content.
                    let mut mixed = old;
                    mixed.resize(inode.data.len(), 0);
                    let pages = mixed.chunks_mut(BLOCK / 2).zip(inode.data.chunks(BLOCK / 2));
                    pages.step_by(2).for_each(|(to, from)| to[..from.len()].copy_from_slice(from));
                    inode.data = mixed;
                }
                _ => {}
            }
            inode.durable = Some(inode.data.clone());
        }
        self.delayed = None;
        if self.bug != Some(Bug::BootForgotten) {
            self.boot += 1;
        }
    }

    fn find(&self, dir: u64, name: &[u8]) -> io::Result<u64> {
        let entries = &self.inodes.get(&dir).ok_or(io::ErrorKind::NotFound)?.entries;
        let folded = || {
            let same = |other: &&Vec<u8>| other.eq_ignore_ascii_case(name);
            entries.keys().find(same).filter(|_| self.folds).and_then(|name| entries.get(name))
        };
        entries.get(name).or_else(folded).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn of(&self, ino: u64) -> io::Result<&Inode> {
        self.inodes.get(&ino).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn stat(&self, ino: u64) -> io::Result<Stat> {
        let inode = self.of(ino)?;
        let disk = inode.data.chunks(BLOCK).filter(|block| block.iter().any(|&b| b != 0)).count() * BLOCK;
        let (mut mtime, mut ctime, mut ino) = (inode.mtime, inode.ctime, ino);
        match self.bug {
            Some(Bug::MtimeAlone) => (ctime, ino) = (Time::default(), 7),
            Some(Bug::SourceUnchecked) => (mtime, ctime, ino) = (Time::default(), Time::default(), 7),
            _ => {}
        }
        let size = inode.data.len() as u64;
        Ok(Stat {
            kind: inode.kind,
            dev: self.dev,
            ino,
            size,
            disk: (disk as u64).min(size),
            mode: inode.mode,
            links: 1,
            uid: 0,
            mtime,
            ctime,
        })
    }

    fn open(&mut self, ino: u64, world: &Arc<Mutex<World>>) -> io::Result<(File, Stat)> {
        let stat = self.stat(ino)?;
        if stat.kind != Kind::File {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.handles += 1;
        let lost = self.of(ino)?.lost;
        Ok((File { ino, handle: self.handles, lost, world: world.clone() }, stat))
    }

    fn touch(&mut self, ino: u64, content: bool) {
        let now = self.time();
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.ctime = now;
            if content {
                inode.mtime = now;
            }
        }
    }

    fn put(&mut self, ino: u64, offset: u64, bytes: &[u8]) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            let end = offset as usize + bytes.len();
            if inode.data.len() < end {
                inode.data.resize(end, 0);
            }
            inode.data[offset as usize..end].copy_from_slice(bytes);
        }
        self.touch(ino, true);
    }

    fn apply_delayed(&mut self) {
        if let Some((ino, offset, bytes)) = self.delayed.take() {
            self.put(ino, offset, &bytes);
        }
    }

    fn is_part(&self, ino: u64) -> bool {
        let named = |inode: &Inode| inode.entries.iter().any(|(name, is)| *is == ino && is_partial(name));
        self.inodes.values().any(named)
    }
}

impl Fs for SimFs {
    type Dir = Dir;
    type File = File;
    type List = std::vec::IntoIter<io::Result<Entry>>;

    fn open_dir(&self, at: &Dir, path: &RelPath, _: Links) -> io::Result<Dir> {
        let world = self.call(None)?;
        let mut ino = at.0;
        for name in path.bytes().split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            ino = world.find(ino, name)?;
        }
        if world.of(ino)?.kind == Kind::Dir { Ok(Dir(ino, 0)) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    fn open_child(&self, at: &Dir, name: &Name) -> io::Result<Dir> {
        let world = self.call(None)?;
        let ino = world.find(at.0, name.bytes())?;
        if world.of(ino)?.kind == Kind::Dir { Ok(Dir(ino, 0)) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    fn open_read(&self, at: &Dir, name: &Name, _: Links) -> io::Result<(File, Stat)> {
        let mut world = self.call(None)?;
        let ino = world.find(at.0, name.bytes())?;
        world.open(ino, &self.0)
    }

    fn open_write(&self, at: &Dir, name: &Name) -> io::Result<(File, Stat)> {
        let mut world = self.call(None)?;
        let ino = world.find(at.0, name.bytes())?;
        if world.of(ino)?.mode & 0o200 == 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        world.open(ino, &self.0)
    }

    fn create(&self, at: &Dir, name: &Name) -> io::Result<File> {
        let mut world = self.call(None)?;
        if world.find(at.0, name.bytes()).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let ino = world.make(Kind::File);
        world.change(vec![(at.0, name.bytes().to_vec(), Some(ino))]);
        Ok(world.open(ino, &self.0)?.0)
    }

    fn stat(&self, at: &Dir, name: &Name) -> io::Result<Stat> {
        let world = self.call(None)?;
        world.stat(world.find(at.0, name.bytes())?)
    }

    fn stat_dir(&self, dir: &Dir) -> io::Result<Stat> {
        let world = self.call(None)?;
        Ok(Stat { ino: dir.0, ..world.stat(dir.0)? })
    }

    fn stat_file(&self, file: &File) -> io::Result<Stat> {
        self.call(None)?.stat(file.ino)
    }

    fn born(&self, file: &File) -> io::Result<Time> {
        Ok(self.call(None)?.of(file.ino)?.born)
    }

    fn mount(&self, _: &File) -> io::Result<Option<u64>> {
        Ok(Some(0))
    }

    fn list(&self, at: &Dir) -> io::Result<Self::List> {
        let (world, cut) = match self.call(None) {
            Ok(world) => (world, false),
            Err(error) if self.world().dead => return Err(error),
            Err(_) => (self.world(), true),
        };
        let names = world.of(at.0)?.entries.keys().map(|name| Ok(Entry { name: name.clone() }));
        let mut names: Vec<_> = names.collect();
        if cut {
            // It fails in its middle.
            names.truncate(names.len() / 2);
            if world.bug != Some(Bug::ListingCut) {
                names.push(Err(io::ErrorKind::PermissionDenied.into()));
            }
        }
        Ok(names.into_iter())
    }

    fn mkdir(&self, at: &Dir, name: &Name, _: u32) -> io::Result<()> {
        let mut world = self.call(None)?;
        if world.find(at.0, name.bytes()).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let ino = world.make(Kind::Dir);
        world.change(vec![(at.0, name.bytes().to_vec(), Some(ino))]);
        Ok(())
    }

    fn symlink(&self, at: &Dir, name: &Name, target: &[u8]) -> io::Result<()> {
        let mut world = self.call(None)?;
        if world.find(at.0, name.bytes()).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let ino = world.make(Kind::Symlink);
        if let Some(inode) = world.inodes.get_mut(&ino) {
            inode.target = target.to_vec();
        }
        world.change(vec![(at.0, name.bytes().to_vec(), Some(ino))]);
        Ok(())
    }

    fn read_link(&self, at: &Dir, name: &Name) -> io::Result<Vec<u8>> {
        let world = self.call(None)?;
        Ok(world.of(world.find(at.0, name.bytes())?)?.target.clone())
    }

    fn rename(&self, from: (&Dir, &Name), to: (&Dir, &Name), how: Rename) -> io::Result<()> {
        let mut world = self.call(None)?;
        let how = if world.bug == Some(Bug::BlindRename) { Rename::Replace } else { how };
        let moved = world.find(from.0.0, from.1.bytes())?;
        let there = world.find(to.0.0, to.1.bytes());
        let (old, new) = ((from.0.0, from.1.bytes().to_vec()), (to.0.0, to.1.bytes().to_vec()));
        let change = match (how, there) {
            (Rename::Exchange, _) if world.bug == Some(Bug::NoSwap) => return Err(io::ErrorKind::Unsupported.into()),
            (Rename::NoReplace, Ok(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Rename::Exchange, Err(error)) => return Err(error),
            (Rename::Exchange, Ok(there)) => {
                world.touch(there, false);
                vec![(old.0, old.1, Some(there)), (new.0, new.1, Some(moved))]
            }
            _ => vec![(old.0, old.1, None), (new.0, new.1, Some(moved))],
        };
        world.touch(moved, false);
        world.change(change);
        Ok(())
    }

    fn unlink(&self, at: &Dir, name: &Name) -> io::Result<()> {
        let mut world = self.call(None)?;
        world.find(at.0, name.bytes())?;
        world.change(vec![(at.0, name.bytes().to_vec(), None)]);
        Ok(())
    }

    fn rmdir(&self, at: &Dir, name: &Name) -> io::Result<()> {
        let mut world = self.call(None)?;
        let ino = world.find(at.0, name.bytes())?;
        if !world.of(ino)?.entries.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        world.change(vec![(at.0, name.bytes().to_vec(), None)]);
        Ok(())
    }

    fn read_at(&self, file: &File, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let mut world = self.call(None)?;
        let short = world.short;
        let data = &world.of(file.ino)?.data;
        let from = data.get((offset as usize).min(data.len())..).unwrap_or_default();
        let mut len = from.len().min(out.len());
        out[..len].copy_from_slice(&from[..len]);
        if short && len > 1 && world.random.one_in(2) {
            len = 1 + world.random.below(len - 1);
        }
        Ok(len)
    }

    fn write_at(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut world = self.call(None)?;
        world.of(file.ino)?;
        world.apply_delayed();
        let mut len = bytes.len();
        if world.short && len > 1 && world.random.one_in(2) {
            len = 1 + world.random.below(len - 1);
        }
        if world.bug == Some(Bug::JournalFirst) && world.is_part(file.ino) {
            world.delayed = Some((file.ino, offset, bytes[..len].to_vec()));
            return Ok(len);
        }
        world.put(file.ino, offset, &bytes[..len]);
        Ok(if world.bug == Some(Bug::ShortWriteIgnored) { bytes.len() } else { len })
    }

    fn next_data(&self, file: &File, offset: u64) -> io::Result<Option<(u64, u64)>> {
        let world = self.call(None)?;
        let data = &world.of(file.ino)?.data;
        let zero = |block: usize| data[block * BLOCK..data.len().min((block + 1) * BLOCK)].iter().all(|&b| b == 0);
        let blocks = data.len().div_ceil(BLOCK);
        let first = (offset as usize / BLOCK..blocks).find(|&block| !zero(block));
        Ok(first.map(|first| {
            let end = (first..blocks).find(|&block| zero(block)).unwrap_or(blocks) * BLOCK;
            ((first * BLOCK) as u64, end.min(data.len()) as u64)
        }))
    }

    fn reserve(&self, file: &File, _: u64) -> io::Result<()> {
        self.call(None)?.of(file.ino).map(drop)
    }

    fn punch(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        let mut world = self.call(None)?;
        world.put(file.ino, offset, &vec![0; len as usize]);
        Ok(())
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        let mut world = self.call(None)?;
        if let Some(inode) = world.inodes.get_mut(&file.ino) {
            inode.data.resize(len as usize, 0);
        }
        world.touch(file.ino, true);
        Ok(())
    }

    fn copy_range(&self, from: &File, to: &File, offset: u64, len: u64) -> io::Result<u64> {
        let mut world = self.call(None)?;
        let data = &world.of(from.ino)?.data;
        let end = data.len().min((offset + len) as usize);
        let bytes = data.get(offset as usize..end).unwrap_or_default().to_vec();
        world.put(to.ino, offset, &bytes);
        Ok(bytes.len() as u64)
    }

    fn clone_file(&self, _: &Dir, file: &File) -> io::Result<File> {
        let mut world = self.call(None)?;
        if world.random.one_in(2) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let data = world.of(file.ino)?.data.clone();
        let ino = world.make(Kind::File);
        if let Some(inode) = world.inodes.get_mut(&ino) {
            inode.data = data;
        }
        Ok(world.open(ino, &self.0)?.0)
    }

    fn set_times(&self, file: &File, mtime: Time) -> io::Result<()> {
        let mut world = self.call(None)?;
        world.touch(file.ino, false);
        if let Some(inode) = world.inodes.get_mut(&file.ino) {
            inode.mtime = mtime;
        }
        Ok(())
    }

    fn kept_time(&self, _: &Dir, mtime: Time) -> Time {
        mtime
    }

    fn set_mode(&self, file: &File, mode: u32) -> io::Result<()> {
        let mut world = self.call(None)?;
        if let Some(inode) = world.inodes.get_mut(&file.ino) {
            inode.mode = mode;
        }
        Ok(())
    }

    fn set_dir_mode(&self, dir: &Dir, mode: u32) -> io::Result<()> {
        let mut world = self.call(None)?;
        if let Some(inode) = world.inodes.get_mut(&dir.0) {
            inode.mode = mode;
        }
        Ok(())
    }

    fn list_xattrs(&self, _: &File) -> io::Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn list_dir_xattrs(&self, _: &Dir) -> io::Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn get_xattr(&self, _: &File, _: &[u8]) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn set_xattr(&self, _: &File, _: &[u8], _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let mut world = self.call(Some(file.ino))?;
        if world.of(file.ino)?.lost != file.lost {
            return Err(io::Error::other("something was not written"));
        }
        if world.bug != Some(Bug::NoFileSync)
            && let Some(inode) = world.inodes.get_mut(&file.ino)
        {
            inode.durable = Some(inode.data.clone());
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Dir) -> io::Result<()> {
        let mut world = self.call(None)?;
        if world.bug == Some(Bug::NoDirSync) {
            return Ok(());
        }
        // A name's changes reach the disk in their order: with each goes what was done before with its names. So the directory is on the
        // disk as it is now, and no later sync brings a name back that it lost.
        let (mut ready, mut rest, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
        for change in std::mem::take(&mut world.pending).into_iter().rev() {
            if change.iter().any(|(of, name, _)| *of == dir.0 || names.contains(&(*of, name.clone()))) {
                names.extend(change.iter().map(|(of, name, _)| (*of, name.clone())));
                ready.push(change);
            } else {
                rest.push(change);
            }
        }
        rest.reverse();
        world.pending = rest;
        ready.into_iter().rev().for_each(|change| world.settle(change));
        Ok(())
    }

    fn open_sync(&self, dir: &Dir) -> io::Result<Dir> {
        let lost = self.call(None)?.lost;
        Ok(Dir(dir.0, lost))
    }

    fn sync_all(&self, opened: &Dir) -> io::Result<()> {
        let mut world = self.call(None)?;
        if world.lost != opened.1 {
            return Err(io::Error::other("something was not written"));
        }
        if world.bug == Some(Bug::NoSyncAll) {
            return Ok(());
        }
        world.sync_names();
        world.inodes.values_mut().for_each(|inode| inode.durable = Some(inode.data.clone()));
        Ok(())
    }

    fn try_lock(&self, file: &File) -> io::Result<bool> {
        let mut world = self.call(None)?;
        match world.locks.get(&file.ino) {
            Some(&owner) => Ok(owner == file.handle),
            None => {
                world.locks.insert(file.ino, file.handle);
                Ok(true)
            }
        }
    }

    fn number(&self, _: &Dir) -> io::Result<u64> {
        Ok(9)
    }

    fn space(&self, _: &Dir) -> io::Result<(u64, u64)> {
        Ok((1 << 41, 1 << 40))
    }

    fn write_behind(&self, file: &File, _: u64, _: u64) -> io::Result<()> {
        self.sync(file)
    }

    fn forget(&self, _: &File, _: u64, _: u64) {}

    fn now(&self) -> Time {
        self.world().time()
    }

    fn pause(&self, time: std::time::Duration) {
        self.world().now += time.as_nanos() as u64;
    }

    fn boot_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.world().boot.to_le_bytes());
        id
    }
}
