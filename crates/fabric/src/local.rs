//! Shared memory with a peer on this host: what travels in the greetings, and the two sides of its set-up.

use std::time::Instant;

pub(crate) use linkspan_shm::ShmRail;
use linkspan_shm::{Accepting, Connecting, Identity, SETUP_TIME, same_host};
use linkspan_transport::WaitFd;

use crate::{Config, chain};

fn settings(config: &Config) -> linkspan_shm::Config {
    linkspan_shm::Config { cma: config.cma, ..linkspan_shm::Config::default() }
}

/// Who we are, for the peer to see whether it is on our host.
pub(crate) fn identity() -> Result<Identity, String> {
    linkspan_shm::identity().map_err(|e| chain(&e))
}

/// The peer's identity, where it is on our host.
fn same_host_as(own: &Identity, theirs: &[u8]) -> Result<Identity, String> {
    let peer = Identity::decode(theirs).map_err(|e| chain(&e))?;
    same_host(own, &peer).map_err(|e| chain(&e))?;
    Ok(peer)
}

/// The listening side's offer.
pub(crate) struct ShmOffer(Accepting);

/// Makes an offer to the peer that announced itself in `theirs`; also returns the answer to its greeting.
pub(crate) fn offer(config: &Config, theirs: &[u8]) -> Result<(ShmOffer, Vec<u8>), String> {
    let own = identity()?;
    let peer = same_host_as(&own, theirs)?;
    let accepting = Accepting::new(settings(config), &own, &peer, Instant::now() + SETUP_TIME);
    Ok((ShmOffer(accepting.map_err(|e| chain(&e))?), own.encode().to_vec()))
}

impl ShmOffer {
    pub(crate) fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        self.0.wait_fds(fds);
    }

    pub(crate) fn poll(&mut self) -> Result<Option<ShmRail>, String> {
        self.0.poll(Instant::now()).map_err(|e| chain(&e))
    }
}

/// The connecting side's set-up.
pub(crate) struct Join(Connecting);

/// Takes up the offer in the answer to our greeting, which announced `own`.
pub(crate) fn join(config: &Config, own: &Identity, answer: &[u8]) -> Result<Join, String> {
    let peer = same_host_as(own, answer)?;
    let made = Connecting::new(settings(config), own, &peer, Instant::now() + SETUP_TIME);
    made.map(Join).map_err(|e| chain(&e))
}

impl Join {
    pub(crate) fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        self.0.wait_fds(fds);
    }

    pub(crate) fn poll(&mut self) -> Result<Option<ShmRail>, String> {
        self.0.poll(Instant::now()).map_err(|e| chain(&e))
    }
}
