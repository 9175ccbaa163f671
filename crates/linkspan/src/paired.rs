//! Peers by the names of their hosts, where keys were paired (`lspan pair`): the side that is connected to serves its URL at a TCP port of
//! its host, the other one asks there and has the peer prove its key.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use linkspan_fabric::{WaitFd, chain};
use linkspan_service::rendezvous::{self, LIBRARY, RendezvousError, RendezvousServer};

use crate::context::Context;
use crate::engine::{Serve, Served};
use crate::listener::ListenerState;
use crate::{Error, Url, deadline};

/// Time between two questions at the same host: those who wait for a program to start notice it soon, and are no burden to others.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Longest sleep of the engine thread for a port: it is woken by those who come.
const SLEEP: Duration = Duration::from_secs(3600);

/// A URL that is given to whoever asks at a port. It is no secret then: the login is by keys.
pub(crate) struct UrlServer {
    ctx: Context,
    of: Weak<ListenerState>,
    server: Mutex<RendezvousServer>,
}

impl UrlServer {
    /// Waits at this port on loopback and on every usable interface; 0: at one that is free.
    pub(crate) fn open(
        ctx: &Context,
        of: Weak<ListenerState>,
        port: u16,
    ) -> Result<(Arc<UrlServer>, Vec<SocketAddr>), Error> {
        ctx.check_paired()?;
        let server = RendezvousServer::open(ctx.fabric(), &[], true, port).map_err(Error::Rendezvous)?;
        let addrs = server.addrs();
        let port = Arc::new(UrlServer { ctx: ctx.clone(), of, server: Mutex::new(server) });
        let served: Arc<dyn Serve> = port.clone();
        ctx.serve(Arc::downgrade(&served));
        Ok((port, addrs))
    }
}

impl Serve for UrlServer {
    fn serve(&self, fds: &mut Vec<WaitFd>, _now: Instant) -> Served {
        let Some(of) = self.of.upgrade() else { return Served::Armed(SLEEP) };
        let mut handle = || {
            of.renew().unwrap_or_else(|error| {
                self.ctx
                    .fabric()
                    .log()
                    .warn(&format!("the URL is given with the addresses of before: {}", chain(&error)));
                of.handle()
            })
        };
        let mut server = self.server.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(error) = server.serve(&mut handle) {
            self.ctx.fabric().log().warn(&format!("peers cannot ask for the URL at the moment: {error}"));
        }
        // First: what is paused until then may be over by now, and is waited for as well.
        let most = server.wait_most().unwrap_or(SLEEP);
        server.wait_fds(fds);
        Served::Armed(most)
    }
}

/// The URL that a host serves, with the key that must be proven there.
pub(crate) fn find(ctx: &Context, host: &str, timeout: Duration) -> Result<Url, Error> {
    ctx.check_paired()?;
    let (until, cluster) = (deadline(timeout), ctx.fabric().config().has_key());
    loop {
        let asked = rendezvous::ask_within(host, LIBRARY, Some(until));
        let left = until.saturating_duration_since(Instant::now());
        match asked.and_then(|peer| Ok((peer.proof(cluster)?, peer))) {
            Ok((key, peer)) => return Ok(Url { key, ..Url::of_listener(&peer.handle)? }),
            Err(RendezvousError::NoPeer { .. }) if !left.is_zero() => std::thread::sleep(left.min(ASK_AGAIN)),
            Err(error) => return Err(Error::Rendezvous(error)),
        }
    }
}
