//! `cargo xtask asan` and `cargo xtask miri`: the one-sided library and what it stands on, with a judge of every access to memory.
//!
//! Both want a nightly toolchain, which is never fetched from here. The C library's own tests run under GCC's sanitizers in
//! `cargo xtask capi`, decoders under libFuzzer's in `cargo xtask fuzz`.

use std::path::Path;
use std::process::Command;

use super::all;
use crate::parts;
use crate::run::{self, Outcome};

/// What runs under AddressSanitizer: the crates with `unsafe` in them on the way of a one-sided operation, and the library's own
/// tests over real sockets and rings, with hostile peers, killed ones and several threads.
const ASAN: [&str; 5] = ["linkspan", "linkspan-mem", "linkspan-net", "linkspan-shmring", "linkspan-transport"];

/// What is left out: tests that run the library's examples, ask how much time is used or how much memory (what others have freed is kept
/// back), and drivers of GPUs, which keep memory of their own to the end.
const NOT_UNDER_ASAN: [&str; 4] = ["examples::", "idle::", "a_real_gpu", "dropped_memory_goes_back_to_the_system"];

/// What runs under Miri: no system calls that it does not know, and no more steps than it takes in minutes.
const MIRI: [(&str, &[&str]); 4] = [
    ("linkspan-mem", &["ascending::tests", "copy::tests", "pages::tests"]),
    ("linkspan-transport", &["memory::tests"]),
    (
        "linkspan",
        &["memory::tests", "ops::tests", "url::tests::debug", "hello::tests::golden", "remote::tests::golden"],
    ),
    (
        "linkspan-proto",
        &["head::tests::golden", "head::tests::reserved", "handle::tests", "conn::log::tests::sequence"],
    ),
];

/// Miri has no memfd_create.
const MAPPED: &str = "mapped_memory";

fn nightly(root: &Path, folder: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.arg("+nightly").current_dir(root).env_remove("RUSTUP_TOOLCHAIN");
    // Inside `cargo xtask` these point at the outer build.
    cargo.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTDOC");
    cargo.env("CARGO_TARGET_DIR", run::target_dir(root).join(folder));
    cargo
}

/// The tests under AddressSanitizer, `args` for cargo.
fn sanitized(root: &Path, args: &[&str]) -> Command {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = nightly(root, "asan");
    cargo.args(["test", "--lib", "--test", "integration", "--no-fail-fast", "--target", &target]);
    cargo.args(ASAN.iter().flat_map(|name| ["-p", name]));
    cargo.args(args);
    cargo.env("RUSTFLAGS", "-Zsanitizer=address").env("PROPTEST_CASES", "16");
    cargo
}

/// Tests under AddressSanitizer (with leak detection, its default on Linux).
pub(crate) fn asan(root: &Path) -> Outcome {
    if !parts::nightly() {
        return Outcome::Skipped("no nightly toolchain: a stable compiler has no sanitizer".to_owned());
    }
    let mut cargo = sanitized(root, &["--"]);
    cargo.args(NOT_UNDER_ASAN.iter().flat_map(|name| ["--skip", name]));
    all([run::must(&mut cargo)])
}

/// Tests under Miri.
pub(crate) fn miri(root: &Path) -> Outcome {
    let there = parts::nightly() && run::output(nightly(root, "miri").args(["miri", "--version"])).is_ok();
    if !there {
        return Outcome::Skipped("no Miri (rustup +nightly component add miri rust-src)".to_owned());
    }
    all(MIRI.iter().map(|(name, tests)| {
        let mut cargo = nightly(root, "miri");
        cargo.args(["miri", "test", "-p", name, "--lib", "--"]).args(*tests).args(["--skip", MAPPED]);
        // The clock is read and random bytes are taken; provenance of mapped memory is the system's.
        cargo.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", "4");
        let text = run::output(&mut cargo)?;
        print!("{text}");
        let ran = text.lines().any(|l| l.starts_with("test ") && l.ends_with(" ok"));
        if ran { Ok(()) } else { Err(format!("{name}: no test ran under Miri")) }
    }))
}
