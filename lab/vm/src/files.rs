//! What whole systems get at each boot, as an archive on a second disk: the agent, our programs, our driver's sources.

use std::fs;
use std::path::Path;

use crate::cpio::Archive;
use crate::error::{At, Result};
use crate::initrd::Put;

/// Our driver's sources in the tree, and where `kernel/README.md` has them put.
const SOURCES: (&str, &str) = ("kernel", "/usr/src/linkspan-1");

/// Programs of ours that users run; those of tests alone stay out.
const PROGRAMS: [&str; 3] = ["lspan", "libnccl-net-linkspan.so", "plugin-host"];

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
    Ok(archive.finish())
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
