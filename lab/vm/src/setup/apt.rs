//! apt, here and in the root.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cache::Cache;
use crate::error::{At, Error, Result};
use crate::proc;
use crate::root;

/// The mirror that this machine's own apt takes Debian from.
pub(crate) fn mirror() -> Result<String> {
    let mut list = Command::new("apt-get");
    list.args(["indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages"]);
    let text = proc::output(&mut list)?;
    debian(&text).ok_or_else(|| {
        Error::Unfit("apt has no list of Debian's main archive: `apt-get update` with one in its sources".to_owned())
    })
}

/// Whether the mirror answers and has what is asked of it; told before anything is begun.
pub(crate) fn reachable(cache: &Cache, suites: &[&str]) -> Result<()> {
    let mirror = mirror()?;
    for suite in suites {
        let url = format!("{mirror}/dists/{suite}/InRelease");
        let mut helper = Command::new("/usr/lib/apt/apt-helper");
        helper.args(["-o", "APT::Sandbox::User=root", "download-file", &url]).arg(cache.path("probe"));
        let found = proc::output(&mut helper);
        let _ = fs::remove_file(cache.path("probe"));
        found.map_err(|error| Error::Unfit(format!("the mirror {mirror} gives no {suite}: {error}")))?;
    }
    Ok(())
}

/// The first archive in the list that is Debian's main one.
pub(crate) fn debian(list: &str) -> Option<String> {
    list.lines().find_map(|line| line.strip_prefix("Debian|Debian|")).map(|uri| uri.trim_end_matches('/').to_owned())
}

/// Keys that sign the archive, where this machine has them.
pub(crate) fn keys() -> Option<&'static str> {
    ["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"]
        .into_iter()
        .find(|path| Path::new(path).exists())
}

/// Gives the root the mirror, the suites and how this machine reaches them (proxies and the like).
pub(crate) fn sources(root: &Path, suites: &[&str]) -> Result<()> {
    let mirror = mirror()?;
    let lines: String = suites.iter().map(|suite| format!("deb {mirror} {suite} main\n")).collect();
    let file = root.join("etc/apt/sources.list");
    fs::write(&file, lines).at(file.display())?;
    let dump = proc::output(Command::new("apt-config").args(["dump", "Acquire"]))?;
    let mut text: String = dump.lines().filter(|line| line.contains("roxy")).map(|line| format!("{line}\n")).collect();
    text.push_str("Acquire::Languages \"none\";\nAcquire::Retries \"2\";\nAPT::Sandbox::User \"root\";\n");
    text.push_str("APT::Install-Recommends \"0\";\n");
    let file = root.join("etc/apt/apt.conf.d/90lab");
    fs::write(&file, text).at(file.display())?;
    // A service that a package brings is not started.
    let file = root.join("usr/sbin/policy-rc.d");
    fs::write(&file, "#!/bin/sh\nexit 101\n").at(file.display())?;
    proc::output(Command::new("chmod").arg("755").arg(&file))?;
    let resolv = root.join("etc/resolv.conf");
    let _ = fs::copy("/etc/resolv.conf", &resolv);
    let _ = fs::copy("/etc/hosts", root.join("etc/hosts"));
    Ok(())
}

/// Fetches the package lists anew.
pub(crate) fn update(root: &Path, title: &str) -> Result<()> {
    proc::watched(title, &mut root::script(root, "apt-get -q update"))
}

/// Installs packages; what an interrupted run left half done is finished first. A name with `-` behind it is kept out.
pub(crate) fn install(root: &Path, title: &str, packages: &[&str], suite: &str) -> Result<()> {
    let words = packages.join(" ");
    let text = format!("dpkg --configure -a\napt-get -q -y -t {suite} install {words}\napt-get clean");
    proc::watched(title, &mut root::script(root, &text))
}

/// Downloads packages into a folder of the root, without installing them.
pub(crate) fn download(root: &Path, title: &str, packages: &[String], folder: &str) -> Result<()> {
    let words = packages.join(" ");
    let text = format!("mkdir -p /{folder}\ncd /{folder}\napt-get -q download {words}");
    proc::watched(title, &mut root::script(root, &text))
}

/// Names of packages that begin with these letters.
pub(crate) fn names(root: &Path, prefix: &str) -> Result<Vec<String>> {
    let text = proc::output(&mut root::script(root, &format!("apt-cache pkgnames {prefix}")))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Version of a package in the archive.
pub(crate) fn version(root: &Path, package: &str) -> Result<String> {
    let text = proc::output(&mut root::script(root, &format!("apt-cache show --no-all-versions {package}")))?;
    let version = text.lines().find_map(|line| line.strip_prefix("Version: "));
    version.map(str::to_owned).ok_or_else(|| Error::Check(format!("apt knows no version of {package}")))
}

#[cfg(test)]
mod tests;
