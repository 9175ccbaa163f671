//! A source that is watched by inotify(7). Directories are named by descriptors, as everywhere: inotify takes only paths, so it is given
//! that of the descriptor in /proc.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::watch::Heard;
use crate::Rules;
use crate::fs::{Fs, Kind, Links, RealFs};
use crate::name::{DEPTH_MAX, Name, RelPath, is_reserved};

/// Bytes of events that are read at a time.
const BUFFER: usize = 64 << 10;

/// What is watched of a tree.
#[derive(Debug)]
pub struct Tree {
    root: Arc<OwnedFd>,
    queue: OwnedFd,
    paths: HashMap<i32, RelPath>,
    /// Directories that may not be read, or not searched.
    closed: HashSet<RelPath>,
    rules: Arc<Rules>,
}

impl Tree {
    /// Nothing yet.
    ///
    /// # Errors
    /// The error of inotify_init1(2): EMFILE where the user has too many queues (fs.inotify.max_user_instances).
    pub fn new(root: Arc<OwnedFd>, rules: Arc<Rules>) -> io::Result<Tree> {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Tree { root, queue, paths: HashMap::new(), closed: HashSet::new(), rules })
    }

    /// Directories that are watched.
    pub fn count(&self) -> usize {
        self.paths.len()
    }

    /// Watches a directory and all below it. A directory that goes meanwhile is none; one that may not be read is heard of when that changes.
    ///
    /// # Errors
    /// Those of inotify_add_watch(2), `StorageFull` among them: the user watches as many as may be (fs.inotify.max_user_watches).
    pub fn add(&mut self, path: &RelPath) -> io::Result<()> {
        match RealFs.open_dir(&self.root, path, Links::Refuse) {
            Ok(dir) if path.is_root() => self.add_below(&dir, path, 0),
            Ok(dir) => self.add_child(&dir, path, 0),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn add_child(&mut self, dir: &OwnedFd, path: &RelPath, depth: usize) -> io::Result<()> {
        self.closed.remove(path);
        match self.add_below(dir, path, depth) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.closed.insert(path.clone());
                Ok(())
            }
            other => other,
        }
    }

    fn add_below(&mut self, dir: &OwnedFd, path: &RelPath, depth: usize) -> io::Result<()> {
        let mut flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::EXCL_UNLINK
            | WatchFlags::ONLYDIR;
        if path.is_root() {
            flags |= WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
        }
        let id = inotify::add_watch(&self.queue, format!("/proc/self/fd/{}", dir.as_raw_fd()), flags)?;
        self.paths.insert(id, path.clone());
        // After the watch: what comes from here on is told.
        for entry in RealFs.list(dir)? {
            let Ok(name) = Name::new(&entry?.name) else { continue };
            let Ok(below) = path.join(&name) else { continue };
            let stat = RealFs.stat(dir, &name);
            if stat.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
                self.closed.insert(path.clone());
            }
            if !stat.is_ok_and(|stat| stat.kind == Kind::Dir) || self.rules.leave(&below, true) {
                continue;
            }
            match RealFs.open_child(dir, &name) {
                Ok(child) if depth < DEPTH_MAX => self.add_child(&child, &below, depth + 1)?,
                Err(error) if !is_gone(&error) && error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn forget_below(&mut self, path: &RelPath) {
        let below = |at: &RelPath| at == path || at.bytes().starts_with(&[path.bytes(), b"/"].concat());
        self.closed.retain(|at| !below(at));
        let gone: Vec<i32> = self.paths.iter().filter(|(_, at)| below(at)).map(|(id, _)| *id).collect();
        for id in gone {
            self.paths.remove(&id);
            // One that was removed has no watch any more.
            let _ = inotify::remove_watch(&self.queue, id);
        }
    }

    /// All that the system has told by now.
    ///
    /// # Errors
    /// The error of read(2); EAGAIN is none.
    pub fn hear(&mut self, mut each: impl FnMut(Heard)) -> io::Result<()> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
        let queue = self.queue.as_fd().try_clone_to_owned()?;
        let mut reader = Reader::new(&queue, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                each(Heard::Overflow);
                continue;
            }
            if flags.contains(ReadFlags::IGNORED) {
                self.paths.remove(&event.wd());
                continue;
            }
            let Some(dir) = self.paths.get(&event.wd()).cloned() else { continue };
            let Some(name) = event.file_name() else {
                // Another one may have its path now.
                if flags.intersects(ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF | ReadFlags::UNMOUNT) {
                    each(Heard::Changed(dir));
                }
                continue;
            };
            let bytes = name.to_bytes();
            if is_reserved(bytes) {
                continue;
            }
            let Ok(name) = Name::new(bytes) else { continue };
            let is_dir = flags.contains(ReadFlags::ISDIR);
            let Ok(path) = dir.join(&name) else { continue };
            if self.rules.leave(&path, is_dir) {
                continue;
            }
            match is_dir {
                true if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) => each(Heard::Came(dir, name)),
                // It may be read by now.
                true if flags.contains(ReadFlags::ATTRIB) && self.closed.contains(&path) => {
                    each(Heard::Came(dir, name))
                }
                true if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) => {
                    self.forget_below(&path);
                    each(Heard::Went(dir, name));
                }
                _ => each(Heard::Changed(dir)),
            }
        }
    }
}

impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
