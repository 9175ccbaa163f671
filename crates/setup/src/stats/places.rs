//! Where pages lie: a directory of one user, a shared folder with one per user, a folder of one run.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use linkspan_shmring::page;

use super::ProcessStats;
use super::reading::{pages, processes, read_page};

/// Most names that are tried where names may be taken; as many containers with the same pid may share a directory.
pub(super) const SAME: usize = 256;

/// Most folders of runs that are looked into, and how deep runs within runs are: `lspan run` of a script that types `lspan run`.
pub(super) const RUNS: usize = 64;
pub(super) const DEEP: usize = 4;

/// What a folder of one run is called, before the number of the process that made it.
const RUN: &str = "run-";

/// File in such a folder by which it keeps its pages.
const KEEP: &str = "keep";

pub(super) fn keeps(dir: &Path) -> bool {
    dir.join(KEEP).exists()
}

/// A folder for the pages of one run, below the usual one: they stay until this is dropped, those of ended processes too. The lock of
/// its file `keep` says that the run lives.
#[derive(Debug)]
pub struct RunFolder(PathBuf, #[allow(dead_code, reason = "holds the lock")] File);

impl RunFolder {
    /// Makes the folder, and removes those that runs which were killed have left.
    ///
    /// # Errors
    /// The error of mkdir(2) or chmod(2), as EACCES; EPERM where the usual folder is not this user's alone.
    pub fn make(dir: &Path) -> std::io::Result<RunFolder> {
        let dir = own(dir)?;
        for path in std::fs::read_dir(&dir)?.flatten().map(|entry| entry.path()).filter(|path| is_run(path)) {
            match File::open(path.join(KEEP)) {
                // Held while it is removed, so that nobody takes it for their own meanwhile.
                Ok(keep) if keep.try_lock().is_ok() => remove_run(&path),
                // Of one that was killed between making the two; a full one stays.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => drop(std::fs::remove_dir(&path)),
                _ => {}
            }
        }
        for n in 0..SAME {
            let pid = std::process::id();
            let path = dir.join(if n == 0 { format!("{RUN}{pid}") } else { format!("{RUN}{pid}.{n}") });
            match std::fs::create_dir(&path) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
                other => other?,
            }
            // Whoever may enter the directory around it may read.
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755))?;
            // A run that starts at the same moment may remove the empty folder, or look at the file: then the next name is tried.
            let Ok(keep) = File::create_new(path.join(KEEP)) else { continue };
            if keep.try_lock().is_ok() && keep.metadata()?.nlink() > 0 {
                return Ok(RunFolder(path, keep));
            }
        }
        Err(std::io::ErrorKind::AlreadyExists.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// All processes that wrote a page, ended ones too, and those of runs within this one.
    ///
    /// # Errors
    /// As [`crate::stats::read`].
    pub fn read(&self) -> std::io::Result<Vec<ProcessStats>> {
        Ok(processes(all(&self.0)?.iter().filter_map(|path| read_page(path, false))))
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // The run around it tells of all its processes, those of this one too.
        if let Some(outer) = self.0.parent().filter(|outer| is_run(outer) && keeps(outer)) {
            all(&self.0).unwrap_or_default().iter().for_each(|page| hand_over(page, outer));
        }
        remove_run(&self.0);
    }
}

/// Gives a page a name in another folder, beside those of processes with the same number.
fn hand_over(page: &Path, to: &Path) {
    let Some(pid) = page.file_name().and_then(|name| name.to_str()?.split('.').next()) else { return };
    for n in 0..SAME {
        let name = if n == 0 { format!("{pid}.stats") } else { format!("{pid}.{n}.stats") };
        match std::fs::hard_link(page, to.join(name)) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            _ => return,
        }
    }
}

/// The pages of a run, and of those within it.
fn all(run: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = pages(run)?;
    let mut within = runs(run);
    for _ in 0..DEEP {
        found.extend(within.iter().flat_map(|run| pages(run).unwrap_or_default()));
        within = within.iter().flat_map(|run| runs(run)).take(RUNS).collect();
    }
    Ok(found)
}

/// Folders of runs in a folder.
fn runs(dir: &Path) -> Vec<PathBuf> {
    let folder = |path: &PathBuf| is_run(path) && std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(folder).take(RUNS).collect()
}

pub(super) fn is_run(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(RUN))
}

/// Removes the pages of a run and their folder, and nothing else that somebody put there.
fn remove_run(path: &Path) {
    // Of runs within it those that were killed; one that lives goes by itself.
    for run in runs(path) {
        if File::open(run.join(KEEP)).is_ok_and(|keep| keep.try_lock().is_ok()) {
            remove_run(&run);
        }
    }
    for file in pages(path).unwrap_or_default() {
        let _ = std::fs::remove_file(file);
    }
    let _ = std::fs::remove_file(path.join(KEEP));
    let _ = std::fs::remove_dir(path);
}

/// Whether a folder is one in which each user has a directory: everybody may write to it, and the sticky bit keeps each from what is another's.
pub fn shared(dir: &Path) -> bool {
    std::fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.mode() & 0o1002 == 0o1002)
}

/// The directory of this user's pages, made if need be: a part of a shared folder, else the folder itself.
pub(super) fn own(dir: &Path) -> std::io::Result<PathBuf> {
    if !shared(dir) {
        private_dir(dir)?;
        return Ok(dir.to_owned());
    }
    let uid = rustix::process::geteuid().as_raw();
    // A name may be another's: anybody can make it, and users of another user namespace have the same numbers.
    for n in 0..SAME {
        if let Ok(part) = own_part(dir.join(if n == 0 { uid.to_string() } else { format!("{uid}.{n}") })) {
            return Ok(part);
        }
    }
    // Somebody has taken them all: a name that nobody can guess, the same for all processes of this user.
    let prefix = format!("{uid}.");
    let ours = |path: &PathBuf| {
        let named = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix));
        named && std::fs::symlink_metadata(path).is_ok_and(|meta| meta.uid() == uid)
    };
    let found = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).filter(ours);
    for part in found {
        if let Ok(part) = own_part(part) {
            return Ok(part);
        }
    }
    // Keyed by the operating system's random bytes.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
    own_part(dir.join(format!("{uid}.{random:016x}")))
}

/// A part of a shared folder under this name, unless it is another user's.
fn own_part(part: PathBuf) -> std::io::Result<PathBuf> {
    let fresh = !part.exists();
    private_dir(&part)?;
    if fresh {
        // For the group: that of the user, or that of the shared folder where it has the set-group-ID bit.
        std::fs::set_permissions(&part, PermissionsExt::from_mode(0o750))?;
    }
    Ok(part)
}

/// Makes the directory, for this user alone, and refuses one that another user could write to.
fn private_dir(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    match std::fs::DirBuilder::new().mode(0o700).recursive(true).create(dir) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    let meta = std::fs::symlink_metadata(dir)?;
    let ours = meta.uid() == rustix::process::geteuid().as_raw();
    if meta.is_dir() && ours && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(std::io::Error::other("it must be a directory of this user that no other user can write to"))
}

/// Removes what dead processes have left.
pub(super) fn sweep(dir: &Path) {
    for path in pages(dir).unwrap_or_default() {
        let number = path.file_name().and_then(|name| name.to_str()?.split('.').next()?.parse::<u32>().ok());
        if number.is_some() {
            let _ = page::sweep(&path);
        }
    }
}
