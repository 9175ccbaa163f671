//! What the kernel asks, and the answers.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, Notifier, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request as From, TimeOrNow,
    WriteFlags,
};
use linkspan_files::client::Client;
use linkspan_files::fs::{Change, Ident, Kind, OpenHow, Rename};
use linkspan_files::name::{BadName, Name, RelPath};
use linkspan_files::wire::{Answer, Entry, FaultKind, New, PeerPath, Request};
use linkspan_files::{Error, lock};
use rustix::fs::OFlags;

use crate::ahead::{OpenFile, Opened, Read};
use crate::attr::{BLOCK, attr, since_1970};
use crate::courier::{Courier, errno};
use crate::dirs::{OpenDir, end_oldest};
use crate::nodes::{Edits, Nodes, ROOT, number};
use crate::pending::{Pending, Reply, Ticket};
use crate::{Options, Shared};

/// How long attributes, names and missing names are believed.
pub(crate) const BELIEVED: Duration = Duration::from_secs(1);

/// Bytes of one write at most: what the kernel gathers of one call (fuse(4), fs.fuse.max_pages_limit).
const WRITE_MAX: u32 = 1 << 20;

/// What is known of the mount, by all of its threads.
#[derive(Debug)]
pub(crate) struct View {
    options: Options,
    owner: (u32, u32),
    nodes: Mutex<Nodes>,
    notifier: OnceLock<Notifier>,
    pending: Arc<Pending>,
}

impl View {
    pub(crate) fn new(options: Options) -> Shared {
        let nodes = Mutex::new(Nodes::new(options.base.clone()));
        // Files show the mounting user as their owner: what may be read is the peer's to say.
        let owner = std::fs::metadata("/proc/self").map_or((0, 0), |own| {
            use std::os::unix::fs::MetadataExt;
            (own.uid(), own.gid())
        });
        Arc::new(View { options, owner, nodes, notifier: OnceLock::new(), pending: Arc::default() })
    }

    pub(crate) fn can_notify(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    fn at(&self, path: RelPath) -> PeerPath {
        PeerPath { share: self.options.share.clone(), path }
    }

    /// The place of a number; what the kernel has forgotten it does not ask for.
    pub(crate) fn place(&self, number: u64) -> Result<PeerPath, Errno> {
        lock(&self.nodes).path(number).map(|path| self.at(path)).ok_or(Errno::ESTALE)
    }

    /// The place of a name in a directory.
    fn below(&self, dir: INodeNo, name: &Name) -> Result<PeerPath, Errno> {
        let dir = self.place(dir.0)?;
        dir.path.join(name).map(|path| self.at(path)).map_err(|_| Errno::ENAMETOOLONG)
    }

    pub(crate) fn edits(&self, number: u64) -> Arc<Edits> {
        lock(&self.nodes).edits(number)
    }

    /// The kernel is told of an entry, which is here: its number, what it is, and of which generation.
    pub(crate) fn told(&self, at: &PeerPath, entry: &Entry) -> (FileAttr, Generation) {
        let number = number(entry);
        let generation = self.listed(&at.path, entry, Instant::now());
        (self.attr(number, entry), Generation(generation))
    }

    /// The same of an entry that was listed then; its generation.
    pub(crate) fn listed(&self, path: &RelPath, entry: &Entry, seen: Instant) -> u64 {
        lock(&self.nodes).told(number(entry), entry, path.clone(), seen)
    }

    pub(crate) fn generation(&self, number: u64) -> u64 {
        lock(&self.nodes).generation(number)
    }

    /// Of which generation it is, and what the kernel was told of it since: with an older size it would take pages from who has them mapped.
    pub(crate) fn since(&self, number: u64, seen: Instant) -> (Generation, Option<Ident>) {
        let (generation, newer) = lock(&self.nodes).since(number, seen);
        (Generation(generation), newer)
    }

    pub(crate) fn attr(&self, number: u64, entry: &Entry) -> FileAttr {
        attr(self.owner, number, entry)
    }
}

/// The answer to this one question.
fn asked<T>(answer: Result<Answer, Error>, of: impl FnOnce(Answer) -> Option<T>) -> Result<T, Errno> {
    of(answer.map_err(|error| errno(&error))?).ok_or(Errno::EIO)
}

fn look(client: &mut Client, at: PeerPath) -> Result<Entry, Errno> {
    asked(client.request(Request::Look(at)), |answer| match answer {
        Answer::Stat(entry) => Some(entry),
        _ => None,
    })
}

/// Of a request that is answered with what an entry is now.
fn is_now(answer: Answer) -> Option<Entry> {
    match answer {
        Answer::Stat(entry) => Some(entry),
        _ => None,
    }
}

/// A name that programs give to something.
fn name(name: &OsStr) -> Result<Name, Errno> {
    Name::new(name.as_bytes()).map_err(|why| match why {
        BadName::Long => Errno::ENAMETOOLONG,
        // linkspan's own.
        BadName::Reserved => Errno::EACCES,
        _ => Errno::EINVAL,
    })
}

fn opened_as(flags: OpenFlags) -> OpenHow {
    let access = flags.acc_mode();
    let (read, write) = (access != OpenAccMode::O_WRONLY, access != OpenAccMode::O_RDONLY);
    OpenHow { read, write, ..OpenHow::default() }
}

fn has(flags: i32, flag: OFlags) -> bool {
    flags & flag.bits() as i32 != 0
}

/// What the kernel may do with pages of a file that it has opened. Where a file ends that is appended to, the peer says: the kernel's
/// pages would have what is written at another place.
fn pages(flags: i32, how: OpenHow, same: bool) -> FopenFlags {
    if how.write && has(flags, OFlags::APPEND) {
        FopenFlags::FOPEN_DIRECT_IO
    } else if same {
        FopenFlags::FOPEN_KEEP_CACHE
    } else {
        FopenFlags::empty()
    }
}

fn opened(client: &mut Client, at: PeerPath, how: OpenHow) -> Result<Opened, Errno> {
    asked(client.request(Request::Open(at, how)), |answer| match answer {
        Answer::Opened(handle, entry, born, settled) => Some(Opened { handle, entry, born, settled }),
        _ => None,
    })
}

type Table<T> = Arc<Mutex<HashMap<u64, Arc<Mutex<T>>>>>;

/// With their numbers, and whether they are open for writing.
type Files = HashMap<u64, (INodeNo, bool, Arc<Mutex<OpenFile>>)>;

/// One that is open under this number; for writing where that is asked.
fn open_of(files: &Mutex<Files>, ino: INodeNo, write: bool) -> Option<Arc<Mutex<OpenFile>>> {
    let files = lock(files);
    let found = files.values().find(|(number, writes, _)| *number == ino && (*writes || !write));
    found.map(|(_, _, file)| file.clone())
}

/// Whether another file that was open in a session before had this number: the kernel has pages of that one, and is to take this one for something
/// else.
fn used_again(view: &View, files: &Mutex<Files>, epoch: u64, opened: &Opened) -> bool {
    let number = number(&opened.entry);
    let of: Vec<_> = lock(files).values().filter(|(ino, ..)| ino.0 == number).map(|(.., file)| file.clone()).collect();
    let again = of.iter().any(|file| lock(file).is_gone(epoch, opened));
    if again {
        lock(&view.nodes).used_again(number);
    }
    again
}

/// The file system.
#[derive(Debug)]
pub(crate) struct Mount {
    view: Shared,
    names: Courier,
    data: Courier,
    files: Arc<Mutex<Files>>,
    dirs: Table<OpenDir>,
    opened: Arc<AtomicU64>,
}

impl Mount {
    pub(crate) fn start(view: Shared, names: Client, data: Client) -> io::Result<Mount> {
        let pending = view.pending.clone();
        let (names, data) =
            (Courier::start("mount names", names, &pending)?, Courier::start("mount data", data, &pending)?);
        thread::Builder::new().name("mount timer".into()).spawn(move || pending.time())?;
        Ok(Mount { view, names, data, files: Arc::default(), dirs: Table::default(), opened: Arc::default() })
    }

    /// Has the session for names answer, in time. Where the entry is, is said when it is its turn: it may have another path by then.
    fn ask(
        &self,
        reply: Reply,
        ino: INodeNo,
        job: impl FnOnce(&mut Client, &Shared, PeerPath, Ticket) + Send + 'static,
    ) {
        let ticket = self.view.pending.add(self.view.options.names, reply);
        let view = self.view.clone();
        self.names.post(ticket, move |client| match view.place(ino.0) {
            Ok(at) => job(client, &view, at, ticket),
            Err(error) => view.pending.fail(&ticket, error),
        });
    }

    /// Lists an open directory from this offset on.
    fn list(&self, ino: INodeNo, fh: FileHandle, offset: u64, reply: Reply) {
        let Some(dir) = lock(&self.dirs).get(&fh.0).cloned() else { return reply.error(Errno::EBADF) };
        let dirs = self.dirs.clone();
        self.ask(reply, ino, move |client, view, at, ticket| {
            let mut dir = lock(&dir);
            if offset == 0 {
                dir.rewind();
            }
            // Behind the two that every directory has.
            let index = offset.saturating_sub(2);
            let mut listed = dir.from(client, &at, index).map(drop);
            if matches!(&listed, Err(Error::Refused(fault)) if fault.kind == FaultKind::Limit) {
                let all: Vec<_> = lock(&dirs).values().cloned().collect();
                end_oldest(&all, client);
                listed = dir.from(client, &at, index).map(drop);
            }
            match (view.pending.take(&ticket), listed) {
                (Some(Reply::Dir(reply)), Ok(())) => dir.names(ino, offset, reply),
                (Some(Reply::DirPlus(reply)), Ok(())) => dir.entries(view, &at, ino, offset, reply),
                (Some(reply), Err(error)) => reply.error(errno(&error)),
                _ => {}
            }
        });
    }

    /// Has the session for names change a directory: the job is given the place of the name in it, and answers with what is there then.
    fn edit(
        &self,
        reply: Reply,
        (dir, called): (INodeNo, &OsStr),
        job: impl FnOnce(&mut Client, &View, PeerPath) -> Result<Option<(PeerPath, Entry)>, Errno> + Send + 'static,
    ) {
        let called = match name(called) {
            Ok(called) => called,
            Err(error) => return reply.error(error),
        };
        let ticket = self.view.pending.add(self.view.options.names, reply);
        let view = self.view.clone();
        self.names.post(ticket, move |client| {
            let done = changing(client, &view, dir).and_then(|()| job(client, &view, view.below(dir, &called)?));
            // Again: a sync on the other session may have come between.
            let done = done.and_then(|done| changing(client, &view, dir).map(|()| done));
            match (done, view.pending.take(&ticket)) {
                (Ok(Some((at, entry))), Some(Reply::Entry(reply))) => {
                    let (attr, generation) = view.told(&at, &entry);
                    reply.entry(&BELIEVED, &attr, generation);
                }
                (Ok(None), Some(Reply::Done(reply))) => reply.ok(),
                (Err(error), Some(reply)) => reply.error(error),
                _ => {}
            }
        });
    }

    /// The same, for something that is there afterwards.
    fn make(&self, reply: ReplyEntry, at: (INodeNo, &OsStr), what: impl FnOnce(PeerPath) -> Request + Send + 'static) {
        self.edit(Reply::Entry(reply), at, |client, _, at| {
            asked(client.request(what(at.clone())), is_now).map(|entry| Some((at, entry)))
        });
    }

    /// Takes a name from something.
    fn unname(&self, parent: INodeNo, called: &OsStr, dir: bool, reply: ReplyEmpty) {
        self.edit(Reply::Done(reply), (parent, called), move |client, view, at| {
            let path = at.path.clone();
            asked(client.request(Request::Unlink(at, dir)), Some)?;
            if dir {
                lock(&view.nodes).removed(&path);
            }
            Ok(None)
        });
    }

    /// A file that is open, for calls that say by which handle.
    fn file(&self, fh: FileHandle) -> Result<Arc<Mutex<OpenFile>>, Errno> {
        lock(&self.files).get(&fh.0).map(|(_, _, file)| file.clone()).ok_or(Errno::EBADF)
    }

    /// Changes an entry by its name, or where it has none any more as whoever has it open.
    fn set(&self, courier: &Courier, limit: Duration, ino: INodeNo, change: Change, reply: ReplyAttr) {
        let ticket = self.view.pending.add(limit, Reply::Attr(reply));
        let (view, files, data) = (self.view.clone(), self.files.clone(), self.data.clone());
        courier.post(ticket, move |client| {
            let begun = if change.size.is_some() { changing(client, &view, ino) } else { Ok(()) };
            let set = begun.and_then(|()| {
                let which = lock(&view.nodes).which(ino.0);
                asked(client.request(Request::Set(view.place(ino.0)?, which, change)), is_now)
            });
            match open_of(&files, ino, true).filter(|_| matches!(set, Err(Errno::ENOENT))) {
                Some(file) => change_open(&data, &view, ticket, ino, file, change),
                None => answer_attr(&view, &ticket, ino, set),
            }
        });
    }
}

/// Before something in a directory, or of a file, is another: until it is synced the peer's disk may not have it.
fn changing(client: &mut Client, view: &View, ino: INodeNo) -> Result<(), Errno> {
    view.edits(ino.0).begin(client.boot().map_err(|error| errno(&error))?);
    Ok(())
}

fn change_open(
    data: &Courier,
    view: &Shared,
    ticket: Ticket,
    ino: INodeNo,
    file: Arc<Mutex<OpenFile>>,
    change: Change,
) {
    let view = view.clone();
    data.post(ticket, move |client| {
        let changed = lock(&file).change(client, change);
        answer_attr(&view, &ticket, ino, changed);
    });
}

fn answer_attr(view: &View, ticket: &Ticket, ino: INodeNo, entry: Result<Entry, Errno>) {
    let Some(Reply::Attr(reply)) = view.pending.take(ticket) else { return };
    match entry {
        // Of a root that is no directory the kernel would have nothing ever again.
        Ok(entry) if ino.0 == ROOT && entry.kind != Kind::Dir => reply.error(Errno::ESTALE),
        Ok(entry) => {
            lock(&view.nodes).shown(ino.0, &entry, Instant::now());
            reply.attr(&BELIEVED, &view.attr(ino.0, &entry));
        }
        // Another file has its name by now, or none.
        Err(Errno::ENOENT) => reply.error(Errno::ESTALE),
        Err(error) => reply.error(error),
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.view.pending.close();
    }
}

impl Filesystem for Mount {
    fn init(&mut self, _: &From, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that gathers less says so.
        let _ = config.set_max_write(WRITE_MAX);
        if !self.view.options.writable {
            // A listing may be older than what was written here since, and would undo its size. Kernels without it ask for each name.
            let _ = config.add_capabilities(InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO);
        }
        Ok(())
    }

    fn lookup(&self, _: &From, parent: INodeNo, called: &OsStr, reply: ReplyEntry) {
        let name = match name(called) {
            Ok(name) => name,
            Err(Errno::ENAMETOOLONG) => return reply.error(Errno::ENAMETOOLONG),
            Err(_) => return reply.error(Errno::ENOENT),
        };
        self.ask(Reply::Entry(reply), parent, move |client, view, mut at, ticket| {
            let Ok(path) = at.path.join(&name) else { return view.pending.fail(&ticket, Errno::ENAMETOOLONG) };
            at.path = path;
            let found = look(client, at.clone());
            let Some(Reply::Entry(reply)) = view.pending.take(&ticket) else { return };
            match found {
                Ok(entry) => {
                    let (attr, generation) = view.told(&at, &entry);
                    reply.entry(&BELIEVED, &attr, generation);
                }
                // fuse(4): an entry with the number 0 is a missing name that is believed.
                Err(Errno::ENOENT) => {
                    let nothing = Entry::default();
                    reply.entry(&BELIEVED, &view.attr(0, &nothing), Generation(0));
                }
                Err(error) => reply.error(error),
            }
        });
    }

    fn forget(&self, _: &From, ino: INodeNo, times: u64) {
        lock(&self.view.nodes).forget(ino.0, times);
    }

    fn getattr(&self, _: &From, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let (files, data) = (self.files.clone(), self.data.clone());
        self.ask(Reply::Attr(reply), ino, move |client, view, at, ticket| {
            let found = look(client, at);
            let found = match found {
                Ok(entry) if ino.0 != ROOT && number(&entry) != ino.0 => Err(Errno::ENOENT),
                found => found,
            };
            if let Err(Errno::ENOENT) = found {
                // It has no name any more, or another one; whoever has it open may still ask.
                if let Some(file) = open_of(&files, ino, false) {
                    let view = view.clone();
                    return data.post(ticket, move |client| {
                        let known = lock(&file).known(client);
                        answer_attr(&view, &ticket, ino, known);
                    });
                }
            }
            answer_attr(view, &ticket, ino, found);
        });
    }

    fn setattr(
        &self,
        from: &From,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        fh: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if uid.is_some_and(|uid| uid != self.view.owner.0) || gid.is_some_and(|gid| gid != self.view.owner.1) {
            return reply.error(Errno::EPERM);
        }
        // setuid, setgid and sticky are not shown, and not set.
        let mode = mode.map(|mode| mode & 0o7777);
        if mode.is_some_and(|mode| mode > 0o777) {
            return reply.error(Errno::EPERM);
        }
        let mtime = mtime.map(|time| match time {
            TimeOrNow::Now => None,
            TimeOrNow::SpecificTime(time) => Some(since_1970(time)),
        });
        let change = Change { mode, size, mtime };
        let options = &self.view.options;
        match (size, fh.and_then(|fh| self.file(fh).ok())) {
            (Some(_), Some(file)) => {
                let ticket = self.view.pending.add(options.data, Reply::Attr(reply));
                change_open(&self.data, &self.view, ticket, ino, file, change);
            }
            // Not while something is read that is another then.
            (Some(_), None) => self.set(&self.data, options.data, ino, change, reply),
            (None, _) if change == Change::default() => self.getattr(from, ino, None, reply),
            (None, _) => self.set(&self.names, options.names, ino, change, reply),
        }
    }

    fn mknod(&self, _: &From, parent: INodeNo, called: &OsStr, mode: u32, _: u32, _: u32, reply: ReplyEntry) {
        // Devices, sockets and fifos are not files of a peer.
        if rustix::fs::FileType::from_raw_mode(mode) != rustix::fs::FileType::RegularFile {
            return reply.error(Errno::EPERM);
        }
        self.edit(Reply::Entry(reply), (parent, called), move |client, _, at| {
            let how = OpenHow { write: true, create: Some(mode & 0o777), exclusive: true, ..OpenHow::default() };
            let made = opened(client, at.clone(), how)?;
            let _ = client.request(Request::Close(made.handle));
            Ok(Some((at, made.entry)))
        });
    }

    fn mkdir(&self, _: &From, parent: INodeNo, called: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        self.make(reply, (parent, called), move |at| Request::Make(at, New::Dir(mode & 0o777)));
    }

    fn symlink(&self, _: &From, parent: INodeNo, called: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes().to_vec();
        self.make(reply, (parent, called), move |at| Request::Make(at, New::Symlink(target)));
    }

    fn link(&self, _: &From, ino: INodeNo, parent: INodeNo, called: &OsStr, reply: ReplyEntry) {
        self.edit(Reply::Entry(reply), (parent, called), move |client, view, to| {
            let which = lock(&view.nodes).which(ino.0);
            let linked = client.request(Request::Link(view.place(ino.0)?, which, to.path.clone()));
            match asked(linked, is_now) {
                // It has another name by now, or the directory has: the kernel looks again.
                Err(Errno::ENOENT) => Err(Errno::ESTALE),
                linked => linked.map(|entry| Some((to, entry))),
            }
        });
    }

    fn unlink(&self, _: &From, parent: INodeNo, called: &OsStr, reply: ReplyEmpty) {
        self.unname(parent, called, false, reply);
    }

    fn rmdir(&self, _: &From, parent: INodeNo, called: &OsStr, reply: ReplyEmpty) {
        self.unname(parent, called, true, reply);
    }

    fn rename(
        &self,
        _: &From,
        parent: INodeNo,
        called: &OsStr,
        new_parent: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            RenameFlags::RENAME_NOREPLACE => Rename::NoReplace,
            RenameFlags::RENAME_EXCHANGE => Rename::Exchange,
            _ if flags.is_empty() => Rename::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let new = match name(new) {
            Ok(new) => new,
            Err(error) => return reply.error(error),
        };
        self.edit(Reply::Done(reply), (parent, called), move |client, view, from| {
            changing(client, view, new_parent)?;
            let (old, to) = (from.path.clone(), view.below(new_parent, &new)?.path);
            let entry = asked(client.request(Request::Move(from, to.clone(), how)), is_now)?;
            let mut nodes = lock(&view.nodes);
            match how {
                Rename::Exchange => nodes.exchanged(&old, &to),
                _ if entry.kind != Kind::Dir => nodes.moved(&old, &to, Some(number(&entry))),
                _ => {
                    nodes.removed(&to);
                    nodes.moved(&old, &to, None);
                }
            }
            Ok(None)
        });
    }

    fn readlink(&self, _: &From, ino: INodeNo, reply: ReplyData) {
        self.ask(Reply::Data(reply), ino, |client, view, at, ticket| {
            let target = asked(client.request(Request::Follow(at)), |answer| match answer {
                Answer::Bytes(target) => Some(target),
                _ => None,
            });
            let Some(Reply::Data(reply)) = view.pending.take(&ticket) else { return };
            match target {
                Ok(target) => reply.data(&target),
                // Its name is gone, or that of something else: the kernel looks again.
                Err(Errno::ENOENT | Errno::EINVAL) => reply.error(Errno::ESTALE),
                Err(error) => reply.error(error),
            }
        });
    }

    fn statfs(&self, _: &From, _: INodeNo, reply: ReplyStatfs) {
        let share = self.view.options.share.clone();
        self.ask(Reply::Space(reply), INodeNo(ROOT), |client, view, _, ticket| {
            let space = asked(client.request(Request::Space(share)), |answer| match answer {
                Answer::Space(all, free) => Some((all / u64::from(BLOCK), free / u64::from(BLOCK))),
                _ => None,
            });
            let Some(Reply::Space(reply)) = view.pending.take(&ticket) else { return };
            match space {
                Ok((all, free)) => reply.statfs(all, free, free, 0, 0, BLOCK, 255, BLOCK),
                Err(error) => reply.error(error),
            }
        });
    }

    fn open(&self, _: &From, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let ticket = self.view.pending.add(self.view.options.data, Reply::Open(reply));
        let (view, files, counter) = (self.view.clone(), self.files.clone(), self.opened.clone());
        let how = opened_as(flags);
        self.data.post(ticket, move |client| {
            let at = match view.place(ino.0) {
                Ok(at) => at,
                Err(error) => return view.pending.fail(&ticket, error),
            };
            let opened = match opened(client, at, how) {
                Ok(opened) => opened,
                // Gone since it was looked up: the kernel looks again.
                Err(Errno::ENOENT) => return view.pending.fail(&ticket, Errno::ESTALE),
                Err(error) => return view.pending.fail(&ticket, error),
            };
            if number(&opened.entry) != ino.0 || used_again(&view, &files, client.epoch(), &opened) {
                let _ = client.request(Request::Close(opened.handle));
                return view.pending.fail(&ticket, Errno::ESTALE);
            }
            let Some(Reply::Open(reply)) = view.pending.take(&ticket) else {
                let _ = client.request(Request::Close(opened.handle));
                return;
            };
            let same = {
                let mut nodes = lock(&view.nodes);
                // What others read ahead of a content of before is no more to come to the kernel's pages.
                nodes.shown(ino.0, &opened.entry, Instant::now());
                nodes.opened(ino.0, opened.entry.ident(), opened.settled)
            };
            if !same && let Some(notifier) = view.notifier.get() {
                // Its size may be another than the one that is believed. Nothing is cached where this fails.
                let _ = notifier.inval_inode(ino, -1, 0);
            }
            let file = OpenFile::new(view.clone(), how, &opened, client.epoch());
            let fh = counter.fetch_add(1, Ordering::Relaxed);
            lock(&files).insert(fh, (ino, how.write, Arc::new(Mutex::new(file))));
            reply.opened(FileHandle(fh), pages(flags.0, how, same));
        });
    }

    fn create(&self, _: &From, parent: INodeNo, called: &OsStr, mode: u32, _: u32, flags: i32, reply: ReplyCreate) {
        let called = match name(called) {
            Ok(called) => called,
            Err(error) => return reply.error(error),
        };
        let ticket = self.view.pending.add(self.view.options.data, Reply::Create(reply));
        let (view, files, counter) = (self.view.clone(), self.files.clone(), self.opened.clone());
        let (create, exclusive) = (Some(mode & 0o777), has(flags, OFlags::EXCL));
        let how = OpenHow { create, exclusive, ..opened_as(OpenFlags(flags)) };
        self.data.post(ticket, move |client| {
            let before = client.epoch();
            let made = changing(client, &view, parent).and_then(|()| {
                let at = view.below(parent, &called)?;
                opened(client, at.clone(), how).map(|opened| (at, opened))
            });
            let (at, opened) = match made {
                Ok(made) => made,
                Err(error) => return view.pending.fail(&ticket, error),
            };
            // An answer that was given twice, around a lost connection, is of the session before: then it is opened anew.
            let epoch = if client.epoch() == before { before } else { 0 };
            used_again(&view, &files, client.epoch(), &opened);
            let (attr, generation) = view.told(&at, &opened.entry);
            lock(&view.nodes).opened(attr.ino.0, opened.entry.ident(), opened.settled);
            let mut file = OpenFile::new(view.clone(), how, &opened, epoch);
            // Somebody else has made it since it was looked up.
            let emptied = match has(flags, OFlags::TRUNC) && opened.entry.size > 0 {
                true => file
                    .change(client, Change { size: Some(0), ..Change::default() })
                    .map(|entry| view.attr(attr.ino.0, &entry)),
                false => Ok(attr),
            };
            let (attr, reply) = match (emptied, view.pending.take(&ticket)) {
                (Ok(attr), Some(Reply::Create(reply))) => (attr, reply),
                (result, reply) => {
                    lock(&view.nodes).forget(attr.ino.0, 1);
                    if let Some(handle) = file.handle(client.epoch()) {
                        let _ = client.request(Request::Close(handle));
                    }
                    return reply.into_iter().for_each(|reply| reply.error(result.err().unwrap_or(Errno::EIO)));
                }
            };
            let fh = counter.fetch_add(1, Ordering::Relaxed);
            lock(&files).insert(fh, (attr.ino, how.write, Arc::new(Mutex::new(file))));
            reply.created(&BELIEVED, &attr, generation, FileHandle(fh), pages(flags, how, false));
        });
    }

    fn write(
        &self,
        _: &From,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = match self.file(fh) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let ticket = self.view.pending.add(self.view.options.data, Reply::Write(reply));
        let (view, bytes) = (self.view.clone(), data.to_vec());
        let offset = (!has(flags.0, OFlags::APPEND)).then_some(offset);
        // Of a file whose pages it does not keep the kernel does not ask for the sync that each write has.
        let synced = offset.is_none() && has(flags.0, OFlags::DSYNC);
        self.data.post(ticket, move |client| {
            let mut file = lock(&file);
            let written = file.write(client, offset, &bytes);
            let written = written.and_then(|()| if synced { file.sync(client) } else { Ok(()) });
            drop(file);
            match (view.pending.take(&ticket), written) {
                (Some(Reply::Write(reply)), Ok(())) => reply.written(bytes.len() as u32),
                (Some(reply), Err(error)) => reply.error(error),
                _ => {}
            }
        });
    }

    fn fsync(&self, _: &From, _: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        let file = match self.file(fh) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let ticket = self.view.pending.add(self.view.options.data, Reply::Done(reply));
        let view = self.view.clone();
        self.data.post(ticket, move |client| view.pending.done(&ticket, lock(&file).sync(client)));
    }

    fn fsyncdir(&self, _: &From, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // Nothing was made or removed here.
        if !self.view.options.writable {
            return reply.ok();
        }
        let ticket = self.view.pending.add(self.view.options.data, Reply::Done(reply));
        let view = self.view.clone();
        self.data.post(ticket, move |client| {
            let synced = view.edits(ino.0).sync(|| {
                asked(client.request(Request::SyncDir(view.place(ino.0)?)), |_| Some(()))?;
                client.boot().map_err(|error| errno(&error))
            });
            let synced = synced.and_then(|synced| if synced { Ok(()) } else { Err(Errno::EIO) });
            view.pending.done(&ticket, synced);
        });
    }

    fn read(
        &self,
        _: &From,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.file(fh) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let ticket = self.view.pending.add(self.view.options.data, Reply::Data(reply));
        self.data.read(ticket, Read { file, offset, size, ticket });
    }

    fn release(
        &self,
        _: &From,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
        if let Some((_, _, file)) = lock(&self.files).remove(&fh.0) {
            self.data.last(move |client| {
                if let Some(handle) = lock(&file).handle(client.epoch()) {
                    // What it does not hear it forgets with the session.
                    let _ = client.request(Request::Close(handle));
                }
            });
        }
    }

    fn opendir(&self, _: &From, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if let Err(error) = self.view.place(ino.0) {
            return reply.error(error);
        }
        let fh = self.opened.fetch_add(1, Ordering::Relaxed);
        lock(&self.dirs).insert(fh, Arc::default());
        reply.opened(FileHandle(fh), FopenFlags::empty());
    }

    fn readdir(&self, _: &From, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.list(ino, fh, offset, Reply::Dir(reply));
    }

    fn readdirplus(&self, _: &From, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.list(ino, fh, offset, Reply::DirPlus(reply));
    }

    fn releasedir(&self, _: &From, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
        if let Some(dir) = lock(&self.dirs).remove(&fh.0) {
            self.names.last(move |client| lock(&dir).end(client));
        }
    }
}
