//! What whole systems get at each boot, as an archive on a second disk: the agent, our programs, our driver's sources, and the services.

use std::fs;
use std::path::Path;

use crate::cpio::Archive;
use crate::error::{At, Result};
use crate::initrd::Put;

/// Our driver's sources in the tree, and where `kernel/README.md` has them put.
const SOURCES: (&str, &str) = ("kernel", "/usr/src/linkspan-1");

/// Programs of ours that users run; those of tests alone stay out.
const PROGRAMS: [&str; 3] = ["lspan", "libnccl-net-linkspan.so", "plugin-host"];

/// The services with their files, each below this folder at the path where packages have it: tests copy them from there.
pub(crate) const PACKAGED: &str = "/srv/linkspand";

/// Debian's packages of ours, in a guest.
pub(crate) const DEBS: &str = "/srv/debs";

/// What is run to test them.
const TESTS: &str = "debian/tests";

/// What Debian's package has, in lines of two words: a file and the folder that it goes to.
const LIST: &str = "debian/linkspan.install";

/// What debhelper finds by its name.
const BY_NAME: [(&str, &str); 4] = [
    ("bin/linkspand/data/linkspand.service", "usr/lib/systemd/system/linkspand.service"),
    ("bin/lspan/data/lspan-metrics.service", "usr/lib/systemd/system/lspan-metrics.service"),
    ("packaging/run-linkspan-stats.mount", "usr/lib/systemd/system/run-linkspan-stats.mount"),
    ("debian/linkspan.tmpfiles", "usr/lib/tmpfiles.d/linkspan.conf"),
];

/// The archive.
pub(crate) fn archive(puts: &[Put]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    let read = |path: &Path| fs::read(path).at(path.display());
    archive.file("/usr/bin/agent", 0o755, &read(&std::env::current_exe().at("our own program file")?)?);
    for put in puts {
        if PROGRAMS.iter().any(|name| put.to.ends_with(&format!("/{name}"))) {
            archive.file(&put.to, 0o755, &read(&put.from)?);
        }
    }
    folder(&mut archive, Path::new(SOURCES.0), SOURCES.1)?;
    if let Some(program) = std::env::var_os("LINKSPAND").filter(|path| !path.is_empty()) {
        archive.file(&format!("{PACKAGED}/usr/sbin/linkspand"), 0o755, &read(Path::new(&program))?);
        let list = fs::read_to_string(LIST).at(LIST)?;
        let listed = list.lines().filter_map(|line| line.split_once(' ')).map(|(from, to)| (from, put(from, to)));
        let by_name = BY_NAME.map(|(from, to)| (from, format!("{PACKAGED}/{to}")));
        for (from, to) in listed.chain(by_name) {
            archive.file(&to, 0o644, &read(Path::new(from))?);
        }
    }
    Ok(archive.finish())
}

/// The same with Debian's packages of ours, and what tests them, in place of all others: nothing of ours is installed.
pub(crate) fn packages(debs: &Path) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    archive.file("/usr/bin/agent", 0o755, &fs::read(std::env::current_exe().at("our own program file")?).at("agent")?);
    for entry in fs::read_dir(debs).at(debs.display())? {
        let path = entry.at(debs.display())?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // No display is here, and what debuggers want is large.
        if name.ends_with(".deb") && !["-dbgsym_", "-gui_", "-desktop_"].iter().any(|part| name.contains(part)) {
            archive.file(&format!("{DEBS}/{name}"), 0o644, &fs::read(&path).at(path.display())?);
        }
    }
    folder(&mut archive, Path::new(TESTS), &format!("{DEBS}/tests"))?;
    Ok(archive.finish())
}

/// Where a file of the package's list goes.
fn put(from: &str, to: &str) -> String {
    format!("{PACKAGED}/{to}/{}", from.rsplit('/').next().unwrap_or(from))
}

fn folder(archive: &mut Archive, from: &Path, to: &str) -> Result<()> {
    for entry in fs::read_dir(from).at(from.display())? {
        let path = entry.at(from.display())?.path();
        let to = format!("{to}/{}", path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default());
        if path.is_dir() {
            folder(archive, &path, &to)?;
        } else {
            archive.file(&to, 0o644, &fs::read(&path).at(path.display())?);
        }
    }
    Ok(())
}
