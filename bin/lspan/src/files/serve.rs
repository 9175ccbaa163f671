//! `lspan files serve`.

use std::future::Future;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use linkspan_fabric::keys::Keyring;
use linkspan_fabric::{Config, MemoryName};
use linkspan_files::pipe;
use linkspan_files::serve::{Identity, Server, Share};
use linkspan_net::{Notifier, WaitSet};
use linkspan_service::rendezvous::{RendezvousServer, shown};
use linkspan_topology::{Host, Roots};
use linkspan_transport::WaitFd;

use super::usage;
use crate::cli::PathArg;
use crate::cli::files::FilesServeArgs;
use crate::exit::{Exit, Failure};
use crate::{fabric, peer_lines, signals};

pub(crate) fn run(args: &FilesServeArgs) -> Result<Exit, Failure> {
    if rustix::process::geteuid().is_root() && !args.as_root {
        let why = "LS1814 this would serve files as root, past every permission: run it as the user whose files they are, or say --as-root";
        return Err(Failure::new(Exit::Permission, why));
    }
    let interrupt = signals::interrupt()?;
    let key = Config::from_env()?.has_key();
    let ring = if key { None } else { Keyring::find()?.filter(|ring| !ring.peers().is_empty()).map(Arc::new) };
    let whom = match &ring {
        _ if key => "everybody who has the cluster key, all of whom are one peer called cluster".to_owned(),
        Some(ring) => {
            format!("paired peers ({})", ring.names().join(", "))
        }
        None => {
            let why = "LS1815 nobody could be told from anybody: pair the two hosts with `lspan pair`, or give both a cluster key (LINKSPAN_PSK_FILE)";
            return Err(Failure::new(Exit::Permission, why));
        }
    };
    if let Some(ring) = &ring {
        fabric::accept_paired(ring.clone());
    }
    let shares = args.shares.iter().map(|text| share(text)).collect::<Result<Vec<_>, _>>()?;
    for (n, share) in shares.iter().enumerate() {
        if shares[..n].iter().any(|other| other.name == share.name) {
            return Err(usage(&format!("two shares are called {}", share.name)));
        }
    }
    let services = args.allow.iter().map(|text| pipe::Service::parse(text)).collect::<Result<Vec<_>, _>>();
    let services = services.map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    let survey = fabric::serving(PathArg::AUTO, MemoryName::Host)?;
    let context = fabric::one_sided(PathArg::AUTO, false)?;
    let listener = context.listen_on(args.device)?;
    let mut rendezvous = RendezvousServer::open(&survey, &args.bind, args.bind.is_empty(), args.port)?;
    let addrs: Vec<String> = rendezvous.addrs().iter().map(shown).collect();
    let rights = |writable| if writable { "read and write" } else { "read-only" };
    let mut names: Vec<String> =
        shares.iter().map(|share| format!("{} ({})", share.name, rights(share.writable))).collect();
    names.extend(args.allow.iter().map(|text| format!("service {text}")));
    let memory = Host::read(&Roots::default()).memory_bytes;
    let say = |line: &str| peer_lines::say(&format!("lspan: {line}"));
    let server = Server::new(shares, services, super::state_dir(), memory, say);
    eprintln!("lspan: serving {} on {}, for {whom}", names.join(", "), addrs.join(", "));
    let handle = listener.url().handle();
    let arrived = Arc::new(Arrived(Notifier::new().map_err(|error| Failure::system("eventfd", &error))?));
    let (waker, stop) = (Waker::from(arrived.clone()), signals::descriptor()?);
    let (mut waits, mut fds) = (WaitSet::new(), Vec::new());
    while !interrupt.raised() {
        if let Some(error) = rendezvous.serve(&handle) {
            peer_lines::say(&format!("lspan: no peer can be taken at the moment: {error}"));
        }
        arrived.0.drain();
        while let Poll::Ready(transport) = pin!(listener.accept()).poll(&mut Context::from_waker(&waker)) {
            let identity = match (&ring, transport.peer_name()) {
                (Some(_), Some(name)) => Identity::Paired(name),
                (None, _) => Identity::Cluster,
                // Its path was lost before it could be asked.
                (Some(_), None) => continue,
            };
            server.accept(transport, identity);
        }
        waits.clear();
        fds.clear();
        rendezvous.wait_fds(&mut fds);
        fds.extend([arrived.0.wait_fd(), WaitFd { fd: stop.as_raw_fd(), read: true, write: false }]);
        fds.iter().for_each(|fd| {
            waits.add(*fd);
        });
        let _ = waits.wait(rendezvous.wait_most());
    }
    Ok(Exit::Interrupted)
}

/// Rings when a peer has connected: the library's thread accepts it.
struct Arrived(Notifier);

impl Wake for Arrived {
    fn wake(self: Arc<Arrived>) {
        self.0.signal();
    }
}

/// `NAME=DIR` or `NAME=DIR:rw`.
fn share(text: &str) -> Result<Share, Failure> {
    let bad = |why: &str| usage(&format!("share {text:?} {why}; write NAME=DIR or NAME=DIR:rw"));
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
