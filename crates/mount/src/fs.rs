//! What the kernel asks, and the answers.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, Notifier, OpenFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, Request as From,
};
use linkspan_files::client::Client;
use linkspan_files::fs::{Kind, Time};
use linkspan_files::name::{Name, RelPath};
use linkspan_files::wire::{Answer, Entry, PeerPath, Request};
use linkspan_files::{Error, lock};

use crate::ahead::{OpenFile, Read};
use crate::courier::{Courier, errno};
use crate::dirs::OpenDir;
use crate::nodes::{Nodes, ROOT, number};
use crate::pending::{Pending, Reply, Ticket};
use crate::{Options, Shared};

/// How long attributes, names and missing names are believed.
const BELIEVED: Duration = Duration::from_secs(1);

/// statfs(2): what space is counted in.
const BLOCK: u32 = 4096;

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
    fn place(&self, ino: INodeNo) -> Result<PeerPath, Errno> {
        lock(&self.nodes).path(ino.0).map(|path| self.at(path)).ok_or(Errno::ESTALE)
    }

    fn attr(&self, number: u64, entry: &Entry) -> FileAttr {
        let when = |time: Time| {
            let since = Duration::new(time.sec.unsigned_abs(), if time.sec < 0 { 0 } else { time.nsec });
            let at = if time.sec < 0 { UNIX_EPOCH.checked_sub(since) } else { UNIX_EPOCH.checked_add(since) };
            at.unwrap_or(SystemTime::UNIX_EPOCH)
        };
        let mtime = when(entry.mtime);
        FileAttr {
            ino: INodeNo(number),
            size: entry.size,
            // stat(2): blocks count 512 bytes.
            blocks: entry.disk.div_ceil(512),
            atime: mtime,
            mtime,
            ctime: when(entry.ctime),
            crtime: UNIX_EPOCH,
            kind: kind(entry.kind),
            perm: (entry.mode & 0o777) as u16,
            nlink: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        }
    }
}

/// Sockets, devices and fifos cannot be told apart here, and cannot be opened.
fn kind(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Special => FileType::Socket,
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

type Table<T> = Arc<Mutex<HashMap<u64, Arc<Mutex<T>>>>>;

/// The file system.
#[derive(Debug)]
pub(crate) struct Mount {
    view: Shared,
    names: Courier,
    data: Courier,
    files: Table<OpenFile>,
    dirs: Table<OpenDir>,
    opened: Arc<AtomicU64>,
}

impl Mount {
    pub(crate) fn start(view: Shared, names: Client, data: Client) -> io::Result<Mount> {
        let pending = view.pending.clone();
        let (names, data) =
            (Courier::start("mount names", names, &pending)?, Courier::start("mount data", data, &pending)?);
        thread::Builder::new().name("mount timer".into()).spawn(move || pending.time())?;
        Ok(Mount { view, names, data, files: Table::default(), dirs: Table::default(), opened: Arc::default() })
    }

    /// Has the session for names answer, in time.
    fn ask(
        &self,
        reply: Reply,
        ino: INodeNo,
        job: impl FnOnce(&mut Client, &Shared, PeerPath, Ticket) + Send + 'static,
    ) {
        let at = match self.view.place(ino) {
            Ok(at) => at,
            Err(error) => return reply.error(error),
        };
        let ticket = self.view.pending.add(self.view.options.names, reply);
        let view = self.view.clone();
        self.names.post(ticket, move |client| job(client, &view, at, ticket));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.view.pending.close();
    }
}

impl Filesystem for Mount {
    fn lookup(&self, _: &From, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Ok(name) = Name::new(name.as_bytes()) else { return reply.error(Errno::ENOENT) };
        self.ask(Reply::Entry(reply), parent, move |client, view, mut at, ticket| {
            let Ok(path) = at.path.join(&name) else { return view.pending.fail(&ticket, Errno::ENAMETOOLONG) };
            at.path = path.clone();
            let found = look(client, at);
            let Some(Reply::Entry(reply)) = view.pending.take(&ticket) else { return };
            match found {
                Ok(entry) => {
                    let number = number(entry.ino);
                    lock(&view.nodes).told(number, path);
                    reply.entry(&BELIEVED, &view.attr(number, &entry), Generation(0));
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
        self.ask(Reply::Attr(reply), ino, move |client, view, at, ticket| {
            let found = look(client, at);
            let Some(Reply::Attr(reply)) = view.pending.take(&ticket) else { return };
            match found {
                Ok(entry) if ino.0 == ROOT || number(entry.ino) == ino.0 => {
                    reply.attr(&BELIEVED, &view.attr(ino.0, &entry));
                }
                // Another file has its name by now, or none.
                Ok(_) | Err(Errno::ENOENT) => reply.error(Errno::ESTALE),
                Err(error) => reply.error(error),
            }
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

    fn open(&self, _: &From, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let at = match self.view.place(ino) {
            Ok(at) => at,
            Err(error) => return reply.error(error),
        };
        let ticket = self.view.pending.add(self.view.options.names, Reply::Open(reply));
        let (view, files, counter) = (self.view.clone(), self.files.clone(), self.opened.clone());
        self.data.post(ticket, move |client| {
            let opened = asked(client.request(Request::Open(at.clone())), |answer| match answer {
                Answer::Opened(handle, entry) => Some((handle, entry)),
                _ => None,
            });
            let (handle, entry) = match opened {
                Ok(opened) => opened,
                // Gone since it was looked up: the kernel looks again.
                Err(Errno::ENOENT) => return view.pending.fail(&ticket, Errno::ESTALE),
                Err(error) => return view.pending.fail(&ticket, error),
            };
            if number(entry.ino) != ino.0 {
                let _ = client.request(Request::Close(handle));
                return view.pending.fail(&ticket, Errno::ESTALE);
            }
            let Some(Reply::Open(reply)) = view.pending.take(&ticket) else {
                let _ = client.request(Request::Close(handle));
                return;
            };
            let same = lock(&view.nodes).opened(ino.0, entry.ident());
            if !same && let Some(notifier) = view.notifier.get() {
                // Its size may be another than the one that is believed. Nothing is cached where this fails.
                let _ = notifier.inval_inode(ino, -1, 0);
            }
            let file = OpenFile::new(at, (entry.dev, entry.ino), handle, client.epoch());
            let fh = counter.fetch_add(1, Ordering::Relaxed);
            lock(&files).insert(fh, Arc::new(Mutex::new(file)));
            reply.opened(FileHandle(fh), if same { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() });
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
        let Some(file) = lock(&self.files).get(&fh.0).cloned() else { return reply.error(Errno::EBADF) };
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
        if let Some(file) = lock(&self.files).remove(&fh.0) {
            self.data.last(move |client| {
                if let Some(handle) = lock(&file).handle(client.epoch()) {
                    // What it does not hear it forgets with the session.
                    let _ = client.request(Request::Close(handle));
                }
            });
        }
    }

    fn opendir(&self, _: &From, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.view.place(ino) {
            Ok(at) => {
                let fh = self.opened.fetch_add(1, Ordering::Relaxed);
                lock(&self.dirs).insert(fh, Arc::new(Mutex::new(OpenDir::new(at))));
                reply.opened(FileHandle(fh), FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &From, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        let Some(dir) = lock(&self.dirs).get(&fh.0).cloned() else { return reply.error(Errno::EBADF) };
        self.ask(Reply::Dir(reply), ino, move |client, view, _, ticket| {
            let mut dir = lock(&dir);
            // Behind the two that every directory has.
            let listed = dir.from(client, offset.saturating_sub(2));
            let Some(Reply::Dir(mut reply)) = view.pending.take(&ticket) else { return };
            let listed = match listed {
                Ok(listed) => listed,
                Err(error) => return reply.error(errno(&error)),
            };
            let dots = [".", ".."].iter().map(|name| (ino.0, FileType::Directory, name.as_bytes()));
            let names = listed.iter().map(|entry| (number(entry.ino), kind(entry.kind), &entry.name[..]));
            let all = dots.skip(offset as usize).chain(names);
            for (at, (number, kind, name)) in (offset + 1..).zip(all) {
                if reply.add(INodeNo(number), at, kind, OsStr::from_bytes(name)) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn releasedir(&self, _: &From, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
        if let Some(dir) = lock(&self.dirs).remove(&fh.0) {
            self.names.last(move |client| lock(&dir).end(client));
        }
    }
}
