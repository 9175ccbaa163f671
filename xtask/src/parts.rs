//! `cargo xtask parts`: what can be built and tested here, and what a missing part needs.

use std::path::Path;
use std::process::Command;

use crate::run::{self, Outcome};
use crate::stages::toolchain;

/// One optional part.
pub(crate) struct Part {
    /// Name, the same as the stage that uses it.
    name: &'static str,
    /// What it is for.
    what: &'static str,
    /// Programs that must be found on PATH.
    programs: &'static [&'static str],
    /// Debian packages that bring them.
    packages: &'static str,
    /// Whether it needs uid 0.
    root: bool,
}

const PARTS: [Part; 10] = [
    Part {
        name: "core",
        what: "lspan, the plugin, all unit tests",
        programs: &["cargo", "cc"],
        packages: "rustup or cargo, gcc",
        root: false,
    },
    Part {
        name: "plugin-host",
        what: "a C program that plays NCCL's part against the plugin",
        programs: &["cc", "bash"],
        packages: "gcc libc6-dev",
        root: false,
    },
    Part {
        name: "capi",
        what: "the C and C++ library as it is installed: symbols, layout, tests",
        programs: &["gcc", "g++", "pkg-config"],
        packages: "gcc g++ libc6-dev pkg-config; clang, cmake and make for more of it",
        root: false,
    },
    Part {
        name: "python",
        what: "the Python package: wheel, tests, type checks",
        programs: &["python3", "cargo", "cc"],
        packages: "python3 python3-venv gcc, rustup or cargo",
        root: false,
    },
    Part {
        name: "netns",
        what: "several hosts, cut links and killed peers on one machine",
        programs: &["ip", "bash"],
        packages: "iproute2; nftables, util-linux, python3 for some tests",
        root: true,
    },
    Part {
        name: "fuzz",
        what: "coverage-guided fuzzing of every decoder (libFuzzer)",
        programs: &["c++"],
        packages: "g++",
        root: false,
    },
    Part {
        name: "desktop",
        what: "the window, built and driven in a root of Debian 13",
        programs: &["mmdebstrap", "unshare", "mount"],
        packages: "mmdebstrap util-linux mount",
        root: true,
    },
    Part {
        name: "lab",
        what: "virtual machines with soft-RoCE and the virtual Thunderbolt cable",
        programs: &["debootstrap", "apt-get", "unshare"],
        packages: "debootstrap apt util-linux",
        root: true,
    },
    Part {
        name: "unpack",
        what: "the GPU unpack kernel on the host under sanitizers",
        programs: &["cc"],
        packages: "gcc libc6-dev",
        root: false,
    },
    Part {
        name: "unpack-amd",
        what: "the same through clang for AMD GPUs",
        programs: &["clang-19"],
        packages: "clang-19",
        root: false,
    },
];

/// Prints one line per part.
pub(crate) fn run(root: &Path) -> Outcome {
    for part in &PARTS {
        let missing: Vec<&str> = part.programs.iter().copied().filter(|p| run::which(p).is_none()).collect();
        let state = if !missing.is_empty() {
            format!("off: no {} (Debian: {})", missing.join(", "), part.packages)
        } else if part.root && !run::is_root() {
            "off: needs root".to_owned()
        } else {
            "on".to_owned()
        };
        line(part.name, &state, part.what);
    }
    let sanitizer = match nightly() {
        true => "on".to_owned(),
        false => "off: no nightly toolchain; fuzz targets run without AddressSanitizer".to_owned(),
    };
    line("fuzz-asan", &sanitizer, "the same targets under AddressSanitizer");
    line("aarch64", &toolchain::state(root), "cross-built tests under qemu-user");
    Outcome::Done
}

/// Whether rustup has a nightly toolchain installed (it is never fetched from here).
pub(crate) fn nightly() -> bool {
    run::output(Command::new("rustup").args(["toolchain", "list"]))
        .is_ok_and(|list| list.lines().any(|l| l.starts_with("nightly")))
}

fn line(name: &str, state: &str, what: &str) {
    println!("{name:<12} {state}\n{:<12}   {what}", "");
}
