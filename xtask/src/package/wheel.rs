//! `package wheel`: the Python package for `pip`, one wheel for every Python from 3.11 on, and the source distribution.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::licences::{Part, notices};
use super::place;
use crate::machine::Machine;
use crate::run::{self, Outcome};
use crate::stages::python::{environment, python3};

/// Oldest C library, in the words of wheels: that of the other packages too.
const POLICY: &str = "manylinux_2_34";

/// What builds and checks.
const TOOLS: [&str; 2] = ["maturin>=1.9,<2", "auditwheel>=6,<7"];

/// How the wheel is tried.
const TRY: &str = "xtask/src/package/try-wheel.sh";

/// Builds the wheel (and from the source distribution another) and installs it where there is no Rust.
pub(super) fn run(root: &Path, machine: &str, sdist: bool) -> Outcome {
    let machine = match Machine::named(root, machine) {
        Ok(machine) => machine,
        Err(why) => return Outcome::Skipped(why),
    };
    if let Err(outcome) = python3() {
        return outcome;
    }
    let bin = place(root).join("python/bin");
    if let Err(why) = environment(&place(root).join("python"), &TOOLS) {
        return Outcome::Skipped(format!("the tools could not be installed: {why}"));
    }
    match make(root, &machine, &bin, sdist) {
        Ok(()) => Outcome::Done,
        Err(why) => Outcome::Failed(why),
    }
}

/// Where wheels for this machine land.
pub(super) fn folder(root: &Path, machine: &str) -> PathBuf {
    let own = machine == std::env::consts::ARCH;
    place(root).join(if own { "wheels".to_owned() } else { format!("wheels-{machine}") })
}

fn make(root: &Path, machine: &Machine, bin: &Path, sdist: bool) -> Result<(), String> {
    let out = folder(root, machine.name());
    let _ = std::fs::remove_dir_all(&out);
    let folder = root.join("bindings/python");
    let legal = Legal::put(root, &folder)?;
    let mut maturin = Command::new(bin.join("python"));
    maturin.args(["-m", "maturin", "build", "--release", "--locked", "--compatibility", POLICY, "--out"]).arg(&out);
    maturin.current_dir(&folder);
    for (name, value) in machine.released(root).get_envs() {
        match value {
            Some(value) => maturin.env(name, value),
            None => maturin.env_remove(name),
        };
    }
    if let Some(target) = machine.target() {
        maturin.args(["--target", target]);
    }
    maturin.env("CARGO_TARGET_DIR", place(root).join("python-build"));
    if sdist {
        // The wheel is then built from what the source distribution holds.
        maturin.arg("--sdist");
    }
    run::must(&mut maturin)?;
    drop(legal);
    let mut script = Command::new("sh");
    script
        .arg(root.join(TRY))
        .arg(bin)
        .arg(POLICY)
        .arg(&out)
        .arg(root.join("debian/tests/transfer.py"))
        .arg(machine.name());
    run::must(&mut script)
}

/// Licences in the folder of the package, where maturin takes them from, for as long as it runs.
struct Legal(Vec<PathBuf>);

impl Legal {
    fn put(root: &Path, folder: &Path) -> Result<Legal, String> {
        let mut legal = Legal(Vec::new());
        let mut put = |name: &str, text: String| {
            let file = folder.join(name);
            std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
            legal.0.push(file);
            Ok::<(), String>(())
        };
        for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let text = std::fs::read_to_string(root.join(name)).map_err(|e| format!("{name}: {e}"))?;
            put(name, text)?;
        }
        put("LICENSE-THIRD-PARTY", notices(&[Part { workspace: folder, packages: &[], edges: "normal" }])?)?;
        Ok(legal)
    }
}

impl Drop for Legal {
    fn drop(&mut self) {
        for file in &self.0 {
            let _ = std::fs::remove_file(file);
        }
    }
}
