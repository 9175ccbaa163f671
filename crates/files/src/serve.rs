//! The serving side: shares, who may use them, and how much.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use linkspan::Transport;
use linkspan_net::Quota;

use crate::Error;
use crate::fs::RealFs;
use crate::link::{self, Incoming, Line, first_message};
use crate::pipe::{self, Service};
use crate::sweep::sweep;
use crate::wire::{Fault, FaultKind, Message};

pub(crate) mod answers;
mod session;
use answers::Answers;
pub use session::FILES_MAX;

/// Connections at a time; more are refused.
pub const CONNECTIONS_MAX: u64 = 128;

/// Connections of one peer at a time. Each session has two while it transfers.
pub const PER_PEER_MAX: u64 = 16;

/// Descriptors of open files and listings of one peer, in all of its sessions: half of those that a process has by default.
pub const PER_PEER_OPEN: u64 = 512;

/// Connections at a time that are told that there is no place for them.
const REFUSED_MAX: u64 = 16;

/// How long a new connection may say nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long what a session is at may take when the server ends.
const ENDING: Duration = Duration::from_secs(10);

/// Who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A peer that was paired, by its name.
    Paired(String),
    /// Anybody who has the cluster key.
    Cluster,
}

impl Identity {
    /// As users see it.
    pub fn name(&self) -> &str {
        match self {
            Identity::Paired(name) => name,
            Identity::Cluster => "cluster",
        }
    }
}

/// A directory that peers see under a name.
#[derive(Debug)]
pub struct Share {
    /// Its name.
    pub name: String,
    root: Arc<OwnedFd>,
    /// Whether peers may change it.
    pub writable: bool,
}

impl Share {
    /// Opens the directory. From here on no path leads to it any more, but this descriptor.
    ///
    /// # Errors
    /// [`Error::System`]: it cannot be opened, or is no directory.
    pub fn open(name: &str, dir: &Path, writable: bool) -> Result<Share, Error> {
        let root =
            RealFs::root(dir).map_err(|error| Error::system(format!("share {name}: {}", dir.display()), error))?;
        Ok(Share { name: name.to_owned(), root: Arc::new(root), writable })
    }

    /// Whether a word can name a share: it stands before a slash, behind a colon.
    pub fn is_name(name: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !name.is_empty() && name.len() <= 64 && name.chars().all(plain) && !name.starts_with(['.', '-'])
    }
}

/// What a connection takes: a place among all, and one among those of its peer.
pub(crate) type Places = [linkspan_net::Share; 2];

/// A session that waits for its bulk connection, and the place that is kept for it.
struct Waits {
    of: Identity,
    post: SyncSender<Incoming>,
    places: Option<Places>,
}

/// What one peer may take.
struct Own {
    places: Quota,
    open: Quota,
}

/// The last answers to each peer. The server after another one is given the same: what was carried out while the other one ended, and could not be
/// answered any more, is asked for again.
#[derive(Clone, Debug, Default)]
pub struct Answered(Arc<Mutex<HashMap<Identity, Answers>>>);

#[derive(Default)]
struct Books {
    /// Of each peer that has connections.
    own: HashMap<Identity, Own>,
    /// Sessions that wait for their bulk connection.
    tokens: HashMap<[u8; 16], Waits>,
    /// Connections that have sessions, each with its peer and the session.
    lines: Vec<(Identity, [u8; 16], Weak<Line>)>,
    /// No more sessions.
    closed: bool,
}

/// The serving side.
pub struct Server {
    fs: Arc<RealFs>,
    shares: Vec<Share>,
    services: Vec<Service>,
    state: Option<Arc<OwnedFd>>,
    /// Files of this many bytes leave the page cache.
    large: u64,
    say: pipe::Say,
    places: Quota,
    refused: Quota,
    answered: Answered,
    books: Mutex<Books>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({} shares)", self.shares.len())
    }
}

impl Server {
    /// A server of these shares and services. `state`: the directory for journals. `memory`: bytes of this machine's memory. `answered`: of
    /// the server before it, if there was one. `say` gets one line for each thing worth one.
    pub fn new(
        shares: Vec<Share>,
        services: Vec<Service>,
        state: Option<OwnedFd>,
        memory: u64,
        answered: Answered,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Arc<Server> {
        let server = Server {
            fs: Arc::new(RealFs),
            shares,
            services,
            state: state.map(Arc::new),
            large: memory / 2,
            say: Arc::new(say),
            places: Quota::new(CONNECTIONS_MAX),
            refused: Quota::new(REFUSED_MAX),
            answered,
            books: Mutex::default(),
        };
        if let Some(state) = &server.state {
            let roots: Vec<&OwnedFd> = server.shares.iter().filter(|s| s.writable).map(|s| &*s.root).collect();
            if let Err(error) = sweep(&*server.fs, state, &roots, &*server.say) {
                (server.say)(&format!("old partial files were not looked for: {error}"));
            }
        }
        for share in server.shares.iter().filter(|share| share.writable) {
            if let Err(error) = crate::trash::expire(&*server.fs, &share.root, &*server.say) {
                (server.say)(&format!("share {}: what is old in the trash was not removed: {error}", share.name));
            }
        }
        Arc::new(server)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Serves no more: sessions end where they wait, and a connection that comes begins none. What a request or a transfer is at goes on until it
    /// looks for the next message: that is waited for, 10 s at most, for whoever asks the next server again is not to meet it.
    pub fn close(&self) {
        let lines = {
            let mut books = self.books();
            books.closed = true;
            books.tokens.clear();
            std::mem::take(&mut books.lines)
        };
        lines.iter().filter_map(|(.., line)| line.upgrade()).for_each(|line| line.close());
        let until = Instant::now() + ENDING;
        while lines.iter().any(|(.., line)| line.strong_count() > 0) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The line of a session, which [`Server::close`] ends, and the next one of the same session: of a path that was lost the client may know
    /// before we do, and a transfer over it holds its files.
    fn line(&self, transport: Transport, identity: &Identity, session: [u8; 16]) -> Result<Arc<Line>, Error> {
        let line = Line::new(transport);
        let mut books = self.books();
        if books.closed {
            return Err(Error::Lost("the server has ended".into()));
        }
        books.lines.retain(|(.., line)| line.strong_count() > 0);
        let before = books.lines.iter().filter(|(of, id, _)| of == identity && *id == session);
        before.filter_map(|(.., line)| line.upgrade()).for_each(|line| line.close());
        books.lines.push((identity.clone(), session, Arc::downgrade(&line)));
        Ok(line)
    }

    /// Serves one connection, on a thread of its own.
    pub fn accept(self: &Arc<Server>, transport: Transport, identity: Identity) {
        let Some((places, open)) = self.places(&identity).or_else(|| self.kept(&identity)) else {
            (self.say)(&format!("a connection of {} was refused: too many are open", identity.name()));
            return self.refuse(transport);
        };
        let server = self.clone();
        self.spawn(move || {
            if let Err(error) = server.connection(transport, &identity, open, places) {
                // The end of a connection is how every session ends.
                if !matches!(error, Error::Lost(_) | Error::Stopped) {
                    (server.say)(&format!("a session of {} ended: {error}", identity.name()));
                }
            }
        });
    }

    fn spawn(&self, body: impl FnOnce() + Send + 'static) {
        if let Err(error) = thread::Builder::new().name("files session".into()).spawn(body) {
            (self.say)(&format!("a connection was refused: {error}"));
        }
    }

    /// Tells a connection that there is no place for it; of many at a time the others are closed at once.
    fn refuse(&self, transport: Transport) {
        let Some(refused) = self.refused.take(1) else { return };
        let text = match self.places.left() {
            0 => format!("the {CONNECTIONS_MAX} connections that all peers may have are taken"),
            _ => format!("the {PER_PEER_MAX} connections that one peer may have are taken"),
        };
        let fault = Fault::new(FaultKind::Limit, format!("{text}: try again when others have ended"));
        self.spawn(move || {
            let _refused = refused;
            if first_message(&transport, PATIENCE).is_ok() {
                let _ = link::say(&transport, &Message::Answer { number: 0, result: Err(fault) });
            }
        });
    }

    /// A place for a connection of this peer, and what the peer may open.
    fn places(&self, identity: &Identity) -> Option<(Places, Quota)> {
        let all = self.places.take(1)?;
        let mut books = self.books();
        books.own.retain(|_, own| own.places.left() < PER_PEER_MAX);
        let new = || Own { places: Quota::new(PER_PEER_MAX), open: Quota::new(PER_PEER_OPEN) };
        let own = books.own.entry(identity.clone()).or_insert_with(new);
        Some(([all, own.places.take(1)?], own.open.clone()))
    }

    /// One that is kept for a bulk connection of this peer, which this is likely to be.
    fn kept(&self, identity: &Identity) -> Option<(Places, Quota)> {
        let mut books = self.books();
        let places =
            books.tokens.values_mut().filter(|waits| waits.of == *identity).find_map(|waits| waits.places.take());
        Some((places?, books.own.get(identity)?.open.clone()))
    }

    fn connection(&self, transport: Transport, identity: &Identity, open: Quota, places: Places) -> Result<(), Error> {
        match first_message(&transport, PATIENCE)? {
            Message::Hello { version, session } => {
                let line = self.line(transport, identity, session)?;
                session::Session::new(self, identity, session, line, open)?.run(version)
            }
            Message::Bulk { token } => {
                let waiting = self.books().tokens.remove(&token);
                match waiting {
                    Some(waits) if waits.of == *identity => {
                        // The session now owns it.
                        let _ = waits.post.send(Incoming::Bulk(transport, places));
                        Ok(())
                    }
                    _ => Err(crate::engine::Violation("a connection brings a token that was not given to it").into()),
                }
            }
            Message::Pipe { version, service } => pipe::serve(&self.services, transport, version, &service, &self.say),
            _ => Err(crate::engine::Violation("a connection begins in the middle").into()),
        }
    }
}
