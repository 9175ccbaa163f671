//! An open directory: its listing at the peer, a part of it at a time.

use std::collections::VecDeque;

use linkspan_files::Error;
use linkspan_files::client::Client;
use linkspan_files::engine::Violation;
use linkspan_files::wire::{Answer, Entry, FaultKind, PeerPath, Request};

/// Parts of a listing in a row in which there is nothing, and after which there is more: a peer that goes on so would never be left.
const EMPTY_MAX: u32 = 16;

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
#[derive(Debug)]
pub(crate) struct OpenDir {
    at: PeerPath,
    /// The listing at the peer, in the session of this epoch; more of it follows.
    cursor: Option<(u32, u64)>,
    /// Entries that were listed and not taken; the first has this index.
    entries: VecDeque<Entry>,
    first: u64,
    begun: bool,
    /// Parts in a row that had no entries.
    empty: u32,
}

impl OpenDir {
    pub(crate) fn new(at: PeerPath) -> OpenDir {
        OpenDir { at, cursor: None, entries: VecDeque::new(), first: 0, begun: false, empty: 0 }
    }

    /// Entries from this index on; none: there are no more. At an index that is not the next one, after an error and after a
    /// reconnect, the listing begins anew.
    pub(crate) fn from(&mut self, client: &mut impl Asks, index: u64) -> Result<&VecDeque<Entry>, Error> {
        let epoch = client.epoch();
        let mut reached = self.reach(client, index);
        if reached.is_err() {
            self.begun = false;
            if epoch != client.epoch() {
                // The connection was made again meanwhile, and the listing was gone with the one before.
                reached = self.reach(client, index);
                self.begun = reached.is_ok();
            }
        }
        reached.map(|()| &self.entries)
    }

    fn reach(&mut self, client: &mut impl Asks, index: u64) -> Result<(), Error> {
        let gone = self.cursor.is_some_and(|(_, epoch)| epoch != client.epoch());
        if !self.begun || index < self.first || (gone && self.entries.len() as u64 <= index - self.first) {
            self.end(client);
            (self.first, self.begun, self.empty) = (0, true, 0);
            self.entries.clear();
            let part = client.request(Request::List(self.at.clone()));
            self.add(client, if index > 0 { part.map_err(cut)? } else { part? })?;
        }
        while self.first < index {
            if self.entries.pop_front().is_some() {
                self.first += 1;
            } else if !self.more(client)? {
                break;
            }
        }
        while self.entries.is_empty() && self.more(client)? {}
        Ok(())
    }

    fn more(&mut self, client: &mut impl Asks) -> Result<bool, Error> {
        let Some((cursor, _)) = self.cursor else { return Ok(false) };
        let part = client.request(Request::More(cursor)).map_err(cut)?;
        self.add(client, part)?;
        Ok(true)
    }

    fn add(&mut self, client: &impl Asks, part: Answer) -> Result<(), Error> {
        let Answer::List(entries, more) = part else {
            return Err(Violation("it gives an answer to another question").into());
        };
        self.empty = if entries.is_empty() { self.empty + 1 } else { 0 };
        if self.empty > EMPTY_MAX {
            return Err(Violation("it lists a directory in parts in which there is nothing").into());
        }
        self.entries.extend(entries);
        self.cursor = more.map(|cursor| (cursor, client.epoch()));
        Ok(())
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
                    self.at = Some(0);
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

    fn open() -> OpenDir {
        OpenDir::new(PeerPath { share: "data".into(), path: RelPath::default() })
    }

    /// Names from an index on, until there are no more.
    fn rest(dir: &mut OpenDir, peer: &mut Peer, from: u64) -> Result<Vec<Vec<u8>>, Error> {
        let (mut names, mut index) = (Vec::new(), from);
        loop {
            let part = dir.from(peer, index)?;
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
        let (mut peer, mut dir) = (Peer { entries: 9, ..Peer::default() }, open());
        dir.from(&mut peer, 0).unwrap();
        dir.from(&mut peer, 2).unwrap();
        peer.loses = true;
        assert_eq!(rest(&mut dir, &mut peer, 4).unwrap(), names(4..9));
    }

    #[test]
    fn a_listing_whose_part_failed_fails_and_then_goes_on_where_it_was() {
        let (mut peer, mut dir) = (Peer { entries: 9, ..Peer::default() }, open());
        dir.from(&mut peer, 0).unwrap();
        peer.fails = true;
        assert!(dir.from(&mut peer, 2).is_err());
        assert_eq!(rest(&mut dir, &mut peer, 2).unwrap(), names(2..9));
    }

    #[test]
    fn a_listing_that_is_cut_is_not_taken_for_one_that_has_ended() {
        let (mut peer, mut dir) = (Peer { entries: 9, ..Peer::default() }, open());
        dir.from(&mut peer, 0).unwrap();
        // The peer has forgotten it.
        peer.at = None;
        assert_eq!(errno(&dir.from(&mut peer, 2).unwrap_err()), Errno::EIO);
        peer.gone = true;
        assert_eq!(errno(&dir.from(&mut peer, 2).unwrap_err()), Errno::EIO);
    }

    #[test]
    fn a_peer_whose_listing_never_comes_to_an_entry_is_left() {
        let (mut peer, mut dir) = (Peer { entries: 3, empty: EMPTY_MAX, ..Peer::default() }, open());
        assert_eq!(rest(&mut dir, &mut peer, 0).unwrap(), names(0..3));
        let (mut peer, mut dir) = (Peer { entries: 3, empty: EMPTY_MAX + 1, ..Peer::default() }, open());
        assert!(matches!(dir.from(&mut peer, 0), Err(Error::Violation(_))));
    }
}
