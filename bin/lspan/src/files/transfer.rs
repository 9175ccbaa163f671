//! `lspan send` and `lspan get`.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use linkspan_files::client::{self, Client, Watcher};
use linkspan_files::engine::{Event, Happened};
use linkspan_files::fs::Kind;
use linkspan_files::fs::RealFs;
use linkspan_files::hash::hex;
use linkspan_files::name::{Name, RelPath, escape};
use linkspan_files::sink;
use linkspan_files::source::{Load, Start};
use linkspan_files::wire::{Answer, Delete, FaultKind, LeftOut, PeerPath, Request};
use linkspan_files::{Error, Outcome, Rules};
use linkspan_perf::Interrupt;
use linkspan_topology::{Host, Roots};
use serde_json::json;

use super::{Place, connect, counted, exit_of, local, name_json, same_peer, size, state_dir, usage};
use crate::cli::files::{DeleteArgs, GetArgs, HowArgs, SendArgs};
use crate::exit::{Exit, Failure};
use crate::out::Out;
use crate::signals;

/// How often a transfer is taken up again after its connection was lost, while nothing of it moves.
const TRIES: u32 = 5;

/// What the user sees of a transfer.
pub(super) struct View {
    out: Out,
    json: bool,
    bar: ProgressBar,
    total: Arc<AtomicU64>,
    interrupt: Interrupt,
    exit: Exit,
    dry_run: bool,
    done: u64,
    same: u64,
    /// Directories and links.
    made: u64,
    would: u64,
    /// What the receiver had and the sender had not.
    extra: u64,
    failed: u64,
    left_out: [u64; 5],
    broken: Option<Failure>,
}

impl View {
    pub(super) fn new(how: &HowArgs) -> Result<View, Failure> {
        let bar = ProgressBar::no_length();
        bar.set_draw_target(ProgressDrawTarget::stderr());
        let style = "{binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Ok(View {
            out: Out::default(),
            json: how.json,
            bar,
            total: Arc::default(),
            interrupt: signals::interrupt()?,
            exit: Exit::Ok,
            dry_run: how.dry_run,
            done: 0,
            same: 0,
            made: 0,
            would: 0,
            extra: 0,
            failed: 0,
            left_out: [0; 5],
            broken: None,
        })
    }

    pub(super) fn line(&mut self, path: &RelPath, what: &str, more: serde_json::Value) {
        if !self.json {
            return;
        }
        let mut line = json!({"schema": "linkspan.files/1", "what": what});
        name_json(&mut line, "path", path.bytes());
        if let (Some(line), serde_json::Value::Object(more)) = (line.as_object_mut(), more) {
            line.extend(more);
        }
        let written = self.out.json(&line, false);
        self.broken = self.broken.take().or(written.err());
    }

    /// To standard output, where it is for people.
    fn print(&mut self, text: &str) {
        if !self.json {
            let written = self.out.text(text);
            self.broken = self.broken.take().or(written.err());
        }
    }

    pub(super) fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("lspan: {text}"));
    }
}

impl Watcher for View {
    fn event(&mut self, event: Event) {
        let path = event.path;
        let shown = escape(path.bytes());
        match event.what {
            Happened::Same => {
                self.same += 1;
                self.line(&path, "same", json!({}));
            }
            Happened::Done(bytes, hash) => {
                self.done += 1;
                self.bar.set_message(shown);
                self.line(&path, "done", json!({"size_bytes": bytes, "blake3": hex(&hash)}));
            }
            Happened::Made(kind) if self.dry_run => {
                self.would += 1;
                self.print(&format!("{shown}{}\n", if kind == Kind::Dir { "/" } else { "" }));
                self.line(&path, "would", json!({}));
            }
            Happened::Made(_) => {
                self.made += 1;
                self.line(&path, "made", json!({}));
            }
            Happened::Would(bytes, _) => {
                self.would += 1;
                self.print(&format!("{shown}\n"));
                self.line(&path, "would", json!({"size_bytes": bytes}));
            }
            Happened::Extra(extra) => {
                self.extra += 1;
                let slash = if extra.kind == Kind::Dir { "/" } else { "" };
                if self.dry_run {
                    self.print(&format!("delete {shown}{slash}\n"));
                }
                self.line(&path, if self.dry_run { "would_delete" } else { "deleted" }, json!({}));
            }
            Happened::Failed(fault) => {
                self.failed += 1;
                if self.exit != Exit::WrongData {
                    self.exit = exit_of(fault.kind);
                }
                self.say(&format!("{shown}: {fault}"));
                self.line(&path, "failed", json!({"why": fault.text}));
            }
            Happened::LeftOut(why) => {
                self.left_out[why as usize] += 1;
                if why.is_loss() {
                    self.say(&format!("{shown}: left out: {}", left_out(why)));
                }
                self.line(&path, "left_out", json!({"why": left_out(why)}));
            }
            Happened::Again => self.say(&format!("{shown}: it changed while it was read and is sent again")),
        }
    }

    fn tick(&mut self, moved: u64, kept: u64) -> bool {
        let total = self.total.load(Ordering::Relaxed);
        if total > 0 && self.bar.length() != Some(total) {
            self.bar.set_length(total);
        }
        self.bar.set_position(moved + kept);
        !self.interrupt.raised() && self.broken.is_none()
    }
}

fn left_out(why: LeftOut) -> &'static str {
    match why {
        LeftOut::Special => "a device, socket or fifo",
        LeftOut::Acl => "an access control list",
        LeftOut::Capability => "capabilities (security.capability)",
        LeftOut::HardLink => "another name of a file, which arrives as a file of its own",
        LeftOut::SetId => "a setuid, setgid or sticky bit",
    }
}

impl View {
    /// Runs a transfer; again after a lost connection, as long as each time something moves.
    pub(super) fn drive(mut self, mut once: impl FnMut(&mut View) -> Result<Outcome, Error>) -> Result<Exit, Failure> {
        let (began, mut tries, mut sum) = (Instant::now(), 0, Outcome::default());
        let outcome = loop {
            let before = self.done;
            match once(&mut self) {
                Err(Error::Lost(why)) if tries < TRIES && !self.interrupt.raised() => {
                    tries = if self.done > before { 0 } else { tries + 1 };
                    self.say(&format!("{}; trying again", Error::Lost(why)));
                    (self.same, self.extra) = (0, 0);
                    std::thread::sleep(Duration::from_millis(300));
                }
                other => break other,
            }
        };
        self.bar.finish_and_clear();
        let outcome = outcome?;
        sum.moved += outcome.moved;
        self.close(&outcome, sum.moved, began.elapsed())
    }

    fn close(mut self, outcome: &Outcome, moved: u64, took: Duration) -> Result<Exit, Failure> {
        if let Some(failure) = self.broken.take() {
            return Err(failure);
        }
        if let Some(fault) = &outcome.failed {
            self.say(&fault.text);
            self.exit = exit_of(fault.kind);
        }
        let seconds = took.as_secs_f64().max(1e-9);
        let slowest = outcome.stages.slowest();
        if self.json {
            let stages = outcome.stages;
            let line = json!({
                "schema": "linkspan.files/1", "what": "end", "files_done": self.done, "entries_made": self.made,
                "entries_same": self.same, "entries_would": self.would, "entries_deleted": self.extra, "entries_failed": self.failed, "moved_bytes": moved, "kept_bytes": outcome.kept,
                "seconds": seconds,
                "stages_s": {
                    "read": stages.read as f64 / 1e9, "hash": stages.hash as f64 / 1e9, "link": stages.link as f64 / 1e9,
                    "peer_hash": stages.check as f64 / 1e9, "write": stages.write as f64 / 1e9,
                },
                "slowest": slowest.map(|stage| stage.0),
            });
            self.out.json(&line, false)?;
        }
        eprintln!("lspan: {}", self.summary(outcome, moved, seconds));
        let count = |why: LeftOut| self.left_out[why as usize];
        let lost: u64 = [LeftOut::Special, LeftOut::Acl, LeftOut::Capability].into_iter().map(count).sum();
        let others = [LeftOut::HardLink, LeftOut::SetId].map(|why| (count(why), left_out(why)));
        for (n, what) in others.into_iter().filter(|other| other.0 > 0) {
            eprintln!("lspan: left out {}: {what}", counted(n, "time", "times"));
        }
        if self.failed > 0 {
            eprintln!("lspan: {} failed", counted(self.failed, "entry", "entries"));
        }
        if lost > 0 && self.exit == Exit::Ok {
            let times = counted(lost, "time", "times");
            eprintln!("lspan: {times} something was left out that the other side cannot recreate");
            return Ok(Exit::Degraded);
        }
        Ok(self.exit)
    }

    /// The closing line.
    fn summary(&self, outcome: &Outcome, moved: u64, seconds: f64) -> String {
        let entries = |n| counted(n, "entry", "entries");
        let mut parts = Vec::new();
        if self.dry_run {
            parts.push(format!("{} would be sent or made", entries(self.would)));
            if self.extra > 0 {
                parts.push(format!("{} would go to the trash", entries(self.extra)));
            }
            parts.push(format!("{} there already", entries(self.same)));
            return parts.join("; ");
        }
        if self.done > 0 || moved > 0 {
            let rate = moved as f64 / seconds / 1e9;
            let files = counted(self.done, "file", "files");
            parts.push(format!("{files}, {} in {seconds:.2} s ({rate:.2} GB/s, {:.1} Gb/s)", size(moved), rate * 8.0));
        }
        if self.made > 0 {
            parts.push(format!("{} made", counted(self.made, "directory or link", "directories and links")));
        }
        if self.extra > 0 {
            parts.push(format!("{} moved to the trash", entries(self.extra)));
        }
        if parts.is_empty() {
            parts.push("nothing was to be sent".into());
        }
        match (self.same, outcome.kept) {
            (0, 0) => {}
            (0, kept) => parts.push(format!("{} were there already or are holes", size(kept))),
            (1, 0) => parts.push("1 entry was there already".into()),
            (same, 0) => parts.push(format!("{} were there already", entries(same))),
            (same, kept) => {
                parts.push(format!("{} and {} were there already or are holes", entries(same), size(kept)));
            }
        }
        if moved > 0
            && let Some((stage, share)) = outcome.stages.slowest()
        {
            parts.push(format!("slowest stage: {stage}, {:.0} % of the work", share * 100.0));
        }
        parts.join("; ")
    }
}

pub(super) fn large() -> u64 {
    Host::read(&Roots::default()).memory_bytes / 2
}

pub(crate) fn send(args: &SendArgs) -> Result<Exit, Failure> {
    let to = Place::whole(&args.to)?;
    let sources = args.from.iter().map(|path| local(path)).collect::<Result<Vec<_>, _>>()?;
    let mut client = connect(&to.peer, &args.peer)?;
    let (base, paths) = destination(&mut client, &to, &sources.iter().map(|s| s.2.clone()).collect::<Vec<_>>())?;
    let view = View::new(&args.how)?;
    let starts = || {
        let start = |((dir, name, _), path): (&(Arc<std::os::fd::OwnedFd>, Name, Vec<u8>), &RelPath)| Start {
            dir: dir.clone(),
            name: Some(name.clone()),
            path: path.clone(),
            shallow: false,
        };
        sources.iter().zip(&paths).map(start).collect::<Vec<Start<RealFs>>>()
    };
    if !view.bar.is_hidden() {
        let (total, of) = (view.total.clone(), starts());
        // Only for the time that is left: what cannot be counted is not.
        let _ = std::thread::Builder::new().name("count".into()).spawn(move || {
            let one = |start: &Start<RealFs>| {
                let path = start.name.as_ref().and_then(|name| RelPath::new(name.bytes()).ok()).unwrap_or_default();
                client::usage(&start.dir, &path).map_or(0, |sum| sum.bytes)
            };
            total.store(of.iter().map(one).sum(), Ordering::Relaxed);
        });
    }
    view.bar.set_message(client.path().unwrap_or_default());
    let (how, large, exclude) = (&args.how, large(), exclude(&args.how)?);
    let (rules, delete) = (Arc::new(Rules::new(&exclude).map_err(Error::from)?), deletion(&args.delete, &exclude));
    view.drive(move |view| {
        let (xattrs, dry_run) = (how.xattrs, how.dry_run);
        let load = Load { xattrs, dry_run, delete: delete.is_some(), ..Load::new(Arc::new(RealFs), large) };
        let load = Load { rules: rules.clone(), ..load };
        client.send(load, starts(), &base, how.no_fsync, delete.clone(), view)
    })
}

/// The rules about names, one text each.
pub(super) fn exclude(how: &HowArgs) -> Result<Vec<String>, Failure> {
    let mut rules = how.exclude.clone();
    for file in &how.exclude_from {
        let text = std::fs::read_to_string(file).map_err(|e| Failure::system(&file.display().to_string(), &e))?;
        rules.extend(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned));
    }
    Rules::new(&rules).map_err(Error::from)?;
    Ok(rules)
}

fn deletion(args: &DeleteArgs, keep: &[String]) -> Option<Delete> {
    args.delete.then(|| Delete { most: args.max_delete, keep: keep.to_vec() })
}

/// The directory at the peer, and the path of each source in it.
fn destination(client: &mut Client, to: &Place, names: &[Vec<u8>]) -> Result<(PeerPath, Vec<RelPath>), Failure> {
    let kind = match client.request(Request::Stat(to.at())) {
        Ok(Answer::Stat(entry)) => Some(entry.kind),
        Err(Error::Refused(fault)) if fault.kind == FaultKind::NotFound => None,
        Ok(_) => None,
        Err(error) => return Err(error.into()),
    };
    let bad = |why: &str| usage(&format!("{}:{}/{:?} {why}", to.peer, to.share, to.path));
    if kind == Some(Kind::Dir) || to.dir || to.path.is_root() {
        if kind.is_none() {
            return Err(bad("is no directory there"));
        }
        let path =
            |name: &Vec<u8>| RelPath::new(name).map_err(|why| bad(&format!("cannot take {}: {why}", escape(name))));
        return Ok((to.at(), names.iter().map(path).collect::<Result<_, _>>()?));
    }
    if names.len() > 1 {
        return Err(bad("is no directory there, and several sources need one"));
    }
    let (parent, name) = to.path.split().ok_or_else(|| bad("is no directory there"))?;
    let path = RelPath::default().join(&name).map_err(|why| bad(&why.to_string()))?;
    Ok((PeerPath { share: to.share.clone(), path: parent }, vec![path]))
}

pub(crate) fn get(args: &GetArgs) -> Result<Exit, Failure> {
    let places = same_peer(&args.from)?;
    let failed = |error: std::io::Error| Failure::system(&escape(args.to.as_os_str().as_bytes()), &error);
    let whole_share = places.len() == 1 && places[0].path.is_root();
    let bad = |why: String| usage(&format!("{}: {why}", escape(args.to.as_os_str().as_bytes())));
    let (root, from) = if args.to.is_dir() || whole_share {
        if whole_share && !args.to.is_dir() && !args.how.dry_run {
            std::fs::create_dir(&args.to).map_err(failed)?;
        }
        let named = |place: &Place| match place.path.split() {
            Some((_, name)) => RelPath::default().join(&name).unwrap_or_default(),
            None => RelPath::default(),
        };
        (args.to.clone(), places.iter().map(|place| (place.at(), named(place))).collect::<Vec<_>>())
    } else if places.len() == 1 {
        let name = args.to.file_name().ok_or_else(|| bad("it is no directory".into()))?;
        let path = RelPath::new(name.as_bytes()).map_err(|why| bad(why.to_string()))?;
        let parent = args.to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
        (parent.to_owned(), vec![(places[0].at(), path)])
    } else {
        return Err(bad("it is no directory, and several sources need one".into()));
    };
    let root = Arc::new(RealFs::root(&root).map_err(failed)?);
    let state = state_dir().map(Arc::new);
    let mut client = connect(&places[0].peer, &args.peer)?;
    let view = View::new(&args.how)?;
    if !view.bar.is_hidden() {
        let mut total = 0;
        for (at, _) in &from {
            if let Answer::Usage(sum) = client.request(Request::Usage(at.clone()))? {
                total += sum.bytes;
            }
        }
        view.total.store(total, Ordering::Relaxed);
    }
    view.bar.set_message(client.path().unwrap_or_default());
    let exclude = exclude(&args.how)?;
    let (how, delete, large) = (&args.how, deletion(&args.delete, &exclude), large());
    let place = move || {
        let place = sink::Place::new(Arc::new(RealFs), root.clone(), RelPath::default(), state.clone(), large);
        place.with(how.dry_run, how.no_fsync, delete.clone())
    };
    client::sweep(&place(), &|line| eprintln!("lspan: {line}"));
    view.drive(move |view| client.get(from.clone(), how.xattrs, exclude.clone(), place(), view))
}
