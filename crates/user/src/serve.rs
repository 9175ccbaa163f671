//! Shares and services, served to peers.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use linkspan::Listener;
use linkspan_fabric::keys::Keyring;
use linkspan_fabric::{Config, Fabric, chain};
use linkspan_files::pipe;
use linkspan_files::serve::{Answered, Identity, Server, Share};
use linkspan_net::{Notifier, WaitSet};
use linkspan_service::rendezvous::RendezvousServer;
use linkspan_topology::{Host, Roots};
use linkspan_transport::WaitFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Error;

/// Whom a server lets in.
#[derive(Debug)]
pub enum Admits {
    /// Everybody who has the cluster key, all of whom are one peer.
    Cluster,
    /// The paired peers.
    Paired(Arc<Keyring>),
}

impl Admits {
    /// Those whom this user trusts.
    ///
    /// # Errors
    /// [`Error::Refused`]: nobody; [`Error::Fabric`], [`Error::Keys`].
    pub fn of_this_user() -> Result<Admits, Error> {
        if Config::from_env()?.has_key() {
            return Ok(Admits::Cluster);
        }
        match Keyring::find()?.filter(|ring| !ring.peers().is_empty()) {
            Some(ring) => Ok(Admits::Paired(Arc::new(ring))),
            None => Err(Error::Refused(
                "LS1815 peers cannot be authenticated: pair the two hosts with `lspan pair`, or give both a cluster key (LINKSPAN_PSK_FILE)"
                    .into(),
            )),
        }
    }

    /// In words.
    pub fn shown(&self) -> String {
        match self {
            Admits::Cluster => "everybody who has the cluster key, all of whom are one peer called cluster".into(),
            Admits::Paired(ring) => format!("paired peers ({})", ring.names().join(", ")),
        }
    }
}

/// Refuses root, past whose rights there are none.
///
/// # Errors
/// [`Error::Refused`].
pub fn not_as_root() -> Result<(), Error> {
    match rustix::process::geteuid().is_root() {
        false => Ok(()),
        true => Err(Error::Refused(
            "LS1814 this would serve files as root, without regard to permissions: run it as the user whose files they are, or say --as-root"
                .into(),
        )),
    }
}

/// A share as it is written: `NAME=DIR` or `NAME=DIR:rw`.
///
/// # Errors
/// [`Error::Usage`], [`Error::Files`]: the directory cannot be opened.
pub fn share(text: &str) -> Result<Share, Error> {
    let bad = |why: &str| Error::Usage(format!("share {text:?} {why}; write NAME=DIR or NAME=DIR:rw"));
    let (name, dir) = text.split_once('=').ok_or_else(|| bad("has no ="))?;
    if !Share::is_name(name) {
        return Err(bad("has a name that is not made of letters, digits, - _ ."));
    }
    let (dir, writable) = match dir.strip_suffix(":rw") {
        Some(dir) => (dir, true),
        None => (dir.strip_suffix(":ro").unwrap_or(dir), false),
    };
    if dir.is_empty() {
        return Err(bad("names no directory"));
    }
    Ok(Share::open(name, Path::new(dir), writable)?)
}

/// What is served, and where.
#[derive(Debug)]
pub struct Serving {
    /// The shares; no two have one name.
    pub shares: Vec<Share>,
    /// The services.
    pub services: Vec<pipe::Service>,
    /// The directory of journals.
    pub state: Option<OwnedFd>,
    /// Addresses to wait on; none: every usable interface.
    pub bind: Vec<IpAddr>,
    /// Port of the rendezvous.
    pub port: u16,
    /// Device that data goes over.
    pub device: usize,
    /// What the server before this one has answered.
    pub answered: Answered,
}

/// A server that waits for peers.
pub struct Waiting {
    server: Arc<Server>,
    listener: Listener,
    rendezvous: RendezvousServer,
    paired: bool,
}

/// As many descriptors as the system lets this process have: what peers may open comes to more than a process has by default.
pub fn raise_descriptors() {
    let most = getrlimit(Resource::Nofile).maximum;
    // With fewer it serves fewer.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}

impl Waiting {
    /// Waits over the devices of this context, on addresses of the interfaces of this fabric, which have been told whom to let in.
    /// `paired`: those are known by their keys. `say` gets what is worth a line.
    ///
    /// # Errors
    /// [`Error::Usage`]: two shares have one name; [`Error::Link`], [`Error::Rendezvous`].
    pub fn open(
        what: Serving,
        paired: bool,
        survey: &Fabric,
        context: &linkspan::Context,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Waiting, Error> {
        for (n, share) in what.shares.iter().enumerate() {
            if what.shares[..n].iter().any(|other| other.name == share.name) {
                return Err(Error::Usage(format!("two shares are called {}", share.name)));
            }
        }
        raise_descriptors();
        let listener = context.listen_on(what.device)?;
        let rendezvous = RendezvousServer::open(survey, &what.bind, what.bind.is_empty(), what.port)?;
        let memory = Host::read(&Roots::default()).memory_bytes;
        let server = Server::new(what.shares, what.services, what.state, memory, what.answered, say);
        Ok(Waiting { server, listener, rendezvous, paired })
    }

    /// Where it waits.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.rendezvous.addrs()
    }

    /// Serves until `stopped`, which is asked when `wake` can be read and now and then. `moved` gets the [addresses](Waiting::addrs) when
    /// they are others than before, `say` what is worth a line.
    ///
    /// # Errors
    /// [`Error::System`]: there is no eventfd.
    pub fn run(
        mut self,
        wake: BorrowedFd<'_>,
        stopped: &dyn Fn() -> bool,
        moved: &dyn Fn(&[SocketAddr]),
        say: &dyn Fn(&str),
    ) -> Result<(), Error> {
        let mut addrs = self.rendezvous.addrs();
        let arrived = Arc::new(Arrived(Notifier::new().map_err(|error| Error::system("eventfd", error))?));
        let waker = Waker::from(arrived.clone());
        let (mut waits, mut fds) = (WaitSet::new(), Vec::new());
        let mut next = pin!(self.listener.accept());
        while !stopped() {
            let mut handle = || {
                self.listener.renew().map(|url| url.handle()).unwrap_or_else(|error| {
                    say(&format!("peers are given the addresses of the start: {}", chain(&error)));
                    self.listener.url().handle()
                })
            };
            if let Some(error) = self.rendezvous.serve(&mut handle) {
                say(&format!("no peer can be accepted at the moment: {error}"));
            }
            let now = self.rendezvous.addrs();
            if now != addrs {
                moved(&now);
                addrs = now;
            }
            arrived.0.drain();
            while let Poll::Ready(Ok(transport)) = next.as_mut().poll(&mut Context::from_waker(&waker)) {
                next.set(self.listener.accept());
                let identity = match (self.paired, transport.peer_name()) {
                    (true, Some(name)) => Identity::Paired(name),
                    (false, _) => Identity::Cluster,
                    // Its path was lost before it could be asked.
                    (true, None) => continue,
                };
                self.server.accept(transport, identity);
            }
            waits.clear();
            fds.clear();
            // First: a pause that ends in between is waited for once more, and its listeners too.
            let most = self.rendezvous.wait_most();
            self.rendezvous.wait_fds(&mut fds);
            fds.extend([arrived.0.wait_fd(), WaitFd { fd: wake.as_raw_fd(), read: true, write: false }]);
            fds.iter().for_each(|fd| {
                waits.add(*fd);
            });
            let _ = waits.wait(most);
        }
        // Those who are connected already would go on.
        self.server.close();
        Ok(())
    }
}

/// Rings when a peer has connected: the library's thread accepts it.
struct Arrived(Notifier);

impl Wake for Arrived {
    fn wake(self: Arc<Arrived>) {
        self.0.signal();
    }
}
