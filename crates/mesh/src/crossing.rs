//! A relayed stream goes over to RDMA: a queue pair with the next host, then one with the host before, then both are joined.
//!
//! Nothing of the stream itself moves meanwhile: both ends wait. Whatever becomes of it, the stream is at the border of a
//! message behind it and passes bytes again, so that its ends can fall back to it.

use std::sync::Arc;

use linkspan_setup::handshake::{Handshake, HandshakeOutcome};
use linkspan_setup::secured::{MessageError, Secured};
use linkspan_transport::{BoxRail, Offer, Provider, Relay, Role};

use super::hops::RelayMark;

/// What a relay needs to take a stream over to RDMA.
pub(super) struct Over {
    /// Whose rails they are.
    pub(super) provider: Arc<dyn Provider>,
    /// Ports on the cable that it was asked on, and on the one that leads on.
    pub(super) candidates: [Box<dyn Offer>; 2],
    /// What the host before sends.
    pub(super) mark: RelayMark,
    /// What the next host is to be sent; `None` where that is the last one, which meets like any listener.
    pub(super) next: Option<RelayMark>,
}

pub(super) struct Crossing {
    over: Over,
    state: State,
}

enum State {
    /// With the next host.
    Below(Box<Handshake>),
    /// With the host before, with what came of the other.
    Above(Box<Handshake>, Option<BoxRail>),
}

/// How it ended: the rails, joined, or why the stream remains.
pub(super) type Crossed = Result<Box<dyn Relay>, String>;

impl Crossing {
    /// The mark has come, and all before it has left.
    pub(super) fn new(over: Over, next: &mut Secured) -> Result<Crossing, MessageError> {
        let handshake = match over.next {
            Some(mark) => {
                // A socket that has nothing else to send takes these few bytes.
                if next.stream.try_write(&mark.0)? != Some(RelayMark::LEN) {
                    return Err(MessageError::Silent);
                }
                Handshake::answer()
            }
            None => over.call(1),
        };
        Ok(Crossing { over, state: State::Below(Box::new(handshake)) })
    }

    /// What is being done, for people.
    pub(super) fn doing(&self) -> &'static str {
        match self.state {
            State::Below(_) => "while RDMA with the next host was set up",
            State::Above(_, Some(_)) => "while RDMA with the previous host was set up",
            State::Above(_, None) => "while the previous host was told that there is no RDMA",
        }
    }

    /// Which of the two ends it reads now: the other one's bytes wait, and would wake whoever waits for them.
    pub(super) fn reads(&self) -> usize {
        if matches!(self.state, State::Below(_)) { 1 } else { 0 }
    }

    /// Moves on; `Some` when it is over.
    ///
    /// # Errors
    /// [`MessageError`]: one of the streams ended, or it carries something else than these messages.
    pub(super) fn poll(&mut self, ends: &mut [Secured; 2]) -> Result<Option<Crossed>, MessageError> {
        loop {
            let at = self.reads();
            let (State::Below(handshake) | State::Above(handshake, _)) = &mut self.state;
            let over = &self.over;
            let Some(met) = handshake.poll(&mut ends[at], &|n| over.candidates[at].make(n, Role::Caller))? else {
                return Ok(None);
            };
            let met = one(met);
            self.state = match &mut self.state {
                State::Below(_) => match met {
                    Ok(rail) => State::Above(Box::new(self.over.call(0)), Some(rail)),
                    Err(why) => State::Above(Box::new(Handshake::decline(why)), None),
                },
                State::Above(_, below) => {
                    let below = below.take().ok_or_else(|| "the next hop has none".to_owned());
                    return Ok(Some(met.and_then(|above| self.over.join([above, below?]))));
                }
            };
        }
    }
}

impl Over {
    fn call(&self, at: usize) -> Handshake {
        self.candidates[at].make(1, Role::Caller).map_or_else(Handshake::decline, Handshake::call)
    }

    fn join(&self, rails: [BoxRail; 2]) -> Crossed {
        self.provider.relayer().ok_or("no relay")?.join(rails)
    }
}

fn one(met: HandshakeOutcome) -> Result<BoxRail, String> {
    met?.pop().ok_or_else(|| "no queue pair".into())
}
