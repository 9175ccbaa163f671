//! Child processes that never outlive us.
//!
//! Every one starts through our own program (`guard`), which asks the kernel for SIGKILL at its parent's death
//! (prctl(2), `PR_SET_PDEATHSIG`) and becomes the program that was wanted. The kernel looks at the *thread* that
//! started it, so children are started by the thread that runs a test, which lives as long as they do.

use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use crate::error::{At, Error, Result};

/// A command whose process dies with us.
pub(crate) fn guarded(program: impl AsRef<std::ffi::OsStr>) -> Command {
    // This very program, even where its file has been replaced by a new build meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg("guard").arg(std::process::id().to_string()).arg(program).stdin(Stdio::null());
    command
}

/// `guard PARENT PROGRAM ARGS...`: what [`guarded`] starts.
pub(crate) fn guard(args: &[String]) -> ExitCode {
    let [parent, program, args @ ..] = args else {
        return ExitCode::from(2);
    };
    die_with_parent();
    // The parent may have died before the line above.
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
    if now.as_ref() != Some(parent) {
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(args).exec();
    eprintln!("{program}: {error}");
    ExitCode::from(127)
}

/// The parent may be killed: then this process ends too, with all its children.
pub(crate) fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// Runs to the end; the error holds the last lines.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let out = command.output().at(&shown)?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() {
        return Ok(text);
    }
    let said = format!("{text}{}", String::from_utf8_lossy(&out.stderr));
    Err(Error::Command { command: shown, status: out.status.to_string(), said: tail(&said, 12) })
}

/// Runs to the end; on a terminal the last line it says stands behind `title`.
pub(crate) fn watched(title: &str, command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().at(&shown)?;
    let errors = child.stderr.take().map(|err| std::thread::spawn(move || last_lines(err, |_| {})));
    let tty = std::io::stderr().is_terminal();
    let mut said = Vec::new();
    if let Some(out) = child.stdout.take() {
        said = last_lines(out, |line| {
            if tty {
                let line: String = line.chars().filter(|c| !c.is_control()).take(70).collect();
                eprint!("\r\x1b[K{title}: {line}");
            }
        });
    }
    said.extend(errors.and_then(|thread| thread.join().ok()).unwrap_or_default());
    let status = child.wait().at(&shown)?;
    if tty {
        eprint!("\r\x1b[K");
    }
    if status.success() {
        return Ok(());
    }
    Err(Error::Command { command: shown, status: status.to_string(), said: tail(&said.join("\n"), 25) })
}

/// Reads to the end and keeps the last lines; memory stays bounded whatever is said.
fn last_lines(from: impl Read, mut each: impl FnMut(&str)) -> Vec<String> {
    let mut kept = Vec::new();
    for line in BufReader::new(from).split(b'\n').map_while(std::result::Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        each(&line);
        kept.push(line);
        if kept.len() > 100 {
            kept.drain(..50);
        }
    }
    kept
}

/// The last `count` lines, each on a line of its own behind a line break.
pub(crate) fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| format!("\n    {line}")).collect()
}

/// The words of a command, without our own guard and without long scripts.
pub(crate) fn shown(command: &Command) -> String {
    let mut words: Vec<String> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(|w| w.to_string_lossy().into()).collect();
    if words.get(1).is_some_and(|word| word == "guard") {
        words.drain(..3.min(words.len()));
    }
    let text = words.join(" ").replace('\n', "; ");
    if text.chars().count() > 200 { text.chars().take(200).chain("...".chars()).collect() } else { text }
}

/// Ends a child at once and waits for it.
pub(crate) fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
