//! The thread of one session with the peer: what it is asked for, one after the other.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use fuser::Errno;
use linkspan_files::client::Client;
use linkspan_files::wire::FaultKind;
use linkspan_files::{Error, lock};

use crate::ahead::{self, Read};
use crate::pending::{Pending, Ticket};

/// Requests that wait for a session. The kernel has fewer under way (fuse.max_user_bgreq and the processes that ask).
const QUEUE: usize = 1024;

/// Reads that are asked for at once.
const BATCH: usize = 32;

type Job = Box<dyn FnOnce(&mut Client) + Send>;

/// What waits for a session.
enum Work {
    Job(Job),
    Read(Read),
}

/// Hands work to a session.
#[derive(Clone)]
pub(crate) struct Courier {
    jobs: SyncSender<(Option<Ticket>, Work)>,
    /// At most one for each open file.
    lasts: Arc<Mutex<Vec<Job>>>,
    pending: Arc<Pending>,
}

impl std::fmt::Debug for Courier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Courier")
    }
}

impl Courier {
    pub(crate) fn start(name: &str, client: Client, pending: &Arc<Pending>) -> io::Result<Courier> {
        let (jobs, queue) = sync_channel(QUEUE);
        let (own, lasts) = (pending.clone(), Arc::new(Mutex::new(Vec::new())));
        let last = lasts.clone();
        thread::Builder::new().name(name.into()).spawn(move || carry(client, &queue, &last, &own))?;
        Ok(Courier { jobs, lasts, pending: pending.clone() })
    }

    /// Work that answers a request.
    pub(crate) fn post(&self, ticket: Ticket, job: impl FnOnce(&mut Client) + Send + 'static) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.jobs.try_send((Some(ticket), Work::Job(Box::new(job))))
        {
            self.pending.fail(&ticket, Errno::EIO);
        }
    }

    /// A read, which goes with others that wait.
    pub(crate) fn read(&self, ticket: Ticket, read: Read) {
        if self.jobs.try_send((Some(ticket), Work::Read(read))).is_err() {
            self.pending.fail(&ticket, Errno::EIO);
        }
    }

    /// Work that nobody waits for, left out where the queue is full.
    pub(crate) fn offer(&self, job: impl FnOnce(&mut Client) + Send + 'static) {
        let _ = self.jobs.try_send((None, Work::Job(Box::new(job))));
    }

    /// Work that nobody waits for and that must be done: before the next.
    pub(crate) fn last(&self, job: impl FnOnce(&mut Client) + Send + 'static) {
        lock(&self.lasts).push(Box::new(job));
        self.offer(|_| ());
    }
}

fn carry(mut client: Client, queue: &Receiver<(Option<Ticket>, Work)>, lasts: &Mutex<Vec<Job>>, pending: &Pending) {
    let mut held = None;
    while let Some((ticket, work)) = held.take().or_else(|| queue.recv().ok()) {
        let lasts = std::mem::take(&mut *lock(lasts));
        lasts.into_iter().for_each(|last| last(&mut client));
        // Of those that came while the peer was gone most are answered already.
        let open = |ticket: Option<Ticket>| ticket.is_none_or(|ticket| pending.is_open(&ticket));
        match work {
            _ if !open(ticket) => {}
            Work::Job(job) => job(&mut client),
            Work::Read(read) => {
                let mut reads = vec![read];
                while reads.len() < BATCH && held.is_none() {
                    match queue.try_recv() {
                        Ok((ticket, Work::Read(read))) if open(ticket) => reads.push(read),
                        Ok((_, Work::Read(_))) => {}
                        Ok(other) => held = Some(other),
                        Err(_) => break,
                    }
                }
                ahead::read(&mut client, pending, reads);
            }
        }
    }
}

/// As programs see it.
pub(crate) fn errno(error: &Error) -> Errno {
    let Error::Refused(fault) = error else { return Errno::EIO };
    match fault.kind {
        FaultKind::NotFound => Errno::ENOENT,
        FaultKind::Denied => Errno::EACCES,
        FaultKind::Exists => Errno::EEXIST,
        FaultKind::IsDir => Errno::EISDIR,
        FaultKind::NotDir => Errno::ENOTDIR,
        FaultKind::NoSpace => Errno::ENOSPC,
        FaultKind::ReadOnly => Errno::EROFS,
        FaultKind::Busy => Errno::EBUSY,
        FaultKind::Invalid => Errno::EINVAL,
        FaultKind::Limit => Errno::EMFILE,
        FaultKind::Changed | FaultKind::WrongData | FaultKind::Io => Errno::EIO,
    }
}
