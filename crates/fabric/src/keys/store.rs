//! The files of the keys. Written whole beside their place, fsynced and renamed, under a lock: a crash leaves the old or the new one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use linkspan_proto::login::{KeyPair, Secret};
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::{KeyError, LINE_MAX, PEERS_MAX, Peer};

/// What tells that a file is another than before; all zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp([i64; 5]);

impl Stamp {
    pub(super) fn of(path: &Path) -> Stamp {
        let Ok(meta) = std::fs::metadata(path) else { return Stamp::default() };
        Stamp([meta.dev() as i64, meta.ino() as i64, meta.size() as i64, meta.ctime(), meta.ctime_nsec()])
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> KeyError {
    let path = path.to_owned();
    move |source| KeyError::File { what, path, source }
}

/// Opens a file of ours. `None`: there is none. Others may not write it, nor read it where it is `private`.
fn open(path: &Path, private: bool) -> Result<Option<File>, KeyError> {
    // The open of a fifo would wait for whoever writes to it.
    let file = match OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", path)(error)),
    };
    let meta = file.metadata().map_err(failed("read", path))?;
    if !meta.is_file() {
        return Err(failed("read", path)(std::io::Error::other("it is no regular file")));
    }
    let (mode, owner, user) = (meta.mode(), meta.uid(), rustix::process::geteuid().as_raw());
    let forbidden = if private { 0o077 } else { 0o022 };
    if mode & forbidden != 0 || owner != user {
        return Err(KeyError::Open { path: path.to_owned(), mode, owner, user, private });
    }
    Ok(Some(file))
}

pub(super) fn make_dir(dir: &Path) -> Result<(), KeyError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("made", dir))
}

/// Excludes other processes that change the keys, until it is dropped.
pub(super) fn lock(dir: &Path) -> Result<File, KeyError> {
    let path = dir.join(".lock");
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed("opened", &path))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|error| failed("locked", &path)(error.into()))?;
    Ok(file)
}

pub(super) fn read_key(path: &Path) -> Result<Option<KeyPair>, KeyError> {
    let Some(file) = open(path, true)? else { return Ok(None) };
    // As long as it can get: a vector that grows leaves its bytes behind.
    let mut text = Zeroizing::new(Vec::with_capacity(80));
    file.take(80).read_to_end(&mut text).map_err(failed("read", path))?;
    let not_a_key = || KeyError::NotAKey { path: path.to_owned() };
    let digits: &[u8; 64] = text.trim_ascii().try_into().map_err(|_| not_a_key())?;
    let mut bytes = Zeroizing::new([0; 32]);
    HEXLOWER_PERMISSIVE.decode_mut(digits, &mut *bytes).map_err(|_| not_a_key())?;
    Ok(Some(KeyPair::new(Secret::new(*bytes))))
}

pub(super) fn write_key(path: &Path, pair: &KeyPair) -> Result<(), KeyError> {
    let mut text = Zeroizing::new([b'\n'; 65]);
    HEXLOWER.encode_mut(pair.private().expose(), &mut text[..64]);
    replace(path, &*text, 0o600)
}

pub(super) fn read_peers(path: &Path) -> Result<Vec<Peer>, KeyError> {
    let Some(file) = open(path, false)? else { return Ok(Vec::new()) };
    let mut bytes = Vec::new();
    file.take((PEERS_MAX * LINE_MAX) as u64).read_to_end(&mut bytes).map_err(failed("read", path))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| KeyError::Line { place: format!("{}: ", path.display()), why: "it is not text" })?;
    let mut peers = Vec::new();
    for (n, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if peers.len() == PEERS_MAX {
            return Err(KeyError::Full);
        }
        let place = |error| match error {
            KeyError::Line { why, .. } => {
                KeyError::Line { place: format!("{}, line {}: ", path.display(), n + 1), why }
            }
            other => other,
        };
        peers.push(Peer::parse(line).map_err(place)?);
    }
    Ok(peers)
}

pub(super) fn write_peers(path: &Path, peers: &[Peer]) -> Result<(), KeyError> {
    let text: String = peers.iter().map(|peer| peer.line() + "\n").collect();
    replace(path, text.as_bytes(), 0o600)
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), KeyError> {
    let new = path.with_extension("new");
    let written = || -> std::io::Result<()> {
        // Left behind by a process that was killed; the lock says that nobody is at it.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    written().map_err(failed("written", path))
}
