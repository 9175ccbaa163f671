//! A pair of addresses being tried.

use linkspan_mesh::hops;
use linkspan_proto::greeting::Greeting;
use linkspan_proto::login::Session;
use linkspan_setup::handshake::Handshake;
use linkspan_setup::logins::LoginRun;
use linkspan_setup::secured::Secured;
use linkspan_stream::Stream;
use linkspan_transport::BoxRail;

use super::KEEPALIVE;
use crate::route::{Begun, Beside, Path, PendingDial};

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
    pub(super) rails: Option<Beside>,
    /// It asks for all rails to the host.
    pub(super) per_host: bool,
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
    pub(super) fn logged_in(&mut self, session: Session, stream: Stream) -> TryState {
        let answer = Greeting::decode(&session.peer_blob).unwrap_or_default();
        let mut secured = Secured::new(stream, session.ciphers);
        if self.devmem.is_ok() {
            self.devmem = match answer.no_devmem.as_str() {
                _ if answer.devmem && !secured.is_sealed() => Ok(()),
                "" => Err("the peer's card is not set up for it: run `lspan devmem up` there".into()),
                why => Err(format!("the peer says: {why}")),
            };
        }
        match self.rails.as_ref().map(|rails| rails.begin(&mut secured, &answer, self.reach.to())) {
            Some(Begun::Handshake(handshake)) => {
                return TryState::Handshaking(Box::new((secured, handshake)), session.peer_blob);
            }
            Some(Begun::Broke) => return TryState::Failed(hops::BROKE.into()),
            Some(Begun::Without(why)) if !why.is_empty() => self.verbs = Err(why),
            Some(Begun::Without(_)) | None => {}
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
