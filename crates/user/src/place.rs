//! Places on peers and files of this host, as people and programs write them.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linkspan_files::fs::{Fs, RealFs};
use linkspan_files::name::{BadName, Name, RelPath, escape};
use linkspan_files::wire::PeerPath;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::task::Say;
use crate::{Error, replace};

/// What the second spelling of a place begins with.
const SCHEME: &str = "linkspan://";

/// A place on a peer: `PEER:SHARE/PATH`, or `linkspan://PEER/SHARE/PATH` with `%` and two digits for any byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// As [`linkspan_service::rendezvous::ask`] takes it.
    pub peer: String,
    /// Empty where only the peer is named.
    pub share: String,
    /// In the share.
    pub path: RelPath,
    /// It ends in a slash: a directory is meant.
    pub dir: bool,
}

impl Place {
    /// Reads one.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn parse(text: &str) -> Result<Place, Error> {
        let bad = |why: &str| Error::Usage(format!("{text:?} {why}; write PEER:SHARE/PATH"));
        let (peer, rest) = match text.strip_prefix(SCHEME) {
            Some(uri) => {
                let (peer, rest) = uri.split_once('/').unwrap_or((uri, ""));
                let digits = || bad("has a % without two digits behind it");
                let peer = String::from_utf8(unescape(peer).ok_or_else(digits)?).map_err(|_| bad("names no peer"))?;
                (peer, unescape(rest).ok_or_else(digits)?)
            }
            None => {
                let cut = match text.strip_prefix('[') {
                    Some(rest) => rest.find("]:").map(|at| (&text[..at + 2], &text[at + 3..])),
                    None => text.split_once(':'),
                };
                let (peer, rest) = cut.ok_or_else(|| bad("has no colon behind the peer's name"))?;
                (peer.trim_matches(['[', ']']).to_owned(), rest.as_bytes().to_vec())
            }
        };
        if peer.is_empty() {
            return Err(bad("names no peer"));
        }
        let rest = rest.trim_ascii_start();
        let rest = &rest[rest.iter().position(|&b| b != b'/').unwrap_or(rest.len())..];
        let (share, path) = match rest.iter().position(|&b| b == b'/') {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, &b""[..]),
        };
        let share = String::from_utf8(share.to_vec()).map_err(|_| bad("names a share that cannot be"))?;
        if peer.chars().chain(share.chars()).any(char::is_control) {
            return Err(bad("has a control character in the name of the peer or the share"));
        }
        let path = RelPath::new(path).map_err(|why: BadName| bad(&format!("has a path that cannot be: {why}")))?;
        Ok(Place { peer, share, path, dir: rest.ends_with(b"/") })
    }

    /// One with a share.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn whole(text: &str) -> Result<Place, Error> {
        let place = Place::parse(text)?;
        if place.share.is_empty() {
            return Err(Error::Usage(format!("{text:?} names no share; `lspan ls {}:` lists them", place.peer_word())));
        }
        Ok(place)
    }

    /// The peer as it stands before the colon.
    pub(crate) fn peer_word(&self) -> String {
        if self.peer.contains(':') { format!("[{}]", self.peer) } else { self.peer.clone() }
    }

    /// Several, all of one peer.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn of_one_peer(texts: &[String]) -> Result<Vec<Place>, Error> {
        let places = texts.iter().map(|text| Place::whole(text)).collect::<Result<Vec<_>, _>>()?;
        match places.iter().all(|place| place.peer == places[0].peer) {
            true => Ok(places),
            false => Err(Error::Usage("the places are of several peers; name one peer at a time".into())),
        }
    }

    /// For requests.
    pub fn at(&self) -> PeerPath {
        PeerPath { share: self.share.clone(), path: self.path.clone() }
    }
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    Some(bytes)
}

/// An entry of a directory of this host.
#[derive(Clone, Debug)]
pub struct Local {
    /// The directory that it is in.
    pub dir: Arc<OwnedFd>,
    /// Its name there.
    pub name: Name,
    /// What it was called: a link has a name of its own.
    pub called: Vec<u8>,
    /// The directory itself, where another file system is mounted at it.
    pub opened: Option<Arc<OwnedFd>>,
}

impl Local {
    /// Opens the directory of an entry that is there.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Usage`]: it is the root directory.
    pub fn find(path: &Path) -> Result<Local, Error> {
        let failed = |error: std::io::Error| Error::system(escape(path.as_os_str().as_bytes()), error);
        let real = path.canonicalize().map_err(failed)?;
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(Error::Usage("the root directory cannot be sent; name what is in it".into()));
        };
        let called = path.file_name().unwrap_or(name).as_bytes().to_vec();
        let name = Name::new(name.as_bytes())
            .map_err(|why| Error::Usage(format!("{} cannot be sent: {why}", path.display())))?;
        let dir = Arc::new(RealFs::root(parent).map_err(failed)?);
        let opened = match RealFs.open_child(&dir, &name) {
            Err(error) if error.kind() == ErrorKind::CrossesDevices => {
                Some(Arc::new(RealFs::root(&real).map_err(failed)?))
            }
            _ => None,
        };
        Ok(Local { dir, name, called, opened })
    }
}

/// Where state of this user is: `$XDG_STATE_HOME/linkspan/PART`, made where it is missing.
///
/// # Errors
/// [`Error::System`]: it cannot be made, or neither variable names a directory.
pub fn state_dir(part: &str) -> Result<PathBuf, Error> {
    below("XDG_STATE_HOME", ".local/state", part)
}

/// Keeps the state of this user's service to this process while the file is open: each session bus has the service's name to give.
///
/// # Errors
/// [`Error::Limit`]: another process has it. [`Error::System`].
pub fn lock_service(say: &Say) -> Result<File, Error> {
    let dir = state_dir("service")?;
    let path = dir.join("lock");
    let failed = |error| Error::system(path.display().to_string(), error);
    // To be written to, for NFS locks nothing else.
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            return Err(Error::Limit(format!(
                "LS1856 another service of this user has its state in {} already, on another session bus or host: end that one, or name \
                 another folder in XDG_STATE_HOME",
                dir.display()
            )));
        }
        Err(error) => {
            say(&format!("{} cannot be locked, so that a second service would not be noticed: {error}", path.display()))
        }
    }
    Ok(file)
}

/// What a file of state has, and why it is not to be written over where it cannot be read.
pub(crate) fn read_state<T: DeserializeOwned + Default>(path: &Path, say: &Say) -> (T, Option<String>) {
    match std::fs::read(path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)) {
        Ok(state) => (state, None),
        Err(error) if error.kind() == ErrorKind::NotFound => (T::default(), None),
        Err(error) => {
            let why = format!("LS1850 {} cannot be read: {error}", path.display());
            say(&why);
            // What a newer release has written, or a disk gives again, is not written over.
            let way_out = "nothing is changed until it can, or is moved away, and the service started anew";
            (T::default(), Some(format!("{why}; {way_out}")))
        }
    }
}

/// Puts a file of state, closed to other users, in the place of the one before: whole, also where the power is lost.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn write_state<T: Serialize>(path: &Path, state: &T) -> Result<(), Error> {
    let written = serde_json::to_vec(state).map_err(Into::into).and_then(|text| replace(path, &text, 0o600));
    written.map_err(|error| Error::system(path.display().to_string(), error))
}

fn below(variable: &str, home: &str, part: &str) -> Result<PathBuf, Error> {
    let of_home = || Some(PathBuf::from(std::env::var_os("HOME").filter(|home| !home.is_empty())?).join(home));
    let base = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute()).or_else(of_home);
    let Some(base) = base else {
        return Err(Error::system(
            format!("neither {variable} nor HOME names a directory"),
            ErrorKind::NotFound.into(),
        ));
    };
    let dir = base.join("linkspan").join(part);
    std::fs::create_dir_all(&dir).map_err(|error| Error::system(dir.display().to_string(), error))?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(peer: &str, share: &str, path: &[u8], dir: bool) -> Place {
        Place { peer: peer.into(), share: share.into(), path: RelPath::new(path).unwrap(), dir }
    }

    #[test]
    fn a_place_has_two_spellings_and_the_second_says_any_name() {
        for (text, want) in [
            ("spark:", place("spark", "", b"", false)),
            ("spark:data/a/b", place("spark", "data", b"a/b", false)),
            ("mini2:in/a b/", place("mini2", "in", b"a b", true)),
            ("[fe80::1%eth0]:in", place("fe80::1%eth0", "in", b"", false)),
            ("[10.0.0.2:5000]:in/x", place("10.0.0.2:5000", "in", b"x", false)),
            ("linkspan://mini2/in/a%20b/", place("mini2", "in", b"a b", true)),
            ("linkspan://fe80%3A%3A1%25eth0/in/%FF", place("fe80::1%eth0", "in", b"\xff", false)),
            ("linkspan://mini2", place("mini2", "", b"", false)),
        ] {
            assert_eq!(Place::parse(text).unwrap(), want, "{text}");
        }
        for bad in [
            "",
            "mini2",
            ":in",
            "linkspan://",
            "linkspan:///in",
            "linkspan://a/in/%f",
            "linkspan://a/in/%+1",
            "linkspan://a%00b/in",
            "linkspan://a/i%0An/x",
            "a:in/../b",
        ] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
        for (peer, printed) in [("mini2:", "`lspan ls mini2:`"), ("[::1]:", "`lspan ls [::1]:`")] {
            let why = Place::whole(peer).unwrap_err().text();
            assert!(why.contains(printed), "{why}");
        }
    }
}
