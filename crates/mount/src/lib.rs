//! A peer's share as a file system of this host (FUSE), read-only or written through: a write returns when the peer has it.
//!
//! Two sessions with the peer: one for names, one for data. No thread that the kernel waits for ever waits for the peer: requests are
//! handed to the thread of their session, and what is not answered by its deadline is answered with EIO by a timer that makes no
//! call of the library.
#![forbid(unsafe_code)]

mod ahead;
mod attr;
mod courier;
mod dirs;
mod fs;
mod nodes;
mod pending;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Config, MountOption, Session, SessionUnmounter};
use linkspan_files::client::Client;
use linkspan_files::name::RelPath;

use fs::{Mount, View};

/// What is mounted, and how.
#[derive(Debug)]
pub struct Options {
    /// Of the peer.
    pub share: String,
    /// Directory in it.
    pub base: RelPath,
    /// What mount tables call it.
    pub source: String,
    /// Longest time until a request for names or attributes is answered.
    pub names: Duration,
    /// Longest time until a request for data is answered, or an open: it comes after what is read ahead.
    pub data: Duration,
    /// It may be written.
    pub writable: bool,
}

/// A mounted share.
#[derive(Debug)]
pub struct Mounted(Session<Mount>);

/// Mounts the share at a directory. The clients are for names and for data.
///
/// # Errors
/// The error of mount(2), as EPERM, or one with what fusermount3 said; EAGAIN where no thread can be started.
pub fn mount(names: Client, data: Client, dir: &Path, options: Options) -> io::Result<Mounted> {
    let mut config = Config::default();
    config.mount_options = vec![
        if options.writable { MountOption::RW } else { MountOption::RO },
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::DefaultPermissions,
        MountOption::FSName(options.source.clone()),
        MountOption::Subtype("linkspan".into()),
    ];
    config.n_threads = Some(2);
    let view = View::new(options);
    let mount = Mount::start(view.clone(), names, data)?;
    let session = Session::new(mount, dir, &config)?;
    view.can_notify(session.notifier());
    Ok(Mounted(session))
}

impl Mounted {
    /// What unmounts it, from any thread.
    pub fn unmounter(&mut self) -> SessionUnmounter {
        self.0.unmount_callable()
    }

    /// Serves the kernel until it is unmounted.
    ///
    /// # Errors
    /// The error of reading /dev/fuse with read(2); ENODEV, by which the kernel says that it was unmounted, is none.
    pub fn run(self) -> io::Result<()> {
        self.0.run()
    }
}

type Shared = Arc<View>;
