//! A place of a peer as a file system of this host.

use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linkspan_files::fs::Kind;
use linkspan_files::wire::{Answer, Request};
use linkspan_mount::{Mounted, Options};
use rustix::mount::{UnmountFlags, unmount};

use crate::place::Place;
use crate::task::Say;
use crate::{Dialer, Error, work};

/// Longest time until a name or an attribute is answered.
const NAMES: Duration = Duration::from_secs(5);

/// Longest time until data is, where nobody says otherwise.
pub const DATA: Duration = Duration::from_secs(60);

/// How a directory of a peer is mounted.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Longest time until a request for data is answered.
    pub data: Duration,
    /// It may be written.
    pub writable: bool,
}

/// Mounts a directory of a peer. `source`: what mount tables call it.
///
/// # Errors
/// [`Error::Usage`]: it is no directory; [`Error::Refused`]: it is to be written and the share is read-only; [`Error::Mount`]: nothing can be
/// mounted at `dir`, or it is no directory; [`Error::Files`].
pub fn open(
    place: Place,
    source: &str,
    dir: &Path,
    How { data, writable }: How,
    way: &Dialer,
    stop: impl Fn() -> bool + Clone + Send + Sync + 'static,
) -> Result<Mounted, Error> {
    let failed = |source| Error::Mount { dir: dir.display().to_string(), source };
    // The kernel takes a file, too, which then is none.
    if !std::fs::metadata(dir).map_err(failed)?.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    let mut names = way.client(stop.clone())?;
    match names.request(Request::Look(place.at()))? {
        Answer::Stat(entry) if entry.kind == Kind::Dir => {}
        Answer::Stat(entry) if entry.kind == Kind::Symlink => {
            return Err(Error::Usage(format!("{source} is a symbolic link: name the directory that it leads to")));
        }
        _ => return Err(Error::Usage(format!("{source} is no directory"))),
    }
    if writable
        && let Answer::Shares(shares) = names.request(Request::Shares)?
        && shares.contains(&(place.share.clone(), false))
    {
        return Err(Error::Refused(format!(
            "LS1852 share {0} is read-only there: its owner serves it with {0}=DIR:rw to change that",
            place.share
        )));
    }
    let (share, base, source) = (place.share, place.path, source.to_owned());
    let options = Options { share, base, source, names: NAMES.min(data), data, writable };
    linkspan_mount::mount(names, way.client(stop)?, dir, options).map_err(|source| {
        let device = |path: &Path| std::fs::metadata(path).map(|of| of.dev()).ok();
        // What fusermount3 says then is that it may not.
        let text = format!("something is mounted there already ({})", source.to_string().trim_end());
        failed(if device(dir) == device(&dir.join("..")) { source } else { io::Error::new(source.kind(), text) })
    })
}

/// One that a process has for another one, which has started it, and by a byte on standard input, or its end, has the mount go from its
/// directory; it ends when no program has anything open there, or when somebody else unmounts it. Says `mounted`, `note` and a text, or
/// `error` and a text, a line each. False: the last was an error.
pub fn serve(source: &str, dir: &Path, how: How) -> bool {
    // Started by way of /proc/self/exe, it is called so.
    let _ = rustix::thread::set_name(c"linkspand");
    let served = attended(source, dir, how);
    if let Err(error) = &served {
        say("error", &error.text());
    }
    served.is_ok()
}

/// Nobody may be there to hear it.
fn say(word: &str, text: &str) {
    let _ = writeln!(io::stdout(), "{word} {}", text.replace('\n', " "));
}

fn attended(source: &str, dir: &Path, how: How) -> Result<(), Error> {
    let place = Place::whole(source)?;
    let mounted = Arc::new(AtomicBool::new(false));
    let (is_mounted, at) = (mounted.clone(), dir.to_owned());
    let waiting = move || {
        let (mut more, mut detached, mut part) = (true, false, [0; 64]);
        while more {
            more = io::stdin().read(&mut part).is_ok_and(|len| len > 0);
            if !is_mounted.load(Ordering::SeqCst) {
                // What is mounted at this moment is dead then, and taken away by who has started this process.
                std::process::exit(1);
            }
            detached = detached || detach(&at).map_err(|error| say("note", &error.text())).is_ok();
        }
    };
    let waits = std::thread::Builder::new().name("unmount".into()).spawn(waiting);
    waits.map_err(|error| Error::system("a thread", error))?;
    let note: Say = Arc::new(|line: &str| say("note", line));
    let way = Dialer::to(&place.peer, work::log(&note))?;
    detach_dead(dir)?;
    let mount = open(place, source, dir, how, &way, || false)?;
    mounted.store(true, Ordering::SeqCst);
    let _ = writeln!(io::stdout(), "mounted");
    mount.run().map_err(|error| Error::system("/dev/fuse", error))
}

/// Takes from a directory what a process that was killed has left there. Attributes may be remembered, a listing is not.
///
/// # Errors
/// As [`detach`].
pub fn detach_dead(dir: &Path) -> Result<(), Error> {
    let dead = |error: io::Error| error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error());
    if std::fs::read_dir(dir).is_err_and(dead) { detach(dir) } else { Ok(()) }
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
