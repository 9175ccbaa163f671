//! The matrix over the ranks that a launcher has started. Rank 0 says whose turn it is; every rank serves, and measures when it has the turn.

use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, fs, io};

use linkspan_perf::Interrupt;
use linkspan_service::rendezvous;
use linkspan_user::suite::host;

use super::super::once::{self, Once};
use super::folder::{FORMAT, Folder, Member, Outcome, Turn};
use super::launcher::Launched;
use super::server::Server;
use super::{Cell, HOSTS, Matrix};
use crate::child::encode;
use crate::cli::MatrixArgs;
use crate::exit::{Exit, Failure};
use crate::out::Progress;
use crate::signals;

/// How often rank 0 shows that it lives.
const BEAT: Duration = Duration::from_secs(1);

/// How long it may not. NFS may keep a file's old state for a minute (nfs(5), acregmax).
const SILENCE: Duration = Duration::from_secs(90);

/// How often the folder is looked at: first often, for a matrix of short measurements, then as a shared file system can bear.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// How much later than the end of its measurement another rank's result may be seen.
const LATE: Duration = Duration::from_secs(5);

/// How long ranks may take to read the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Most of a message of another rank that is shown, characters.
const SAID: usize = 400;

const KEY_FILE: &str = "LINKSPAN_PSK_FILE";

/// Takes part; rank 0 gets the result, the others none.
pub(super) fn run(args: &MatrixArgs, job: &Launched) -> Result<Option<Matrix>, Failure> {
    if !(2..=HOSTS).contains(&job.size) {
        let why = format!(
            "LS0747 {} ranks by {}; a matrix has 2 to {HOSTS}: start one on each host, as `mpirun --map-by ppr:1:node`, \
             `srun --ntasks-per-node=1` and `torchrun --nproc-per-node=1` do",
            job.size, job.by
        );
        return Err(Failure::new(Exit::Usage, why));
    }
    let interrupt = signals::interrupt()?;
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => env::current_dir().map_err(|error| Failure::system("the working directory", &error))?,
    };
    let rank = Rank { args, job, interrupt, folder: Folder::of(&dir, &job.job) };
    match job.rank {
        0 => rank.first().map(Some),
        _ => rank.other().map(|()| None),
    }
}

struct Rank<'a> {
    args: &'a MatrixArgs,
    job: &'a Launched,
    interrupt: Interrupt,
    folder: Folder,
}

/// The turns as rank 0 gives them. The folder goes with the value.
struct Turns {
    turn: Arc<Mutex<Turn>>,
    folder: Folder,
    beat: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Turns {
    fn start(folder: &Folder) -> io::Result<Turns> {
        let turn = Arc::new(Mutex::new(Turn::default()));
        folder.put_turn(&Turn::default())?;
        let (stop, stopped) = channel();
        let (beaten, at) = (Arc::clone(&turn), folder.clone());
        let beat = move || {
            while stopped.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                let mut turn = beaten.lock().unwrap_or_else(PoisonError::into_inner);
                turn.beat += 1;
                let _ = at.put_turn(&turn);
            }
        };
        let thread = thread::Builder::new().name("beat".into()).spawn(beat)?;
        Ok(Turns { turn, folder: folder.clone(), beat: Some((stop, thread)) })
    }

    fn give(&self, change: impl FnOnce(&mut Turn)) -> io::Result<()> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut turn);
        self.folder.put_turn(&turn)
    }

    /// Ends the turns of all, and waits until those ranks that are there have read it.
    fn end(&self, why: &str, size: usize) {
        let _ = self.give(|turn| turn.end = Some(why.to_owned()));
        let until = Instant::now() + FAREWELL;
        let mut look = Look::new();
        while Instant::now() < until && (1..size).any(|rank| self.folder.member(rank).is_some()) {
            look.wait();
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.beat.take() {
            drop(stop);
            let _ = thread.join();
        }
        self.folder.remove();
    }
}

/// A pace of looking.
struct Look(Duration);

impl Look {
    fn new() -> Look {
        Look(LOOK.0)
    }

    fn wait(&mut self) {
        thread::sleep(self.0);
        self.0 = (self.0 * 5 / 4).min(LOOK.1);
    }
}

impl Rank<'_> {
    fn first(&self) -> Result<Matrix, Failure> {
        let (path, size) = (self.folder.path().display(), self.job.size);
        self.folder.make().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::new(
                Exit::Failed,
                format!(
                    "LS0748 {path} is there already: another matrix of {} by {} runs in it, or one was killed and left it; \
                     give each its own --dir, or remove it",
                    self.job.job, self.job.by
                ),
            ),
            _ => Failure::system(&path.to_string(), &error),
        })?;
        let turns = Turns::start(&self.folder).map_err(|error| {
            self.folder.remove();
            Failure::system(&path.to_string(), &error)
        })?;
        let result = self.lead(&turns);
        let why = match &result {
            Ok(found) if found.interrupted => "interrupted",
            Ok(_) => "",
            Err(failure) => &failure.message,
        };
        turns.end(why, size);
        result
    }

    fn lead(&self, turns: &Turns) -> Result<Matrix, Failure> {
        let mut progress = Progress::new();
        let failed = |error: io::Error| Failure::system(&self.folder.path().display().to_string(), &error);
        if env::var_os(KEY_FILE).is_none() {
            self.folder.put_key(new_key()?.as_bytes()).map_err(failed)?;
        }
        let (_server, own) = self.serve();
        self.folder.put_member(0, &own).map_err(failed)?;
        progress.say(&format!("waiting for {} ranks ...", self.job.size));
        let members = self.gather(own)?;
        let names = names(&members);
        let notes = members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.version != members[0].version)
            .map(|(rank, member)| {
                format!(
                    "rank {rank} on {} runs lspan {}, rank 0 {}",
                    clip(&member.host),
                    clip(&member.version),
                    members[0].version
                )
            })
            .collect();
        let mut cells = Vec::new();
        let mut number = 0;
        for to in 0..members.len() {
            for from in (0..members.len()).filter(|from| *from != to) {
                if self.interrupt.raised() {
                    return Ok(Matrix { names, cells, notes, interrupted: true });
                }
                progress.say(&format!("measuring {} to {} ...", names[from], names[to]));
                number += 1;
                turns.give(|turn| (turn.number, turn.pair) = (number, Some((from, to)))).map_err(failed)?;
                let result = match from {
                    0 => self.measure(&members[0], &members[to]),
                    _ => self.outcome(number, from),
                };
                cells.push(Cell { from, to, result });
            }
        }
        progress.clear();
        Ok(Matrix { names, cells, notes, interrupted: self.interrupt.raised() })
    }

    /// All ranks, once they are there.
    fn gather(&self, own: Member) -> Result<Vec<Member>, Failure> {
        let (until, mut look) = (Instant::now() + self.args.timeout, Look::new());
        let mut members: Vec<Option<Member>> = vec![None; self.job.size];
        members[0] = Some(own);
        loop {
            for (rank, member) in members.iter_mut().enumerate().filter(|(_, member)| member.is_none()) {
                let Some(found) = self.folder.member(rank) else { continue };
                fits(rank, &found, self.job.size)?;
                *member = Some(found);
            }
            if members.iter().all(Option::is_some) {
                return Ok(members.into_iter().flatten().collect());
            }
            if self.interrupt.raised() {
                return Err(Failure::new(Exit::Interrupted, "interrupted before all ranks were there"));
            }
            if Instant::now() >= until {
                let missing: Vec<String> = members
                    .iter()
                    .enumerate()
                    .filter(|(_, member)| member.is_none())
                    .map(|(rank, _)| rank.to_string())
                    .collect();
                let why = format!(
                    "LS0749 of {} ranks by {} these did not come within {} s: {}; does every host see {} (--dir), and does lspan run there?",
                    self.job.size,
                    self.job.by,
                    self.args.timeout.as_secs_f64(),
                    missing.join(", "),
                    self.folder.path().display()
                );
                return Err(Failure::new(Exit::NoPeer, why));
            }
            look.wait();
        }
    }

    /// What another rank found in this turn.
    fn outcome(&self, number: usize, rank: usize) -> Outcome {
        // The next turn begins when this one's measurement has certainly ended: two at a time would be wrong.
        let limit = self.limit() + LATE;
        let (until, mut look) = (Instant::now() + limit, Look::new());
        loop {
            if let Some(outcome) = self.folder.outcome(number) {
                return outcome.map(tame).map_err(|why| clip(&why));
            }
            if self.interrupt.raised() {
                return Err("interrupted".into());
            }
            if Instant::now() >= until {
                return Err(format!("rank {rank} did not answer within {} s", limit.as_secs_f64()));
            }
            look.wait();
        }
    }

    fn other(&self) -> Result<(), Failure> {
        let (rank, path) = (self.job.rank, self.folder.path().display().to_string());
        let Some(first) = self.wait_for_first()? else {
            let why = format!(
                "LS0750 rank 0 has made no folder {path} within {} s: does its host see the same one here (--dir)?",
                self.args.timeout.as_secs_f64()
            );
            return Err(Failure::new(Exit::NoPeer, why));
        };
        let fit = fits(0, &first, self.job.size);
        let (server, own) = match &fit {
            Ok(()) => self.serve(),
            // Rank 0 says so too, when it reads what this one is.
            Err(_) => (None, self.member()),
        };
        self.folder.put_member(rank, &own).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::new(
                Exit::Failed,
                format!("LS0751 {path} has a rank {rank} already: two jobs share the folder; give each its own --dir"),
            ),
            _ => Failure::system(&path, &error),
        })?;
        fit?;
        let result = self.turns(&own);
        self.folder.leave(rank);
        drop(server);
        result
    }

    fn wait_for_first(&self) -> Result<Option<Member>, Failure> {
        let (until, mut look) = (Instant::now() + self.args.timeout, Look::new());
        while Instant::now() < until {
            if let Some(first) = self.folder.member(0) {
                return Ok(Some(first));
            }
            if self.interrupt.raised() {
                return Err(Failure::new(Exit::Interrupted, "interrupted before rank 0 was there"));
            }
            look.wait();
        }
        Ok(None)
    }

    /// Takes this rank's turns until the end.
    fn turns(&self, own: &Member) -> Result<(), Failure> {
        let (mut last, mut seen, mut done) = (Turn::default(), Instant::now(), 0);
        let mut look = Look::new();
        loop {
            let turn = self.folder.turn();
            if let Some(turn) = turn.filter(|turn| *turn != last) {
                seen = Instant::now();
                if turn.number != last.number {
                    look = Look::new();
                }
                last = turn;
            }
            match (&last.end, last.pair) {
                (Some(why), _) if why.is_empty() => return Ok(()),
                (Some(why), _) => {
                    return Err(Failure::new(Exit::Failed, format!("LS0752 rank 0 has ended it: {}", clip(why))));
                }
                (None, Some((from, to))) if from == self.job.rank && last.number > done => {
                    done = last.number;
                    let outcome = match self.folder.member(to) {
                        Some(to) => self.measure(own, &to),
                        None => Err(format!("rank {to} has gone")),
                    };
                    // The folder goes only when rank 0 has ended.
                    let _ = self.folder.put_outcome(done, &outcome);
                    // Nothing was read meanwhile, which may have been long.
                    seen = Instant::now();
                }
                _ => {}
            }
            if self.interrupt.raised() {
                return Err(Failure::new(Exit::Interrupted, "interrupted"));
            }
            if seen.elapsed() > SILENCE || !self.folder.is_there() {
                let why = format!(
                    "LS0753 rank 0 is gone from {}: it was killed, or its host sees another folder",
                    self.folder.path().display()
                );
                return Err(Failure::new(Exit::Failed, why));
            }
            look.wait();
        }
    }

    /// The cluster key of this job: the user's, or the one of rank 0.
    fn secure(&self, command: &mut Command) {
        if env::var_os(KEY_FILE).is_none() {
            command.env(KEY_FILE, self.folder.key());
        }
    }

    fn own(&self, words: &[&str]) -> Result<Command, String> {
        let exe = env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(exe);
        command.args(words);
        self.secure(&mut command);
        Ok(command)
    }

    fn member(&self) -> Member {
        Member {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            size: self.job.size,
            host: host().name,
            place: place(),
            addrs: Vec::new(),
            handle: String::new(),
            error: None,
        }
    }

    /// Starts this rank's server, and says where it waits. One that does not start is told to all, and costs its own cells only.
    fn serve(&self) -> (Option<Server>, Member) {
        let mut own = self.member();
        let command = self.own(&["perf", "serve", "--follow", "--port", "0"]);
        let (server, line) = match command.and_then(Server::start) {
            Ok(ready) => ready,
            Err(why) => {
                own.error = Some(format!("lspan perf serve: {why}"));
                return (None, own);
            }
        };
        // "A, B, for everybody ..."
        own.addrs = line.split(", ").take_while(|word| !word.starts_with("for ")).map(str::to_owned).collect();
        match own.addrs.first().map(|addr| rendezvous::ask(addr, rendezvous::PERF)) {
            Some(Ok(peer)) => own.handle = encode(&peer.handle),
            Some(Err(error)) => own.error = Some(error.to_string()),
            None => own.error = Some("lspan perf serve waits nowhere".into()),
        }
        (Some(server), own)
    }

    /// How long a measurement may take, as `--timeout` says.
    fn limit(&self) -> Duration {
        self.args.duration.saturating_add(self.args.timeout)
    }

    fn measure(&self, own: &Member, to: &Member) -> Outcome {
        if let Some(why) = &to.error {
            return Err(clip(why));
        }
        let peer = reach(own, to)?;
        let duration = format!("{}ms", self.args.duration.as_millis().max(1));
        let words = ["perf", "bw", &peer, "--json", "--size", "1M", "--warmup", "4", "--duration", &duration];
        once::figures(&once::record(self.own(&words)?, self.limit())?, None)
    }
}

/// The first address at which that rank's own server answers. Others may have the same address.
fn reach(own: &Member, to: &Member) -> Result<String, String> {
    let mut last = "it has no address that other hosts reach: see `lspan status` there".to_owned();
    for addr in to.addrs.iter().take(64) {
        let local = addr.starts_with("127.") || addr.starts_with("[::1]") || addr.contains('%');
        if local && own.place != to.place {
            continue;
        }
        match rendezvous::ask(addr, rendezvous::PERF) {
            Ok(peer) if encode(&peer.handle) == to.handle => return Ok(addr.clone()),
            Ok(_) => last = format!("another server answers at {addr}"),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

/// Whether a rank can take part.
fn fits(rank: usize, member: &Member, size: usize) -> Result<(), Failure> {
    if member.format != FORMAT {
        let why = format!(
            "LS0754 rank {rank} on {} runs lspan {}, which does it in another way than lspan {} here: the same version has to be on all hosts",
            clip(&member.host),
            clip(&member.version),
            env!("CARGO_PKG_VERSION")
        );
        return Err(Failure::new(Exit::Failed, why));
    }
    if member.size != size {
        let why = format!(
            "LS0755 rank {rank} on {} is of {} ranks, this one of {size}: two jobs share the folder; give each its own --dir",
            clip(&member.host),
            member.size
        );
        return Err(Failure::new(Exit::Failed, why));
    }
    Ok(())
}

/// Hosts, and where several ranks are on one, which rank.
fn names(members: &[Member]) -> Vec<String> {
    let alone = |host: &str| members.iter().filter(|member| member.host == host).count() == 1;
    let name = |(rank, member): (usize, &Member)| match alone(&member.host) && !member.host.is_empty() {
        true => clip(&member.host),
        false => format!("{}:{rank}", clip(&member.host)),
    };
    members.iter().enumerate().map(name).collect()
}

fn clip(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SAID).collect()
}

fn tame(once: Once) -> Once {
    Once { path: clip(&once.path), downgrades: once.downgrades.iter().take(16).map(|why| clip(why)).collect(), ..once }
}

/// Boot and network namespace.
fn place() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let netns = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{} {}", boot.trim(), netns.display())
}

/// A cluster key for this job alone.
fn new_key() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Exit::Failed, format!("the system's random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
