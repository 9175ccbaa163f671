//! The keys of a user: the own pair and the public keys of trusted peers, in `$XDG_CONFIG_HOME/linkspan` (or
//! `~/.config/linkspan`). `key` is the private half, 64 hexadecimal digits, mode 0600; `peers` has a line for each peer:
//! `linkspan1 KEY NAME [HOST,HOST...]`, the key in base 64. The same line is what `lspan key show` prints.

mod peer;
mod store;

pub use peer::{HOSTS_MAX, LINE_MAX, NAME_MAX, Peer, is_host, name_fault};

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use linkspan_proto::login::{Admit, Guard, KeyPair, LoginError, PublicKey};

use store::Stamp;

/// Most peers that a file may hold.
pub const PEERS_MAX: usize = 1024;

/// What makes a file of ours fit for use.
fn fit(owner: u32, user: u32, private: bool) -> String {
    let mode = if private { "600" } else { "644" };
    match owner == user {
        true => format!("chmod {mode} it"),
        false => format!("as root chown {user} it, then chmod {mode} it"),
    }
}

/// Why keys cannot be used or stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Neither variable names a directory.
    #[error("LS0520 there is no place for keys: set HOME, or XDG_CONFIG_HOME to an absolute path")]
    Nowhere,
    /// The operating system refuses a file.
    #[error("LS0521 {} cannot be {what}", path.display())]
    File {
        /// `read`, `written`, ...
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Others may read the private key, or write what is trusted.
    #[error(
        "LS0522 {} has mode {:04o} and belongs to user {owner}: it must be this user's own (number {user}) and closed to others; {}",
        path.display(), mode & 0o7777, fit(*owner, *user, *private)
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// `st_mode`.
        mode: u32,
        /// `st_uid`.
        owner: u32,
        /// Effective user of this process.
        user: u32,
        /// It is the private key.
        private: bool,
    },
    /// The private key's file has another content.
    #[error("LS0523 {} is not a private key of linkspan (64 hexadecimal digits): restore it, or make a new one with `lspan key new --replace`", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
    /// There is no key yet.
    #[error(
        "LS0524 this user has no key yet: make one with `lspan key new`, or pair with another host with `lspan pair`"
    )]
    NoKey,
    /// There is one already.
    #[error(
        "LS0525 this user has a key already ({fingerprint}): peers that trust it would not know another; `lspan key new --replace` makes one all the same"
    )]
    Exists {
        /// Of the key that is there.
        fingerprint: String,
    },
    /// A line that is no peer.
    #[error(
        "LS0526 {place}{why}; a peer is `linkspan1 KEY NAME [HOST,HOST]`, as `lspan key show` prints it on its host"
    )]
    Line {
        /// Where the line is, with a colon behind it; empty where there is but one.
        place: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A name that a peer cannot have.
    #[error("LS0527 the name {name:?} {why}; choose one with `--as NAME`")]
    Name {
        /// The name.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// Another peer has that name.
    #[error(
        "LS0528 another peer ({held}) has the name {name} already: choose one with `--as NAME`, or `lspan key forget {name}` first"
    )]
    Taken {
        /// The name.
        name: String,
        /// Fingerprint of the key that has it.
        held: String,
    },
    /// It is our own key.
    #[error("LS0529 this is the key of this very user: give it to the peer, and add the peer's here")]
    Own,
    /// No such peer.
    #[error("LS0530 no trusted peer has the name or the fingerprint {name:?}; `lspan key list` has them all")]
    Unknown {
        /// As asked.
        name: String,
    },
    /// More peers than a file holds.
    #[error("LS0531 {PEERS_MAX} peers are trusted already, which is the most: `lspan key forget` some")]
    Full,
    /// No randomness.
    #[error(transparent)]
    Random(#[from] LoginError),
}

/// The keys of the user of this process. The peers are read again when their file has changed. May be used from any
/// thread.
#[derive(Debug)]
pub struct Keyring {
    dir: PathBuf,
    own: KeyPair,
    peers: Mutex<(Stamp, Arc<[Peer]>)>,
}

/// The directory of this user's keys.
///
/// # Errors
/// [`KeyError::Nowhere`].
pub fn dir(get: &dyn Fn(&str) -> Option<std::ffi::OsString>) -> Result<PathBuf, KeyError> {
    let absolute = |name| get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    Ok(base.ok_or(KeyError::Nowhere)?.join("linkspan"))
}

impl Keyring {
    /// The keys of this user; [`KeyError::NoKey`] where there is none.
    ///
    /// # Errors
    /// Every [`KeyError`] but those of names.
    pub fn open() -> Result<Keyring, KeyError> {
        Keyring::open_in(&dir(&|name| std::env::var_os(name))?)
    }

    /// As [`Keyring::open`]; `None` where this user has no key, or no place for one.
    ///
    /// # Errors
    /// As [`Keyring::open`].
    pub fn find() -> Result<Option<Keyring>, KeyError> {
        match Keyring::open() {
            Ok(ring) => Ok(Some(ring)),
            Err(KeyError::NoKey | KeyError::Nowhere) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a key where there is none. The second value says whether it is new.
    ///
    /// # Errors
    /// As [`Keyring::open`], and [`KeyError::Random`].
    pub fn open_or_make() -> Result<(Keyring, bool), KeyError> {
        match Keyring::open() {
            Err(KeyError::NoKey) => Ok((Keyring::make(false)?, true)),
            other => Ok((other?, false)),
        }
    }

    /// Makes a new key; with `replace` also where there is one.
    ///
    /// # Errors
    /// [`KeyError::Exists`]; [`KeyError::Random`]; [`KeyError::File`].
    pub fn make(replace: bool) -> Result<Keyring, KeyError> {
        Keyring::make_in(&dir(&|name| std::env::var_os(name))?, replace)
    }

    /// The keys in this directory.
    ///
    /// # Errors
    /// As [`Keyring::open`].
    pub fn open_in(dir: &Path) -> Result<Keyring, KeyError> {
        let own = store::read_key(&dir.join("key"))?.ok_or(KeyError::NoKey)?;
        let ring = Keyring { dir: dir.to_owned(), own, peers: Mutex::new((Stamp::default(), Arc::new([]))) };
        ring.read()?;
        Ok(ring)
    }

    /// As [`Keyring::make`], in this directory.
    ///
    /// # Errors
    /// As [`Keyring::make`].
    pub fn make_in(dir: &Path, replace: bool) -> Result<Keyring, KeyError> {
        store::make_dir(dir)?;
        let _lock = store::lock(dir)?;
        let path = dir.join("key");
        if !replace && let Some(held) = store::read_key(&path)? {
            return Err(KeyError::Exists { fingerprint: held.public().fingerprint() });
        }
        store::write_key(&path, &KeyPair::random()?)?;
        Keyring::open_in(dir)
    }

    /// Our public key.
    pub fn public(&self) -> PublicKey {
        self.own.public()
    }

    /// Where the keys are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The trusted peers, by name. Where their file has become unreadable, those that it held before.
    pub fn peers(&self) -> Arc<[Peer]> {
        match self.read() {
            Ok(peers) => peers,
            Err(_) => self.held(),
        }
    }

    fn held(&self) -> Arc<[Peer]> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    fn read(&self) -> Result<Arc<[Peer]>, KeyError> {
        let path = self.dir.join("peers");
        let stamp = Stamp::of(&path);
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if peers.0 != stamp {
            *peers = (stamp, store::read_peers(&path)?.into());
        }
        Ok(peers.1.clone())
    }

    /// The peer of this name, or fingerprint.
    pub fn peer(&self, name: &str) -> Option<Peer> {
        self.peers().iter().find(|peer| peer.name == name || peer.key.fingerprint() == name).cloned()
    }

    /// What the trusted peers are called.
    pub fn names(&self) -> Vec<String> {
        self.peers().iter().map(|peer| peer.name.clone()).collect()
    }

    /// What the peer with this key is called here; our own key is `self`.
    pub fn name_of(&self, key: &PublicKey) -> Option<String> {
        if *key == self.public() {
            return Some("self".to_owned());
        }
        self.peers().iter().find(|peer| peer.key == *key).map(|peer| peer.name.clone())
    }

    /// Trusts a peer. One whose key is known already is renamed and given the new hosts, which is not an error.
    ///
    /// # Errors
    /// [`KeyError::Name`], [`KeyError::Taken`], [`KeyError::Own`], [`KeyError::Full`], [`KeyError::Line`], [`KeyError::File`].
    pub fn add(&self, peer: Peer) -> Result<(), KeyError> {
        if let Some(why) = name_fault(&peer.name) {
            return Err(KeyError::Name { name: peer.name, why });
        }
        if peer.key == self.public() {
            return Err(KeyError::Own);
        }
        // A line that could not be read again would make the whole store unreadable.
        if !peer.hosts.iter().all(|host| is_host(host)) {
            return Err(KeyError::Line {
                place: format!("{}: ", peer.name),
                why: "a line has a host that cannot be one",
            });
        }
        self.change(|peers| {
            if let Some(other) = peers.iter().find(|other| other.name == peer.name && other.key != peer.key) {
                return Err(KeyError::Taken { name: peer.name, held: other.key.fingerprint() });
            }
            peers.retain(|other| other.key != peer.key);
            if peers.len() >= PEERS_MAX {
                return Err(KeyError::Full);
            }
            peers.push(peer);
            Ok(())
        })
    }

    /// Trusts the peer of this name, or fingerprint, no more, also where its key has several lines; says whom.
    ///
    /// # Errors
    /// [`KeyError::Unknown`]; [`KeyError::File`].
    pub fn forget(&self, name: &str) -> Result<Peer, KeyError> {
        self.change(|peers| {
            let at = peers.iter().position(|peer| peer.name == name || peer.key.fingerprint() == name);
            let found = peers.remove(at.ok_or_else(|| KeyError::Unknown { name: name.to_owned() })?);
            peers.retain(|peer| peer.key != found.key);
            Ok(found)
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Peer>) -> Result<T, KeyError>) -> Result<T, KeyError> {
        let _lock = store::lock(&self.dir)?;
        let path = self.dir.join("peers");
        let mut peers = store::read_peers(&path)?;
        let done = change(&mut peers)?;
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        store::write_peers(&path, &peers)?;
        self.read()?;
        Ok(done)
    }

    /// Lets in every trusted peer, and this user from another process or host with the same key.
    pub fn guard(&self, encrypt: bool) -> Guard {
        let keys = self.peers().iter().map(|peer| peer.key).chain([self.public()]).collect();
        Guard::Keys { own: self.own.clone(), admit: Admit::Only(keys), encrypt }
    }

    /// Goes to this peer alone.
    pub fn guard_to(&self, peer: &PublicKey, encrypt: bool) -> Guard {
        Guard::Keys { own: self.own.clone(), admit: Admit::Only([*peer].into()), encrypt }
    }

    /// Lets in whoever has the listener's token: for pairing alone. Always in records: names and hosts are stored by what is said there,
    /// whatever the network and the settings are.
    pub fn guard_of_pairing(&self) -> Guard {
        Guard::Keys { own: self.own.clone(), admit: Admit::Anyone, encrypt: true }
    }
}

#[cfg(test)]
mod tests;
