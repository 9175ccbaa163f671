//! The Python package: built as its users build it, and tested in an environment of its own below `target/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::all;
use crate::run::{self, Outcome};

/// What is installed beside the package, from the index that pip is configured for.
const TOOLS: [&str; 7] = ["maturin>=1.9,<2", "pytest", "pytest-timeout", "mypy", "pyright", "numpy", "uvloop"];

/// Asked of Python before anything is made: 3.11 has the buffer protocol in its stable interface.
const PROBE: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";

/// Whether there is a Python for all this.
pub(crate) fn python3() -> Result<(), Outcome> {
    if run::which("python3").is_none() {
        return Err(Outcome::Skipped("no python3 (Debian: python3 python3-venv)".to_owned()));
    }
    match run::output(Command::new("python3").args(["-c", PROBE])) {
        Ok(_) => Ok(()),
        Err(_) => Err(Outcome::Skipped("python3 is older than 3.11 or has no venv (Debian: python3-venv)".to_owned())),
    }
}

/// Builds the wheel into `place`, or says why there is none.
pub(super) fn wheel_for(root: &Path, place: &Path) -> Result<(), Outcome> {
    python3()?;
    let own = run::target_dir(root).join("python");
    environment(&own.join("venv"), &TOOLS[..1])
        .map_err(|why| Outcome::Skipped(format!("the tools could not be installed: {why}")))?;
    build(root, &own.join("venv/bin"), place).map_err(Outcome::Failed)
}

/// The wheel in a folder.
pub(super) fn built(place: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(place.join("wheels")).ok()?;
    files.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|kind| kind == "whl"))
}

/// Builds the wheel, installs it into an environment, and runs tests and type checkers there.
///
/// With `torch`, its tests run too: three gigabytes more to fetch.
pub(crate) fn run(root: &Path, torch: bool) -> Outcome {
    if let Err(outcome) = python3() {
        return outcome;
    }
    let folder = root.join("bindings/python");
    let place = run::target_dir(root).join("python");
    let venv = place.join("venv");
    let bin = venv.join("bin");
    if let Err(why) = environment(&venv, &TOOLS) {
        return Outcome::Skipped(format!("the tools could not be installed: {why}"));
    }
    if torch && let Err(why) = run::output(pip(&bin).arg("torch")) {
        return Outcome::Skipped(format!("torch could not be installed: {why}"));
    }
    // It may be there from an earlier run.
    let torch = run::output(Command::new(bin.join("python")).args(["-c", "import torch"])).is_ok();
    if !torch {
        println!("python: without torch: its tests are left to cargo xtask python --torch");
    }
    if let Err(why) = wheel(root, &place, &bin) {
        return Outcome::Failed(why);
    }
    let mut pytest = tool(&folder, &bin, "pytest");
    pytest.args(["-p", "no:cacheprovider"]).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut mypy = tool(&folder, &bin, "mypy");
    mypy.arg("--cache-dir").arg(place.join("mypy"));
    let mut pyright = tool(&folder, &bin, "pyright");
    pyright.arg("--pythonpath").arg(bin.join("python"));
    // The stubs against the module as it was built.
    let mut stubs = tool(&folder, &bin, "mypy.stubtest");
    stubs.args(["linkspan", "--concise", "--allowlist"]).arg(folder.join("tests/stubtest-allowlist.txt"));
    stubs.arg("--mypy-config-file").arg(folder.join("pyproject.toml"));
    // It leaves its cache where it runs.
    stubs.current_dir(&place);
    let checked = ["python", "tests", "bench", "recipes"];
    mypy.args(checked);
    pyright.args(checked);
    let lint = |command: &str, args: &[&str]| {
        let mut cargo = run::cargo(&folder);
        cargo.env("CARGO_TARGET_DIR", run::target_dir(root)).arg(command).args(args);
        run::must(&mut cargo)
    };
    all([
        run::must(&mut pytest),
        run::must(&mut mypy),
        run::must(&mut pyright),
        run::must(&mut stubs),
        lint("fmt", &["--check"]),
        lint("clippy", &["--locked", "--features", "extension-module", "--", "-D", "warnings"]),
    ])
}

/// The wheel beside vLLM, in an environment of its own: engines of vLLM, with the connector between them.
pub(crate) fn vllm(root: &Path) -> Outcome {
    if let Err(outcome) = wheel_for(root, &run::target_dir(root).join("python")) {
        return outcome;
    }
    let (folder, place) = (root.join("bindings/python"), run::target_dir(root).join("python"));
    let venv = place.join("vllm");
    let bin = venv.join("bin");
    let mut install = Command::new(bin.join("python"));
    install.arg(folder.join("tests/install_vllm.py"));
    if let Err(why) = environment(&venv, &[]).and_then(|()| run::output(&mut install).map(drop)) {
        return Outcome::Skipped(format!("vLLM could not be installed: {why}"));
    }
    let Some(wheel) = built(&place) else { return Outcome::Failed("maturin left no wheel".to_owned()) };
    if let Err(why) = run::output(pip(&bin).args(["--force-reinstall", "--no-deps"]).arg(wheel)) {
        return Outcome::Failed(why);
    }
    let mut pytest = tool(&folder, &bin, "pytest");
    // An engine takes a minute to start on two processors.
    pytest
        .args(["-p", "no:cacheprovider", "-o", "timeout=1200", "tests/vllm_cases.py"])
        .env("PYTHONDONTWRITEBYTECODE", "1");
    all([run::must(&mut pytest)])
}

fn tool(folder: &Path, bin: &Path, module: &str) -> Command {
    let mut command = Command::new(bin.join("python"));
    command.args(["-m", module]).current_dir(folder);
    command
}

fn pip(bin: &Path) -> Command {
    let mut command = Command::new(bin.join("python"));
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    command
}

/// An environment with these packages in it.
pub(crate) fn environment(venv: &Path, packages: &[&str]) -> Result<(), String> {
    let bin = venv.join("bin");
    if !bin.join("python").is_file() {
        run::output(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
    }
    if packages.is_empty() {
        return Ok(());
    }
    run::output(pip(&bin).args(packages)).map(drop)
}

/// Builds the wheel and installs it.
fn wheel(root: &Path, place: &Path, bin: &Path) -> Result<(), String> {
    build(root, bin, place)?;
    let wheel = built(place).ok_or("maturin left no wheel")?;
    run::output(pip(bin).args(["--force-reinstall", "--no-deps"]).arg(wheel)).map(drop)
}

/// Builds the wheel into `wheels` below `out`. A development build: the tests ask for behaviour, not for speed.
fn build(root: &Path, bin: &Path, out: &Path) -> Result<(), String> {
    let wheels = out.join("wheels");
    let _ = std::fs::remove_dir_all(&wheels);
    let mut maturin = tool(&root.join("bindings/python"), bin, "maturin");
    maturin.args(["build", "--profile", "dev", "--locked", "--out"]).arg(&wheels);
    maturin.env("CARGO_TARGET_DIR", run::target_dir(root));
    run::must(&mut maturin)
}
