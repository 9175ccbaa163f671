//! `lspan send` and `lspan get`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use linkspan_files::client::Watcher;
use linkspan_files::engine::{Event, Happened};
use linkspan_files::fs::Kind;
use linkspan_files::hash::hex;
use linkspan_files::name::{RelPath, escape};
use linkspan_files::wire::{LeftOut, Request};
use linkspan_files::{Error, Outcome, Rules};
use linkspan_perf::Interrupt;
use linkspan_user::place::{Local, Place};
use linkspan_user::transfer::{Fetching, How, Patient, Sending, bytes, drive as again, left_out};
use serde_json::json;

use super::{connect_for_transfer, counted, exit_of, name_json, size, state_dir};
use crate::cli::files::{DeleteArgs, GetArgs, HowArgs, SendArgs};
use crate::exit::{Exit, Failure};
use crate::out::Out;
use crate::signals;

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
    /// Bytes, of all connections and of this one.
    arrived: [u64; 2],
    same: u64,
    /// Directories and links.
    made: u64,
    would: u64,
    /// What the receiver had and the sender had not.
    extra: u64,
    failed: u64,
    left_out: [u64; 6],
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
            arrived: [0; 2],
            same: 0,
            made: 0,
            would: 0,
            extra: 0,
            failed: 0,
            left_out: [0; 6],
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
        self.arrived = [self.arrived[0] + moved.saturating_sub(self.arrived[1]), moved];
        !self.interrupt.raised() && self.broken.is_none()
    }
}

impl Patient for View {
    fn arrived(&self) -> u64 {
        self.done + self.arrived[0]
    }

    fn stopped(&self) -> bool {
        self.interrupt.raised()
    }

    fn lost(&mut self, why: &str) {
        self.say(&format!("{why}; trying again"));
        // Each connection tells of every entry, but not again of what has moved over the one before.
        (self.same, self.would, self.failed, self.exit) = (0, 0, 0, Exit::Ok);
        if self.dry_run {
            self.extra = 0;
        }
        for why in LeftOut::AGAIN {
            self.left_out[why as usize] = 0;
        }
    }
}

impl View {
    /// Runs a transfer; again after a lost connection, as long as each time something moves.
    pub(super) fn drive(mut self, mut once: impl FnMut(&mut View) -> Result<Outcome, Error>) -> Result<Exit, Failure> {
        let began = Instant::now();
        let outcome = again(&mut self, &mut once);
        self.bar.finish_and_clear();
        // It is what ended the transfer, too.
        if let Some(failure) = self.broken.take() {
            return Err(failure);
        }
        let outcome = outcome?;
        self.close(&outcome, outcome.moved, began.elapsed())
    }

    fn close(mut self, outcome: &Outcome, moved: u64, took: Duration) -> Result<Exit, Failure> {
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
        let lost: u64 = [LeftOut::Special, LeftOut::Acl, LeftOut::Security].into_iter().map(count).sum();
        let others = [LeftOut::HardLink, LeftOut::SetId, LeftOut::Attributes].map(|why| (count(why), left_out(why)));
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
            parts.push("nothing was to be transferred".into());
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

pub(crate) fn send(args: &SendArgs) -> Result<Exit, Failure> {
    let to = Place::whole(&args.to)?;
    let sources = args.from.iter().map(|path| Ok(Local::find(path)?)).collect::<Result<Vec<_>, Failure>>()?;
    let how = how(&args.how, &args.delete)?;
    let mut client = connect_for_transfer(&to.peer, &args.peer)?;
    let view = View::new(&args.how)?;
    if !view.bar.is_hidden() {
        let (total, of) = (view.total.clone(), sources.clone());
        // Only for the time that is left.
        let count = move || total.store(bytes(&of), Ordering::Relaxed);
        let _ = std::thread::Builder::new().name("count".into()).spawn(count);
    }
    let sending = Sending::new(&mut client, sources, &to, how)?;
    view.drive(|view| sending.run(&mut client, view))
}

fn how(args: &HowArgs, delete: &DeleteArgs) -> Result<How, Failure> {
    let &HowArgs { xattrs, dry_run, no_fsync, .. } = args;
    let exclude = exclude(args)?;
    let &DeleteArgs { delete, max_delete } = delete;
    Ok(How { xattrs, dry_run, no_fsync, exclude, delete, max_delete, ..How::default() })
}

/// The rules about names, one text each.
pub(super) fn exclude(how: &HowArgs) -> Result<Vec<String>, Failure> {
    let mut rules = how.exclude.clone();
    for file in &how.exclude_from {
        let text = std::fs::read_to_string(file).map_err(|e| Failure::system(&file.display().to_string(), &e))?;
        // As git reads such a file: without the mark that some editors begin it with.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        rules.extend(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned));
    }
    Rules::new(&rules).map_err(Error::from)?;
    Ok(rules)
}

pub(crate) fn get(args: &GetArgs) -> Result<Exit, Failure> {
    let places = Place::of_one_peer(&args.from)?;
    let how = how(&args.how, &args.delete)?;
    let mut client = connect_for_transfer(&places[0].peer, &args.peer)?;
    // For what is not there no directory is made.
    if !args.to.is_dir()
        && let Some(found) = places.iter().map(|place| client.request(Request::Stat(place.at()))).reduce(Result::or)
    {
        found?;
    }
    let fetching = Fetching::new(&places, &args.to, state_dir(), how)?;
    let view = View::new(&args.how)?;
    if !view.bar.is_hidden() {
        view.total.store(fetching.bytes(&mut client)?, Ordering::Relaxed);
    }
    fetching.sweep(&|line| eprintln!("lspan: {line}"));
    view.drive(|view| fetching.run(&mut client, view))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use linkspan_files::wire::{Extra, Fault, FaultKind};

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        how: HowArgs,
    }

    #[test]
    fn what_was_told_over_a_connection_that_was_lost_counts_where_the_next_one_does_not_tell_it_again() {
        let (how, dry) = (Only::parse_from(["lspan"]).how, Only::parse_from(["lspan", "--dry-run"]).how);
        let extra = Extra { kind: Kind::File, size: 1, mtime: Default::default() };
        let happened = |what| Event { path: RelPath::new(b"a").unwrap(), what };
        for (how, why, left) in [
            (&how, LeftOut::Security, (Exit::Degraded, 1)),
            (&how, LeftOut::Special, (Exit::Ok, 1)),
            (&dry, LeftOut::Special, (Exit::Ok, 0)),
        ] {
            let (mut tries, mut extras) = (0, 0);
            let exit = View::new(how).unwrap().drive(|view| {
                tries += 1;
                if tries == 1 {
                    view.event(happened(Happened::LeftOut(why)));
                    view.event(happened(Happened::Extra(extra)));
                    return Err(Error::Lost("the peer has ended".into()));
                }
                extras = view.extra;
                Ok(Outcome::default())
            });
            assert_eq!((exit.unwrap(), extras), left, "{why:?}");
        }
    }

    #[test]
    fn what_failed_over_a_connection_that_was_lost_counts_no_more_where_it_arrives_over_the_next_one() {
        let how = Only::parse_from(["lspan"]).how;
        let happened = |what| Event { path: RelPath::new(b"a").unwrap(), what };
        let mut tries = 0;
        let exit = View::new(&how).unwrap().drive(|view| {
            tries += 1;
            if tries == 1 {
                view.event(happened(Happened::Failed(Fault::new(FaultKind::Exists, "a directory is there"))));
                view.event(happened(Happened::LeftOut(LeftOut::Special)));
                return Err(Error::Lost("the peer has ended".into()));
            }
            view.event(happened(Happened::Made(Kind::Dir)));
            Ok(Outcome::default())
        });
        assert_eq!((exit.ok(), tries), (Some(Exit::Ok), 2));
    }
}
