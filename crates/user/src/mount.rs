//! A place of a peer as a file system of this host.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use linkspan_files::fs::Kind;
use linkspan_files::wire::{Answer, Request};
use linkspan_mount::{Mounted, Options};
use rustix::mount::{UnmountFlags, unmount};

use crate::place::Place;
use crate::{Dialer, Error};

/// Longest time until a name or an attribute is answered.
const NAMES: Duration = Duration::from_secs(5);

/// Longest time until data is, where nobody says otherwise.
pub const DATA: Duration = Duration::from_secs(60);

/// Mounts a directory of a peer, read-only. `source`: what mount tables call it; `data`: longest time until a request for data is answered.
///
/// # Errors
/// [`Error::Usage`]: it is no directory; [`Error::Files`], [`Error::System`].
pub fn open(
    place: Place,
    source: &str,
    dir: &Path,
    data: Duration,
    way: &Dialer,
    stop: impl Fn() -> bool + Clone + Send + Sync + 'static,
) -> Result<Mounted, Error> {
    let mut names = way.client(stop.clone())?;
    match names.request(Request::Stat(place.at()))? {
        Answer::Stat(entry) if entry.kind == Kind::Dir => {}
        _ => return Err(Error::Usage(format!("{source} is no directory"))),
    }
    let (share, base, source) = (place.share, place.path, source.to_owned());
    let options = Options { share, base, source, names: NAMES.min(data), data };
    linkspan_mount::mount(names, way.client(stop)?, dir, options)
        .map_err(|source| Error::Mount { dir: dir.display().to_string(), source })
}

/// Takes a mount from its directory. What programs have open there they keep until they close it; it runs until then.
///
/// # Errors
/// [`Error::System`]: nothing is mounted there, or fusermount3 says no.
pub fn detach(dir: &Path) -> Result<(), Error> {
    let failed = |error: io::Error| Error::system(format!("{} cannot be unmounted", dir.display()), error);
    match unmount(dir, UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        // What fusermount3 has mounted for a user it unmounts, too.
        Err(rustix::io::Errno::PERM) => {
            let mut command = Command::new("fusermount3");
            command.args(["-u", "-z", "--"]).arg(dir).stdin(Stdio::null()).stderr(Stdio::null());
            match command.status().map_err(failed)?.success() {
                true => Ok(()),
                false => Err(failed(io::Error::other("fusermount3 refuses it"))),
            }
        }
        Err(error) => Err(failed(error.into())),
    }
}
