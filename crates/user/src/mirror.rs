//! A directory kept like another one, at a peer or from one: a run that compares and transfers, and runs as something changes.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_files::client::{self, Client, Watcher};
use linkspan_files::engine::{Event, Happened};
use linkspan_files::fs::{Fs, Links, RealFs};
use linkspan_files::mirror::inotify::Tree;
use linkspan_files::mirror::watch::{Due, SCAN, Watch};
use linkspan_files::mirror::{Changes, together};
use linkspan_files::name::RelPath;
use linkspan_files::source::{Load, Start};
use linkspan_files::wire::{Delete, Fault, FaultKind};
use linkspan_files::{Error as FilesError, Outcome, Rules, Side, sink};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::Error;
use crate::place::Place;
use crate::transfer::{How, large};

/// Both ends of a mirror, one of them at a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The directory of this host.
    pub own: PathBuf,
    /// That of the peer.
    pub peer: Place,
    /// The peer has the source.
    pub from_peer: bool,
}

impl Ends {
    /// Source and destination as they are written.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn parse(source: &str, destination: &str) -> Result<Ends, Error> {
        // An absolute path is of this host also while its disk is away.
        let is_own = |text: &str| text.starts_with('/') || text.starts_with("file://") || Path::new(text).is_dir();
        let is_peer = |text: &str| text.contains(':') && !is_own(text);
        let (own, peer, from_peer) = match (is_peer(source), is_peer(destination)) {
            (true, false) => (destination, Place::whole(source)?, true),
            (false, true) => (source, Place::whole(destination)?, false),
            (false, false) => {
                return Err(Error::Usage("neither SRC nor DST is PEER:SHARE/PATH; inside one host use rsync".into()));
            }
            (true, true) => {
                return Err(Error::Usage(
                    "SRC or DST has to be of this host; run it on the host of one of them".into(),
                ));
            }
        };
        Ok(Ends { own: own.into(), peer, from_peer })
    }

    /// The same for each spelling of two ends. A link is not looked at: its disk may be away.
    pub(crate) fn plain(words: &[String]) -> Option<Ends> {
        let [source, destination] = words else { return None };
        let mut ends = Ends::parse(source, destination).ok()?;
        let mut own = PathBuf::new();
        for part in ends.own.components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => drop(own.pop()),
                part => own.push(part),
            }
        }
        (ends.own, ends.peer.dir) = (own, false);
        Some(ends)
    }
}

/// Who runs a mirror, and is told of it.
pub trait Face {
    /// What it fails with.
    type Failure: From<Error>;

    /// Carries a transfer out, again after a lost connection; whether all of it has arrived.
    ///
    /// # Errors
    /// What `once` returned, made a [`Face::Failure`]; [`FilesError::Lost`] only when no further try is made.
    fn carry(
        &mut self,
        once: &mut dyn FnMut(&mut dyn Watcher) -> Result<Outcome, FilesError>,
    ) -> Result<bool, Self::Failure>;
    /// A file has another name now, so that it need not be transferred.
    fn renamed(&mut self, old: &RelPath, new: &RelPath);
    /// Something is worth a line.
    fn say(&mut self, line: &str);
    /// Whether this many may be deleted all the same.
    fn ask(&mut self, what: &str) -> bool;
    /// Whether it is to end.
    fn stopped(&self) -> bool;
    /// Whether all is to be compared now; asked after each wait.
    fn wanted(&mut self) -> bool {
        false
    }
    /// A run has begun or ended, and whether all is the same now.
    fn resting(&mut self, same: bool);
    /// A run failed; the pause until the next one, or that there is none.
    ///
    /// # Errors
    /// `failure` itself, where it ends the mirror.
    fn failed(&mut self, failure: Self::Failure, pause: &mut dyn FnMut() -> Duration) -> Result<(), Self::Failure>;
}

/// A mirror.
pub struct Mirror<F> {
    core: Core,
    /// Who runs it.
    pub face: F,
}

struct Core {
    client: Client,
    peer: Place,
    path: PathBuf,
    own: Arc<OwnedFd>,
    from_peer: bool,
    state: Option<Arc<OwnedFd>>,
    how: How,
    rules: Arc<Rules>,
    large: u64,
}

/// What a dry run finds.
#[derive(Default)]
struct Plan {
    changes: Changes,
    any: bool,
}

/// A plan that is made until it is to end.
struct Planning<'a>(Plan, &'a dyn Fn() -> bool);

impl Watcher for Planning<'_> {
    fn event(&mut self, event: Event) {
        match event.what {
            Happened::Would(size, mtime) => {
                self.0.changes.new_file(event.path, size, mtime);
                self.0.any = true;
            }
            Happened::Extra(extra) => {
                self.0.changes.extra(event.path, &extra);
                self.0.any = true;
            }
            // What failed is told by the transfer.
            Happened::Made(_) | Happened::Failed(_) => self.0.any = true,
            Happened::Same | Happened::Done(..) | Happened::LeftOut(_) | Happened::Again => {}
        }
    }

    fn tick(&mut self, _: u64, _: u64) -> bool {
        !(self.1)()
    }
}

impl Core {
    fn sides(&mut self) -> (Side<'_>, Arc<OwnedFd>) {
        (Side::There(&mut self.client, self.peer.at()), self.own.clone())
    }

    /// Opens the directory that has the path now; whether it is another one than before.
    fn moved(&mut self) -> Result<bool, Error> {
        let failed = |error| Error::system(self.path.display().to_string(), error);
        let now = RealFs::root(&self.path).map_err(failed)?;
        let stat = |dir: &OwnedFd| rustix::fs::fstat(dir).map_err(|error| failed(error.into()));
        let (new, old) = (stat(&now)?, stat(&self.own)?);
        let moved = (new.st_dev, new.st_ino) != (old.st_dev, old.st_ino);
        if moved {
            self.own = Arc::new(now);
        }
        Ok(moved)
    }

    /// Stops where a mark is missing or another one: a disk may not be mounted.
    fn marks(&mut self, init: bool) -> Result<(), FilesError> {
        let (from_peer, dry_run) = (self.from_peer, self.how.dry_run);
        let (mut there, own) = self.sides();
        let mut here = Side::Here(own);
        let absent = |result: Result<String, FilesError>| match result {
            // A directory that is to be made has no mark.
            Err(FilesError::Refused(fault)) if fault.kind == FaultKind::NotFound => Ok(String::new()),
            other => other,
        };
        let (theirs, ours) = (absent(there.mark(None))?, absent(here.mark(None))?);
        let (src, dst) = if from_peer { (theirs, ours) } else { (ours, theirs) };
        let mut eight = [0; 16];
        getrandom::fill(&mut eight).map_err(|error| {
            let source = std::io::Error::other(error.to_string());
            FilesError::System { what: "random numbers".into(), source }
        })?;
        let fresh = linkspan_files::hash::hex(&eight);
        let (mark, new_src, new_dst) = together(&src, &dst, init, &fresh)?;
        let (src, dst) = if from_peer { (&mut there, &mut here) } else { (&mut here, &mut there) };
        for (side, new) in [(src, new_src), (dst, new_dst)] {
            if new && !dry_run {
                side.mark(Some(mark.clone()))?;
            }
        }
        Ok(())
    }

    /// A file that has only another name at the source gets it at the destination. What does not work is transferred.
    fn rename(&mut self, old: &RelPath, new: &RelPath) -> bool {
        let from_peer = self.from_peer;
        let (mut there, own) = self.sides();
        let mut here = Side::Here(own);
        let (src, dst) = if from_peer { (&mut there, &mut here) } else { (&mut here, &mut there) };
        match (src.hash(new), dst.hash(old)) {
            (Ok(one), Ok(other)) if one == other => dst.rename(old, new).is_ok(),
            _ => false,
        }
    }

    fn delete(&self, most: Option<u64>) -> Delete {
        Delete { most, keep: self.how.exclude.clone() }
    }

    fn place(&self, dry_run: bool, most: Option<u64>) -> sink::DestDir<RealFs> {
        let place =
            sink::DestDir::new(Arc::new(RealFs), self.own.clone(), RelPath::default(), self.state.clone(), self.large);
        place.with(dry_run, self.how.no_fsync, Some(self.delete(most)))
    }

    fn transfer(
        &mut self,
        due: &Due,
        dry_run: bool,
        most: Option<u64>,
        watcher: &mut dyn Watcher,
    ) -> Result<Outcome, FilesError> {
        let xattrs = self.how.xattrs;
        if self.from_peer {
            let from = vec![(self.peer.at(), RelPath::default())];
            let place = self.place(dry_run, most);
            return self.client.get(from, xattrs, self.how.exclude.clone(), place, watcher);
        }
        let load = Load { xattrs, dry_run, delete: true, ..Load::new(Arc::new(RealFs), self.large) };
        let load = Load { rules: self.rules.clone(), ..load };
        let delete = Some(self.delete(most));
        self.client.send(load, self.starts(due), &self.peer.at(), self.how.no_fsync, delete, watcher)
    }

    /// What would be done, and why not where more names would go than may, with their number.
    fn plan(
        &mut self,
        due: &Due,
        most: Option<u64>,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(Plan, Option<(Fault, u64)>), Error> {
        let mut planning = Planning(Plan::default(), stopped);
        let found = self.transfer(due, true, most, &mut planning)?;
        match found.failed {
            Some(fault) if fault.kind != FaultKind::Limit => Err(FilesError::Refused(fault).into()),
            limit => Ok((planning.0, limit.map(|fault| (fault, found.extra.0)))),
        }
    }

    fn starts(&self, due: &Due) -> Vec<Start<RealFs>> {
        let all = || {
            vec![Start { dir: self.own.clone(), name: None, path: RelPath::default(), shallow: false, opened: None }]
        };
        let Due::Some(dirs) = due else { return all() };
        let mut starts = Vec::new();
        for (path, deep) in dirs {
            match RealFs.open_dir(&self.own, path, Links::Refuse) {
                Ok(dir) => {
                    starts.push(Start {
                        dir: Arc::new(dir),
                        name: None,
                        path: path.clone(),
                        shallow: !deep,
                        opened: None,
                    });
                }
                // One that has gone: the directory that it was in is compared as well.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {}
                Err(_) => return all(),
            }
        }
        starts
    }
}

/// Gives files at the destination the names that they have at the source; whether there was one.
fn rename<F: Face>(core: &mut Core, face: &mut F, plan: &Plan) -> bool {
    let mut any = false;
    for (old, new) in plan.changes.pairs() {
        if core.rename(&old, &new) {
            face.renamed(&old, &new);
            any = true;
        }
    }
    any
}

impl<F: Face> Mirror<F> {
    /// Opens both ends. `state`: the directory of journals. `init`: the first run of two that have no mark of a mirror yet.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Files`]; of these [`FilesError::Unmarked`]: a mark is missing, or another one.
    pub fn open(
        ends: &Ends,
        client: Client,
        state: Option<OwnedFd>,
        how: How,
        init: bool,
        face: F,
    ) -> Result<Mirror<F>, Error> {
        let failed = |error| Error::system(ends.own.display().to_string(), error);
        if ends.from_peer && init && !ends.own.is_dir() {
            std::fs::create_dir(&ends.own).map_err(failed)?;
        }
        let (own, rules) = (Arc::new(RealFs::root(&ends.own).map_err(failed)?), how.rules()?);
        let (peer, from_peer, state) = (ends.peer.clone(), ends.from_peer, state.map(Arc::new));
        let path = ends.own.clone();
        let mut core = Core { client, peer, path, own, from_peer, state, how, rules, large: large() };
        core.marks(init)?;
        Ok(Mirror { core, face })
    }

    /// Compares all and transfers what differs; whether all of it has arrived.
    ///
    /// # Errors
    /// A [`Face::Failure`]: that of [`Face::carry`], or of [`Error::Files`] where more would be deleted than may be.
    pub fn once(&mut self) -> Result<bool, F::Failure> {
        self.round(&Due::All, true)
    }

    /// Compares, asks if need be, renames, and transfers. `alone`: somebody waits for this one.
    fn round(&mut self, due: &Due, alone: bool) -> Result<bool, F::Failure> {
        let Mirror { core, face } = self;
        let most = core.how.max_delete;
        if core.how.dry_run {
            return face.carry(&mut |watcher| core.transfer(due, true, most, watcher));
        }
        let (mut plan, mut limit) = core.plan(due, most, &|| face.stopped())?;
        if limit.is_some() && *due != Due::All {
            // Much of a few directories may be little of the tree.
            return self.round(&Due::All, alone);
        }
        // What has only another name now is no deletion.
        if rename(core, face, &plan) && limit.is_some() {
            (plan, limit) = core.plan(due, most, &|| face.stopped())?;
        }
        let mut most = most;
        if let Some((fault, names)) = limit {
            if !(alone && face.ask(&fault.text)) {
                if face.stopped() {
                    return Err(Error::Files(FilesError::Stopped).into());
                }
                return Err(Error::Files(FilesError::Refused(fault)).into());
            }
            most = Some(names);
        }
        if !plan.any && !alone {
            return Ok(true);
        }
        if core.from_peer {
            let told = std::cell::RefCell::new(&mut *face);
            client::sweep(&core.place(false, most), &|line| told.borrow_mut().say(line));
        }
        face.carry(&mut |watcher| {
            // Each try may meet a server that began while a disk was away.
            core.marks(false)?;
            core.transfer(due, false, most, watcher)
        })
    }

    /// Nothing is known yet, and nothing watched.
    fn begin(&mut self) -> (Watch, Option<Tree>) {
        let mut watch = Watch::new();
        if self.core.from_peer {
            watch.limit();
            self.face.say(&format!("what changes at a peer is not told: all is compared every {} s", SCAN.as_secs()));
            return (watch, None);
        }
        match Tree::new(self.core.own.clone(), self.core.rules.clone()) {
            Ok(tree) => (watch, Some(tree)),
            Err(error) => {
                watch.limit();
                let text = "nothing can be watched (fs.inotify.max_user_instances)";
                self.face.say(&format!("{text}: {error}; all is compared every {} s", SCAN.as_secs()));
                (watch, None)
            }
        }
    }

    /// Mirrors what changes, until it is to end. `wake` can be read when that is to be looked at, or [`Face::wanted`].
    ///
    /// # Errors
    /// That of a run which [`Face::failed`] does not take for a passing one.
    pub fn watch(&mut self, wake: BorrowedFd<'_>) -> Result<(), F::Failure> {
        let (began, (mut watch, mut tree)) = (Instant::now(), self.begin());
        let mut told = false;
        while !self.face.stopped() {
            if let Some(tree) = &mut tree {
                listen(tree, &mut watch, began, &mut self.face);
            }
            if self.face.wanted() {
                watch.hear(linkspan_files::mirror::watch::Heard::Overflow, began.elapsed());
            }
            // Nothing tells of a link that leads elsewhere, or of a directory above that was renamed or mounted over.
            let moved = self.core.moved();
            if matches!(moved, Ok(true)) {
                let path = self.core.path.display();
                self.face.say(&format!("{path} is another directory than before, which is mirrored from now on"));
                (watch, tree) = self.begin();
                continue;
            }
            if let Some(due) = watch.due(began.elapsed()) {
                // Only what is marked: a disk may have gone meanwhile.
                let marked = moved.and_then(|_| Ok(self.core.marks(false)?));
                let done = marked.map_err(Into::into).and_then(|()| self.round(&due, false));
                match done {
                    Ok(true) => {
                        watch.succeeded();
                        self.face.resting(true);
                    }
                    Ok(false) => {
                        watch.failed(began.elapsed());
                        self.face.resting(false);
                    }
                    Err(failure) => self.face.failed(failure, &mut || watch.failed(began.elapsed()))?,
                }
                if !told {
                    let dirs = tree.as_ref().map_or(0, Tree::count);
                    let noun = if dirs == 1 { "directory" } else { "directories" };
                    self.face.say(&format!("watching {dirs} {noun}"));
                    told = true;
                }
                continue;
            }
            let mut fds = vec![PollFd::from_borrowed_fd(wake, PollFlags::IN)];
            fds.extend(tree.as_ref().map(|tree| PollFd::from_borrowed_fd(tree.as_fd(), PollFlags::IN)));
            let rest = Timespec::try_from(watch.rest(began.elapsed()) + Duration::from_millis(1)).ok();
            // A signal, or a time that has passed: the loop looks again.
            let _ = poll(&mut fds, rest.as_ref());
        }
        Ok(())
    }
}

/// Sets the watches that are missing, and takes what was told.
fn listen<F: Face>(tree: &mut Tree, watch: &mut Watch, began: Instant, face: &mut F) {
    let mut limited = |watch: &mut Watch, error: std::io::Error| {
        if !watch.is_limited() {
            let hint = "raise fs.inotify.max_user_watches";
            let every = SCAN.as_secs();
            face.say(&format!("not all directories can be watched: {error} ({hint}); all is compared every {every} s"));
        }
        watch.limit();
    };
    loop {
        while let Some(dir) = watch.unwatched() {
            if let Err(error) = tree.add(&dir) {
                limited(watch, error);
            }
        }
        let mut heard = Vec::new();
        if let Err(error) = tree.hear(|one| heard.push(one)) {
            return limited(watch, error);
        }
        if heard.is_empty() {
            return;
        }
        heard.into_iter().for_each(|one| watch.hear(one, began.elapsed()));
    }
}

#[cfg(test)]
mod tests;
