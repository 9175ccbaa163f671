//! This user's keys, as people and programs ask for them.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;

use linkspan_fabric::keys::{self, KeyError, Keyring, Peer, is_host, name_fault};
use linkspan_service::host_name;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::Error;

/// What this side calls itself: as it wishes, else as its host does.
///
/// # Errors
/// [`Error::Usage`]: that cannot be a name.
pub fn own_name(wish: Option<&str>) -> Result<String, Error> {
    let name = wish.map_or_else(host_name, str::to_owned);
    match name_fault(&name) {
        None => Ok(name),
        Some(why) => Err(Error::Usage(format!("the name {name:?} {why}; choose another with --name"))),
    }
}

/// By which this user is added elsewhere.
///
/// # Errors
/// [`Error::Usage`]: that cannot be a name.
pub fn own(ring: &Keyring, name: Option<&str>) -> Result<Peer, Error> {
    Ok(Peer { name: own_name(name)?, key: ring.public(), hosts: Vec::new() })
}

/// Trusts the peer of a line of `lspan key show`, under this name and at these hosts first, where they are said.
///
/// # Errors
/// [`Error::Keys`].
pub fn add(ring: &Keyring, line: &str, name: Option<&str>, hosts: &[String]) -> Result<Peer, KeyError> {
    let mut peer = Peer::parse(line.trim())?;
    peer.name = name.map_or(peer.name, str::to_owned);
    if let Some(why) = name_fault(&peer.name) {
        return Err(KeyError::Name { name: peer.name, why });
    }
    if hosts.iter().any(|host| !is_host(host)) {
        return Err(KeyError::Line { place: String::new(), why: "a host that was named cannot be one" });
    }
    peer.hosts.splice(..0, hosts.iter().cloned());
    // With the hosts that were named it must be a line again.
    let peer = Peer::parse(&peer.line())?;
    ring.add(peer.clone())?;
    Ok(peer)
}

/// A descriptor of inotify(7) on the directory of the keys, which is made where it is missing: a read waits until a file or its permissions
/// have changed, whoever has changed them.
///
/// # Errors
/// [`Error::Keys`]: there is no place for keys; [`Error::System`]: the directory cannot be made or watched.
pub fn watch() -> Result<OwnedFd, Error> {
    let dir = keys::dir(&|name| std::env::var_os(name))?;
    let failed = |error: io::Error| Error::system(dir.display().to_string(), error);
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
    let queue = inotify::init(CreateFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let flags = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::DELETE;
    let flags = flags | WatchFlags::ATTRIB | WatchFlags::ONLYDIR;
    inotify::add_watch(&queue, &dir, flags).map_err(|error| failed(error.into()))?;
    Ok(queue)
}
