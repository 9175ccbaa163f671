//! The way to a peer that serves files.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan::{Context, Url};
use linkspan_fabric::{Config, Log};
use linkspan_files::client::Client;
use linkspan_service::rendezvous::{self, FILES, Peer, Service};

use crate::Error;

/// What connects to a peer that serves files, as often as it is asked to. Cloning is cheap; may be used from any thread.
#[derive(Clone)]
pub struct Dialer {
    context: Context,
    find: Arc<dyn Fn() -> Result<Url, linkspan_files::Error> + Send + Sync>,
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Way({:?})", self.context)
    }
}

impl Dialer {
    /// Over this context; `find` is that of [`finder`].
    pub fn new(
        context: Context,
        find: impl Fn() -> Result<Url, linkspan_files::Error> + Send + Sync + 'static,
    ) -> Dialer {
        Dialer { context, find: Arc::new(find) }
    }

    /// To the peer of this name, with the settings of the environment and a context of its own.
    ///
    /// # Errors
    /// [`Error::Rendezvous`], [`Error::Fabric`], [`Error::Link`].
    pub fn to(peer: &str, log: Log) -> Result<Dialer, Error> {
        let (found, config) = found(peer, FILES)?;
        Ok(Dialer::new(Context::new(config, log)?, finder(peer, FILES, &found)))
    }

    /// A session. `stop` as [`Client::connect`] takes it.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn client(&self, stop: impl Fn() -> bool + Send + Sync + 'static) -> Result<Client, linkspan_files::Error> {
        let find = self.find.clone();
        Client::connect(self.context.clone(), move || find(), stop)
    }

    /// Asks something for which the peer may take so long: one that never answers would keep the caller's thread.
    ///
    /// # Errors
    /// [`Error::Silent`]: the time is up. As [`Client::connect`], and those of `what`.
    pub fn ask<T>(
        &self,
        most: Duration,
        what: impl FnOnce(&mut Client) -> Result<T, linkspan_files::Error>,
    ) -> Result<T, Error> {
        let until = Instant::now() + most;
        match self.client(move || Instant::now() >= until).and_then(|mut client| what(&mut client)) {
            Err(linkspan_files::Error::Stopped) => Err(Error::Silent(most)),
            other => Ok(other?),
        }
    }
}

/// A serving peer, and settings with which it has to prove who it is.
pub(crate) fn found(peer: &str, service: Service) -> Result<(Peer, Config), Error> {
    let (found, mut config) = (rendezvous::ask(peer, service)?, Config::from_env()?);
    found.secure(&mut config)?;
    Ok((found, config))
}

/// What names the listener of a peer that was found, each time anew: a server that was started again has another handle.
pub fn finder(
    peer: &str,
    service: Service,
    first: &Peer,
) -> impl Fn() -> Result<Url, linkspan_files::Error> + Send + Sync + use<> {
    let (kept, peer) = (Mutex::new(Some(first.handle)), peer.to_owned());
    move || {
        let kept = linkspan_files::lock(&kept).take();
        let handle = match kept {
            Some(handle) => handle,
            None => {
                let lost = |error: rendezvous::RendezvousError| linkspan_files::Error::Lost(error.to_string());
                rendezvous::ask(&peer, service).map_err(lost)?.handle
            }
        };
        Ok(Url::of_listener(&handle).map_err(linkspan::Error::from)?)
    }
}

#[cfg(test)]
mod tests {
    use linkspan_files::wire::Request;

    use super::*;

    #[test]
    fn a_peer_that_never_answers_is_asked_for_as_long_as_it_may_take() {
        let settings = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off")];
        let config = Config::read(&|name| settings.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned()));
        let context = Context::new(config.unwrap(), Log::off()).unwrap();
        for connected in [true, false] {
            let most = Duration::from_millis(if connected { 2000 } else { 300 });
            let listener = context.listen().unwrap();
            let url = listener.url().clone();
            let dialer = Dialer::new(context.clone(), move || Ok(url.clone()));
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let answer = dialer.ask(most, |client| client.request(Request::Shares));
                tell.send(answer).is_ok()
            });
            // It is connected, and says nothing.
            let _silent = connected.then(|| listener.accept_blocking(Duration::from_secs(60)).unwrap());
            let answer = told.recv_timeout(Duration::from_secs(15)).expect("it waits without end");
            assert!(matches!(answer, Err(Error::Silent(time)) if time == most), "{connected}: {answer:?}");
        }
    }
}
