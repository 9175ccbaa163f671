//! `setup`: fetches what the lab needs as Debian packages by name, and builds what Debian leaves off.
//!
//! Every step leaves a stamp with the words it was done with. A step that was interrupted begins anew, with what apt
//! had already downloaded; one whose stamp fits is passed over, so setup may be run any number of times.

pub(crate) mod apt;
pub(crate) mod checked;
pub(crate) mod kernel;
pub(crate) mod lint;
pub(crate) mod module;
pub(crate) mod patched;
pub(crate) mod system;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::cache::{self, Cache, KERNELS, Known, SYSTEMS, System};
use crate::error::{At, Error, Result};
use crate::proc;
use crate::root;

/// The release that the root is made of.
pub(crate) const RELEASE: &str = "trixie";

/// Where QEMU with `vfio-user-pci` (10.1 and newer) and new kernels come from.
pub(crate) const BACKPORTS: &str = "trixie-backports";

/// What guests run, from the release.
const PACKAGES: [&str; 17] = [
    "btrfs-progs",
    "busybox-static",
    "dmsetup",
    "dosfstools",
    "e2fsprogs",
    "ethtool",
    "exfatprogs",
    "f2fs-tools",
    "ibverbs-providers",
    "ibverbs-utils",
    "iperf3",
    "iproute2",
    "kmod",
    "perftest",
    "xfsprogs",
    "xz-utils",
    "zstd",
];

/// What runs guests, from backports.
const QEMU: [&str; 2] = ["qemu-system-x86", "qemu-system-common"];

/// What modules are built with; the compiler comes with the kernel's headers.
pub(crate) const BUILD: [&str; 2] = ["make", "libc6-dev"];

/// Steps with their titles, one line each.
struct Steps {
    all: usize,
    at: usize,
    since: Instant,
}

impl Steps {
    /// Does a step unless it is done already with the same words.
    fn step(
        &mut self,
        cache: &Cache,
        name: &str,
        words: &str,
        run: impl FnOnce(&Cache, &str) -> Result<()>,
    ) -> Result<()> {
        self.at += 1;
        let title = format!("[{}/{}] {name}", self.at, self.all);
        if cache.done(name, words) {
            eprintln!("{title}: there already");
            return Ok(());
        }
        eprintln!("{title}: {}", words.lines().next().unwrap_or_default());
        let since = Instant::now();
        run(cache, &title)?;
        cache.note(name, words)?;
        eprintln!("{title}: done in {:.0} s ({:.0} s in all)", since.elapsed().as_secs_f64(), self.seconds());
        Ok(())
    }

    fn seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }
}

/// Fetches everything for these kernels and whole systems.
pub(crate) fn run(cache: &Cache, kernels: &[String], systems: &[String]) -> Result<()> {
    fit(cache)?;
    let mut chosen = Vec::new();
    for name in kernels {
        let known = KERNELS.iter().find(|known| known.name == name);
        chosen.push(*known.ok_or_else(|| Error::Unknown {
            kind: "kernel",
            name: name.clone(),
            known: KERNELS.map(|k| k.name).join(", "),
        })?);
    }
    let mut whole: Vec<System> = Vec::new();
    for name in systems {
        let known = SYSTEMS.iter().find(|known| known.name == name);
        whole.push(*known.ok_or_else(|| Error::Unknown {
            kind: "system",
            name: name.clone(),
            known: SYSTEMS.map(|system| system.name).join(", "),
        })?);
    }
    let words = packages_words();
    let ready = cache.done("root", RELEASE)
        && cache.done("packages", &words)
        && chosen.iter().all(|known| kernel_done(cache, *known))
        && whole.iter().all(|known| cache.done(&system::step(*known), &system::words(*known)));
    // A root that has all is not changed, and builds that run in it meanwhile are not waited for.
    let _lock = if ready { None } else { Some(lock(cache)?) };
    if !ready {
        let more: Vec<[String; 2]> =
            whole.iter().map(|known| [known.kernels.to_owned(), system::other(*known)]).collect();
        let more = more.iter().flatten().map(String::as_str);
        apt::reachable(cache, &[RELEASE, BACKPORTS].into_iter().chain(more).collect::<Vec<_>>())?;
    }
    let mut steps = Steps { all: 2 + 2 * chosen.len() + whole.len(), at: 0, since: Instant::now() };
    steps.step(cache, "root", RELEASE, |cache, title| debootstrap(cache, title, RELEASE, &cache.root()))?;
    steps.step(cache, "packages", &words, packages)?;
    for known in chosen {
        let suite = known.suite;
        steps
            .step(cache, &format!("kernel-{}", known.name), suite, |cache, title| kernel::fetch(cache, title, known))?;
        steps.step(cache, &format!("modules-{}", known.name), &modules_words(), |cache, title| {
            module::left_off(cache, title, known)
        })?;
    }
    for known in whole {
        steps.step(cache, &system::step(known), &system::words(known), |cache, title| {
            system::make(cache, title, known)
        })?;
    }
    Ok(())
}

/// Keeps others from changing the root until the file is dropped.
fn lock(cache: &Cache) -> Result<fs::File> {
    let lock = fs::File::create(cache.path("lock")).at("lock of the cache")?;
    if lock.try_lock().is_err() {
        eprintln!("waiting for another setup or build in {}", cache.root().display());
        lock.lock().at("lock of the cache")?;
    }
    Ok(lock)
}

fn packages_words() -> String {
    [&PACKAGES[..], &QEMU[..]].concat().join(" ")
}

fn modules_words() -> String {
    let modules = module::LEFT_OFF.map(|(_, name)| name);
    [&modules[..], &module::SCRIPTS[..1]].concat().join(" ")
}

fn kernel_done(cache: &Cache, known: Known) -> bool {
    let steps = [("kernel", known.suite.to_owned()), ("modules", modules_words())];
    steps.iter().all(|(step, words)| cache.done(&format!("{step}-{}", known.name), words))
}

/// Whether this machine can do it at all; what it lacks is named.
fn fit(cache: &Cache) -> Result<()> {
    let unfit = |why: String| Err(Error::Unfit(why));
    if !cfg!(target_arch = "x86_64") {
        return unfit("the guests are x86_64 machines and so must this one be".to_owned());
    }
    if cache.done("root", RELEASE) && !rustix::process::getuid().is_root() {
        return Ok(());
    }
    if !rustix::process::getuid().is_root() {
        return unfit("it makes a Debian root with debootstrap, which needs root".to_owned());
    }
    for (program, package) in [("debootstrap", "debootstrap"), ("apt-get", "apt"), ("unshare", "util-linux")] {
        let found = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists());
        if !found {
            return unfit(format!("no {program} (Debian: {package})"));
        }
    }
    Ok(())
}

/// The smallest root of a suite, as folder `to`.
fn debootstrap(cache: &Cache, title: &str, suite: &str, to: &Path) -> Result<()> {
    let mirror = apt::mirror()?;
    let (partial, debs) = (to.with_extension("partial"), cache.path("debs"));
    if partial.exists() {
        fs::remove_dir_all(&partial).at(partial.display())?;
    }
    fs::create_dir_all(&debs).at(debs.display())?;
    // It mounts /proc and /sys in what it makes: in a namespace of its own they go with it, however it ends.
    let mut command = proc::guarded("unshare");
    command.args(["--mount", "--propagation", "private", "debootstrap"]);
    command.args(["--variant=minbase", &format!("--cache-dir={}", debs.display())]);
    if let Some(keys) = apt::keys() {
        command.arg(format!("--keyring={keys}"));
    }
    command.arg(suite).arg(&partial).arg(&mirror).env("LC_ALL", "C");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    proc::watched(title, &mut command)?;
    cache::put(&partial, to)?;
    fs::remove_dir_all(&debs).at(debs.display())
}

fn packages(cache: &Cache, title: &str) -> Result<()> {
    let root = cache.root();
    apt::sources(&root, &[RELEASE, BACKPORTS])?;
    apt::update(&root, title)?;
    apt::install(&root, title, &PACKAGES, RELEASE)?;
    apt::install(&root, title, &QEMU, BACKPORTS)?;
    // Told here rather than by the first test.
    let mut version = root::program(&root, "usr/bin/qemu-system-x86_64");
    let version = proc::output(version.arg("--version"))?;
    // Asked for alone: a list of all loads every module, and those of a QEMU that this machine has are of another build.
    let mut device: Command = root::program(&root, "usr/bin/qemu-system-x86_64");
    if !proc::output(device.args(["-device", "vfio-user-pci,help"]))?.contains("vfio-user-pci") {
        let first = version.lines().next().unwrap_or_default();
        return Err(Error::Unfit(format!("{first} has no vfio-user-pci, which came with QEMU 10.1")));
    }
    Ok(())
}
