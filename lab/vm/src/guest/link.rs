//! The way to a guest's agent: QEMU's end of the virtio port, a socket on this machine.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{At, Error, Result};
use crate::guest::job::Job;
use crate::wire::{self, Broken, Kind};

type Routes = Arc<Mutex<BTreeMap<u32, std::sync::mpsc::Sender<(Kind, Vec<u8>)>>>>;

/// Sends frames to the agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sender(Arc<Mutex<Option<UnixStream>>>);

impl Sender {
    /// Sends; where the guest is gone the jobs learn it from their ends.
    pub(crate) fn send(&self, kind: Kind, job: u32, body: &[u8]) {
        if let Some(stream) = &mut *lock(&self.0) {
            let _ = wire::write(stream, kind, job, body);
        }
    }
}

/// Connection to one agent.
#[derive(Debug)]
pub(crate) struct AgentConn {
    guest: String,
    path: PathBuf,
    to: Sender,
    routes: Routes,
    hello: Option<Receiver<Result<()>>>,
    next: Mutex<u32>,
}

impl AgentConn {
    /// A link that is not open yet.
    pub(crate) fn new(guest: &str, path: PathBuf) -> AgentConn {
        let (guest, to, routes) = (guest.to_owned(), Sender::default(), Routes::default());
        AgentConn { guest, path, to, routes, hello: None, next: Mutex::new(1) }
    }

    /// Connects as soon as QEMU listens, and waits for the agent's first word; true when it came.
    pub(crate) fn open(&mut self, wait: Duration) -> Result<bool> {
        if self.hello.is_none() {
            match UnixStream::connect(&self.path) {
                Ok(stream) => self.serve(stream)?,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                    std::thread::sleep(wait);
                    return Ok(false);
                }
                Err(error) => return Err(error).at(self.path.display()),
            }
        }
        match self.hello.as_ref().map(|hello| hello.recv_timeout(wait)) {
            Some(Ok(said)) => said.map(|()| true),
            _ => Ok(false),
        }
    }

    /// Starts a job.
    pub(crate) fn run(&self, script: &str, until: Instant, slow: u32) -> Result<Job> {
        if script.len() > wire::MOST {
            return Err(Error::Check(format!("a script of {} bytes does not fit a frame", script.len())));
        }
        let number = {
            let mut next = lock(&self.next);
            *next += 1;
            *next
        };
        let (to, from) = channel();
        lock(&self.routes).insert(number, to);
        self.to.send(Kind::Run, number, script.as_bytes());
        let what = script.lines().next().unwrap_or_default().to_owned();
        let (guest, to) = (self.guest.clone(), self.to.clone());
        Ok(Job { guest, number, what, from, to, until, slow, out: Vec::new(), err: Vec::new(), code: None })
    }

    fn serve(&mut self, stream: UnixStream) -> Result<()> {
        let mut from = stream.try_clone().at("socket of a guest")?;
        *lock(&self.to.0) = Some(stream);
        let (tell, hello) = channel();
        self.hello = Some(hello);
        let (routes, guest) = (Arc::clone(&self.routes), self.guest.clone());
        std::thread::spawn(move || {
            loop {
                match wire::read(&mut from) {
                    Ok(frame) if frame.kind == Kind::Hello => {
                        let _ = tell.send(Ok(()));
                    }
                    Ok(frame) => {
                        let mut routes = lock(&routes);
                        let over = frame.kind == Kind::Exit;
                        if let Some(to) = routes.get(&frame.job) {
                            let _ = to.send((frame.kind, frame.body));
                        }
                        if over {
                            routes.remove(&frame.job);
                        }
                    }
                    Err(Broken::Io(_)) => break,
                    Err(Broken::Wrong(len, kind)) => {
                        let _ = tell.send(Err(Error::Frame { guest, len, kind }));
                        break;
                    }
                }
            }
            // Every job that still waits sees its end.
            lock(&routes).clear();
        });
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
