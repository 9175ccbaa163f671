//! The way to a peer that serves files.

use std::sync::Mutex;

use linkspan::Url;
use linkspan_service::rendezvous::{self, Peer, Service};

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
