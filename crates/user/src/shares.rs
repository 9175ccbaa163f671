//! The shares that a user's service keeps, and serves while it is told to.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use linkspan::Context;
use linkspan_fabric::{Config, Fabric};
use linkspan_files::serve::{Answered, Share};
use linkspan_net::Notifier;
use linkspan_service::rendezvous::{FILES, shown};
use serde::{Deserialize, Serialize};

use crate::place::{read_state, write_state};
use crate::serve::{Admits, Serving, Waiting, not_as_root, share};
use crate::task::Say;
use crate::work::log;
use crate::{Error, transfer};

/// Most shares: each has an open directory.
pub const SHARES: usize = 64;

/// A directory that peers see.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Its directory here.
    pub directory: PathBuf,
    /// Peers may change it.
    pub writable: bool,
}

impl Kept {
    /// As `lspan files serve` takes it.
    fn text(&self) -> String {
        format!("{}={}:{}", self.name, self.directory.display(), if self.writable { "rw" } else { "ro" })
    }
}

/// Where shares are served.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Where {
    /// Addresses to wait on; none: every usable interface.
    pub bind: Vec<IpAddr>,
    /// Port of the rendezvous; `None`: the usual one.
    pub port: Option<u16>,
}

/// What is kept on the disk.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct File {
    shares: Vec<Kept>,
    serve: Option<Where>,
}

struct Running {
    stop: Arc<AtomicBool>,
    wake: Arc<Notifier>,
    thread: JoinHandle<()>,
}

/// What is served now, and what is not with it, each with why.
#[derive(Default)]
struct Opened {
    running: Option<Running>,
    absent: Vec<(Kept, String)>,
}

#[derive(Default)]
struct Inner {
    file: File,
    running: Option<Running>,
    /// Shares that are not served with the others: their directories cannot be opened.
    absent: Vec<Kept>,
    error: String,
    /// Why the file was not read.
    unread: Option<String>,
    /// Nothing is served again by itself.
    ended: bool,
}

/// The shares, and whether they are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// They are.
    pub serving: bool,
    /// Where.
    pub addresses: Vec<String>,
    /// Why not, or not all of them, though they should; begins with an error code.
    pub error: String,
    /// All of them.
    pub shares: Vec<Kept>,
}

/// All of one user. May be used from any thread; what changes something may take as long as opening sockets does.
pub struct Shares {
    path: PathBuf,
    as_root: bool,
    say: Say,
    /// Called whenever they are served elsewhere.
    changed: Arc<dyn Fn() + Send + Sync>,
    answered: Answered,
    inner: Mutex<Inner>,
    status: Mutex<Status>,
    /// Where they are served.
    addrs: Arc<Mutex<Vec<String>>>,
}

impl std::fmt::Debug for Shares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shares").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Shares {
    /// Those of this file, served where they were. `as_root`: also where this user is root. `changed` is called when addresses of this
    /// host have come or gone.
    pub fn new(path: PathBuf, as_root: bool, say: Say, changed: Arc<dyn Fn() + Send + Sync>) -> Shares {
        let shares = Shares {
            path,
            as_root,
            say,
            changed,
            answered: Answered::default(),
            inner: Mutex::default(),
            status: Mutex::default(),
            addrs: Arc::default(),
        };
        let mut inner = shares.locked();
        (inner.file, inner.unread) = read_state(&shares.path, &shares.say);
        shares.again(&mut inner);
        drop(inner);
        shares
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, and whether they are served. Waits for nothing: what is being changed may have to wait for a peer.
    pub fn status(&self) -> Status {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if status.serving {
            status.addresses = self.addrs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
        status
    }

    fn show(&self, inner: &Inner) {
        let (error, shares) = (inner.error.clone(), inner.file.shares.clone());
        let now = Status { serving: inner.running.is_some(), addresses: Vec::new(), error, shares };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// One more. Where they are served, they are from now on with it: sessions are cut, and transfers go on by themselves.
    ///
    /// # Errors
    /// [`Error::Usage`], [`Error::Files`]: the directory cannot be opened; [`Error::Limit`], [`Error::System`].
    pub fn add(&self, new: Kept) -> Result<(), Error> {
        if !new.directory.is_absolute() {
            return Err(Error::Usage(format!("the directory {} is not absolute", new.directory.display())));
        }
        if !Share::is_name(&new.name) {
            return Err(Error::Usage(format!("{:?} cannot name a share: take letters, digits, - _ .", new.name)));
        }
        share(&new.text())?;
        let mut inner = self.locked();
        let mut file = inner.file.clone();
        if file.shares.iter().any(|old| old.name == new.name) {
            return Err(Error::Usage(format!("a share is called {} already; remove it first", new.name)));
        }
        if file.shares.len() == SHARES {
            return Err(Error::Limit(format!("LS1849 there are {SHARES} shares already; remove one")));
        }
        file.shares.push(new);
        self.keep(&mut inner, file)?;
        self.again(&mut inner);
        Ok(())
    }

    /// Ends one.
    ///
    /// # Errors
    /// [`Error::Absent`], [`Error::System`].
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let mut inner = self.locked();
        let mut file = inner.file.clone();
        file.shares.retain(|old| old.name != name);
        if file.shares.len() == inner.file.shares.len() {
            return Err(Error::Absent(format!("no share is called {name:?}")));
        }
        self.keep(&mut inner, file)?;
        self.again(&mut inner);
        Ok(())
    }

    /// Serves them, now and whenever the service starts.
    ///
    /// # Errors
    /// [`Error::Refused`]: this is root, or there is nobody to serve; those of opening sockets and shares. Nothing has changed then.
    pub fn serve(&self, at: Where) -> Result<(), Error> {
        let mut inner = self.locked();
        let file = File { serve: Some(at), ..inner.file.clone() };
        halt(&mut inner);
        match self.open(&file) {
            Ok(opened) => {
                self.take(&mut inner, opened);
                self.show(&inner);
                let kept = self.keep(&mut inner, file);
                if kept.is_err() {
                    self.again(&mut inner);
                }
                kept
            }
            Err(error) => {
                self.again(&mut inner);
                Err(error)
            }
        }
    }

    /// Serves them no more; whether they were to be.
    ///
    /// # Errors
    /// [`Error::System`]: that cannot be written.
    pub fn stop(&self) -> Result<bool, Error> {
        let mut inner = self.locked();
        let was = inner.file.serve.is_some();
        halt(&mut inner);
        inner.error.clear();
        self.show(&inner);
        let file = File { serve: None, ..inner.file.clone() };
        self.keep(&mut inner, file)?;
        Ok(was)
    }

    /// Tries again to serve them, where they are to be and are not, or not all of them: an address, a directory or a peer may have come. Whether something is different
    /// now. Returns at once where something is being changed.
    pub fn retry(&self) -> bool {
        let Ok(mut inner) = self.inner.try_lock() else { return false };
        // Sessions are cut only where one more can be served.
        let none_came = || inner.absent.iter().all(|kept| share(&kept.text()).is_err());
        if inner.file.serve.is_none() || inner.ended || (inner.running.is_some() && none_came()) {
            return false;
        }
        let before = inner.error.clone();
        self.again(&mut inner);
        inner.running.is_some() || inner.error != before
    }

    /// Ends the serving for this time.
    pub fn end(&self) {
        let mut inner = self.locked();
        inner.ended = true;
        halt(&mut inner);
    }

    fn keep(&self, inner: &mut Inner, file: File) -> Result<(), Error> {
        if let Some(why) = &inner.unread {
            return Err(Error::Refused(why.clone()));
        }
        write_state(&self.path, &file)?;
        inner.file = file;
        Ok(())
    }

    /// Serves what is kept, where it is to be served.
    fn again(&self, inner: &mut Inner) {
        halt(inner);
        match self.open(&inner.file) {
            Ok(opened) => self.take(inner, opened),
            Err(error) => self.fails(inner, error.text()),
        }
        self.show(inner);
    }

    fn take(&self, inner: &mut Inner, opened: Opened) {
        inner.running = opened.running;
        let (absent, why): (Vec<_>, Vec<_>) = opened.absent.into_iter().unzip();
        inner.absent = absent;
        self.fails(inner, why.join("; "));
    }

    fn fails(&self, inner: &mut Inner, why: String) {
        if why != inner.error && !why.is_empty() {
            let which = if inner.running.is_some() { "some shares" } else { "shares" };
            (self.say)(&format!("{which} are not served: {why}"));
        }
        inner.error = why;
    }

    fn open(&self, file: &File) -> Result<Opened, Error> {
        let Some(at) = &file.serve else { return Ok(Opened::default()) };
        if !self.as_root {
            not_as_root()?;
        }
        let (admits, mut config) = (Admits::of_this_user()?, Config::from_env()?);
        // Before anything is begun: what is tried again is most often a directory that is not there.
        let (mut shares, mut absent) = (Vec::new(), Vec::new());
        for kept in &file.shares {
            match share(&kept.text()) {
                Ok(share) => shares.push(share),
                Err(error) => absent.push((kept.clone(), error.text())),
            }
        }
        if let (true, Some((first, _))) = (shares.is_empty(), absent.first()) {
            share(&first.text())?;
        }
        if let Admits::Paired(ring) = &admits {
            config.use_keys(ring.clone(), None);
        }
        let survey = Fabric::new(config.clone(), log(&self.say), false, linkspan_transports::all())?;
        config.warnings.clear();
        let context = Context::new(config, log(&self.say))?;
        let (bind, port, state) = (at.bind.clone(), at.port.unwrap_or(FILES.port), transfer::journals().ok());
        let answered = self.answered.clone();
        let what = Serving { shares, services: Vec::new(), state, bind, port, device: 0, answered };
        let (say, paired) = (self.say.clone(), matches!(admits, Admits::Paired(_)));
        let heard = say.clone();
        let waiting = Waiting::open(what, paired, &survey, &context, move |line| heard(line))?;
        let (addrs, changed) = (self.addrs.clone(), self.changed.clone());
        let moved = move |now: &[SocketAddr]| {
            *addrs.lock().unwrap_or_else(PoisonError::into_inner) = now.iter().map(shown).collect();
            changed();
        };
        moved(&waiting.addrs());
        let wake = Arc::new(Notifier::new().map_err(|error| Error::system("eventfd", error))?);
        let stop = Arc::new(AtomicBool::new(false));
        let (own, stopped) = (wake.clone(), stop.clone());
        let serve = move || {
            // Its interfaces and transports live as long as it does.
            let (_survey, _context) = (survey, context);
            let ran = waiting.run(own.as_fd(), &|| stopped.load(Ordering::Acquire), &moved, &|line| say(line));
            if let Err(error) = ran {
                say(&format!("shares are not served any more: {}", error.text()));
            }
        };
        let thread = std::thread::Builder::new().name("shares".into()).spawn(serve);
        let thread = thread.map_err(|error| Error::system("a thread", error))?;
        Ok(Opened { running: Some(Running { stop, wake, thread }), absent })
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends what serves, so that its ports are free.
fn halt(inner: &mut Inner) {
    let Some(running) = inner.running.take() else { return };
    running.stop.store(true, Ordering::Release);
    running.wake.signal();
    let _ = running.thread.join();
}

/// Where shares of this user are kept.
///
/// # Errors
/// [`Error::System`].
pub fn file() -> Result<PathBuf, Error> {
    Ok(crate::place::state_dir("service")?.join(Path::new("shares.json")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_being_changed_holds_up_nobody_who_asks() {
        let path = std::env::temp_dir().join(format!("linkspan-shares-asked-{}", std::process::id()));
        let one = Kept { name: "one".into(), directory: "/".into(), writable: false };
        std::fs::write(&path, serde_json::json!({ "shares": [one] }).to_string()).unwrap();
        let shares = Shares::new(path.clone(), true, Arc::new(|_: &str| {}), Arc::new(|| {}));
        // As while a session with a silent peer is waited for.
        let _changing = shares.locked();
        assert_eq!(shares.status().shares, [one]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_written_over_and_one_that_is_written_is_closed_to_others() {
        let dir = std::env::temp_dir().join(format!("linkspan-shares-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("shares.json");
        let kept = |name: &str| Kept { name: name.into(), directory: dir.clone(), writable: false };
        let shares = || Shares::new(path.clone(), true, Arc::new(|_: &str| {}), Arc::new(|| {}));
        shares().add(kept("one")).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(shares().status().shares, [kept("one")]);
        let newer = br#"{"shares":[],"serve":{"of_a_newer_release":1}}"#;
        std::fs::write(&path, newer).unwrap();
        let refused = shares().add(kept("two")).unwrap_err().text();
        assert!(refused.contains("LS1850") && refused.contains("of_a_newer_release"), "{refused}");
        assert!(shares().stop().is_err());
        assert_eq!(std::fs::read(&path).unwrap(), newer);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
