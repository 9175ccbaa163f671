//! `package deb`: Debian's packages, built and tried in roots of fresh systems.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{place, source};
use crate::run::{self, Outcome};

/// Releases that packages are built and tried on; those of the first are what is handed out, for they run on the others too.
pub(super) const RELEASES: [&str; 2] = ["bookworm", "trixie"];

/// Ubuntu 24.04, where packages are tried too, and where it comes from.
const UBUNTU: &str = "noble";
const ARCHIVE: &str = "http://archive.ubuntu.com/ubuntu";

/// The package with the keys of that archive, and its SHA-256: of this machine's packages none has them.
const KEYRING: (&str, &str) = (
    "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb",
    "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
);

/// Scripts that are run with the path of such a root.
const BUILD: &str = "xtask/src/package/build.sh";
const TRY: &str = "xtask/src/package/try-deb.sh";

/// What to do.
#[derive(Debug, PartialEq, Eq)]
struct Job<'a> {
    /// Where it is built: one of [`RELEASES`].
    release: &'a str,
    /// Built once more, and compared with what is there.
    again: bool,
}

impl<'a> Job<'a> {
    fn read(words: &[&'a str]) -> Result<Job<'a>, String> {
        let (mut release, mut again) = (None, false);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--again" => again = true,
                "--on" => match words.next() {
                    Some(on) if RELEASES.contains(on) => release = Some(*on),
                    other => return Err(format!("--on takes {}, not {other:?}", RELEASES.join(" or "))),
                },
                other => return Err(format!("package deb has no option {other}; it has --on RELEASE and --again")),
            }
        }
        Ok(Job { release: release.ok_or("--on is missing")?, again })
    }
}

/// Builds on one release, has lintian look, installs, uses, changes and removes; or builds once more, and compares.
pub(super) fn run(root: &Path, words: &[&str]) -> Outcome {
    let job = match Job::read(words) {
        Ok(job) => job,
        Err(why) => return Outcome::Failed(why),
    };
    if let Some(missing) = lacking() {
        return missing;
    }
    match all(root, &job) {
        Ok(()) => Outcome::Done,
        Err(why) => Outcome::Failed(why),
    }
}

/// What this machine lacks.
fn lacking() -> Option<Outcome> {
    for (program, package) in [("mmdebstrap", "mmdebstrap"), ("dpkg-source", "dpkg-dev"), ("unshare", "util-linux")] {
        if run::which(program).is_none() {
            return Some(Outcome::Skipped(format!("no {program} (Debian: {package})")));
        }
    }
    if !run::is_root() {
        return Some(Outcome::Skipped("packages are built in a root of their own, which needs root".to_owned()));
    }
    None
}

fn all(root: &Path, job: &Job<'_>) -> Result<(), String> {
    let (sources, release) = (place(root).join("source"), job.release);
    source::make(root, &sources)?;
    let out = place(root).join(release);
    let build = |to: &Path, nth: &str| {
        let _ = fs::remove_dir_all(to);
        let words = [root.join(BUILD), sources.clone(), to.to_owned(), nth.into()];
        in_fresh_root(root, release, &words)
    };
    if job.again {
        if !super::is_made(root, &format!("deb-{release}")) {
            return Err(format!(
                "{} is not of this commit: first `cargo xtask package deb --on {release}`",
                out.display()
            ));
        }
        let again = place(root).join(format!("{release}-again"));
        build(&again, "2")?;
        return same(&out, &again);
    }
    build(&out, "1")?;
    // What is handed out is tried everywhere, the others where they were built.
    for on in RELEASES.into_iter().filter(|on| *on == release || release == RELEASES[0]) {
        attempt(root, &out, on)?;
    }
    println!("{}", out.display());
    Ok(())
}

/// Tries the packages of a folder on a release: one of [`RELEASES`], or Ubuntu's.
pub(super) fn tried(root: &Path, debs: &str, on: &str) -> Outcome {
    if !RELEASES.contains(&on) && on != UBUNTU {
        return Outcome::Failed(format!("packages are tried on {} or {UBUNTU}, not on {on}", RELEASES.join(", ")));
    }
    if let Some(missing) = lacking() {
        return missing;
    }
    attempt(root, &root.join(debs), on).map_or_else(Outcome::Failed, |()| Outcome::Done)
}

fn attempt(root: &Path, debs: &Path, on: &str) -> Result<(), String> {
    in_fresh_root(root, on, &[root.join(TRY), debs.to_owned(), root.join("debian/tests"), on.into()])?;
    // piuparts knows Debian's releases.
    if on == UBUNTU { Ok(()) } else { purged(root, debs, on) }
}

/// What Debian's own test says of installing all and purging it: owners, modes, contents, links, diversions, processes that are left.
fn purged(root: &Path, debs: &Path, on: &str) -> Result<(), String> {
    if run::which("piuparts").is_none() {
        println!("skipped: no piuparts (Debian: piuparts)");
        return Ok(());
    }
    let temporary = place(root).join("roots");
    let (base, log) = (temporary.join(format!("{on}.tar.gz")), place(root).join(format!("piuparts-{on}.log")));
    let mut mmdebstrap = Command::new("mmdebstrap");
    // What wants a session brings systemd-sysv, which apt would not take away again.
    mmdebstrap.args(["--quiet", "--variant=minbase", "--include=systemd-sysv", "--mode=root", on]);
    mmdebstrap.arg(&base).env("TMPDIR", &temporary);
    let made = run::must(&mut mmdebstrap);
    let mut piuparts = Command::new("piuparts");
    // Programs in its root see the same TMPDIR, and have no such folder.
    piuparts.env_remove("TMPDIR").stdout(Stdio::null());
    piuparts.args(["--no-upgrade-test", "--keep-sources-list", "--no-eatmydata", "-d", on]);
    piuparts.args(["-i", "/var/cache/debconf/tmp.ci/"]).arg("-b").arg(&base).arg("-l").arg(&log);
    let names = packages(debs)?.into_iter().filter(|name| !name.contains("-dbgsym_"));
    let came = made.and_then(|()| run::must(piuparts.args(names.map(|name| debs.join(name)))));
    let _ = fs::remove_file(&base);
    came.map_err(|why| {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let wrong = |line: &&str| line.contains(" ERROR: ") && !line.contains(" WARN: ");
        let first: Vec<&str> = said.lines().skip_while(|line| !wrong(line)).take(40).collect();
        format!("{why}\n{}\n{}", first.join("\n"), log.display())
    })?;
    println!("ok   {on}: piuparts: all packages installed and purged, nothing left or changed");
    Ok(())
}

/// Names of the packages in a folder.
fn packages(dir: &Path) -> Result<Vec<String>, String> {
    let list = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let names = list.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".deb")).collect();
    names.sort();
    Ok(names)
}

/// Runs a script (the first word) with the root of a fresh system as its first argument. Nothing of that stays.
pub(super) fn in_fresh_root(root: &Path, release: &str, words: &[std::path::PathBuf]) -> Result<(), String> {
    let temporary = place(root).join("roots");
    fs::create_dir_all(&temporary).map_err(|e| format!("{}: {e}", temporary.display()))?;
    let quoted = |word: &Path| format!("'{}'", word.display());
    let (script, rest) = words.split_first().ok_or("no script")?;
    let rest: Vec<String> = rest.iter().map(|word| quoted(word)).collect();
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap.args(["--quiet", "--variant=apt", "--mode=root"]);
    mmdebstrap.arg(format!("--customize-hook=bash {} \"$1\" {}", quoted(script), rest.join(" ")));
    mmdebstrap.args([release, "/dev/null"]).env("TMPDIR", &temporary);
    if release == UBUNTU {
        mmdebstrap.arg(format!("--keyring={}", keyring(root)?.display()));
        mmdebstrap.args(["", "-updates"].map(|pocket| format!("deb {ARCHIVE} {UBUNTU}{pocket} main universe")));
    }
    run::must(&mut mmdebstrap)
}

/// The keys of Ubuntu's archive; fetched where they are not there yet.
fn keyring(root: &Path) -> Result<std::path::PathBuf, String> {
    let dir = place(root).join("ubuntu-keyring");
    let keys = dir.join("usr/share/keyrings/ubuntu-archive-keyring.gpg");
    if keys.exists() {
        return Ok(keys);
    }
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let (path, sum) = KEYRING;
    let file = dir.join("keyring.deb");
    let mut fetch = Command::new("/usr/lib/apt/apt-helper");
    fetch.args(["-o", "APT::Sandbox::User=root", "download-file"]).arg(format!("{ARCHIVE}/{path}"));
    run::output(fetch.arg(&file).arg(format!("SHA256:{sum}")))?;
    run::output(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&dir))?;
    Ok(keys)
}

/// That two builds came to the same packages, byte for byte.
fn same(one: &Path, other: &Path) -> Result<(), String> {
    let names = packages(one)?;
    let others = packages(other)?;
    if names != others {
        return Err(format!("built twice: {} and {}", names.join(", "), others.join(", ")));
    }
    let read =
        |dir: &Path, name: &str| fs::read(dir.join(name)).map_err(|e| format!("{}: {e}", dir.join(name).display()));
    let mut differing = Vec::new();
    for name in &names {
        if read(one, name)? != read(other, name)? {
            differing.push(name.clone());
        }
    }
    if names.is_empty() || !differing.is_empty() {
        return Err(format!(
            "built twice and not equal: {} (diffoscope {} {})",
            differing.join(", "),
            one.display(),
            other.display()
        ));
    }
    println!(
        "ok   {} packages built twice, by another user, in another time zone and with another mask: equal",
        names.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Command, Job};

    #[test]
    fn options_are_read_and_others_refused() {
        assert_eq!(Job::read(&["--on", "trixie", "--again"]), Ok(Job { release: "trixie", again: true }));
        assert!(Job::read(&["--again"]).is_err());
        assert!(
            Job::read(&["--on"]).is_err() && Job::read(&["--on", "sid"]).is_err() && Job::read(&["--once"]).is_err()
        );
    }

    /// As `dkms autoinstall` reads it: `kernelver` of the function is of another build.
    #[test]
    fn dkms_is_not_asked_to_install_the_module_for_a_kernel_that_it_leaves_out() {
        let read = "safe_source() { (. ../kernel/dkms.conf && echo \"$AUTOINSTALL\"); }; read_conf() { local kernelver=$1; safe_source; }; \
                    kernelver=($1); read_conf \"$2\"";
        for built in ["", "6.12.95+deb12-amd64"] {
            for (kernel, want) in
                [("6.1.0-50-amd64", ""), ("6.8.0-151-generic", "yes"), ("7.3.4+deb13-amd64", "yes"), ("", "yes")]
            {
                let said = Command::new("bash").args(["-c", read, "bash", kernel, built]).output().unwrap();
                assert_eq!(
                    String::from_utf8_lossy(&said.stdout).trim(),
                    want,
                    "for {kernel:?} where {built:?} is built"
                );
                assert!(said.status.success(), "{said:?}");
            }
        }
    }
}
