//! An open directory: its listing at the peer, a part of it at a time.

use std::collections::VecDeque;

use linkspan_files::Error;
use linkspan_files::client::Client;
use linkspan_files::engine::Violation;
use linkspan_files::wire::{Answer, Entry, PeerPath, Request};

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
}

impl OpenDir {
    pub(crate) fn new(at: PeerPath) -> OpenDir {
        OpenDir { at, cursor: None, entries: VecDeque::new(), first: 0, begun: false }
    }

    /// Entries from this index on; none: there are no more. At an index that is not the next one, and after a reconnect, the listing
    /// begins anew.
    pub(crate) fn from(&mut self, client: &mut Client, index: u64) -> Result<&VecDeque<Entry>, Error> {
        let gone = self.cursor.is_some_and(|(_, epoch)| epoch != client.epoch());
        if !self.begun || index < self.first || (gone && self.entries.len() as u64 <= index - self.first) {
            self.end(client);
            (self.first, self.begun) = (0, true);
            self.entries.clear();
            let part = client.request(Request::List(self.at.clone()))?;
            self.add(client, part)?;
        }
        while self.first < index {
            if self.entries.pop_front().is_some() {
                self.first += 1;
            } else if !self.more(client)? {
                break;
            }
        }
        while self.entries.is_empty() && self.more(client)? {}
        Ok(&self.entries)
    }

    fn more(&mut self, client: &mut Client) -> Result<bool, Error> {
        let Some((cursor, _)) = self.cursor.take() else { return Ok(false) };
        let part = client.request(Request::More(cursor))?;
        self.add(client, part)?;
        Ok(true)
    }

    fn add(&mut self, client: &Client, part: Answer) -> Result<(), Error> {
        let Answer::List(entries, more) = part else {
            return Err(Violation("it gives an answer to another question").into());
        };
        self.entries.extend(entries);
        self.cursor = more.map(|cursor| (cursor, client.epoch()));
        Ok(())
    }

    /// Gives the listing at the peer up.
    pub(crate) fn end(&mut self, client: &mut Client) {
        if let Some((cursor, epoch)) = self.cursor.take()
            && epoch == client.epoch()
        {
            // What it does not hear it forgets with the session.
            let _ = client.request(Request::Stop(cursor));
        }
    }
}
