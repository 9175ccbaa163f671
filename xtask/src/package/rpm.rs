//! `package rpm` and `package arch`: for Fedora and its kin, and for Arch, from the same two archives of sources as Debian's packages. Neither
//! system runs here: what is built is installed into the root of a fresh Debian, or laid out as makepkg does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{deb, epoch, place, source};
use crate::capi::install::version;
use crate::run::{self, Outcome};

/// Scripts that try what was built.
const TRY_RPM: &str = "xtask/src/package/try-rpm.sh";
const TRY_ARCH: &str = "xtask/src/package/try-arch.sh";

/// Builds the RPM packages, installs, uses and removes them.
pub(super) fn rpm(root: &Path) -> Outcome {
    for (program, package) in
        [("rpmbuild", "rpm"), ("mmdebstrap", "mmdebstrap"), ("dpkg-source", "dpkg-dev"), ("msgfmt", "gettext")]
    {
        if run::which(program).is_none() {
            return Outcome::Skipped(format!("no {program} (Debian: {package})"));
        }
    }
    if !run::is_root() {
        return Outcome::Skipped("packages are tried in a root of their own, which needs root".to_owned());
    }
    outcome(build_rpm(root).and_then(|out| {
        deb::in_fresh_root(root, deb::RELEASES[0], &[root.join(TRY_RPM), out.clone()])?;
        println!("{}", out.display());
        Ok(())
    }))
}

fn outcome(result: Result<(), String>) -> Outcome {
    result.map_or_else(Outcome::Failed, |()| Outcome::Done)
}

fn build_rpm(root: &Path) -> Result<PathBuf, String> {
    let sources = place(root).join("source");
    source::make(root, &sources)?;
    let top = place(root).join("rpm");
    let _ = fs::remove_dir_all(&top);
    let spec = filled(root, "linkspan.spec", &sources, &top)?;
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild.args(["-bb", "--quiet"]).env("SOURCE_DATE_EPOCH", epoch(root)?);
    // The database of packages of this machine is not rpm's, and its folders for libraries are not Fedora's.
    rpmbuild.args(["--nodeps", "--define", "_lib lib64", "--define", "_libdir /usr/lib64"]);
    // Nor has Debian 12 a GTK that is new enough for the window.
    rpmbuild.args(["--without", "gui"]);
    rpmbuild.arg("--define").arg(format!("_topdir {}", top.display()));
    rpmbuild.arg("--define").arg(format!("_sourcedir {}", sources.display())).arg(&spec);
    run::must(&mut rpmbuild)?;
    Ok(top.join("RPMS"))
}

/// Lays out what makepkg would pack.
pub(super) fn arch(root: &Path) -> Outcome {
    for (program, package) in [("dpkg-source", "dpkg-dev"), ("msgfmt", "gettext")] {
        if run::which(program).is_none() {
            return Outcome::Skipped(format!("no {program} (Debian: {package})"));
        }
    }
    let sources = place(root).join("source");
    let made = source::make(root, &sources).and_then(|_| {
        let top = place(root).join("arch");
        let _ = fs::remove_dir_all(&top);
        filled(root, "PKGBUILD", &sources, &top)?;
        super::stage::put(&root.join("packaging/linkspan.install"), &top.join("linkspan.install"))?;
        run::must(Command::new("bash").arg(root.join(TRY_ARCH)).arg(&top).arg(&sources))?;
        println!("{}", top.display());
        Ok(())
    });
    outcome(made)
}

/// A recipe with the version and the sums of the sources in it, in `top`.
fn filled(root: &Path, name: &str, sources: &Path, top: &Path) -> Result<PathBuf, String> {
    let version = version(root)?;
    let from = root.join("packaging").join(name);
    let text = fs::read_to_string(&from).map_err(|e| format!("{}: {e}", from.display()))?;
    let archives = ["orig", "orig-vendor"].map(|part| format!("linkspan_{version}.{part}.tar.xz"));
    let sums = run::output(Command::new("sha256sum").args(archives).current_dir(sources))?;
    let sums: Vec<&str> = sums.lines().filter_map(|line| line.split(' ').next()).collect();
    let text = text.replace("@VERSION@", &version).replace("@SUMS@", &sums.join(" "));
    fs::create_dir_all(top).map_err(|e| format!("{}: {e}", top.display()))?;
    let to = top.join(name);
    fs::write(&to, text).map_err(|e| format!("{}: {e}", to.display()))?;
    Ok(to)
}
