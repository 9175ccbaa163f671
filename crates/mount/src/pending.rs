//! Requests of the kernel that wait for an answer, each with its deadline.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fuser::{
    Errno, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite,
};

/// Where an answer goes.
#[derive(Debug)]
pub(crate) enum Reply {
    Entry(ReplyEntry),
    Attr(ReplyAttr),
    Open(ReplyOpen),
    Data(ReplyData),
    Dir(ReplyDirectory),
    DirPlus(ReplyDirectoryPlus),
    Space(ReplyStatfs),
    Create(ReplyCreate),
    Write(ReplyWrite),
    Done(ReplyEmpty),
}

impl Reply {
    pub(crate) fn error(self, error: Errno) {
        match self {
            Reply::Entry(reply) => reply.error(error),
            Reply::Attr(reply) => reply.error(error),
            Reply::Open(reply) => reply.error(error),
            Reply::Data(reply) => reply.error(error),
            Reply::Dir(reply) => reply.error(error),
            Reply::DirPlus(reply) => reply.error(error),
            Reply::Space(reply) => reply.error(error),
            Reply::Create(reply) => reply.error(error),
            Reply::Write(reply) => reply.error(error),
            Reply::Done(reply) => reply.error(error),
        }
    }
}

/// Names a request that waits.
pub(crate) type Ticket = (Instant, u64);

#[derive(Debug, Default)]
struct Table {
    open: BTreeMap<Ticket, Reply>,
    next: u64,
    /// Until when the timer sleeps; `None`: until it is woken.
    asleep: Option<Instant>,
    /// Nobody asks any more.
    closed: bool,
}

/// Whoever takes a reply out answers it, so that it is answered once.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    table: Mutex<Table>,
    earlier: Condvar,
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn add(&self, limit: Duration, reply: Reply) -> Ticket {
        let mut table = self.lock();
        table.next += 1;
        let ticket = (Instant::now() + limit, table.next);
        table.open.insert(ticket, reply);
        if table.asleep.is_none_or(|until| ticket.0 < until) {
            self.earlier.notify_one();
        }
        ticket
    }

    /// `false`: it was answered already, and nobody waits any more.
    pub(crate) fn is_open(&self, ticket: &Ticket) -> bool {
        self.lock().open.contains_key(ticket)
    }

    /// The right and duty to answer; `None`: the timer has.
    pub(crate) fn take(&self, ticket: &Ticket) -> Option<Reply> {
        self.lock().open.remove(ticket)
    }

    pub(crate) fn fail(&self, ticket: &Ticket, error: Errno) {
        if let Some(reply) = self.take(ticket) {
            reply.error(error);
        }
    }

    /// Answers a request that asks for nothing but whether it was done.
    pub(crate) fn done(&self, ticket: &Ticket, done: Result<(), Errno>) {
        match (self.take(ticket), done) {
            (Some(Reply::Done(reply)), Ok(())) => reply.ok(),
            (Some(reply), Err(error)) => reply.error(error),
            _ => {}
        }
    }

    /// The timer ends when all that waits has its answer.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.earlier.notify_all();
    }

    /// Answers what is late, until this is closed.
    pub(crate) fn time(&self) {
        let mut table = self.lock();
        loop {
            let now = Instant::now();
            let first = table.open.first_key_value().map(|(ticket, _)| *ticket);
            table.asleep = first.map(|(until, _)| until);
            table = match first {
                None if table.closed => return,
                None => self.earlier.wait(table).unwrap_or_else(|e| e.into_inner()),
                Some((until, _)) if until > now => {
                    self.earlier.wait_timeout(table, until - now).unwrap_or_else(|e| e.into_inner()).0
                }
                Some(_) => {
                    if let Some((_, late)) = table.open.pop_first() {
                        late.error(Errno::EIO);
                    }
                    table
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Pending;

    #[test]
    fn the_timer_of_a_mount_ends_with_it() {
        let pending = Arc::<Pending>::default();
        let timer = std::thread::spawn({
            let pending = pending.clone();
            move || pending.time()
        });
        pending.close();
        timer.join().unwrap();
        assert_eq!(Arc::strong_count(&pending), 1);
    }
}
