//! Thunderbolt hosts that may use linkspan.ko: told to the driver at once, and remembered for when they are plugged in again. By the UUID
//! of their router, which is what they say of themselves and proves nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use linkspan_thunderbolt::Error as LinkError;
use linkspan_thunderbolt::find::{Root, uuid};
use linkspan_topology::Roots;

use crate::observe::Look;

/// Most hosts that are remembered.
pub const REMEMBERED: usize = 256;

/// A host at the other end of a Thunderbolt or USB4 cable. Names and UUID are what it says of itself, not verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// UUID of its router, in lower case.
    pub uuid: String,
    /// Its name.
    pub name: Option<String>,
    /// Its vendor; `Linux` for Linux 7.3, `Intel Corp.` for 6.12.
    pub vendor: Option<String>,
    /// The cables to it.
    pub cables: Vec<String>,
    /// State of linkspan.ko's link to it, as in `up` or `waiting`; `None`: it has none.
    pub driver: Option<String>,
    /// Whether the driver lets it in.
    pub allowed: bool,
    /// Whether it is let in whenever it is plugged in.
    pub remembered: bool,
}

/// Why a host was neither allowed nor forgotten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionError {
    /// Not 32 hexadecimal digits with dashes.
    #[error("LS3211 {0:?} is no UUID; `lspan status` shows those of the hosts at cables")]
    NoUuid(String),
    /// No cable leads to it.
    #[error("LS3212 no cable leads to a host {uuid} (there are: {seen})")]
    NoHost {
        /// What was asked for.
        uuid: String,
        /// The hosts that there are.
        seen: String,
    },
    /// One of this host's own routers.
    #[error("LS3213 {0} is this host itself: a cable of which both ends are here, or a peer that says so")]
    ThisHost(String),
    /// No more are remembered.
    #[error("LS3214 {REMEMBERED} hosts are allowed already; forget one that is not used any more")]
    Full,
    /// It was not allowed.
    #[error("LS3215 the host {0} is not allowed")]
    NotAllowed(String),
    /// The folder cannot be written.
    #[error("LS3216 {path} cannot be written: {source}")]
    Folder {
        /// The folder or file.
        path: String,
        /// The OS error.
        #[source]
        source: io::Error,
    },
    /// The driver did not take it.
    #[error(transparent)]
    Driver(#[from] LinkError),
}

/// Characters of a UUID with its dashes.
const LONGEST: usize = 36;

/// A UUID as files and objects are called: lower case, with dashes.
///
/// # Errors
/// [`AdmissionError::NoUuid`].
pub fn canonical(text: &str) -> Result<String, AdmissionError> {
    let bytes = uuid(text).filter(|_| text.len() <= LONGEST);
    let bytes = bytes.ok_or_else(|| AdmissionError::NoUuid(text.chars().take(64).collect()))?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    Ok([part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-"))
}

/// The hosts that are remembered: an empty file each, called by the UUID. May be used from any thread.
#[derive(Debug)]
pub struct Admissions {
    folder: PathBuf,
    /// File and driver change together: who looks in between would let a host in again that is being forgotten.
    turn: Mutex<()>,
    root: Root,
    roots: Roots,
}

impl Admissions {
    /// Those of this folder, which is made when the first is remembered, on the machine below `root`.
    pub fn new(folder: &Path, root: &Path) -> Admissions {
        let (root, roots) = (Root(root.to_owned()), Roots::under(root));
        Admissions { folder: folder.to_owned(), turn: Mutex::new(()), root, roots }
    }

    /// The UUIDs. Files of other names are passed over.
    pub fn remembered(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| canonical(name).is_ok_and(|uuid| uuid == *name)).take(REMEMBERED).collect()
    }

    /// The hosts at cables. Without a UUID in its usual form there is none, nor is this host one.
    pub fn hosts(&self, look: &Look) -> Vec<Host> {
        let remembered = self.remembered();
        let mut hosts: Vec<Host> = Vec::new();
        for cable in &look.cables {
            let Some(peer) = cable.peer.as_ref().filter(|peer| !peer.this_host) else { continue };
            let Some(uuid) = peer.unique_id.as_deref().and_then(|text| canonical(text).ok()) else { continue };
            if look.own.contains(&uuid) {
                continue;
            }
            match hosts.iter_mut().find(|host| host.uuid == uuid) {
                Some(host) => host.cables.push(cable.name.clone()),
                None => {
                    let (driver, allowed) = self.driver(&uuid);
                    hosts.push(Host {
                        name: peer.device_name.clone(),
                        vendor: peer.vendor_name.clone(),
                        cables: vec![cable.name.clone()],
                        driver,
                        allowed,
                        remembered: remembered.contains(&uuid),
                        uuid,
                    });
                }
            }
        }
        hosts
    }

    /// What linkspan.ko says of a host: the state of its link, and whether all its links are let in.
    fn driver(&self, uuid: &str) -> (Option<String>, bool) {
        let (mut state, mut allowed) = (None, true);
        for name in self.roots.names("/sys/class/linkspan") {
            let read = |file: &str| self.roots.text(&format!("/sys/class/linkspan/{name}/{file}"));
            if read("peer").and_then(|peer| canonical(&peer).ok()).as_deref() == Some(uuid) {
                state = read("state").or(state);
                allowed &= read("allowed").as_deref() == Some("1");
            }
        }
        (state.clone(), allowed && state.is_some())
    }

    /// Lets a host in that is at a cable now, and remembers it. The driver's devices that were told; none where linkspan.ko is not loaded.
    ///
    /// # Errors
    /// [`AdmissionError::NoUuid`], [`AdmissionError::ThisHost`], [`AdmissionError::NoHost`], [`AdmissionError::Full`],
    /// [`AdmissionError::Folder`], [`AdmissionError::Driver`]; it is not let in then, unless it was remembered before.
    pub fn allow(&self, look: &Look, uuid: &str) -> Result<Vec<String>, AdmissionError> {
        let uuid = canonical(uuid)?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if look.own.contains(&uuid) {
            return Err(AdmissionError::ThisHost(uuid));
        }
        let hosts = self.hosts(look);
        if !hosts.iter().any(|host| host.uuid == uuid) {
            let seen: Vec<&str> = hosts.iter().map(|host| &*host.uuid).collect();
            let seen = if seen.is_empty() { "none".to_owned() } else { seen.join(", ") };
            return Err(AdmissionError::NoHost { uuid, seen });
        }
        let remembered = self.remembered();
        let new = !remembered.contains(&uuid);
        if new && remembered.len() >= REMEMBERED {
            return Err(AdmissionError::Full);
        }
        if new {
            self.remember(&uuid)?;
        }
        let told = self.tell(&uuid, true);
        if told.is_err() && new {
            // Of several links to it the first may have taken it.
            let _ = self.tell(&uuid, false);
            self.remove(&uuid)?;
        }
        told
    }

    /// Shuts a host out and remembers it no more; it need not be at a cable. The driver's devices that were told. On an error of the
    /// driver, and where the process ends in between, it is remembered no more and may be let in until it is unplugged: another call tells
    /// the driver again.
    ///
    /// # Errors
    /// [`AdmissionError::NoUuid`], [`AdmissionError::NotAllowed`], [`AdmissionError::Folder`], [`AdmissionError::Driver`].
    pub fn forget(&self, uuid: &str) -> Result<Vec<String>, AdmissionError> {
        let uuid = canonical(uuid)?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // The other way round, a service that was killed in between would let it in again when it starts.
        let removed = self.remove(&uuid)?;
        let told = self.tell(&uuid, false)?;
        if !removed && told.is_empty() {
            return Err(AdmissionError::NotAllowed(uuid));
        }
        Ok(told)
    }

    /// Lets those in that are remembered and wait: their UUIDs, or why not.
    pub fn apply(&self, look: &Look) -> Vec<Result<String, AdmissionError>> {
        let waits = |host: &Host| host.remembered && host.driver.is_some() && !host.allowed;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let hosts = self.hosts(look).into_iter().filter(waits);
        hosts.map(|host| self.tell(&host.uuid, true).map(|_| host.uuid)).collect()
    }

    fn tell(&self, uuid: &str, yes: bool) -> Result<Vec<String>, AdmissionError> {
        match self.root.allow(uuid, yes) {
            Ok(told) => Ok(told),
            // It waits for the driver, or for its cable.
            Err(LinkError::NoModule { .. } | LinkError::NoHost { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    fn failed(path: &Path, source: io::Error) -> AdmissionError {
        AdmissionError::Folder { path: path.display().to_string(), source }
    }

    fn remember(&self, uuid: &str) -> Result<(), AdmissionError> {
        let file = self.folder.join(uuid);
        fs::create_dir_all(&self.folder).map_err(|e| Admissions::failed(&self.folder, e))?;
        let made = fs::File::create(&file).and_then(|file| file.sync_all());
        // The name too is on the disk before anybody is told that it is.
        made.and_then(|()| fs::File::open(&self.folder)?.sync_all()).map_err(|e| {
            // By its name alone it would be let in.
            let _ = fs::remove_file(&file);
            Admissions::failed(&file, e)
        })
    }

    fn remove(&self, uuid: &str) -> Result<bool, AdmissionError> {
        let file = self.folder.join(uuid);
        match fs::remove_file(&file) {
            // The name must not come again after a power cut.
            Ok(()) => fs::File::open(&self.folder)
                .and_then(|folder| folder.sync_all())
                .map(|()| true)
                .map_err(|error| Admissions::failed(&self.folder, error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Admissions::failed(&file, error)),
        }
    }
}

#[cfg(test)]
mod tests;
