//! An open directory: its listing at the peer, a part of it at a time.

use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fuser::{FileType, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use linkspan_files::Error;
use linkspan_files::client::Client;
use linkspan_files::engine::Violation;
use linkspan_files::fs::{Ident, Kind};
use linkspan_files::name::Name;
use linkspan_files::wire::{Answer, Entry, FaultKind, PeerPath, Request};

use crate::attr::kind;
use crate::fs::{BELIEVED, View};
use crate::nodes::number;

/// Parts of a listing in a row in which there is nothing, and after which there is more: a peer that goes on so would never be left.
const EMPTY_MAX: u32 = 16;

/// Names of a listing that are remembered, by 8 bytes each. One with more of them that is cut cannot be gone on with.
const TAKEN_MAX: usize = 1 << 20;

/// A session with the peer, as far as listings need it.
pub(crate) trait Asks {
    fn request(&mut self, what: Request) -> Result<Answer, Error>;
    fn epoch(&self) -> u64;
}

impl Asks for Client {
    fn request(&mut self, what: Request) -> Result<Answer, Error> {
        Client::request(self, what)
    }

    fn epoch(&self) -> u64 {
        Client::epoch(self)
    }
}

/// An open directory.
#[derive(Debug, Default)]
pub(crate) struct OpenDir {
    /// The listing at the peer, in the session of this epoch; more of it follows.
    cursor: Option<(u32, u64)>,
    /// Entries that were listed and not taken; the first has this index.
    entries: VecDeque<Entry>,
    /// When the first of them was asked for.
    listed: Option<Instant>,
    first: u64,
    begun: bool,
    /// The names before that index, hashed: in a listing that is begun anew to go on they have come already.
    taken: Vec<u64>,
    come: HashSet<u64>,
    hasher: RandomState,
    /// Parts in a row that had no entries.
    empty: u32,
}

impl OpenDir {
    /// Entries of what is at this place from this index on; none: there are no more. At an index that is not the next one, after an error and after a
    /// reconnect, the listing begins anew, without what came before this index.
    pub(crate) fn from(
        &mut self,
        client: &mut impl Asks,
        at: &PeerPath,
        index: u64,
    ) -> Result<&VecDeque<Entry>, Error> {
        let epoch = client.epoch();
        let mut reached = self.reach(client, at, index);
        if reached.is_err() {
            self.begun = false;
            if epoch != client.epoch() {
                // The connection was made again meanwhile, and the listing was gone with the one before.
                reached = self.reach(client, at, index);
                self.begun = reached.is_ok();
            }
        }
        reached.map(|()| &self.entries)
    }

    /// It is listed from its beginning: what has come since it was listed before shows, whatever of that was not taken.
    pub(crate) fn rewind(&mut self) {
        self.begun = false;
    }

    fn reach(&mut self, client: &mut impl Asks, at: &PeerPath, index: u64) -> Result<(), Error> {
        let gone = self.cursor.is_some_and(|(_, epoch)| epoch != client.epoch());
        if !self.begun || index < self.first || (gone && self.entries.len() as u64 <= index - self.first) {
            self.end(client);
            self.take(index);
            if self.taken.len() >= TAKEN_MAX && index > TAKEN_MAX as u64 {
                return Err(long());
            }
            self.taken.truncate(usize::try_from(index).unwrap_or(TAKEN_MAX));
            self.come = self.taken.iter().copied().collect();
            (self.first, self.begun, self.empty) = (self.taken.len() as u64, true, 0);
            self.entries.clear();
            let (asked, part) = (Instant::now(), client.request(Request::List(at.clone())));
            self.add(client, if index > 0 { part.map_err(cut)? } else { part? }, asked)?;
        }
        self.take(index);
        while self.first < index && self.more(client)? {
            self.take(index);
        }
        while self.entries.is_empty() && self.more(client)? {}
        Ok(())
    }

    /// The entries up to this index have come.
    fn take(&mut self, index: u64) {
        while self.first < index
            && let Some(entry) = self.entries.pop_front()
        {
            self.first += 1;
            if self.taken.len() < TAKEN_MAX {
                self.taken.push(self.hasher.hash_one(&entry.name));
            }
        }
    }

    fn more(&mut self, client: &mut impl Asks) -> Result<bool, Error> {
        let Some((cursor, _)) = self.cursor else { return Ok(false) };
        let (asked, part) = (Instant::now(), client.request(Request::More(cursor)).map_err(cut)?);
        self.add(client, part, asked)?;
        Ok(true)
    }

    fn add(&mut self, client: &impl Asks, part: Answer, asked: Instant) -> Result<(), Error> {
        let Answer::List(entries, more) = part else {
            return Err(Violation("it gives an answer to another question").into());
        };
        self.empty = if entries.is_empty() { self.empty + 1 } else { 0 };
        if self.empty > EMPTY_MAX {
            return Err(Violation("it lists a directory in parts in which there is nothing").into());
        }
        if self.entries.is_empty() {
            self.listed = Some(asked);
        }
        let (come, hasher) = (&self.come, &self.hasher);
        self.entries.extend(entries.into_iter().filter(|entry| !come.contains(&hasher.hash_one(&entry.name))));
        self.cursor = more.map(|cursor| (cursor, client.epoch()));
        Ok(())
    }

    /// Answers with the entries [from](OpenDir::from) this offset on; the first two are those that every directory has.
    pub(crate) fn names(&self, own: INodeNo, offset: u64, mut reply: ReplyDirectory) {
        let dots = [".", ".."].iter().map(|name| (own.0, FileType::Directory, name.as_bytes()));
        let names = self.entries.iter().map(|entry| (number(entry), kind(entry.kind), &entry.name[..]));
        for (at, (number, kind, name)) in (offset + 1..).zip(dots.skip(offset as usize).chain(names)) {
            if reply.add(INodeNo(number), at, kind, OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    /// As [`OpenDir::names`], with what each is: the kernel need not ask for it. It believes that for as long as it does from a listing of now,
    /// and takes it at once: what it was told since stays.
    pub(crate) fn entries(&self, view: &View, at: &PeerPath, own: INodeNo, offset: u64, mut reply: ReplyDirectoryPlus) {
        let listed = self.listed.unwrap_or_else(Instant::now);
        let believed = BELIEVED.saturating_sub(listed.elapsed());
        let dots = [".", ".."].map(|name| Entry { name: name.into(), kind: Kind::Dir, ..Entry::default() });
        for (next, entry) in (offset + 1..).zip(dots.iter().skip(offset as usize).chain(&self.entries)) {
            let dot = next <= 2;
            let ino = if dot { own.0 } else { number(entry) };
            let path = Name::new(&entry.name).ok().filter(|_| !dot).and_then(|name| at.path.join(&name).ok());
            let (generation, newer) = view.since(ino, listed);
            let newer =
                newer.map(|Ident { size, mtime, ctime, .. }| Entry { name: Vec::new(), size, mtime, ctime, ..*entry });
            let attr = view.attr(ino, newer.as_ref().unwrap_or(entry));
            // What the peer could not look at has no number, and gives its error where the kernel looks.
            let believed = if entry.ino == 0 { Duration::ZERO } else { believed };
            // fuse(4): the kernel counts each name but these two as looked up.
            if reply.add(INodeNo(ino), next, OsStr::from_bytes(&entry.name), &believed, &attr, generation) {
                break;
            }
            if let Some(path) = path {
                view.listed(&path, entry, listed);
            }
        }
        reply.ok();
    }

    /// Gives the listing at the peer up.
    pub(crate) fn end(&mut self, client: &mut impl Asks) {
        if let Some((cursor, epoch)) = self.cursor.take()
            && epoch == client.epoch()
        {
            // What it does not hear it forgets with the session.
            let _ = client.request(Request::Stop(cursor));
        }
    }
}

/// Ends the listing at the peer that was gone on with longest ago, of directories that nobody has locked: it begins anew when somebody goes on with it.
pub(crate) fn end_oldest(dirs: &[Arc<Mutex<OpenDir>>], client: &mut impl Asks) {
    let epoch = client.epoch();
    let free = dirs.iter().filter_map(|dir| dir.try_lock().ok());
    let under_way = free.filter(|dir| dir.cursor.is_some_and(|(_, of)| of == epoch));
    if let Some(mut oldest) = under_way.min_by_key(|dir| dir.listed) {
        oldest.end(client);
        oldest.rewind();
    }
}

fn long() -> Error {
    Error::Lost(format!("the listing of a directory was cut, and more than {TAKEN_MAX} names had come"))
}

/// In a listing that has begun: programs take ENOENT for its end.
fn cut(error: Error) -> Error {
    match error {
        Error::Refused(fault) if fault.kind == FaultKind::NotFound => {
            Error::Lost("the listing of a directory was cut".into())
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use fuser::Errno;
    use linkspan_files::name::RelPath;
    use linkspan_files::wire::Fault;

    use super::*;
    use crate::courier::errno;

    /// A directory of so many entries, listed two at a time.
    #[derive(Default)]
    struct Peer {
        entries: u32,
        /// So many of them are removed when the connection is lost, the first ones.
        removed: u32,
        /// Parts with nothing in them before the first entry.
        empty: u32,
        epoch: u64,
        /// Where the listing under way is.
        at: Option<u32>,
        /// The next request for more comes after a lost connection, or fails.
        loses: bool,
        fails: bool,
        gone: bool,
    }

    fn entry(name: u32) -> Entry {
        Entry { name: name.to_string().into(), ..Entry::default() }
    }

    impl Peer {
        fn part(&mut self) -> Answer {
            if self.empty > 0 {
                self.empty -= 1;
                return Answer::List(Vec::new(), Some(1));
            }
            let from = self.at.unwrap_or_default();
            let to = (from + 2).min(self.entries);
            self.at = (to < self.entries).then_some(to);
            Answer::List((from..to).map(entry).collect(), self.at.map(|_| 1))
        }
    }

    impl Asks for Peer {
        fn request(&mut self, what: Request) -> Result<Answer, Error> {
            let refused = |kind| Err(Error::Refused(Fault::new(kind, "")));
            match what {
                Request::List(_) if self.gone => refused(FaultKind::NotFound),
                Request::List(_) => {
                    self.at = Some(if self.epoch == 0 { 0 } else { self.removed });
                    Ok(self.part())
                }
                Request::More(_) if std::mem::take(&mut self.loses) => {
                    (self.at, self.epoch) = (None, self.epoch + 1);
                    refused(FaultKind::NotFound)
                }
                Request::More(_) if self.at.is_none() => refused(FaultKind::NotFound),
                Request::More(_) if std::mem::take(&mut self.fails) => {
                    self.at = None;
                    refused(FaultKind::Io)
                }
                Request::More(_) => Ok(self.part()),
                _ => Ok(Answer::Done),
            }
        }

        fn epoch(&self) -> u64 {
            self.epoch
        }
    }

    fn at() -> PeerPath {
        PeerPath { share: "data".into(), path: RelPath::default() }
    }

    /// Names from an index on, until there are no more.
    fn rest(dir: &mut OpenDir, peer: &mut Peer, from: u64) -> Result<Vec<Vec<u8>>, Error> {
        let (mut names, mut index) = (Vec::new(), from);
        loop {
            let part = dir.from(peer, &at(), index)?;
            if part.is_empty() {
                return Ok(names);
            }
            names.extend(part.iter().map(|entry| entry.name.clone()));
            index = from + names.len() as u64;
        }
    }

    fn names(range: std::ops::Range<u32>) -> Vec<Vec<u8>> {
        range.map(|name| entry(name).name).collect()
    }

    #[test]
    fn a_listing_goes_on_after_a_lost_connection_to_its_end() {
        let (mut peer, mut dir) = (Peer { entries: 9, ..Peer::default() }, OpenDir::default());
        dir.from(&mut peer, &at(), 0).unwrap();
        dir.from(&mut peer, &at(), 2).unwrap();
        peer.loses = true;
        assert_eq!(rest(&mut dir, &mut peer, 4).unwrap(), names(4..9));
    }

    #[test]
    fn a_listing_that_goes_on_misses_and_repeats_nothing_whatever_was_removed_meanwhile() {
        let (mut peer, mut dir) = (Peer { entries: 9, removed: 2, ..Peer::default() }, OpenDir::default());
        dir.from(&mut peer, &at(), 0).unwrap();
        dir.from(&mut peer, &at(), 2).unwrap();
        peer.loses = true;
        assert_eq!(rest(&mut dir, &mut peer, 4).unwrap(), names(4..9));
        assert_eq!(rest(&mut dir, &mut peer, 3).unwrap(), names(3..9), "back to where it was");
        assert_eq!(rest(&mut dir, &mut peer, 0).unwrap(), names(2..9), "from its beginning");
    }

    #[test]
    fn a_listing_goes_on_where_it_was_when_something_else_has_made_the_connection_anew() {
        let (mut peer, mut dir) = (Peer { entries: 9, removed: 3, ..Peer::default() }, OpenDir::default());
        dir.from(&mut peer, &at(), 0).unwrap();
        dir.from(&mut peer, &at(), 2).unwrap();
        (peer.at, peer.epoch) = (None, 1);
        assert_eq!(rest(&mut dir, &mut peer, 4).unwrap(), names(4..9));
    }

    #[test]
    fn a_listing_whose_part_failed_fails_and_then_goes_on_where_it_was() {
        let (mut peer, mut dir) = (Peer { entries: 9, ..Peer::default() }, OpenDir::default());
        dir.from(&mut peer, &at(), 0).unwrap();
        peer.fails = true;
        assert!(dir.from(&mut peer, &at(), 2).is_err());
        assert_eq!(rest(&mut dir, &mut peer, 2).unwrap(), names(2..9));
    }

    #[test]
    fn a_listing_that_is_cut_is_not_taken_for_one_that_has_ended() {
        let (mut peer, mut dir) = (Peer { entries: 9, ..Peer::default() }, OpenDir::default());
        dir.from(&mut peer, &at(), 0).unwrap();
        // The peer has forgotten it.
        peer.at = None;
        assert_eq!(errno(&dir.from(&mut peer, &at(), 2).unwrap_err()), Errno::EIO);
        peer.gone = true;
        assert_eq!(errno(&dir.from(&mut peer, &at(), 2).unwrap_err()), Errno::EIO);
    }

    #[test]
    fn a_peer_whose_listing_never_comes_to_an_entry_is_left() {
        let (mut peer, mut dir) = (Peer { entries: 3, empty: EMPTY_MAX, ..Peer::default() }, OpenDir::default());
        assert_eq!(rest(&mut dir, &mut peer, 0).unwrap(), names(0..3));
        let (mut peer, mut dir) = (Peer { entries: 3, empty: EMPTY_MAX + 1, ..Peer::default() }, OpenDir::default());
        assert!(matches!(dir.from(&mut peer, &at(), 0), Err(Error::Violation(_))));
    }
}
