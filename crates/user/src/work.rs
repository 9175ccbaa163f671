//! What tasks do.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use linkspan_fabric::keys::Keyring;
use linkspan_fabric::{Config, Fabric, Level, Log};
use linkspan_files::client::Watcher;
use linkspan_files::engine::{Event, Happened};
use linkspan_files::mirror::watch::{QUIET, SCAN};
use linkspan_files::name::{RelPath, escape};
use linkspan_files::wire::{Fault, FaultKind, LeftOut};
use linkspan_files::{Error as FilesError, Outcome};
use linkspan_perf::record::Row;
use linkspan_service::pairing::{JoinLine, Names, PairError, Paired, PairingOffer, join};
use linkspan_service::rendezvous::PERF;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::link::FabricConnector;
use crate::mirror::{Ends, Face, Mirror};
use crate::mirrors::Mirrors;
use crate::place::{Local, Place};
use crate::suite::{self, Measuring, Suite};
use crate::task::{PairedWith, Say, Task, Tasks};
use crate::transfer::{self, Fetching, How, Patient, Sending, bytes, drive, left_out};
use crate::{Dialer, Error, connect, mount};

/// Warnings of connections, as lines.
pub fn log(say: &Say) -> Log {
    let say = say.clone();
    Log::to(move |level, line| {
        if level == Level::Warn {
            say(line);
        }
    })
}

fn log_to(task: &Arc<Task>) -> Log {
    let task = task.clone();
    log(&(Arc::new(move |line: &str| task.update(|progress| progress.note(line))) as Say))
}

/// A test.
struct TaskMeasuring<'a>(&'a Task);

impl Measuring for TaskMeasuring<'_> {
    type Failure = Error;

    fn begin(&mut self, what: &str) {
        self.0.update(|progress| {
            progress.state = "running";
            progress.test.get_or_insert_default().measuring = what.to_owned();
        });
    }

    fn row(&mut self, mut row: Row) -> Result<(), Error> {
        let wrong = row.wrong_bytes.is_some_and(|wrong| wrong > 0);
        // Hundreds of steps: records would be many times as long.
        row.histogram.clear();
        self.0.update(|progress| {
            progress.path = format!("{} {}", row.transport, row.path);
            let test = progress.test.get_or_insert_default();
            test.done += 1;
            test.results.push(row);
        });
        match wrong {
            true => Err(Error::Incomplete("LS1847 wrong data arrived: run `lspan selftest`".into())),
            false => Ok(()),
        }
    }
}

/// Makes the measurements of these tests, one after another.
///
/// # Errors
/// [`Error::Rendezvous`], [`Error::Fabric`]: there is no path to the peer. [`Error::Perf`], [`Error::Incomplete`]: a test failed, or wrong
/// data arrived.
pub fn test(task: &Arc<Task>, suites: &[Suite]) -> Result<(), Error> {
    let of = suites.iter().map(|suite| suite.specs.len() as u32).sum();
    task.update(|progress| progress.test.get_or_insert_default().of = of);
    let (found, config) = connect::found(&task.peer, PERF)?;
    let fabric = Fabric::new(config, log_to(task), false, linkspan_transports::all())?;
    let (handle, peer, interrupt) = (found.handle, task.peer.clone(), task.interrupt.clone());
    let connector = FabricConnector { fabric, device: 0, handle, gpu: None, peer, interrupt };
    suites.iter().try_for_each(|suite| suite::measure(suite, &connector, &mut TaskMeasuring(task)))
}

/// A transfer, or a mirror.
struct Carry<'a> {
    task: &'a Task,
    /// Files and bytes, of all connections.
    arrived: u64,
    /// The first that failed.
    failed: Option<String>,
    /// What was left out that the next connection tells of again.
    again: u64,
    dry_run: bool,
}

impl Carry<'_> {
    fn new(task: &Task, dry_run: bool) -> Carry<'_> {
        task.update(|progress| progress.state = "running");
        Carry { task, arrived: 0, failed: None, again: 0, dry_run }
    }

    /// What came of it.
    fn close(self, outcome: &Outcome) -> Result<(), Error> {
        if let Some(fault) = &outcome.failed {
            return Err(Error::Files(FilesError::Refused(fault.clone())));
        }
        let Some(first) = self.failed else { return Ok(()) };
        let failed = self.task.progress().moved().entries_failed;
        Err(Error::Incomplete(format!("LS1848 {failed} of its entries failed; the first: {first}")))
    }
}

impl Watcher for Carry<'_> {
    fn event(&mut self, event: Event) {
        let path = event.path;
        let shown = || escape(path.bytes());
        let fault = |fault: &Fault| format!("{}: {fault}", escape(path.bytes()));
        match &event.what {
            Happened::Failed(why) => _ = self.failed.get_or_insert_with(|| fault(why)),
            Happened::Done(..) => self.arrived += 1,
            Happened::LeftOut(why) if LeftOut::AGAIN.contains(why) => self.again += 1,
            _ => {}
        }
        self.task.update(|progress| {
            let moved = progress.moved();
            match &event.what {
                Happened::Same => moved.entries_same += 1,
                Happened::Done(..) => {
                    moved.files_done += 1;
                    moved.current = shown();
                }
                Happened::Made(_) => moved.entries_made += 1,
                Happened::Would(..) => moved.entries_would += 1,
                Happened::Extra(_) => moved.entries_deleted += 1,
                Happened::Failed(why) => {
                    moved.entries_failed += 1;
                    progress.note(&fault(why));
                }
                Happened::LeftOut(why) => {
                    moved.entries_left_out += 1;
                    progress.note(&format!("{}: left out: {}", shown(), left_out(*why)));
                }
                Happened::Again => {
                    progress.note(&format!("{}: it changed while it was read and is sent again", shown()));
                }
            }
        });
    }

    fn tick(&mut self, moved: u64, kept: u64) -> bool {
        self.task.update(|progress| {
            let numbers = progress.moved();
            self.arrived += moved.saturating_sub(numbers.moved_bytes);
            (numbers.moved_bytes, numbers.kept_bytes) = (moved, kept);
        });
        !self.task.interrupt.raised()
    }
}

impl Patient for Carry<'_> {
    fn arrived(&self) -> u64 {
        self.arrived
    }

    fn stopped(&self) -> bool {
        self.task.interrupt.raised()
    }

    fn lost(&mut self, why: &str) {
        self.task.update(|progress| {
            progress.note(&format!("{why}; trying again"));
            let moved = progress.moved();
            // Each connection tells of every entry, but not again of what has moved over the one before.
            (moved.entries_same, moved.entries_would, moved.entries_failed) = (0, 0, 0);
            moved.entries_left_out -= self.again;
            if self.dry_run {
                moved.entries_deleted = 0;
            }
        });
        (self.failed, self.again) = (None, 0);
    }
}

/// The directory of journals, or a note why there is none.
fn journals(task: &Task) -> Option<std::os::fd::OwnedFd> {
    let journals = transfer::journals();
    if let Err(error) = &journals {
        task.update(|progress| {
            progress.note(&format!("no journal can be kept: {}; what is cut begins anew", error.text()));
        });
    }
    journals.ok()
}

/// What was asked for is told with the task, to be asked for once more.
fn told(task: &Task, options: &Value) {
    task.update(|progress| progress.options = Some(options.clone()));
}

/// Sends files and directories to a place.
///
/// # Errors
/// [`Error::Usage`], [`Error::System`], and those of the way and the transfer; [`Error::Incomplete`]: some entries failed.
pub fn send(task: &Arc<Task>, from: &[PathBuf], to: &Place, how: How, tasks: &Tasks) -> Result<(), Error> {
    told(task, &how.options(Value::Null));
    tasks.begun();
    let sources = from.iter().map(|path| Local::find(path)).collect::<Result<Vec<_>, _>>()?;
    let mut client = Dialer::to(&to.peer, log_to(task))?.client(task.stop())?;
    task.update(|progress| progress.path = client.path().unwrap_or_default());
    let (counted, of) = (task.clone(), sources.clone());
    let count = move || {
        let total = bytes(&of);
        counted.update(|progress| progress.moved().total_bytes = Some(total));
    };
    // Only for the time that is left.
    let _ = std::thread::Builder::new().name("count".into()).spawn(count);
    let dry_run = how.dry_run;
    let sending = Sending::new(&mut client, sources, to, how)?;
    let mut carry = Carry::new(task, dry_run);
    let outcome = drive(&mut carry, |carry| sending.run(&mut client, carry))?;
    carry.close(&outcome)
}

/// Gets places of one peer into a directory, or one of them under a new name.
///
/// # Errors
/// As [`send`].
pub fn get(task: &Arc<Task>, from: &[Place], to: &Path, how: How, tasks: &Tasks) -> Result<(), Error> {
    told(task, &how.options(Value::Null));
    tasks.begun();
    let dry_run = how.dry_run;
    let fetching = Fetching::new(from, to, journals(task), how)?;
    let mut client = Dialer::to(&task.peer, log_to(task))?.client(task.stop())?;
    task.update(|progress| progress.path = client.path().unwrap_or_default());
    let total = fetching.bytes(&mut client)?;
    task.update(|progress| progress.moved().total_bytes = Some(total));
    fetching.sweep(&|line| task.update(|progress| progress.note(line)));
    let mut carry = Carry::new(task, dry_run);
    let outcome = drive(&mut carry, |carry| fetching.run(&mut client, carry))?;
    carry.close(&outcome)
}

/// A mirror.
struct Mirrored {
    task: Arc<Task>,
    /// All was the same once.
    settled: bool,
    dry_run: bool,
}

/// It is tried again.
fn waits(task: &Task, failure: &Error, pause: Duration) {
    let line = format!("{}; again in {} s", failure.text(), pause.as_secs());
    task.update(|progress| {
        progress.state = "waiting";
        progress.note(&line);
    });
}

impl Face for Mirrored {
    type Failure = Error;

    fn carry(&mut self, once: &mut dyn FnMut(&mut dyn Watcher) -> Result<Outcome, FilesError>) -> Result<bool, Error> {
        self.task.update(|progress| progress.moved = Some(Default::default()));
        let mut carry = Carry::new(&self.task, self.dry_run);
        let outcome = drive(&mut carry, |carry| once(carry))?;
        carry.close(&outcome).map(|()| true)
    }

    fn renamed(&mut self, old: &RelPath, new: &RelPath) {
        self.say(&format!("{} has the name {} now", escape(old.bytes()), escape(new.bytes())));
    }

    fn say(&mut self, line: &str) {
        self.task.update(|progress| progress.note(line));
    }

    fn ask(&mut self, _: &str) -> bool {
        false
    }

    fn stopped(&self) -> bool {
        self.task.interrupt.raised()
    }

    fn resting(&mut self, same: bool) {
        self.settled |= same;
        self.task.update(|progress| progress.state = if same { "watching" } else { "waiting" });
    }

    fn failed(&mut self, failure: Error, pause: &mut dyn FnMut() -> Duration) -> Result<(), Error> {
        if self.stopped() {
            return Ok(());
        }
        if !failure.passes() && !matches!(failure, Error::Incomplete(_)) {
            return Err(failure);
        }
        waits(&self.task, &failure, pause());
        Ok(())
    }
}

/// How a mirror begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Begins {
    /// It is the first run.
    pub init: bool,
    /// It follows changes until it is cancelled.
    pub watch: bool,
    /// It has followed them before, and nobody waits for its first run.
    pub again: bool,
}

fn opened(task: &Arc<Task>, ends: &Ends, how: How, init: bool) -> Result<Mirror<Mirrored>, Error> {
    let client = Dialer::to(&ends.peer.peer, log_to(task))?.client(task.stop())?;
    task.update(|progress| progress.path = client.path().unwrap_or_default());
    let face = Mirrored { task: task.clone(), settled: false, dry_run: how.dry_run };
    Mirror::open(ends, client, journals(task), how, init, face)
}

/// Makes a directory like another, one of which is at a peer, once or until it is cancelled. One that has followed changes waits where it cannot
/// go on, for a disk may be away as a peer may, and is opened anew; it is in `kept` until it fails.
///
/// # Errors
/// As [`Mirror::open`], and those of the first run. Later ones only where more would be deleted than may be.
pub fn mirror(task: &Arc<Task>, ends: &Ends, how: How, begins: Begins, kept: &Mirrors) -> Result<(), Error> {
    let Begins { mut init, watch, again: mut followed } = begins;
    let options = |init| how.options(json!({ "watch": watch, "init": init }));
    told(task, &options(init));
    let keep = || {
        if let Err(error) = kept.keep(task, &options(false)) {
            let line = format!("it will not go on when the service starts anew: {}", error.text());
            task.update(|progress| progress.note(&line));
        }
    };
    if followed {
        keep();
    }
    let mut pause = Duration::ZERO;
    loop {
        let mut run = || {
            let mut mirror = opened(task, ends, how.clone(), init)?;
            // Both are marked now.
            init = false;
            told(task, &options(false));
            if !watch {
                return mirror.once().map(drop);
            }
            keep();
            let ran = mirror.watch(task.wake());
            if mirror.face.settled {
                (followed, pause) = (true, Duration::ZERO);
            }
            ran
        };
        let failure = match run() {
            Err(failure) if watch && !task.interrupt.raised() => failure,
            ended => return ended,
        };
        let too_many = matches!(&failure, Error::Files(FilesError::Refused(fault)) if fault.kind == FaultKind::Limit);
        if too_many || !followed {
            if let Err(error) = kept.release(task) {
                task.update(|progress| progress.note(&error.text()));
            }
            return Err(failure);
        }
        pause = (pause * 2).clamp(QUIET, SCAN);
        waits(task, &failure, pause);
        let rest = Timespec::try_from(pause).ok();
        // Readable from the moment on when it is cancelled.
        let _ = poll(&mut [PollFd::from_borrowed_fd(task.wake(), PollFlags::IN)], rest.as_ref());
        if task.interrupt.raised() {
            return Ok(());
        }
    }
}

/// Has a place mounted, by a process of its own, until it is cancelled and no program has anything open there, or until somebody else
/// unmounts it. What waits in a mount that its own process serves cannot be killed, and this one may be asked to send what is there.
///
/// # Errors
/// [`Error::Mounting`]: what that process says; [`Error::System`].
pub fn mounted(task: &Arc<Task>, source: &str, dir: &Path, how: mount::How) -> Result<(), Error> {
    let failed = |error: io::Error| Error::system("the process of a mount", error);
    let mut command = Command::new("/proc/self/exe");
    command.arg0("linkspand").arg("mount").args(how.writable.then_some("--rw"));
    command.args(["--", source]).arg(dir).arg(how.data.as_millis().to_string());
    // Ctrl-C at a terminal is for the service, whose word is the input of the mount's process.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let (mut input, output) = (child.stdin.take(), child.stdout.take());
    let mut output = output.ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
    let (mut said, mut text, mut part) = (None, Vec::new(), [0; 1024]);
    loop {
        let mut ready = [PollFd::from_borrowed_fd(task.wake(), PollFlags::IN), PollFd::new(&output, PollFlags::IN)];
        let _ = poll(&mut ready, None);
        let says = !ready[1].revents().is_empty();
        task.drain();
        if let (true, Some(input)) = (task.interrupt.raised(), &mut input) {
            let _ = input.write_all(b"\n");
        }
        match if says { output.read(&mut part).unwrap_or(0) } else { continue } {
            0 => break,
            more => text.extend_from_slice(&part[..more]),
        }
        while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            match String::from_utf8_lossy(&line).trim_end().split_once(' ') {
                Some(("note", line)) => task.update(|progress| progress.note(line)),
                Some(("error", line)) => said = Some(line.to_owned()),
                _ => task.update(|progress| progress.state = "mounted"),
            }
        }
    }
    drop(input);
    let status = child.wait().map_err(failed)?;
    match said {
        Some(text) => Err(Error::Mounting(text)),
        None if status.success() => Ok(()),
        None => {
            let _ = mount::detach_dead(dir);
            Err(failed(io::Error::other(format!("it has ended: {status}"))))
        }
    }
}

fn paired(task: &Task, paired: Paired) {
    let (name, calls_itself) = (paired.peer.name, paired.says);
    let with = PairedWith { name, calls_itself, fingerprint: paired.fingerprint, confirmed: paired.confirmed };
    task.update(|progress| progress.paired = Some(with));
}

/// A join line that waits.
///
/// # Errors
/// [`Error::Pair`], [`Error::Fabric`].
pub fn offer(ring: Keyring, say: &Say) -> Result<PairingOffer, Error> {
    Ok(PairingOffer::open(Config::from_env()?, Arc::new(ring), log(say))?)
}

/// Waits until somebody has joined with the line.
///
/// # Errors
/// [`Error::Pair`].
pub fn offered(task: &Arc<Task>, offer: PairingOffer, names: &Names) -> Result<(), Error> {
    task.update(|progress| progress.state = "waiting");
    paired(task, offer.wait(names, &task.stop())?);
    Ok(())
}

/// Joins with a line.
///
/// # Errors
/// [`Error::Pair`], [`Error::Keys`], [`Error::Fabric`].
pub fn joined(task: &Arc<Task>, line: &JoinLine, names: &Names) -> Result<(), Error> {
    let ring = Arc::new(Keyring::open_or_make()?.0);
    paired(task, join(Config::from_env()?, &ring, log_to(task), line, names, &task.stop())?);
    Ok(())
}

/// A join line as it is written.
///
/// # Errors
/// [`Error::Pair`].
pub fn join_line(text: &str) -> Result<JoinLine, Error> {
    Ok(JoinLine::parse(text).map_err(PairError::from)?)
}

#[cfg(test)]
mod tests;
