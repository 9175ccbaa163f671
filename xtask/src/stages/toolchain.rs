//! A cross toolchain for aarch64, put together from Debian packages below the build folder.
//!
//! rustup's own targets are one way to cross-build; Debian's is another that needs nothing but a package mirror:
//! `rustc-web` and its standard library for arm64 (same compiler version, so that they fit), the cross gcc as linker
//! with its C library, and qemu-user to run what was built. Packages are unpacked aside, not installed: nothing on the
//! machine changes, no root is needed, and two versions of Rust do not meet.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run;

/// What Rust calls the machine.
pub(crate) const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The packages that everything else follows from.
const PACKAGES: [&str; 4] = ["rustc-web", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user-static"];

/// The standard library for the other machine, of the same version as `rustc-web`.
const FOREIGN_STD: &str = "libstd-rust-web-dev:arm64";

/// Parts of names of packages that are taken even where the machine has them installed: they must lie in one tree.
const ALWAYS: [&str; 6] = ["aarch64", "arm64-cross", "cross-base", "rust", "libllvm", "qemu-user"];

/// A toolchain that is ready for use.
#[derive(Debug)]
pub(crate) struct Toolchain {
    dir: PathBuf,
}

impl Toolchain {
    /// One of the programs in `wrappers`, for the other machine.
    pub(crate) fn tool(&self, name: &str) -> Command {
        Command::new(self.dir.join(name))
    }

    /// Where cargo leaves optimised builds.
    pub(crate) fn release(root: &Path) -> PathBuf {
        run::target_dir(root).join("aarch64").join(TARGET).join("release")
    }

    /// A cargo command that builds for, and runs on, the other machine.
    pub(crate) fn cargo(&self, root: &Path) -> Command {
        let mut cargo = run::cargo(root);
        cargo.env("RUSTC", self.dir.join("rustc")).env_remove("RUSTFLAGS").env_remove("RUSTDOC");
        cargo.env("CARGO_BUILD_TARGET", TARGET).env("CARGO_TARGET_DIR", run::target_dir(root).join("aarch64"));
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", self.dir.join("gcc"));
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", self.dir.join("qemu"));
        // BLAKE3's NEON code is C.
        cargo
            .env("CC_aarch64_unknown_linux_gnu", self.dir.join("gcc"))
            .env("AR_aarch64_unknown_linux_gnu", self.dir.join("ar"));
        cargo
    }
}

/// The line for `cargo xtask parts`.
pub(crate) fn state(root: &Path) -> String {
    if cfg!(target_arch = "aarch64") {
        return "native".to_owned();
    }
    if folder(root).join("complete").is_file() {
        return "on (toolchain unpacked)".to_owned();
    }
    let missing: Vec<&str> = ["apt-get", "dpkg-deb"].into_iter().filter(|p| run::which(p).is_none()).collect();
    if missing.is_empty() {
        format!(
            "on demand: `cargo xtask aarch64` unpacks Debian's {} and {FOREIGN_STD} below the build folder (240 MB)",
            PACKAGES.join(", ")
        )
    } else {
        format!("off: no {}: the toolchain is put together from Debian packages", missing.join(", "))
    }
}

/// Unpacks the toolchain where it is not there yet. The error is the reason why it cannot be had.
pub(crate) fn ready(root: &Path, fresh: bool) -> Result<Toolchain, String> {
    let dir = folder(root);
    if fresh {
        let _ = fs::remove_dir_all(&dir);
    }
    let tools = Toolchain { dir: dir.clone() };
    let failed = |what: &str, e: std::io::Error| format!("{}: {what}: {e}", dir.display());
    if dir.join("complete").is_file() {
        // They may be older than this program.
        wrappers(&dir).map_err(|e| failed("wrappers", e))?;
        return Ok(tools);
    }
    for program in ["apt-get", "apt-cache", "dpkg-deb", "dpkg-query"] {
        if run::which(program).is_none() {
            return Err(format!("no {program}: the toolchain is put together from Debian packages"));
        }
    }
    if !cfg!(target_arch = "x86_64") {
        return Err("the toolchain is known to work on x86_64 machines only".to_owned());
    }
    let _ = fs::remove_dir_all(&dir);
    for sub in ["lists/partial", "cache/archives/partial", "debs", "root"] {
        fs::create_dir_all(dir.join(sub)).map_err(|e| failed(sub, e))?;
    }
    configure(&dir).map_err(|e| failed("apt.conf", e))?;
    println!("aarch64: fetching Debian's cross toolchain");
    run::output(apt(&dir, "apt-get").args(["-qq", "update"]))
        .map_err(|e| format!("package lists cannot be had: {e}"))?;
    let mut wanted: Vec<String> = closure(&dir)?;
    wanted.push(FOREIGN_STD.to_owned());
    run::output(apt(&dir, "apt-get").arg("-qq").arg("download").args(&wanted).current_dir(dir.join("debs")))
        .map_err(|e| format!("packages cannot be had: {e}"))?;
    for deb in fs::read_dir(dir.join("debs")).map_err(|e| failed("debs", e))?.flatten() {
        run::output(Command::new("dpkg-deb").arg("-x").arg(deb.path()).arg(dir.join("root")))?;
    }
    wrappers(&dir).map_err(|e| failed("wrappers", e))?;
    let version = run::output(Command::new(dir.join("rustc")).arg("--version"))?;
    enough(root, &version)?;
    let _ = fs::remove_dir_all(dir.join("debs"));
    let _ = fs::remove_dir_all(dir.join("lists"));
    let _ = fs::remove_dir_all(dir.join("cache"));
    fs::write(dir.join("complete"), &version).map_err(|e| failed("complete", e))?;
    println!("aarch64: {} packages, {}", wanted.len(), version.trim());
    Ok(tools)
}

fn folder(root: &Path) -> PathBuf {
    run::target_dir(root).join("aarch64-toolchain")
}

/// An apt with package lists of its own, so that the machine's configuration stays as it is.
fn configure(dir: &Path) -> std::io::Result<()> {
    let text = format!(
        "APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; \"arm64\"; }};\n\
         Dir::State::Lists \"{0}/lists\";\nDir::Cache \"{0}/cache\";\n\
         APT::Sandbox::User \"root\";\nDebug::NoLocking \"1\";\nAcquire::Retries \"2\";\n\
         Acquire::Languages \"none\";\nAcquire::IndexTargets::deb::DEP-11::DefaultEnabled \"0\";\n",
        dir.display()
    );
    fs::write(dir.join("apt.conf"), text)
}

fn apt(dir: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("APT_CONFIG", dir.join("apt.conf")).env("LC_ALL", "C");
    command
}

/// Everything that [`PACKAGES`] depend on and that is ours to bring: see [`ALWAYS`], and what the machine lacks.
fn closure(dir: &Path) -> Result<Vec<String>, String> {
    let mut cache = apt(dir, "apt-cache");
    cache.args(["depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks"]);
    cache.args(["--no-replaces", "--no-enhances"]).args(PACKAGES);
    let text = run::output(&mut cache).map_err(|e| format!("packages are not known to apt: {e}"))?;
    let installed = run::output(Command::new("dpkg-query").args(["-W", "-f", "${Package} ${db:Status-Status}\n"]))?;
    let installed: BTreeSet<&str> = installed.lines().filter_map(|l| l.strip_suffix(" installed")).collect();
    let names = text.lines().filter(|l| l.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()));
    let ours = |name: &&str| {
        !name.contains(':') && (ALWAYS.iter().any(|part| name.contains(part)) || !installed.contains(name))
    };
    let names: BTreeSet<&str> = names.filter(ours).collect();
    Ok(names.into_iter().map(str::to_owned).collect())
}

/// Programs that know where they lie. The linker's name ends in gcc because rustc tells its kind by that.
fn wrappers(dir: &Path) -> std::io::Result<()> {
    let root = dir.join("root");
    let root = root.display();
    let libraries = format!("{root}/usr/lib/x86_64-linux-gnu");
    let scripts = [
        (
            "rustc",
            format!(
                "LD_LIBRARY_PATH=\"{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\" exec \"{root}/usr/bin/rustc\" \"$@\""
            ),
        ),
        (
            "gcc",
            format!(
                "LD_LIBRARY_PATH=\"{libraries}\" exec \"{root}/usr/bin/aarch64-linux-gnu-gcc\" --sysroot=\"{root}\" \"$@\""
            ),
        ),
        ("ar", format!("LD_LIBRARY_PATH=\"{libraries}\" exec \"{root}/usr/bin/aarch64-linux-gnu-ar\" \"$@\"")),
        ("strip", format!("LD_LIBRARY_PATH=\"{libraries}\" exec \"{root}/usr/bin/aarch64-linux-gnu-strip\" \"$@\"")),
        (
            "objcopy",
            format!("LD_LIBRARY_PATH=\"{libraries}\" exec \"{root}/usr/bin/aarch64-linux-gnu-objcopy\" \"$@\""),
        ),
        ("qemu", format!("exec \"{root}/usr/bin/qemu-aarch64-static\" -L \"{root}/usr/aarch64-linux-gnu\" \"$@\"")),
    ];
    for (name, line) in scripts {
        let file = dir.join(name);
        fs::write(&file, format!("#!/bin/sh\n{line}\n"))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Whether Debian's compiler is as new as the workspace asks for.
fn enough(root: &Path, version: &str) -> Result<(), String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let asked = manifest.lines().find_map(|l| l.strip_prefix("rust-version = \"")?.strip_suffix('"')).unwrap_or("1.0");
    let parts = |text: &str| -> Vec<u32> { text.split('.').filter_map(|n| n.parse().ok()).collect() };
    let have = version.split(' ').nth(1).unwrap_or_default();
    if parts(have) >= parts(asked) {
        return Ok(());
    }
    Err(format!("Debian's rustc-web here is {have}, the workspace needs {asked}"))
}
