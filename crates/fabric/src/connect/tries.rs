//! A pair of addresses being tried.

use linkspan_mesh::hops::{self, RelayMark};
use linkspan_proto::greeting::Greeting;
use linkspan_proto::login::Session;
use linkspan_setup::handshake::Handshake;
use linkspan_setup::logins::LoginRun;
use linkspan_setup::secured::Secured;
use linkspan_stream::Stream;
use linkspan_transport::{BoxRail, Offer};

use super::KEEPALIVE;
use crate::route::{Path, PendingDial};

/// One pair of addresses being tried.
pub(crate) struct Try {
    pub(super) reach: Path,
    pub(crate) number: u16,
    pub(crate) why: String,
    /// Port speed, bytes per second; 0 when unknown.
    pub(super) speed: u64,
    pub(super) state: TryState,
    /// The first of its pair of addresses, over which queue pairs are set up, and over the very first a cable.
    pub(super) first: bool,
    /// What rails are to be set up with beside the stream.
    pub(super) offer: Option<Box<dyn Offer>>,
    /// It asks for all rails to the host.
    pub(super) per_host: bool,
    /// What tells the relays that queue pairs are to be set up.
    pub(super) mark: Option<RelayMark>,
    /// Rails that are up beside the stream, or why there are none.
    pub(super) verbs: Result<Vec<BoxRail>, String>,
    /// The stream whose payload this one would carry by device-memory TCP; it is no path of its own.
    pub(super) beside: Option<u16>,
    /// Whether both sides would take device-memory TCP on this stream, and why not.
    pub(super) devmem: Result<(), String>,
}

pub(super) enum TryState {
    Dial(PendingDial),
    Login(Box<LoginRun>),
    /// Queue pairs are being set up; with the peer's greeting.
    Handshaking(Box<(Secured, Handshake)>, Vec<u8>),
    /// With the peer's greeting.
    Up(Box<Secured>, Vec<u8>),
    Used,
    Failed(String),
}

impl Try {
    pub(super) fn logged_in(&mut self, session: Session, mut stream: Stream) -> TryState {
        let sealed = session.ciphers.is_some();
        if self.devmem.is_ok() {
            self.devmem = match Greeting::decode(&session.peer_blob) {
                Some(answer) if answer.devmem && !sealed => Ok(()),
                Some(answer) if !answer.no_devmem.is_empty() => Err(format!("the peer says: {}", answer.no_devmem)),
                _ => Err("the peer's card is not set up for it: run `lspan devmem up` there".into()),
            };
        }
        let answer = Greeting::decode(&session.peer_blob).is_some_and(|answer| !answer.asks.is_empty());
        if let (Some(mark), true, false) = (self.mark, answer, sealed) {
            // A stream on which nothing is under way takes these few bytes.
            if !matches!(stream.try_write(&mark.0), Ok(Some(RelayMark::LEN))) {
                return TryState::Failed(hops::BROKE.into());
            }
            let handshake = Handshake::answer();
            return TryState::Handshaking(Box::new((Secured::new(stream, None), handshake)), session.peer_blob);
        }
        let secured = Secured::new(stream, session.ciphers);
        if let Some(offer) = self.offer.as_ref().filter(|_| !sealed) {
            match Greeting::decode(&session.peer_blob) {
                // A listener that answers so waits for a handshake: it is told, too, that there is none.
                Some(answer) if answer.asks == offer.name() => {
                    let handshake = Handshake::begin(&**offer);
                    return TryState::Handshaking(Box::new((secured, handshake)), session.peer_blob);
                }
                // On a cable a host without a device is not worth a line; on a route of several hops the others have theirs for nothing.
                Some(answer) if !answer.why_not.is_empty() || self.mark.is_some() => {
                    self.verbs = Err(hops::refusal(&answer, self.reach.to()));
                }
                _ => {}
            }
        }
        TryState::Up(Box::new(secured), session.peer_blob)
    }

    pub(super) fn describe(&self) -> String {
        format!("{}: {}", self.name(), self.standing())
    }

    /// Its ends, and why they were chosen.
    pub(super) fn name(&self) -> String {
        let from = self.reach.from().map_or_else(|| "any".to_owned(), |f| f.ip().to_string());
        format!("{from} -> {} ({})", self.reach.to(), self.why)
    }

    /// How far it has got.
    pub(super) fn standing(&self) -> &str {
        match &self.state {
            TryState::Dial(_) => "no answer yet",
            TryState::Login(_) => "connected, login not finished",
            TryState::Handshaking(..) => "login done, rail handshake not finished",
            TryState::Up(..) | TryState::Used => "up",
            TryState::Failed(why) => why,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, TryState::Dial(_) | TryState::Login(_))
    }

    /// Whether it has logged in and rails are being set up beside it.
    pub(super) fn is_handshake(&self) -> bool {
        matches!(self.state, TryState::Handshaking(..))
    }

    /// Whether it is a way for payload, and up.
    pub(super) fn is_up(&self) -> bool {
        let up = matches!(self.state, TryState::Up(..) | TryState::Used);
        up && self.number != KEEPALIVE && self.beside.is_none()
    }

    /// What to say of it where it did not become a rail.
    pub(super) fn failure(&self) -> Option<String> {
        let up = matches!(self.state, TryState::Up(..) | TryState::Used);
        (!up && self.number != KEEPALIVE).then(|| self.describe())
    }
}
