//! `lspan run`: starts a command with what NCCL and RCCL need, and says at its end which paths were used.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::thread;

use linkspan_doctor::costs;
use linkspan_fabric::Config;
use linkspan_fabric::stats::RunFolder;
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::used::Used;
use super::{Job, line, peers};
use crate::cli::RunArgs;
use crate::exit::{Exit, Failure};

/// Signals that are passed on.
const PASSED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Where launchers say which process of its host a rank is: torchrun, Slurm, Open MPI, MPICH and Intel MPI.
const LOCAL_RANKS: [&str; 4] = ["LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"];

/// Runs the command. Ends this process as the command ended; what is returned is why it was not run.
pub(crate) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let first = LOCAL_RANKS.iter().all(|name| std::env::var(name).map_or(true, |rank| rank == "0"));
    let job = Job::here();
    let refusals = job.refusals();
    if !refusals.is_empty() {
        let text = refusals.join("\nlspan: ");
        return Err(refused(format!("LS2031 not run, because it cannot work:\nlspan: {text}")));
    }
    let pages = pages(args.strict)?;
    if first {
        before(&job);
    }
    let (program, rest) = args.command.split_first().ok_or_else(|| refused("LS2032 no command to run".into()))?;
    let mut command = Command::new(program);
    command.args(rest).envs(job.settings.iter().map(|one| (one.name, &one.value)));
    if args.strict {
        command.env("LINKSPAN_STRICT", "1");
    }
    if let Some(folder) = &pages {
        command.env("LINKSPAN_STATS_DIR", folder.path());
    }
    let status = start(&mut command, &program.to_string_lossy())?;
    let code = after(status, pages, first, args.strict);
    end(status, code)
}

fn refused(why: String) -> Failure {
    Failure::new(Exit::NotRun, why)
}

/// A folder for the pages of this job, below the usual one, so that `lspan stats` shows it.
fn pages(strict: bool) -> Result<Option<RunFolder>, Failure> {
    let why = match Config::from_env()?.stats_dir {
        Some(dir) => match RunFolder::make(&dir) {
            Ok(folder) => return Ok(Some(folder)),
            Err(error) => format!("statistics in {}: {error}", dir.display()),
        },
        None => "LINKSPAN_STATS_DIR=off".to_owned(),
    };
    if strict {
        return Err(refused(format!("LS2033 {why}: without statistics --strict sees no downgrade")));
    }
    eprintln!("lspan: {why}: what the job used will not be known");
    Ok(None)
}

/// What is set, what each peer's path will be, and what is wrong.
fn before(job: &Job) {
    for one in &job.settings {
        eprintln!("lspan: {}={}   {}", one.name, one.value, one.why);
    }
    if let Some(plugin) = job.snapshot.plugin() {
        eprintln!("lspan: plugin {plugin}");
    }
    eprintln!("lspan: paths, as far as {} can tell:", job.snapshot.host());
    let lines = peers::lines(&job.snapshot);
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, way) in lines {
        eprintln!("lspan:   {name:width$}   {way}");
    }
    for note in &job.late {
        eprintln!("lspan: {note}");
    }
    for finding in costs(&job.report) {
        eprintln!("lspan: {}", line(finding));
    }
}

/// Starts it, passes signals on to it and waits for its end.
fn start(command: &mut Command, program: &str) -> Result<ExitStatus, Failure> {
    // A signal that is ignored, as nohup(1) has it, stays so for the command too.
    let heeded = PASSED.into_iter().filter(|signal| !ignored(*signal));
    let mut signals = Signals::new(heeded).map_err(|error| Failure::system("a handler for signals", &error))?;
    let (tell, pid) = mpsc::channel();
    let pass = move || {
        let Ok(pid) = pid.recv() else { return };
        for signal in signals.forever() {
            // The terminal has sent it to the command too.
            let twice = matches!(signal, SIGINT | SIGQUIT) && foreground();
            if let (false, Some(signal)) = (twice, Signal::from_named_raw(signal)) {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    };
    let passes = thread::Builder::new().name("signals".into()).spawn(pass);
    passes.map_err(|error| Failure::system("a thread", &error))?;
    let mut child = command.spawn().map_err(|error| {
        let (exit, hint) = match error.kind() {
            ErrorKind::NotFound => (Exit::NotFound, "; it is neither a file nor in PATH"),
            _ => (Exit::NotStarted, ""),
        };
        Failure::new(exit, format!("LS2034 {program}: {error}{hint}"))
    })?;
    let _ = tell.send(Pid::from_child(&child));
    child.wait().map_err(|error| Failure::system("waiting for the command", &error))
}

/// Whether the signal is ignored (proc(5), SigIgn).
pub(crate) fn ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

/// Whether our process group is the one that the terminal's keys reach.
fn foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|tty| rustix::termios::tcgetpgrp(&tty).is_ok_and(|group| group == rustix::process::getpgrp()))
}

/// Says what was used; the code that the process ends with, where it ended by itself.
fn after(status: ExitStatus, pages: Option<RunFolder>, first: bool, strict: bool) -> i32 {
    let code = status.code().unwrap_or(0);
    let Some(folder) = pages else { return code };
    let used = match folder.read() {
        Ok(pages) => Used::of(&pages),
        Err(error) => {
            eprintln!("lspan: statistics of the job: {error}");
            return if strict && code == 0 { Exit::Degraded as i32 } else { code };
        }
    };
    if first || used.downgrades > 0 {
        for line in used.text().lines() {
            eprintln!("lspan: {line}");
        }
    }
    if strict && code == 0 && used.downgrades > 0 {
        eprintln!("lspan: --strict: exit code 3 in place of 0");
        return Exit::Degraded as i32;
    }
    code
}

/// Ends as the command did: with its code, or by its signal.
fn end(status: ExitStatus, code: i32) -> ! {
    if let Some(signal) = status.signal() {
        // The command has left its own core file, if any.
        let none = rustix::process::Rlimit { current: Some(0), maximum: None };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        // As shells say it, where a signal does not end a process by default.
        std::process::exit(128 + signal);
    }
    std::process::exit(code)
}
