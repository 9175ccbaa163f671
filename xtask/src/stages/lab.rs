//! `cargo xtask lab`: builds the runner of virtual machines and what it puts into guests, then runs it.

use std::path::Path;
use std::process::Command;

use crate::run::{self, Outcome, SKIP};

/// Words whose guests run our own programs.
const WITH_GUESTS: [&str; 3] = ["run", "shell", "fixtures"];

/// Builds, then runs the lab with these words.
pub(crate) fn lab(root: &Path, words: &[&str]) -> Outcome {
    let guests = words.first().is_some_and(|word| WITH_GUESTS.contains(word));
    match build(root, guests).and_then(|mut lab| {
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
fn build(root: &Path, guests: bool) -> Result<Command, String> {
    let mut cargo = run::cargo(root);
    cargo.args(["build", "--release", "--quiet", "-p", "linkspan-lab"]);
    if guests {
        cargo.args(["-p", "linkspan-vcable", "-p", "lspan", "-p", "linkspan-nccl"]);
    }
    run::must(&mut cargo)?;
    if guests {
        let mut cargo = run::cargo(root);
        cargo.args(["build", "--release", "--quiet", "-p", "linkspan-verbs", "--example", "conformance"]);
        run::must(&mut cargo)?;
        let mut cargo = run::cargo(root);
        run::must(cargo.args(["build", "--release", "--quiet", "-p", "linkspan-tbring", "--example", "ringtest"]))?;
    }
    let bin = run::target_dir(root).join("release");
    let mut lab = Command::new(bin.join("linkspan-lab"));
    lab.current_dir(root).env("CARGO_TARGET_DIR", run::target_dir(root));
    if guests {
        lab.env("VCABLE", bin.join("vcable")).env("LSPAN", bin.join("lspan"));
        lab.env("PLUGIN", bin.join("liblinkspan_nccl.so"));
        lab.env("VERBS", bin.join("examples/conformance"));
        lab.env("RINGTEST", bin.join("examples/ringtest"));
        if run::which("cc").is_some() {
            lab.env("PLUGIN_HOST", super::compile_plugin_host(root)?);
        }
    }
    Ok(lab)
}
