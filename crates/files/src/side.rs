//! A tree of files, here or at a peer, for those who ask both the same.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::client::Client;
use crate::fs::RealFs;
use crate::name::{RelPath, TRASH};
use crate::wire::{Answer, Entry, Fault, FaultKind, PeerPath, Request, Sum};
use crate::{Error, engine, ops, trash};

/// Entries of a listing that are asked for at a time.
const PART: usize = 256;

/// Where a tree is.
#[derive(Debug)]
pub enum Side<'a> {
    /// Below this directory of this host.
    Here(Arc<OwnedFd>),
    /// Below this directory of a peer.
    There(&'a mut Client, PeerPath),
}

impl Side<'_> {
    /// The same side, for a while.
    pub fn again(&mut self) -> Side<'_> {
        match self {
            Side::Here(root) => Side::Here(root.clone()),
            Side::There(client, at) => Side::There(client, at.clone()),
        }
    }

    /// Its trash; `None`: it has none. That of a peer is the trash of the share.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn trash(&mut self) -> Result<Option<Side<'_>>, Error> {
        match self {
            Side::Here(root) => match trash::open(&RealFs, root) {
                Ok(dir) => Ok(Some(Side::Here(Arc::new(dir)))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(Error::system("the trash", error)),
            },
            Side::There(client, at) => {
                // A share that is not there is no share without a trash.
                client.request(Request::Stat(PeerPath { share: at.share.clone(), path: RelPath::default() }))?;
                let at = PeerPath { share: format!("{}{TRASH}", at.share), path: RelPath::default() };
                match client.request(Request::Stat(at.clone())) {
                    Ok(_) => Ok(Some(Side::There(client, at))),
                    Err(Error::Refused(fault)) if fault.kind == FaultKind::NotFound => Ok(None),
                    Err(error) => Err(error),
                }
            }
        }
    }

    fn ask(&mut self, path: &RelPath, what: impl FnOnce(PeerPath) -> Request) -> Result<Answer, Error> {
        let long = |why: crate::name::BadName| Error::Refused(Fault::new(FaultKind::Limit, why.to_string()));
        match self {
            Side::Here(root) => {
                let at = PeerPath { share: String::new(), path: path.clone() };
                ops::perform(&RealFs, root, &what(at)).map_err(Error::Refused)
            }
            Side::There(client, at) => {
                let at = PeerPath { share: at.share.clone(), path: at.path.join_path(path).map_err(long)? };
                client.request(what(at))
            }
        }
    }

    /// Every entry of a directory.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn list(&mut self, path: &RelPath, mut each: impl FnMut(Entry)) -> Result<(), Error> {
        match self {
            Side::Here(root) => {
                let mut cursor = ops::list(&RealFs, root, path).map_err(Error::Refused)?;
                loop {
                    let (entries, more) = cursor.next(&RealFs, PART).map_err(Error::Refused)?;
                    entries.into_iter().for_each(&mut each);
                    if !more {
                        return Ok(());
                    }
                }
            }
            Side::There(client, at) => {
                let path = at.path.join_path(path);
                let path = path.map_err(|why| Error::Refused(Fault::new(FaultKind::Limit, why.to_string())))?;
                client.list(&PeerPath { share: at.share.clone(), path }, each)
            }
        }
    }

    /// What lies at and below a path.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn usage(&mut self, path: &RelPath) -> Result<Sum, Error> {
        match self.ask(path, Request::Usage)? {
            Answer::Usage(sum) => Ok(sum),
            _ => Err(wrong()),
        }
    }

    /// The mark of a mirror; sets it where one is given.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn mark(&mut self, new: Option<String>) -> Result<String, Error> {
        match self.ask(&RelPath::default(), |at| Request::Mark(at, new))? {
            Answer::Bytes(mark) => Ok(String::from_utf8_lossy(&mark).into_owned()),
            _ => Err(wrong()),
        }
    }

    /// Size and hash of a file, read back from the disk.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn hash(&mut self, path: &RelPath) -> Result<(u64, crate::hash::Value), Error> {
        match self.ask(path, Request::Hash)? {
            Answer::Hash(size, hash) => Ok((size, hash)),
            _ => Err(wrong()),
        }
    }

    /// Gives an entry another name, in a directory that is made where it is missing.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn rename(&mut self, from: &RelPath, to: &RelPath) -> Result<(), Error> {
        if let Some((parent, _)) = to.split() {
            self.ask(&parent, Request::Mkdir)?;
        }
        let to = match self {
            Side::Here(_) => to.clone(),
            Side::There(_, at) => {
                at.path.join_path(to).map_err(|why| Error::Refused(Fault::new(FaultKind::Limit, why.to_string())))?
            }
        };
        self.ask(from, |from| Request::Rename(from, to)).map(drop)
    }

    /// Removes an entry of a trash and all below it.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn remove(&mut self, path: &RelPath) -> Result<(), Error> {
        let is_here = matches!(self, Side::Here(_));
        let of_trash = |at: PeerPath| if is_here { PeerPath { share: TRASH.into(), ..at } } else { at };
        self.ask(path, |at| Request::Remove(of_trash(at), true)).map(drop)
    }

    /// Takes a path back from the trash.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn restore(&mut self, path: &RelPath, run: Option<String>) -> Result<(), Error> {
        self.ask(path, |at| Request::Restore(at, run)).map(drop)
    }
}

fn wrong() -> Error {
    engine::Violation("it gives an answer to another question").into()
}
