//! The window and the tray: built and tried in a root of Debian 13, which has the GTK that it needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::all;
use crate::run::{self, Outcome};

/// What the window is built with, and what it is tried with.
const PACKAGES: &[&str] = &[
    "gcc",
    "libc6-dev",
    "pkg-config",
    "libgtk-4-dev",
    "libadwaita-1-dev",
    "gettext",
    "dbus",
    "at-spi2-core",
    "gir1.2-atspi-2.0",
    "gir1.2-gtk-4.0",
    "python3-gi",
    "xvfb",
    "xdotool",
    "weston",
    "xsettingsd",
    "openbox",
    "imagemagick",
    "pngquant",
    "adwaita-icon-theme",
    "librsvg2-common",
    "fonts-cantarell",
    "fonts-dejavu-core",
    "desktop-file-utils",
    "appstream",
    "locales",
    "procps",
    "iproute2",
];

/// The release whose root it is.
const RELEASE: &str = "trixie";

/// What is done inside.
const SCRIPT: &str = "xtask/src/stages/desktop.sh";

/// The workspace of the window.
const FOLDER: &str = "bin/linkspan-desktop";

/// Builds, has the linters look, and drives the window through AT-SPI; with `shots` its pages are drawn instead, for looking at.
pub(crate) fn run(root: &Path, shots: bool) -> Outcome {
    for (program, package) in [("mmdebstrap", "mmdebstrap"), ("unshare", "util-linux"), ("mount", "mount")] {
        if run::which(program).is_none() {
            return Outcome::Skipped(format!("no {program} (Debian: {package})"));
        }
    }
    if !run::is_root() {
        return Outcome::Skipped("the window is built in a root of its own, which needs root".to_owned());
    }
    let place = run::target_dir(root).join("desktop");
    let debian = match debian(&place) {
        Ok(debian) => debian,
        Err(why) => return Outcome::Skipped(format!("a root of Debian {RELEASE} cannot be had: {why}")),
    };
    let services = || {
        run::must(run::cargo(root).args(["build", "-p", "linkspand", "-p", "lspan", "-p", "linkspan-tray"]))?;
        run::must(run::cargo(root).args([
            "build",
            "-p",
            "linkspan-topology",
            "--features",
            "fixture",
            "--example",
            "fixture",
        ]))?;
        // Inside there is no network.
        run::must(run::cargo(&root.join(FOLDER)).args(["fetch", "--locked"]))
    };
    let inside = |word: &str| inside(root, &place, &debian, word);
    let last = if shots { "shots" } else { "test" };
    all([services().and_then(|()| inside("build")).and_then(|()| inside(last))])
}

/// The root, made where there is none of these packages.
fn debian(place: &Path) -> Result<PathBuf, String> {
    let (debian, complete) = (place.join("root"), place.join("root.complete"));
    let packages = PACKAGES.join(",");
    if fs::read_to_string(&complete).is_ok_and(|made| made == packages) {
        return Ok(debian);
    }
    let failed = |e: std::io::Error| format!("{}: {e}", place.display());
    fs::create_dir_all(place).map_err(failed)?;
    if debian.exists() {
        fs::remove_dir_all(&debian).map_err(failed)?;
    }
    println!("desktop: a root of Debian {RELEASE}, once");
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap.args(["--quiet", "--variant=apt", "--mode=root"]).arg(format!("--include={packages}"));
    run::must(mmdebstrap.arg(RELEASE).arg(&debian).env("TMPDIR", place))?;
    fs::write(&complete, packages).map_err(failed)?;
    Ok(debian)
}

/// Runs the script in the root: with a network and mounts of its own, which end with it.
fn inside(root: &Path, place: &Path, debian: &Path, word: &str) -> Result<(), String> {
    let sysroot = run::output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root))?;
    let toolchain = PathBuf::from(sysroot.trim());
    let home = std::env::var_os("HOME").map(PathBuf::from).ok_or("HOME is not set")?;
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let services = run::target_dir(root).join("debug");
    let shown = |path: &Path| format!("'{}'", path.display());
    let at = shown(debian);
    // A mount, as ip netns asks for.
    let mut script = format!("set -e\nmount --bind {at} {at}\n");
    // Programs of rustup in the folder above would be taken before those of the toolchain.
    let registry = cargo.join("registry");
    for folder in [root, place, services.as_path(), toolchain.as_path(), registry.as_path()] {
        let to = shown(&debian.join(folder.strip_prefix("/").unwrap_or(folder)));
        script += &format!("mkdir -p {to}; mount --bind {} {to}\n", shown(folder));
    }
    script += &format!(
        "mount -t proc proc {at}/proc; mount --rbind /dev {at}/dev; mount -t tmpfs tmpfs {at}/dev/shm; mount -t tmpfs tmpfs {at}/tmp; mount -t tmpfs tmpfs {at}/run\n"
    );
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", toolchain.join("bin").display());
    script += &format!(
        "exec chroot {at} env -i PATH='{path}' CARGO_HOME={} TREE={} PLACE={} SERVICES={} bash {} {word}\n",
        shown(&cargo),
        shown(root),
        shown(place),
        shown(&services),
        shown(&root.join(SCRIPT)),
    );
    // Whatever is left running in it ends with the script.
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private", "bash", "-c"]);
    run::must(unshare.arg(script))
}
