//! `lspan mirror`.

use std::io::{BufRead, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_files::client::{self, Client, Watcher};
use linkspan_files::engine::{Event, Happened};
use linkspan_files::fs::{Fs, Links, RealFs};
use linkspan_files::mirror::inotify::Tree;
use linkspan_files::mirror::watch::{Due, SCAN, Watch};
use linkspan_files::mirror::{Changes, together};
use linkspan_files::name::{RelPath, escape};
use linkspan_files::sink;
use linkspan_files::source::{Load, Start};
use linkspan_files::wire::{Delete, FaultKind};
use linkspan_files::{Error, Outcome, Rules, Side};
use linkspan_perf::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::transfer::{View, exclude, large};
use super::{Place, connect, state_dir, usage};
use crate::cli::files::{HowArgs, MirrorArgs};
use crate::exit::{Exit, Failure};
use crate::{peer_lines, signals};

/// What is mirrored where.
struct Mirror<'a> {
    client: Client,
    peer: Place,
    own: Arc<OwnedFd>,
    /// The peer has the source.
    from_peer: bool,
    state: Option<Arc<OwnedFd>>,
    how: &'a HowArgs,
    exclude: Vec<String>,
    rules: Arc<Rules>,
    most: Option<u64>,
    large: u64,
    interrupt: Interrupt,
}

pub(crate) fn run(args: &MirrorArgs) -> Result<Exit, Failure> {
    let is_peer = |text: &str| text.contains(':') && !Path::new(text).is_dir();
    let (own, peer, from_peer) = match (is_peer(&args.from), is_peer(&args.to)) {
        (true, false) => (&args.to, Place::whole(&args.from)?, true),
        (false, true) => (&args.from, Place::whole(&args.to)?, false),
        (false, false) => return Err(usage("neither SRC nor DST is PEER:SHARE/PATH; inside one host use rsync")),
        (true, true) => return Err(usage("SRC or DST has to be of this host; run it on the host of one of them")),
    };
    if from_peer && args.init && !Path::new(own).is_dir() {
        std::fs::create_dir(own).map_err(|error| Failure::system(own, &error))?;
    }
    let root = RealFs::root(Path::new(own)).map_err(|error| Failure::system(own, &error))?;
    let exclude = exclude(&args.how)?;
    let rules = Arc::new(Rules::new(&exclude).map_err(Error::from)?);
    let mut mirror = Mirror {
        client: connect(&peer.peer, &args.peer)?,
        peer,
        own: Arc::new(root),
        from_peer,
        state: state_dir().map(Arc::new),
        how: &args.how,
        exclude,
        rules,
        most: args.max_delete,
        large: large(),
        interrupt: signals::interrupt()?,
    };
    mirror.marks(args.init)?;
    if args.watch { mirror.watch() } else { mirror.round(&Due::All, true) }
}

/// What a dry run finds.
struct Plan {
    changes: Changes,
    any: bool,
    failed: bool,
    interrupt: Interrupt,
}

impl Watcher for Plan {
    fn event(&mut self, event: Event) {
        match event.what {
            Happened::Would(size, mtime) => {
                self.changes.new_file(event.path, size, mtime);
                self.any = true;
            }
            Happened::Extra(extra) => {
                self.changes.extra(event.path, &extra);
                self.any = true;
            }
            Happened::Made(_) => self.any = true,
            Happened::Failed(_) => self.failed = true,
            Happened::Same | Happened::Done(..) | Happened::LeftOut(_) | Happened::Again => {}
        }
    }

    fn tick(&mut self, _: u64, _: u64) -> bool {
        !self.interrupt.raised()
    }
}

impl Mirror<'_> {
    fn sides(&mut self) -> (Side<'_>, Arc<OwnedFd>) {
        (Side::There(&mut self.client, self.peer.at()), self.own.clone())
    }

    /// Stops where a mark is missing or another one: a disk may not be mounted.
    fn marks(&mut self, init: bool) -> Result<(), Failure> {
        let from_peer = self.from_peer;
        let dry_run = self.how.dry_run;
        let (mut there, own) = self.sides();
        let mut here = Side::Here(own);
        let absent = |result: Result<String, Error>| match result {
            // A directory that is to be made has no mark.
            Err(Error::Refused(fault)) if fault.kind == FaultKind::NotFound => Ok(String::new()),
            other => other,
        };
        let (theirs, ours) = (absent(there.mark(None))?, absent(here.mark(None))?);
        let (src, dst) = if from_peer { (theirs, ours) } else { (ours, theirs) };
        let mut eight = [0; 16];
        getrandom::fill(&mut eight).map_err(|error| Failure::new(Exit::Failed, format!("random numbers: {error}")))?;
        let fresh = linkspan_files::hash::hex(&eight);
        let marks =
            together(&src, &dst, init, &fresh).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        let (mark, new_src, new_dst) = marks;
        let (src, dst) = if from_peer { (&mut there, &mut here) } else { (&mut here, &mut there) };
        for (side, new) in [(src, new_src), (dst, new_dst)] {
            if new && !dry_run {
                side.mark(Some(mark.clone()))?;
            }
        }
        Ok(())
    }

    /// Compares, asks if need be, renames, and transfers. `alone`: the user waits for this one.
    fn round(&mut self, due: &Due, alone: bool) -> Result<Exit, Failure> {
        if self.how.dry_run {
            let view = View::new(self.how)?;
            return view.drive(|view| self.transfer(due, true, self.most, view));
        }
        let mut plan =
            Plan { changes: Changes::default(), any: false, failed: false, interrupt: self.interrupt.clone() };
        let found = self.transfer(due, true, self.most, &mut plan)?;
        let mut most = self.most;
        if let Some(fault) = found.failed {
            if fault.kind != FaultKind::Limit || !(alone && asked(&fault.text)) {
                return Err(Failure::new(Exit::Failed, fault.text));
            }
            most = Some(found.extra.0);
        }
        if !plan.any && !plan.failed && !alone {
            return Ok(Exit::Ok);
        }
        let mut view = View::new(self.how)?;
        for (old, new) in plan.changes.pairs() {
            if self.rename(&old, &new) {
                view.say(&format!("{} has the name {} now", escape(old.bytes()), escape(new.bytes())));
                view.line(&new, "renamed", json!({}));
            }
        }
        if !self.from_peer {
            return view.drive(|view| self.transfer(due, false, most, view));
        }
        client::sweep(&self.place(false, most), &|line| peer_lines::say(&format!("lspan: {line}")));
        view.drive(|view| self.transfer(due, false, most, view))
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
        Delete { most, keep: self.exclude.clone() }
    }

    fn place(&self, dry_run: bool, most: Option<u64>) -> sink::Place<RealFs> {
        let place =
            sink::Place::new(Arc::new(RealFs), self.own.clone(), RelPath::default(), self.state.clone(), self.large);
        place.with(dry_run, self.how.no_fsync, Some(self.delete(most)))
    }

    fn transfer(
        &mut self,
        due: &Due,
        dry_run: bool,
        most: Option<u64>,
        watcher: &mut dyn Watcher,
    ) -> Result<Outcome, Error> {
        let xattrs = self.how.xattrs;
        if self.from_peer {
            let from = vec![(self.peer.at(), RelPath::default())];
            let place = self.place(dry_run, most);
            return self.client.get(from, xattrs, self.exclude.clone(), place, watcher);
        }
        let load = Load { xattrs, dry_run, delete: true, ..Load::new(Arc::new(RealFs), self.large) };
        let load = Load { rules: self.rules.clone(), ..load };
        let delete = Some(self.delete(most));
        self.client.send(load, self.starts(due), &self.peer.at(), self.how.no_fsync, delete, watcher)
    }

    fn starts(&self, due: &Due) -> Vec<Start<RealFs>> {
        match due {
            Due::All => vec![Start { dir: self.own.clone(), name: None, path: RelPath::default(), shallow: false }],
            Due::Some(dirs) => {
                // One that has gone: the directory that it was in is compared as well.
                let open = |path: &RelPath| RealFs.open_dir(&self.own, path, Links::Refuse).ok().map(Arc::new);
                let start = |(path, deep): &(RelPath, bool)| {
                    Some(Start { dir: open(path)?, name: None, path: path.clone(), shallow: !deep })
                };
                dirs.iter().filter_map(start).collect()
            }
        }
    }

    /// Mirrors what changes, until Ctrl-C.
    fn watch(&mut self) -> Result<Exit, Failure> {
        let (mut watch, began, stop) = (Watch::new(), Instant::now(), signals::descriptor()?);
        let mut tree = None;
        if self.from_peer {
            watch.limit();
            eprintln!("lspan: what changes at a peer is not told: all is compared every {} s", SCAN.as_secs());
        } else {
            match Tree::new(self.own.clone(), self.rules.clone()) {
                Ok(new) => tree = Some(new),
                Err(error) => {
                    watch.limit();
                    let text = "nothing can be watched (fs.inotify.max_user_instances)";
                    eprintln!("lspan: {text}: {error}; all is compared every {} s", SCAN.as_secs());
                }
            }
        }
        let mut told = false;
        while !self.interrupt.raised() {
            if let Some(tree) = &mut tree {
                listen(tree, &mut watch, began);
            }
            if let Some(due) = watch.due(began.elapsed()) {
                // Only what is marked: a disk may have gone meanwhile.
                let done = self.marks(false).and_then(|()| self.round(&due, false));
                match done {
                    Ok(Exit::Ok | Exit::Degraded) => watch.succeeded(),
                    Ok(_) => {
                        watch.failed(began.elapsed());
                    }
                    Err(failure) if failure.exit == Exit::Interrupted => break,
                    Err(failure) if failure.exit == Exit::NoPeer => {
                        let pause = watch.failed(began.elapsed());
                        peer_lines::say(&format!("lspan: {}; again in {} s", failure.message, pause.as_secs()));
                    }
                    Err(failure) => return Err(failure),
                }
                if !told {
                    let dirs = tree.as_ref().map_or(0, Tree::count);
                    eprintln!("lspan: watching {}", super::counted(dirs as u64, "directory", "directories"));
                    told = true;
                }
                continue;
            }
            let mut fds = vec![PollFd::new(&stop, PollFlags::IN)];
            fds.extend(tree.as_ref().map(|tree| PollFd::from_borrowed_fd(tree.as_fd(), PollFlags::IN)));
            let rest = watch.rest(began.elapsed()).map(|rest| rest + Duration::from_millis(1));
            let rest = rest.and_then(|rest| Timespec::try_from(rest).ok());
            // A signal, or a time that has passed: the loop looks again.
            let _ = poll(&mut fds, rest.as_ref());
        }
        Ok(Exit::Interrupted)
    }
}

/// Sets the watches that are missing, and takes what was told.
fn listen(tree: &mut Tree, watch: &mut Watch, began: Instant) {
    let limited = |watch: &mut Watch, error: std::io::Error| {
        if !watch.is_limited() {
            let hint = "raise fs.inotify.max_user_watches";
            eprintln!(
                "lspan: not all directories can be watched: {error} ({hint}); all is compared every {} s",
                SCAN.as_secs()
            );
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

/// Whether a user at a terminal says yes.
fn asked(what: &str) -> bool {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    eprint!("lspan: {what}\nMove them to the trash? [y/N] ");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).is_ok() && line.trim().eq_ignore_ascii_case("y")
}
