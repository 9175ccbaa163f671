//! `cargo xtask fuzz`: builds the targets of `fuzz/` with coverage instrumentation and runs each for a while.
//!
//! The flags are those that cargo-fuzz passes, so that no extra program has to be installed. With a nightly toolchain
//! the targets also run under AddressSanitizer; a stable compiler has the coverage pass but not the sanitizer.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::parts;
use crate::run::{self, Outcome};

/// Coverage as libFuzzer wants it: see <https://llvm.org/docs/LibFuzzer.html> and
/// <https://clang.llvm.org/docs/SanitizerCoverage.html>.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Seconds per target by default.
const SECONDS: u32 = 20;

/// Runs one target or all.
pub(crate) fn run(root: &Path, args: &[&str]) -> Outcome {
    let (mut seconds, mut seed, mut only, mut rest) = (SECONDS, 0, None, args.iter());
    while let Some(arg) = rest.next() {
        match (*arg, only) {
            ("--seconds", _) => match rest.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0) {
                Some(n) => seconds = n,
                None => {
                    return Outcome::Failed("--seconds wants a whole number above 0".to_owned());
                }
            },
            ("--seed", _) => match rest.next().and_then(|n| n.parse().ok()) {
                Some(n) => seed = n,
                None => return Outcome::Failed("--seed wants a whole number, 0 for another one each time".to_owned()),
            },
            (name, None) if !name.starts_with('-') => only = Some(name),
            (other, _) => return Outcome::Failed(format!("fuzz does not know {other}")),
        }
    }
    if run::which("c++").is_none() {
        return Outcome::Skipped("no C++ compiler for libFuzzer's own sources (Debian: g++)".to_owned());
    }
    match fuzz(root, seconds, seed, only) {
        Ok(()) => Outcome::Done,
        Err(why) => Outcome::Failed(why),
    }
}

fn fuzz(root: &Path, seconds: u32, seed: u32, only: Option<&str>) -> Result<(), String> {
    let dir = root.join("fuzz");
    let manifest = fs::read_to_string(dir.join("Cargo.toml")).map_err(|e| format!("fuzz/Cargo.toml: {e}"))?;
    let all = targets(&manifest);
    let chosen: Vec<&str> = all.iter().copied().filter(|t| only.is_none_or(|o| o == *t)).collect();
    if chosen.is_empty() {
        return Err(format!("no fuzz target {}; there are: {}", only.unwrap_or("at all"), all.join(", ")));
    }
    let (programs, sanitize) = build(root)?;
    println!("fuzz: {} targets, {seconds} s each", chosen.len());
    if !sanitize {
        println!("skipped: fuzz under AddressSanitizer: there is no nightly toolchain");
    }
    // Each has one thread.
    let streams = thread::available_parallelism().map_or(1, NonZero::get);
    let (waiting, failed) = (Mutex::new(chosen.into_iter()), Mutex::new(Vec::new()));
    let stream = || {
        loop {
            let Some(name) = lock(&waiting).next() else { return };
            let found = run::target_dir(root).join("fuzz-corpus").join(name);
            if let Err(why) = one(&dir, &found, &programs.join(name), name, (seconds, seed)) {
                eprintln!("fuzz {name}: {why}");
                lock(&failed).push(name);
            }
        }
    };
    thread::scope(|scope| {
        (0..streams).for_each(|_| drop(scope.spawn(stream)));
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { Err(format!("fuzz targets failed: {}", failed.join(", "))) }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds every target: where they are, and whether with AddressSanitizer.
pub(crate) fn build(root: &Path) -> Result<(PathBuf, bool), String> {
    let sanitize = parts::nightly();
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let built = run::target_dir(root).join(if sanitize { "fuzz-asan" } else { "fuzz" });
    let mut build = Command::new("cargo");
    if sanitize {
        build.arg("+nightly").env_remove("RUSTUP_TOOLCHAIN");
    }
    build.args(["build", "--release", "--bins", "--target", &target]).current_dir(root.join("fuzz"));
    // Inside `cargo xtask` these point at the outer build.
    build.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTDOC").env("CARGO_TARGET_DIR", &built);
    build.env("RUSTFLAGS", format!("{COVERAGE}{}", if sanitize { " -Zsanitizer=address" } else { "" }));
    run::must(&mut build)?;
    Ok((built.join(&target).join("release"), sanitize))
}

/// Runs one target: what it finds goes below the build folder, the checked-in corpus is only read.
fn one(dir: &Path, found: &Path, program: &Path, name: &str, (seconds, seed): (u32, u32)) -> Result<(), String> {
    let artifacts = dir.join("artifacts").join(name);
    for folder in [found, &artifacts] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let seeds = dir.join("corpus").join(name);
    if fs::read_dir(&seeds).map_or(0, Iterator::count) == 0 {
        return Err(format!("fuzz/corpus/{name}/ holds no seed"));
    }
    let mut command = Command::new(program);
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.arg(format!("-seed={seed}"));
    // A decoder that needs a second for an input of libFuzzer's default size (4 KiB) hangs, for a server's purposes; it is given
    // twenty, for the clock runs on where a virtual machine stands still.
    // None needs 64 MiB at once either, or 1 GiB in all beside what AddressSanitizer keeps back (256 MiB).
    command.args(["-timeout=20", "-rss_limit_mb=1280", "-malloc_limit_mb=64", "-print_final_stats=1"]);
    // Inputs are whole stories: short ones first would leave most of the time to their beginnings.
    command.args(["-len_control=0", "-max_len=2048"]).arg(found).arg(&seeds);
    let out = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
    let log = String::from_utf8_lossy(&out.stderr);
    let stat = |key: &str| log.lines().find_map(|l| l.strip_prefix(key)).map_or("?", str::trim);
    let coverage =
        log.lines().rev().find_map(|l| l.split("cov: ").nth(1)).and_then(|l| l.split(' ').next()).unwrap_or("?");
    println!(
        "fuzz {name}: {} inputs, {coverage} edges, peak {} MB",
        stat("stat::number_of_executed_units:"),
        stat("stat::peak_rss_mb:")
    );
    if out.status.success() {
        return Ok(());
    }
    let tail: Vec<&str> = log.lines().rev().take(60).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    eprintln!("fuzz {name}:\n{}", tail.join("\n"));
    Err(format!("{}; again with: {} fuzz/artifacts/{name}/FILE", out.status, program.display()))
}

/// Names of the `[[bin]]` entries.
pub(crate) fn targets(manifest: &str) -> Vec<&str> {
    let (mut inside, mut found) = (false, Vec::new());
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[[bin]]";
        } else if let Some(name) = line.strip_prefix("name = \"").filter(|_| inside) {
            found.push(name.trim_end_matches('"'));
        }
    }
    found
}

#[cfg(test)]
mod tests;
