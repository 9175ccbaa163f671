//! The thread of one session with the peer: what it is asked for, one after the other.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use fuser::Errno;
use linkspan_files::client::Client;
use linkspan_files::wire::FaultKind;
use linkspan_files::{Error, lock};

use crate::ahead::{OpenFile, Read, UnderWay};
use crate::pending::{Pending, Ticket};

/// Requests that wait for a session. The kernel has fewer under way (fuse.max_user_bgreq and the processes that ask).
const QUEUE: usize = 1024;

/// Reads that are asked for and not answered, about: what is read ahead of a file comes to them.
const UNDER_WAY: usize = 32;

type Job = Box<dyn FnOnce(&mut Client) + Send>;

/// What waits for a session.
enum Work {
    Job(Job),
    Read(Read),
    /// More of this file is to be read ahead.
    Ahead(Arc<Mutex<OpenFile>>),
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

    /// A read: answered here where its bytes are there already.
    pub(crate) fn read(&self, ticket: Ticket, read: Read) {
        let file = read.file.clone();
        match read.at_once(&self.pending) {
            (true, false) => return,
            // Where the queue is full, the next read asks again.
            (true, true) => return drop(self.jobs.try_send((None, Work::Ahead(file)))),
            _ => {}
        }
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

fn carry(
    mut client: Client,
    queue: &Receiver<(Option<Ticket>, Work)>,
    lasts: &Mutex<Vec<Job>>,
    pending: &Arc<Pending>,
) {
    let mut under_way = UnderWay::default();
    loop {
        // What waits here is asked for before an answer is waited for: it leaves with the rest.
        let next = match under_way.len() {
            0 => match queue.recv() {
                Ok(next) => Some(next),
                Err(_) => return,
            },
            n if n < UNDER_WAY => queue.try_recv().ok(),
            _ => None,
        };
        let Some((ticket, work)) = next else {
            under_way.next(&mut client, pending);
            continue;
        };
        let lasts = std::mem::take(&mut *lock(lasts));
        if !lasts.is_empty() {
            under_way.finish(&mut client, pending);
            lasts.into_iter().for_each(|last| last(&mut client));
        }
        match work {
            // Of those that came while the peer was gone most are answered already.
            _ if ticket.is_some_and(|ticket| !pending.is_open(&ticket)) => {}
            Work::Job(job) => {
                under_way.finish(&mut client, pending);
                let asks = pending.clone();
                // What nobody waits for any more is not asked again: it could undo what was done since.
                client.wanted_while(move || ticket.is_none_or(|ticket| asks.is_open(&ticket)));
                job(&mut client);
                client.wanted_while(|| true);
            }
            Work::Read(read) => {
                let file = read.file.clone();
                under_way.read(&mut client, pending, read);
                under_way.ahead(&mut client, pending, &file);
            }
            Work::Ahead(file) => under_way.ahead(&mut client, pending, &file),
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
        FaultKind::NotEmpty => Errno::ENOTEMPTY,
        FaultKind::OtherDevice => Errno::EXDEV,
        FaultKind::Forbidden => Errno::EPERM,
        FaultKind::Loop => Errno::ELOOP,
        FaultKind::Unsupported => Errno::EOPNOTSUPP,
        FaultKind::Running => Errno::ETXTBSY,
        FaultKind::TooManyLinks => Errno::EMLINK,
        FaultKind::TooLarge => Errno::EFBIG,
        FaultKind::Changed | FaultKind::WrongData | FaultKind::Io => Errno::EIO,
    }
}
