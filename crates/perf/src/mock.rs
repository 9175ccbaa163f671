//! Two ends of a link inside this process, with faults on demand.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use linkspan_proto::Buf;
use linkspan_transport::MemSlice;

use crate::link::{Connector, Leftovers, Link, LinkDesc, LinkError, Ticket, WAIT_MAX};
use crate::session::{Limits, serve};

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Flip a bit in every so-manieth message of more than 8 bytes.
    pub(crate) corrupt_every: u64,
    /// Drop the whole link after so many messages.
    pub(crate) die_after: u64,
    /// Refuse one post in so many with "busy".
    pub(crate) busy_every: u64,
    /// Exchange this message with the next one of its tag, which must come without an answer to this one.
    pub(crate) swap_at: u64,
}

#[derive(Default)]
struct Side {
    recvs: Vec<(u32, MemSlice, u64)>,
    sends: VecDeque<(u32, MemSlice, u64)>,
    done: Vec<(u64, usize)>,
    next: u64,
    closed: bool,
    posts: u64,
}

#[derive(Default)]
struct Shared {
    sides: [Side; 2],
    messages: u64,
    dead: bool,
    faults: Faults,
    /// Of both: each writes to the other's memory.
    leftovers: Leftovers,
}

pub(crate) struct Mock {
    shared: Arc<(Mutex<Shared>, Condvar)>,
    me: usize,
}

pub(crate) fn pair(faults: Faults) -> (Mock, Mock) {
    let shared = Arc::new((Mutex::new(Shared { faults, ..Shared::default() }), Condvar::new()));
    (Mock { shared: Arc::clone(&shared), me: 0 }, Mock { shared, me: 1 })
}

impl Shared {
    /// Moves every send of `from` whose receive is posted.
    fn deliver(&mut self, from: usize) -> bool {
        let mut moved = false;
        let mut at = 0;
        while at < self.sides[from].sends.len() {
            let (tag, mem, send) = self.sides[from].sends[at];
            // Only the first of each tag may go: messages of a tag stay in order.
            let first = self.sides[from].sends.iter().position(|other| other.0 == tag) == Some(at);
            let recv = self.sides[1 - from].recvs.iter().position(|recv| recv.0 == tag);
            let Some(recv) = recv.filter(|_| first) else {
                at += 1;
                continue;
            };
            let mut taken = at;
            if self.messages + 1 == self.faults.swap_at {
                let later = self.sides[from].sends.iter().skip(at + 1).position(|other| other.0 == tag);
                // Held until there is one to exchange it with: how many wait at a time is the scheduler's choice.
                let Some(later) = later else {
                    at += 1;
                    continue;
                };
                taken = at + 1 + later;
            }
            self.messages += 1;
            if self.faults.die_after != 0 && self.messages > self.faults.die_after {
                self.dead = true;
                return true;
            }
            let (_, mem, send) = if taken == at { (tag, mem, send) } else { self.sides[from].sends[taken] };
            let (_, into, recv) = self.sides[1 - from].recvs.remove(recv);
            let mut bytes = mem.to_vec();
            if bytes.len() > 8
                && self.faults.corrupt_every != 0
                && self.messages.is_multiple_of(self.faults.corrupt_every)
            {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x10;
            }
            assert!(into.fill(0, &bytes), "a message longer than its receive");
            self.sides[1 - from].done.push((recv, bytes.len()));
            self.sides[from].done.push((send, bytes.len()));
            self.sides[from].sends.remove(taken);
            moved = true;
        }
        moved
    }
}

impl Mock {
    /// Does this in another thread, once so many messages have moved or the other end is gone.
    pub(crate) fn when_moved(&self, messages: u64, then: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
        let link = Arc::clone(&self.shared);
        thread::spawn(move || {
            let early = |shared: &mut Shared| shared.messages < messages && !shared.dead && !shared.sides[1].closed;
            drop(link.1.wait_while(link.0.lock().unwrap(), early).unwrap());
            then();
        })
    }

    /// Messages that have moved, of both ends.
    pub(crate) fn moved(&self) -> u64 {
        self.shared.0.lock().unwrap().messages
    }

    fn lock(&self) -> Result<MutexGuard<'_, Shared>, LinkError> {
        let shared = self.shared.0.lock().unwrap();
        let dead = shared.dead || shared.sides[1 - self.me].closed && shared.sides[1 - self.me].sends.is_empty();
        if dead && shared.sides[self.me].done.is_empty() {
            return Err(LinkError::PeerGone { path: "mock".into(), why: "it was dropped".into() });
        }
        Ok(shared)
    }

    fn post(&mut self, tag: u32, mem: MemSlice, send: bool) -> Result<Option<Ticket>, LinkError> {
        let me = self.me;
        let mut shared = self.lock()?;
        let every = shared.faults.busy_every;
        let side = &mut shared.sides[me];
        side.posts += 1;
        // Spread by a hash: a plain count can fall into step with a caller that posts in turn, and starve one of them.
        if every != 0 && (side.posts.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40).is_multiple_of(every) {
            return Ok(None);
        }
        side.next += 1;
        let ticket = side.next;
        match send {
            true => side.sends.push_back((tag, mem, ticket)),
            false => side.recvs.push((tag, mem, ticket)),
        }
        self.shared.1.notify_all();
        Ok(Some(Ticket(ticket)))
    }
}

#[allow(unsafe_code)]
// SAFETY: memory is posted on a channel, which forgets it when the operation has reported or the link is dropped.
unsafe impl Link for Mock {
    fn describe(&self) -> LinkDesc {
        LinkDesc { transport: "mock".into(), path: "memory".into(), reason: "a test".into(), ..LinkDesc::default() }
    }

    fn leftovers(&self) -> Leftovers {
        self.shared.0.lock().unwrap().leftovers.clone()
    }

    fn post_send(&mut self, tag: u32, mem: MemSlice) -> Result<Option<Ticket>, LinkError> {
        self.post(tag, mem, true)
    }

    fn post_recv(&mut self, tag: u32, mem: MemSlice) -> Result<Option<Ticket>, LinkError> {
        self.post(tag, mem, false)
    }

    fn progress(&mut self) -> Result<bool, LinkError> {
        let mut shared = self.lock()?;
        let moved = shared.deliver(0) | shared.deliver(1);
        if moved {
            self.shared.1.notify_all();
        }
        Ok(moved)
    }

    fn test(&mut self, ticket: Ticket) -> Result<Option<usize>, LinkError> {
        let me = self.me;
        let mut shared = self.lock()?;
        let done = &mut shared.sides[me].done;
        let at = done.iter().position(|done| done.0 == ticket.0);
        Ok(at.map(|at| done.swap_remove(at).1))
    }

    fn wait(&mut self, most: Duration) -> Result<(), LinkError> {
        let shared = self.lock()?;
        if shared.sides[self.me].done.is_empty() {
            drop(self.shared.1.wait_timeout(shared, most.min(WAIT_MAX / 100)).unwrap());
        }
        Ok(())
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let mut shared = self.shared.0.lock().unwrap_or_else(|e| e.into_inner());
        // What was accepted still arrives, as it does on a socket.
        let me = self.me;
        shared.deliver(me);
        shared.sides[me].closed = true;
        shared.sides[me].sends.clear();
        shared.sides[me].recvs.clear();
        self.shared.1.notify_all();
    }
}

/// Connects to a server that is a thread per connection.
pub(crate) struct MockConnector {
    pub(crate) faults: Faults,
}

impl Connector for MockConnector {
    type Link = Mock;

    fn connect(&self) -> Result<Mock, LinkError> {
        let (ours, mut theirs) = pair(self.faults);
        thread::spawn(move || serve(&mut theirs, &Limits::default()));
        Ok(ours)
    }
}
