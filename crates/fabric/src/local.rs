//! Shared memory with a peer on this host: what travels in the greetings, and the two sides of its set-up.

use std::time::Instant;

pub(crate) use linkspan_shm::ShmRail;
use linkspan_shm::{Accepting, Connecting, IDENTITY_LEN, Identity, OFFER_LEN, SETUP_TIME, same_host};
use linkspan_transport::WaitFd;

use crate::{Config, chain};

fn settings(config: &Config) -> linkspan_shm::Config {
    linkspan_shm::Config { cma: config.cma, ..linkspan_shm::Config::default() }
}

/// Who we are, for the peer to see whether it is on our host.
pub(crate) fn identity() -> Result<Identity, String> {
    linkspan_shm::identity().map_err(|e| chain(&e))
}

fn decode(bytes: &[u8]) -> Result<Identity, String> {
    let bytes: &[u8; IDENTITY_LEN] = bytes.try_into().map_err(|_| "the peer's identity has another length")?;
    Identity::decode(bytes).map_err(|e| chain(&e))
}

/// The listening side's offer.
pub(crate) struct ShmOffer(Accepting);

/// Makes an offer to the peer that announced itself in `theirs`; also returns the answer to its greeting.
pub(crate) fn offer(config: &Config, theirs: &[u8]) -> Result<(ShmOffer, Vec<u8>), String> {
    let (own, peer) = (identity()?, decode(theirs)?);
    same_host(&own, &peer).map_err(|e| chain(&e))?;
    let deadline = Instant::now() + SETUP_TIME;
    let (accepting, offer) = Accepting::new(settings(config), &own, &peer, deadline).map_err(|e| chain(&e))?;
    Ok((ShmOffer(accepting), [&own.encode()[..], &offer.encode()[..]].concat()))
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
    let (theirs, offer) = answer.split_at_checked(IDENTITY_LEN).ok_or("the peer's answer is cut short")?;
    let peer = decode(theirs)?;
    same_host(own, &peer).map_err(|e| chain(&e))?;
    let offer: &[u8; OFFER_LEN] = offer.try_into().map_err(|_| "the peer's offer has another length")?;
    let offer = linkspan_shm::ShmOffer::decode(offer).ok_or("the peer's offer cannot be read")?;
    let deadline = Instant::now() + SETUP_TIME;
    let made = Connecting::new(settings(config), own, &peer, &offer, deadline);
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
