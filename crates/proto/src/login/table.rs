//! What a listener remembers of logins: which streams have logged in.

use super::error::LoginError;
use super::keys::PublicKey;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    set: HashSet<Key>,
    order: VecDeque<Key>,
}

/// Connection and stream as the client numbers them, and its key where it has proven one: its numbers are nobody else's.
type Key = (u64, u16, Option<PublicKey>);

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

    /// Whether the stream has logged in without a key pair.
    pub fn is_used(&self, conn_id: u64, stream: u16) -> bool {
        self.lock().set.contains(&(conn_id, stream, None))
    }

    /// Takes the stream, or fails where it was taken before.
    pub fn claim(&self, conn_id: u64, stream: u16, peer_key: Option<PublicKey>) -> Result<(), LoginError> {
        let mut used = self.lock();
        let key = (conn_id, stream, peer_key);
        if !used.set.insert(key) {
            return Err(LoginError::Used { conn_id, stream });
        }
        used.order.push_back(key);
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
