//! One client: its requests one after the other, and its transfers.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use linkspan_net::Quota;

use super::answers::Said;
use super::{Identity, PER_PEER_MAX, PER_PEER_OPEN, Places, Server, Share, Waits};
use crate::edit;
use crate::engine::{Clock, Event, Geometry, Violation};
use crate::fs::{Fs, Links, RealFs, Stat, is_settled, read_full, write_full};
use crate::link::{ANSWERING, Control, Incoming, Line};
use crate::name::RelPath;
use crate::name::TRASH;
use crate::ops::{self, Cursor};
use crate::sink::DestDir;
use crate::source::{Load, Source, Start};
use crate::transfer::{self, Watcher};
use crate::wire::{Answer, BYTES_HEAD, Entry, Fault, FaultKind, Message, PeerPath, READ_MAX, Request, VERSION};
use crate::{Error, Rules, lock};

/// Listings under way in one session.
const CURSORS_MAX: usize = 16;

/// Files open in one session.
pub const FILES_MAX: usize = 256;

/// Entries in one part of a listing.
const PART: usize = 256;

/// How long a peer of another version may take until it has received which one this is.
const VERSION_WAIT: Duration = Duration::from_secs(1);

/// How long the bulk connection of a transfer may take.
const BULK: Duration = Duration::from_secs(30);

pub(super) struct Session<'a> {
    server: &'a Server,
    identity: &'a Identity,
    /// Its last answers, over all of its connections. Held while a request is carried out.
    said: Arc<Mutex<Said>>,
    /// Which of the connections this is; a later one ends it.
    connection: u64,
    control: Control,
    /// Of the peer, for descriptors.
    open: Quota,
    cursors: BTreeMap<u32, (Cursor<RealFs>, linkspan_net::Share)>,
    next_cursor: u32,
    /// With the device of the root of their share.
    files: BTreeMap<u32, (OwnedFd, linkspan_net::Share, u64)>,
}

/// What an open file is.
fn known(stat: io::Result<Stat>, of_root: u64) -> Result<Answer, Fault> {
    stat.map(|stat| Answer::Stat(Entry::new(b"", &stat, of_root))).map_err(|error| Fault::io("the file", &error))
}

/// A server tells nobody.
struct Silent;

impl Watcher for Silent {
    fn event(&mut self, _: Event) {}

    fn tick(&mut self, _: u64, _: u64) -> bool {
        true
    }
}

enum Begun {
    Put(Box<DestDir<RealFs>>),
    Get(Box<Source<RealFs>>),
}

impl<'a> Session<'a> {
    pub(super) fn new(
        server: &'a Server,
        identity: &'a Identity,
        id: [u8; 16],
        line: Arc<Line>,
        open: Quota,
    ) -> Result<Session<'a>, Error> {
        let control = Control::new(line, ANSWERING);
        let (cursors, files) = (BTreeMap::new(), BTreeMap::new());
        let said = lock(&server.answered.0).entry(identity.clone()).or_default().of(id);
        // What the connection before is carrying out ends first; what it has received is not begun any more, for the client asks again.
        let connection = {
            let mut said = lock(&said);
            said.connections += 1;
            said.connections
        };
        Ok(Session { server, identity, said, connection, control, open, cursors, next_cursor: 0, files })
    }

    /// So many descriptors, before they are there.
    fn descriptors(&self, count: u64) -> Result<linkspan_net::Share, Fault> {
        let text =
            || format!("the {PER_PEER_OPEN} files and listings that one peer may have open are: close some of them");
        self.open.take(count).ok_or_else(|| Fault::new(FaultKind::Limit, text()))
    }

    pub(super) fn run(mut self, version: u16) -> Result<(), Error> {
        self.control.send(&Message::Welcome { version: VERSION, identity: self.identity.name().to_owned() })?;
        if version != VERSION {
            self.control.settle()?;
            self.control.listen()?;
            // What it has not received when the connection ends is lost with it; usually it ends it first.
            let _ = self.control.inbox.recv_timeout(VERSION_WAIT);
            return Err(Error::Version(version));
        }
        loop {
            let arrival = self.control.arrival().map_or_else(|| self.control.inbox.recv(), Ok);
            let (number, what) = match arrival {
                Ok(Incoming::Message(Message::Request { number, what })) => (number, what),
                Ok(Incoming::Message(_)) => {
                    return Err(Violation("it sends something else where a request belongs").into());
                }
                Ok(Incoming::Malformed(malformed)) => return Err(malformed.into()),
                Ok(Incoming::Lost(why)) => return Err(Error::Lost(why)),
                Ok(Incoming::Bulk(..)) => return Err(Violation("it connects without a transfer").into()),
                // What a transfer that failed has left.
                Ok(Incoming::Sent(_) | Incoming::Sunk(_)) => continue,
                Err(_) => return Err(Error::Lost("its reader has ended".into())),
            };
            match what {
                Request::Put { .. } | Request::Get { .. } => {
                    // Until it has let go of its files, a later connection waits.
                    let said = self.said.clone();
                    let _said = self.current(&said)?;
                    self.transfer(number, what)?;
                }
                Request::Read { handle, offset, len } => self.read(number, handle, offset, len)?,
                what => {
                    let result = self.once(number, &what)?;
                    self.control.send(&Message::Answer { number, result })?;
                }
            }
        }
    }

    /// What was said, while this is the last connection of the session.
    fn current<'s>(&self, said: &'s Mutex<Said>) -> Result<MutexGuard<'s, Said>, Error> {
        let said = lock(said);
        match said.connections == self.connection {
            true => Ok(said),
            false => Err(Error::Lost("the client has made another connection".into())),
        }
    }

    /// Answers a request; one that changes something and was answered before gets the same answer again.
    fn once(&mut self, number: u64, what: &Request) -> Result<Result<Answer, Fault>, Error> {
        // The answer is kept before the next connection of the session asks.
        let said = self.said.clone();
        let mut said = self.current(&said)?;
        Ok(if what.changes() { said.once(number, || self.answer(what)) } else { self.answer(what) })
    }

    fn share(&self, path: &PeerPath) -> Result<Arc<OwnedFd>, Fault> {
        let (share, trash) = self.named(path)?;
        match trash {
            false => Ok(share.root.clone()),
            true if !share.writable => {
                Err(Fault::new(FaultKind::ReadOnly, format!("share {} is read-only, and so is its trash", share.name)))
            }
            true => match crate::trash::open(&*self.server.fs, &share.root) {
                Ok(dir) => Ok(Arc::new(dir)),
                Err(error) => Err(Fault::io("the trash", &error)),
            },
        }
    }

    /// A share by its name; with the trash's name behind it, its trash.
    fn named(&self, path: &PeerPath) -> Result<(&'a Share, bool), Fault> {
        let server: &'a Server = self.server;
        let (name, trash) = match path.share.strip_suffix(TRASH) {
            Some(name) => (name, true),
            None => (&path.share[..], false),
        };
        let found = server.shares.iter().find(|share| share.name == name);
        found.map(|share| (share, trash)).ok_or_else(|| {
            let name = crate::name::escape(path.share.as_bytes());
            Fault::new(FaultKind::NotFound, format!("there is no share {name:?}; `lspan ls PEER:` lists them"))
        })
    }

    fn writable(&self, path: &PeerPath) -> Result<Arc<OwnedFd>, Fault> {
        let (share, _) = self.named(path)?;
        match share.writable {
            true => self.share(path),
            false => {
                let why =
                    format!("share {} is read-only: its owner serves it with NAME=DIR:rw to change that", share.name);
                Err(Fault::new(FaultKind::ReadOnly, why))
            }
        }
    }

    /// Where programs may write as they like: not in the trash.
    fn editable(&self, path: &PeerPath) -> Result<Arc<OwnedFd>, Fault> {
        match path.share.ends_with(TRASH) {
            true => Err(Fault::new(FaultKind::ReadOnly, "what is in the trash stays as it is")),
            false => self.writable(path),
        }
    }

    fn answer(&mut self, what: &Request) -> Result<Answer, Fault> {
        let fs = &*self.server.fs;
        match what {
            Request::Shares => {
                let shares = self.server.shares.iter().map(|share| (share.name.clone(), share.writable));
                Ok(Answer::Shares(shares.collect()))
            }
            Request::List(at) => {
                if self.cursors.len() >= CURSORS_MAX {
                    return Err(Fault::new(FaultKind::Limit, format!("{CURSORS_MAX} listings are open already")));
                }
                // The directory, and where its listing is.
                let taken = self.descriptors(2)?;
                let cursor = ops::list(fs, &*self.share(at)?, &at.path)?;
                self.next_cursor = self.next_cursor.wrapping_add(1);
                self.cursors.insert(self.next_cursor, (cursor, taken));
                self.part(self.next_cursor)
            }
            Request::More(cursor) => self.part(*cursor),
            Request::Stop(cursor) => {
                self.cursors.remove(cursor);
                Ok(Answer::Done)
            }
            Request::Open(at, how) => {
                if self.files.len() >= FILES_MAX {
                    return Err(Fault::new(FaultKind::Limit, format!("{FILES_MAX} files are open already")));
                }
                let taken = self.descriptors(1)?;
                let changes = how.write || how.create.is_some();
                let root = if changes { self.editable(at)? } else { self.share(at)? };
                let (file, entry, of_root) = edit::open(fs, &root, &at.path, *how)?;
                let (born, settled) = (fs.born(&file).unwrap_or_default(), is_settled(fs, entry.ctime));
                self.next_cursor = self.next_cursor.wrapping_add(1);
                self.files.insert(self.next_cursor, (file, taken, of_root));
                Ok(Answer::Opened(self.next_cursor, entry, born, settled))
            }
            Request::Close(handle) => {
                self.files.remove(handle);
                Ok(Answer::Done)
            }
            // A descriptor that was not opened for writing, which is asked of whom may write, refuses both.
            Request::Write { handle, offset, bytes } => {
                let file = self.file(*handle)?;
                let written = match offset {
                    Some(offset) => write_full(fs, file, *offset, bytes),
                    None => fs.append(file, bytes),
                };
                written.map(|()| Answer::Done).map_err(|error| Fault::io("the file", &error))
            }
            Request::Change(handle, change) => known(fs.change_open(self.file(*handle)?, change), self.files[handle].2),
            Request::Known(handle) => known(fs.stat_file(self.file(*handle)?), self.files[handle].2),
            Request::Sync(handle) => {
                let synced = fs.sync(self.file(*handle)?);
                synced.map(|()| Answer::Done).map_err(|error| Fault::unwritten("fsync", &error))
            }
            Request::Boot => Ok(Answer::Bytes(fs.boot_id().to_vec())),
            Request::Space(share) => {
                let at = PeerPath { share: share.clone(), path: RelPath::default() };
                let space = fs.space(&*self.share(&at)?);
                space.map(|(all, free)| Answer::Space(all, free)).map_err(|error| Fault::io(share, &error))
            }
            Request::SyncDir(at) | Request::Make(at, _) | Request::Link(at, ..) | Request::Set(at, ..) => {
                edit::perform(fs, &*self.editable(at)?, what)
            }
            Request::Unlink(at, _) | Request::Move(at, ..) => edit::perform(fs, &*self.editable(at)?, what),
            Request::Put { .. } | Request::Get { .. } | Request::Read { .. } => {
                Err(Fault::new(FaultKind::Invalid, "it is answered in another way"))
            }
            what => {
                let (at, writes) =
                    what.place().ok_or_else(|| Fault::new(FaultKind::Invalid, "it is about no place"))?;
                let root = if writes { self.writable(at)? } else { self.share(at)? };
                ops::perform(fs, &root, what)
            }
        }
    }

    fn file(&self, handle: u32) -> Result<&OwnedFd, Fault> {
        let file = self.files.get(&handle);
        file.map(|(file, ..)| file).ok_or_else(|| Fault::new(FaultKind::NotFound, "there is no such open file"))
    }

    /// Answers with bytes of an open file, which are read into the place where they are sent from.
    fn read(&self, number: u64, handle: u32, offset: u64, len: u32) -> Result<(), Error> {
        let refused = |fault| self.control.send(&Message::Answer { number, result: Err(fault) });
        let file = match self.file(handle) {
            Ok(file) => file,
            Err(fault) => return refused(fault),
        };
        let mut failed = None;
        self.control.send_with(BYTES_HEAD + len.min(READ_MAX) as usize, |out| {
            let (head, data) = out.split_at_mut(BYTES_HEAD);
            match read_full(&*self.server.fs, file, offset, data) {
                Ok(have) => {
                    head.copy_from_slice(&Message::head_of_bytes(number, have));
                    Some(BYTES_HEAD + have)
                }
                Err(error) => {
                    failed = Some(error);
                    None
                }
            }
        })?;
        failed.map_or(Ok(()), |error| refused(Fault::io("the file", &error)))
    }

    fn part(&mut self, number: u32) -> Result<Answer, Fault> {
        let cursor = self.cursors.get_mut(&number);
        let (cursor, _) =
            cursor.ok_or_else(|| Fault::new(FaultKind::NotFound, "there is no such listing under way"))?;
        let part = cursor.next(&self.server.fs, PART);
        if !matches!(part, Ok((_, true))) {
            self.cursors.remove(&number);
        }
        let (entries, more) = part?;
        Ok(Answer::List(entries, more.then_some(number)))
    }

    fn transfer(&mut self, number: u64, what: Request) -> Result<(), Error> {
        let begun = match self.begin(what) {
            Ok(begun) => begun,
            Err(fault) => return self.control.send(&Message::Answer { number, result: Err(fault) }),
        };
        let Some((places, _)) = self.server.places(self.identity) else {
            let text = format!(
                "the {PER_PEER_MAX} connections that one peer may have are taken, and a transfer needs a second one: try again when others have ended"
            );
            let result = Err(Fault::new(FaultKind::Limit, text));
            return self.control.send(&Message::Answer { number, result });
        };
        let mut token = [0; 16];
        getrandom::fill(&mut token)
            .map_err(|error| Error::system("random numbers", io::Error::other(error.to_string())))?;
        let mut early = None;
        self.control.listen()?;
        let waits = Waits { of: self.identity.clone(), post: self.control.post.clone(), places: Some(places) };
        self.server.books().tokens.insert(token, waits);
        let line = self
            .control
            .send(&Message::Answer { number, result: Ok(Answer::Ready(token)) })
            .and_then(|()| self.bulk(&mut early));
        self.server.books().tokens.remove(&token);
        // Its place is taken until it has ended.
        let (line, _places) = line?;
        match begun {
            Begun::Put(_) if early.is_some() => Err(Violation("it speaks before it has slots").into()),
            Begun::Put(place) => transfer::receive(*place, &self.control, &line, &mut Silent).map(drop),
            Begun::Get(source) => {
                let slots = match early.map_or_else(|| self.control.inbox.recv_timeout(BULK), Ok) {
                    Ok(Incoming::Message(slots @ Message::Slots { .. })) => slots,
                    Ok(Incoming::Lost(why)) => return Err(Error::Lost(why)),
                    _ => return Err(Violation("it says something else where its slots belong").into()),
                };
                transfer::send(*source, &self.control, &line, slots, &mut Silent).map(drop)
            }
        }
    }

    /// The bulk connection. What comes on the control connection before it, which is another path, is kept.
    fn bulk(&self, early: &mut Option<Incoming>) -> Result<(Arc<Line>, Places), Error> {
        loop {
            match self.control.inbox.recv_timeout(BULK) {
                Ok(Incoming::Bulk(transport, places)) => return Ok((Line::new(transport), places)),
                Ok(Incoming::Lost(why)) => return Err(Error::Lost(why)),
                Ok(message @ Incoming::Message(_)) if early.is_none() => *early = Some(message),
                Ok(_) => return Err(Violation("it speaks where its bulk connection belongs").into()),
                Err(_) => return Err(Error::Lost("its bulk connection did not come".into())),
            }
        }
    }

    fn begin(&self, what: Request) -> Result<Begun, Fault> {
        let fs = &self.server.fs;
        match what {
            Request::Put { to, dry_run, no_fsync, delete } => {
                if to.share.ends_with(TRASH) {
                    return Err(Fault::new(FaultKind::Invalid, "nothing is sent into the trash"));
                }
                let root = if dry_run { self.share(&to)? } else { self.writable(&to)? };
                fs.open_dir(&root, &to.path, Links::Refuse).map_err(|error| {
                    let path = crate::name::escape(to.path.bytes());
                    Fault::io(&format!("{}/{path}", to.share), &error)
                })?;
                if delete.is_some()
                    && !dry_run
                    && let Err(error) = crate::trash::expire(&**fs, &root, &*self.server.say)
                {
                    (self.server.say)(&format!("what is old in the trash was not removed: {error}"));
                }
                let place = DestDir::new(fs.clone(), root, to.path, self.server.state.clone(), self.server.large);
                Ok(Begun::Put(Box::new(place.with(dry_run, no_fsync, delete))))
            }
            Request::Get { from, xattrs, dry_run, delete, exclude } => {
                let starts = from.iter().map(|(at, to)| self.start(at, to)).collect::<Result<Vec<_>, Fault>>()?;
                let rules = Rules::new(&exclude).map_err(|bad| Fault::new(FaultKind::Invalid, bad.to_string()))?;
                let (geometry, large, rules) = (Geometry::REAL, self.server.large, Arc::new(rules));
                let load = Load { fs: fs.clone(), geometry, xattrs, large, dry_run, delete, rules };
                Ok(Begun::Get(Box::new(Source::new(load, Arc::new(Clock::default()), starts))))
            }
            _ => Err(Fault::new(FaultKind::Invalid, "this is no transfer")),
        }
    }

    fn start(&self, at: &PeerPath, to: &RelPath) -> Result<Start<RealFs>, Fault> {
        let (fs, root) = (&*self.server.fs, self.share(at)?);
        let shallow = false;
        if to.is_root() {
            // What is in it, not it.
            let dir = fs.open_dir(&root, &at.path, Links::Follow).map_err(|error| Fault::io(&at.share, &error))?;
            return Ok(Start { dir: Arc::new(dir), name: None, path: to.clone(), shallow, opened: None });
        }
        let (dir, name): (OwnedFd, _) = ops::parent(fs, &root, &at.path, Links::Follow)?;
        Ok(Start { dir: Arc::new(dir), name: Some(name), path: to.clone(), shallow, opened: None })
    }
}
