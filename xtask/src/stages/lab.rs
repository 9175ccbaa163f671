//! `cargo xtask lab`: builds the runner of virtual machines and what it puts into guests, then runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::Machine;
use crate::run::{self, Outcome, SKIP};

/// What a command needs beside the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    /// Nothing.
    Runner,
    /// The virtual cable.
    Cable,
    /// Our own programs, which guests run.
    Programs,
}

/// Tests of the kernel's own stack run nothing of ours, and a shell is for drivers under test: those who work on drivers need
/// not wait for the release build of everything.
fn needs(words: &[&str]) -> Needs {
    let (command, mut rest) = (words.first().copied().unwrap_or_default(), words.iter().skip(1));
    let mut tests = Vec::new();
    while let Some(word) = rest.next() {
        match *word {
            "--once" => {}
            option if option.starts_with('-') => drop(rest.next()),
            test => tests.push(test),
        }
    }
    match command {
        "run" if tests.iter().all(|test| test.starts_with("tb-")) => Needs::Cable,
        "run" => Needs::Programs,
        "shell" if words.contains(&"--sys") => Needs::Programs,
        "shell" | "fixtures" => Needs::Cable,
        _ => Needs::Runner,
    }
}

/// Builds, then runs the lab with these words.
pub(crate) fn lab(root: &Path, words: &[&str]) -> Outcome {
    match build(root, needs(words)).and_then(|mut lab| {
        lab.args(words);
        lab.status().map_err(|e| format!("the lab did not start: {e}"))
    }) {
        Err(why) => Outcome::Failed(why),
        Ok(status) => match status.code() {
            Some(0) => Outcome::Done,
            Some(code) if code == i32::from(SKIP) => Outcome::Skipped("see the line above".to_owned()),
            _ => Outcome::Failed(format!("lab {} ended with {status}", words.join(" "))),
        },
    }
}

/// The runner as a command that knows where everything lies.
fn build(root: &Path, needs: Needs) -> Result<Command, String> {
    let (target, built) = (run::target_dir(root), Machine::Native.built(root));
    let beside = if needs == Needs::Programs || run::is_dev() {
        super::compile(root)?
    } else {
        let mut cargo = run::cargo(root);
        cargo.args(["build", "--release", "--quiet", "-p", "linkspan-lab"]);
        if needs == Needs::Cable {
            cargo.args(["-p", "linkspan-vcable"]);
        }
        run::must(&mut cargo)?;
        built.clone()
    };
    let lean = |file: PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        super::lean(&target.join("lab/programs"), &file, &name)
    };
    // Guests run it too.
    let mut lab = Command::new(lean(beside.join("linkspan-lab"))?);
    lab.current_dir(root).env("CARGO_TARGET_DIR", &target);
    if needs >= Needs::Cable {
        lab.env("VCABLE", beside.join("vcable"));
    }
    if needs == Needs::Programs {
        lab.env("LSPAN", lean(built.join("lspan"))?);
        lab.env("LINKSPAND", lean(built.join("linkspand"))?);
        lab.env("PLUGIN", lean(built.join("liblinkspan_nccl.so"))?);
        lab.env("DEBS", crate::package::place(root));
        lab.env("VERBS", lean(beside.join("examples/conformance"))?);
        lab.env("RINGTEST", lean(beside.join("examples/ringtest"))?);
        lab.env("CABLES", lean(beside.join("examples/cables"))?);
        if run::which("cc").is_some() {
            lab.env("PLUGIN_HOST", super::compile_plugin_host(root)?);
        }
        if run::which("cc").is_some() && run::which("c++").is_some() {
            lab.envs(crate::capi::ring_programs(root)?);
        }
    }
    Ok(lab)
}

#[cfg(test)]
mod tests;
