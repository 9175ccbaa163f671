//! The thread of one session with the peer: what it is asked for, one after the other.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use fuser::Errno;
use linkspan_files::Error;
use linkspan_files::client::Client;
use linkspan_files::wire::FaultKind;

use crate::pending::{Pending, Ticket};

/// Requests that wait for a session. The kernel has fewer under way (fuse.max_user_bgreq and the processes that ask).
const QUEUE: usize = 1024;

type Job = Box<dyn FnOnce(&mut Client) + Send>;

/// Hands work to a session.
#[derive(Clone)]
pub(crate) struct Courier {
    jobs: SyncSender<(Option<Ticket>, Job)>,
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
            self.jobs.try_send((Some(ticket), Box::new(job)))
        {
            self.pending.fail(&ticket, Errno::EIO);
        }
    }

    /// Work that nobody waits for, left out where the queue is full.
    pub(crate) fn offer(&self, job: impl FnOnce(&mut Client) + Send + 'static) {
        let _ = self.jobs.try_send((None, Box::new(job)));
    }

    /// Work that nobody waits for and that must be done: before the next.
    pub(crate) fn last(&self, job: impl FnOnce(&mut Client) + Send + 'static) {
        self.lasts.lock().unwrap_or_else(|e| e.into_inner()).push(Box::new(job));
        self.offer(|_| ());
    }
}

fn carry(mut client: Client, queue: &Receiver<(Option<Ticket>, Job)>, lasts: &Mutex<Vec<Job>>, pending: &Pending) {
    while let Ok((ticket, job)) = queue.recv() {
        let lasts = std::mem::take(&mut *lasts.lock().unwrap_or_else(|e| e.into_inner()));
        lasts.into_iter().for_each(|last| last(&mut client));
        // Of those that came while the peer was gone most are answered already.
        if ticket.is_none_or(|ticket| pending.is_open(&ticket)) {
            job(&mut client);
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
