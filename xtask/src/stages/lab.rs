//! `cargo xtask lab`: builds the runner of virtual machines and what it puts into guests, then runs it.

use std::path::Path;
use std::process::Command;

use crate::run::{self, Outcome, SKIP};

/// Words whose guests run our own programs.
const WITH_GUESTS: [&str; 3] = ["run", "shell", "fixtures"];

/// Sources of the program that plays NCCL's part.
const PLUGIN_HOST: [&str; 14] = [
    "main.c",
    "util.c",
    "net.c",
    "plant.c",
    "group.c",
    "hosts.c",
    "flow.c",
    "bare.c",
    "bench.c",
    "t_setup.c",
    "t_data.c",
    "t_coll.c",
    "t_lines.c",
    "t_life.c",
];

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
            lab.env("PLUGIN_HOST", plugin_host(root, &bin)?);
        }
    }
    Ok(lab)
}

/// Compiles `tests/plugin-host` beside the other programs.
fn plugin_host(root: &Path, bin: &Path) -> Result<std::path::PathBuf, String> {
    let program = bin.join("plugin-host");
    let mut cc = Command::new("cc");
    cc.current_dir(root.join("tests/plugin-host")).args(["-std=c11", "-O2", "-pthread"]).args(PLUGIN_HOST);
    run::must(cc.args(["-ldl", "-o"]).arg(&program))?;
    Ok(program)
}
