//! What a listener remembers of logins: which streams have logged in, and which connections are still half open.

use super::error::LoginError;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Streams that logged in, each once. Bounded: beyond `bound` the oldest is forgotten, which is harmless, for a
/// replayed login fails on the server's nonce; the table stops a peer that holds the token from doubling a stream.
/// Shared by the logins of one listener; safe to use from several threads.
#[derive(Debug)]
pub struct LoginTable {
    used: Mutex<Used>,
    bound: usize,
}

#[derive(Debug, Default)]
struct Used {
    set: HashSet<(u64, u16)>,
    order: VecDeque<(u64, u16)>,
}

/// Streams that a [`LoginTable`] remembers unless told otherwise: 64 connections of 64 rails.
pub const USED_BOUND: usize = 4096;

impl Default for LoginTable {
    fn default() -> LoginTable {
        LoginTable::new(USED_BOUND)
    }
}

impl LoginTable {
    /// An empty table of at most `bound` streams (at least 1).
    pub fn new(bound: usize) -> LoginTable {
        LoginTable { used: Mutex::default(), bound: bound.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        // Both collections are sound after every statement below, so a panic elsewhere does not spoil them.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the stream has logged in.
    pub fn is_used(&self, conn_id: u64, stream: u16) -> bool {
        self.lock().set.contains(&(conn_id, stream))
    }

    /// Takes the stream, or fails where it was taken before.
    pub fn claim(&self, conn_id: u64, stream: u16) -> Result<(), LoginError> {
        let mut used = self.lock();
        if !used.set.insert((conn_id, stream)) {
            return Err(LoginError::Used { conn_id, stream });
        }
        used.order.push_back((conn_id, stream));
        if used.order.len() > self.bound
            && let Some(oldest) = used.order.pop_front()
        {
            used.set.remove(&oldest);
        }
        Ok(())
    }

    /// Streams remembered at the moment.
    pub fn len(&self) -> usize {
        self.lock().order.len()
    }

    /// Whether no stream has logged in.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Half-open connections of a listener unless told otherwise: 64 peers that come at once, each with a few rails and a keepalive connection;
/// a quarter of the descriptors that a process has where the limit is the default (1024).
pub const HALF_OPEN_BOUND: usize = 256;

/// Accounts for accepted connections whose login is not done. `K` names one (a slot, a descriptor). When full, the
/// oldest that has proven nothing is dropped, and only if there is none the oldest that has.
#[derive(Debug)]
pub struct HalfOpen<K> {
    open: VecDeque<Entry<K>>,
    bound: usize,
}

#[derive(Debug)]
struct Entry<K> {
    key: K,
    until: Duration,
    proven: bool,
}

impl<K: PartialEq> Default for HalfOpen<K> {
    fn default() -> HalfOpen<K> {
        HalfOpen::new(HALF_OPEN_BOUND)
    }
}

impl<K: PartialEq> HalfOpen<K> {
    /// An empty table for `bound` connections (at least 1).
    pub fn new(bound: usize) -> HalfOpen<K> {
        HalfOpen { open: VecDeque::new(), bound: bound.max(1) }
    }

    /// Enters a connection that must be done by `until`. Gives the one to close with [`LoginError::Crowded`], if
    /// the bound is reached.
    pub fn enter(&mut self, key: K, until: Duration) -> Option<K> {
        let mut out = None;
        if self.open.len() >= self.bound {
            let index = self.open.iter().position(|e| !e.proven).unwrap_or(0);
            out = self.open.remove(index).map(|e| e.key);
        }
        self.open.push_back(Entry { key, until, proven: false });
        out
    }

    /// Notes that the connection's hello was genuine ([`super::Login::is_proven`]).
    pub fn prove(&mut self, key: &K) {
        if let Some(entry) = self.open.iter_mut().find(|e| e.key == *key) {
            entry.proven = true;
        }
    }

    /// Removes a connection: its login is done, failed or closed.
    pub fn leave(&mut self, key: &K) -> Option<K> {
        let index = self.open.iter().position(|e| e.key == *key)?;
        self.open.remove(index).map(|e| e.key)
    }

    /// Removes one connection whose deadline is over.
    pub fn expire(&mut self, now: Duration) -> Option<K> {
        let index = self.open.iter().position(|e| e.until <= now)?;
        self.open.remove(index).map(|e| e.key)
    }

    /// The next deadline.
    pub fn next_expiry(&self) -> Option<Duration> {
        self.open.iter().map(|e| e.until).min()
    }

    /// The error for the connection that [`HalfOpen::enter`] gave back.
    pub fn crowded(&self) -> LoginError {
        LoginError::Crowded { bound: self.bound }
    }

    /// Connections in the table.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}
