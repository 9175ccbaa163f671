//! Running other programs, and what a stage comes to.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit code of a stage that cannot run on this machine: automake's convention for a skipped test.
pub(crate) const SKIP: u8 = 77;

/// What a subcommand comes to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It did what it should.
    Done,
    /// It ran and something is wrong.
    Failed(String),
    /// It cannot run here; the reason names what is missing.
    Skipped(String),
}

impl Outcome {
    /// Done, or the number of problems.
    pub(crate) fn from_problems(problems: &[String]) -> Outcome {
        match problems.len() {
            0 => Outcome::Done,
            n => Outcome::Failed(format!("{n} problem{}", if n == 1 { "" } else { "s" })),
        }
    }
}

/// A cargo command in the root of the tree, by the cargo that runs us.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs to the end with our own output; an error names the command.
pub(crate) fn must(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} ended with {status}", shown(command))),
        Err(e) => Err(format!("{} did not start: {e}", shown(command))),
    }
}

/// Standard output of a command that must succeed.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let out = command.output().map_err(|e| format!("{} did not start: {e}", shown(command)))?;
    if !out.status.success() {
        return Err(format!(
            "{} ended with {}: {}",
            shown(command),
            out.status,
            String::from_utf8_lossy(&out.stderr).trim()
        ));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Where a program of this name is found on PATH (and in sbin, which root's PATH may lack).
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Whether this process runs with uid 0.
pub(crate) fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|uid| uid.trim() == "0")
}

/// Whether stages run and inspect the unoptimised build, which `cargo test` has made already, in place of what is released: with
/// `XTASK_PROFILE=dev`, as the gate says it.
pub(crate) fn is_dev() -> bool {
    std::env::var_os("XTASK_PROFILE").is_some_and(|profile| profile == "dev")
}

/// The directory cargo builds into.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root.join(dir),
        None => root.join("target"),
    }
}

fn shown(command: &Command) -> String {
    let words: Vec<&OsStr> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    words.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
